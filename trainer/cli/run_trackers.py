"""The trackers of a run of the command line: what `--track` and `--track-artifacts` name.

`local-trainer track` sends later what they did not get.

Nothing here delays training: rows, checkpoints and videos wait in queues of limited length, see
`callbacks.ready_made.trackers`.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from callbacks.ready_made.recorders import VideoRecorder
from callbacks.ready_made.result_files import (
    JSONLinesResults,
    iteration_of,
    jsonable,
    row_of,
)
from callbacks.ready_made.result_loggers import objects_beside
from callbacks.ready_made.tracker_services import (
    AimService,
    Artifact,
    MLflowService,
    TrackerService,
    TrackioService,
    WandbService,
)
from callbacks.ready_made.trackers import (
    ServiceSender,
    checkpoint_artifact,
    facts_of,
    finish_all,
    new_videos,
)
from trainer.algorithms.algorithm import Algorithm
from trainer.cli.output import missing_extras_explained, print_text
from trainer.cli.run_directory import RunDirectory, RunPlan
from trainer.errors import ConfigError
from trainer.reports import Run, read_run
from trainer.reports.run_records import RESULTS_FILE
from trainer.runtime.run_lock import RunLock
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.trees import named_leaves

_LOGGER = logging.getLogger(__name__)
_PROJECT: Final = "local-trainer"
_CALLBACK_ROWS: Final = "rows.jsonl"
TRACKERS: Final = ("wandb", "mlflow", "trackio", "aim")
"""The services that `--track` names."""


class RunTrackers:
    """Hands results, and by choice checkpoints and videos, to the services of a run.

        with RunTrackers(algo, directory, plan) as trackers:
            trackers.forget()                 # only if the run begins anew
            trackers.send(result)             # per iteration
            trackers.send_checkpoint(path)    # when one was saved
            trackers.close()

    The end of the block waits for services as long as they get on, see `ServiceSender.await_end`,
    while this process holds the run; Ctrl-C ends the wait.

    Args:
        algo: what is trained.
        directory: of the run; `trackers/NAME/run.json` in it says with which run to go on.
        plan: which services, and what they are sent besides numbers.
    """

    def __init__(self, algo: Algorithm, directory: RunDirectory, plan: RunPlan) -> None:
        self._directory = directory
        of_all = directory.path / "trackers"
        folders = {name: of_all / name.partition(":")[0] for name in plan.track}
        self._senders = {
            name: ServiceSender(tracker_service(name), folder / "run.json")
            for name, folder in folders.items()
        }
        self._facts = {
            name: {**facts_of(algo, folder), "name": directory.path.name}
            for name, folder in folders.items()
        }
        self._kinds = plan.track_artifacts
        recorders = objects_beside(algo, VideoRecorder) if "videos" in self._kinds else []
        if "videos" in self._kinds and not recorders:
            _LOGGER.warning(
                "--track-artifacts videos: the run has no VideoRecorder among its callbacks, so "
                "there will be no videos to send. Give one: --callbacks my_callbacks:Films, a "
                "class that calls VideoRecorder's __init__ with a directory."
            )
        self._video_folders = [recorder.directory for recorder in recorders]
        self._seen_videos: set[Path] = set()

    def forget(self) -> None:
        """Begins new runs of the services; videos that lie there are of an earlier run."""
        for sender in self._senders.values():
            sender.forget()
        new_videos(self._video_folders, self._seen_videos)

    def send(self, result: Mapping[str, Any]) -> None:
        """Hands a result over, with the new videos; `results.jsonl` has what is not sent."""
        if not self._senders:
            return
        row = row_of(result)
        for name, sender in self._senders.items():
            sender.send(row, self._facts[name], self._directory.results())
        for video in new_videos(self._video_folders, self._seen_videos):
            self._send_artifact(video)

    def send_checkpoint(self, path: Path) -> None:
        """Hands a checkpoint over, if checkpoints are to be sent."""
        if "checkpoints" in self._kinds:
            self._send_artifact(checkpoint_artifact(path))

    def _send_artifact(self, artifact: Artifact) -> None:
        for sender in self._senders.values():
            sender.send_artifact(artifact)

    def close(self) -> None:
        """Has the runs of the services ended when all was sent."""
        for sender in self._senders.values():
            sender.close()

    def __enter__(self) -> RunTrackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        senders = list(self._senders.values())
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            for sender in senders:
                sender.abandon()
        else:
            finish_all(senders)


# ---- sending later


def track(arguments: argparse.Namespace) -> int:
    """`local-trainer track`: sends trackers what they lack of the rows that are kept."""
    path = Path(arguments.path).expanduser().resolve()
    rows, names = _kept_rows(path), _names(path, arguments.track)
    with RunLock(path):
        files = {name: _run_file(path, name) for name in names}
        known = {name: _known(file) for name, file in files.items()}
        senders = {
            name: ServiceSender(tracker_service(name), file, max_waiting=len(rows) + 1)
            for name, file in files.items()
        }
        for name, sender in senders.items():
            if arguments.anew:
                sender.forget()
            sender.send(rows[-1], known[name].get("facts") or _facts_of_files(path), rows)
        are_done = finish_all(list(senders.values()))
        for name, sender in senders.items():
            before = 0 if arguments.anew else known[name].get("sent", 0)
            are_done &= _print_sent(name, _known(files[name]), before, rows, sender.num_lost)
    return 0 if are_done else 1


def _kept_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a run of the command line, or of a tracking callback."""
    files = [path / name for name in (_CALLBACK_ROWS, RESULTS_FILE)]
    for file in files:
        rows = [row for row in JSONLinesResults(file).rows() if "training_iteration" in row]
        if rows:
            return rows
    raise ConfigError(
        f"{path} has no rows that could be sent: there are none in {files[1].name} (of a run) nor "
        f"in {files[0].name} (of a callback such as MLflowLogger). Give one of these folders."
    )


def _names(path: Path, given: Sequence[str]) -> Sequence[str]:
    is_of_callback = (path / _CALLBACK_ROWS).exists()
    names = tuple(given) or (() if is_of_callback else RunDirectory(path).read_plan().track)
    if not names:
        raise ConfigError(
            f"Nothing says where the rows of {path} are to be sent: it "
            f"{'is the folder of a callback' if is_of_callback else 'was begun without --track'}. "
            "Say so now: --track mlflow:URI, for example."
        )
    return names


def _run_file(path: Path, name: str) -> Path:
    """The file that says with which run of a service to go on."""
    if (path / _CALLBACK_ROWS).exists():
        return path / "run.json"
    return path / "trackers" / name.partition(":")[0] / "run.json"


def _known(file: Path) -> dict[str, Any]:
    """What such a file says; {} if it is missing, or cannot be read, as the sender tells."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) and isinstance(known.get("sent"), int) else {}


def _facts_of_files(path: Path) -> dict[str, Any]:
    """What a service is told of a run that it was told nothing of."""
    run = read_run(path) if (path / RESULTS_FILE).exists() else Run(path, rows=[])
    return {
        "name": path.name,
        "experiment": f"{run.algorithm}-{run.env}".strip("-") or path.name,
        "folder": str(path),
        "params": dict(named_leaves(jsonable(run.settings))),
    }


def _print_sent(
    name: str, known: Mapping[str, Any], before: int, rows: Sequence[Mapping[str, Any]], lost: int
) -> bool:
    """Says what a service has got; returns whether it has all."""
    missing = [row for row in rows if iteration_of(row) > before]
    left = [row for row in rows if iteration_of(row) > known.get("sent", 0)]
    sent = len(missing) - len(left) - min(lost, len(missing) - len(left))
    print_text(f"{name}: {sent} of {len(missing)} missing rows sent, to its run {known.get('run')}")
    return sent == len(missing)


def tracker_service(name: str) -> TrackerService:
    """The service that `--track` names, such as `wandb`, `wandb:project` or `mlflow:mlruns`.

    Raises:
        ConfigError: its package is not installed, or there is no such service.
    """
    service, _, place = name.partition(":")
    with missing_extras_explained():
        if service == "mlflow":
            return MLflowService(place or None)
        if service == "wandb":
            return WandbService(place or _PROJECT)
        if service == "trackio":
            return TrackioService(place or _PROJECT)
        if service == "aim":
            return AimService(place or None)
    meant = did_you_mean(service, TRACKERS)
    raise ConfigError(f"There is no tracker {service!r}.{meant} There are: {', '.join(TRACKERS)}.")

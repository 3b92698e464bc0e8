"""The trackers of a run of the command line: what `--track` and `--track-artifacts` name.

`local-trainer track` sends later what they did not get.

Nothing here delays training: services follow `results.jsonl`, see `callbacks.ready_made.trackers`.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from callbacks.ready_made.followers import Follower, FollowerThread, finish_all, read_bookmark
from callbacks.ready_made.recorders import VideoRecorder
from callbacks.ready_made.result_loggers import objects_beside
from callbacks.ready_made.rows_file import RowsFile, jsonable
from callbacks.ready_made.tracker_services import (
    AimService,
    MLflowService,
    TrackerService,
    TrackioService,
    WandbService,
)
from callbacks.ready_made.trackers import ServiceSink, checkpoint_artifact, facts_of
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
    """Has the services of a run follow its results, and by choice its checkpoints and videos.

        with RunTrackers(algo, directory, plan) as trackers:
            trackers.begin_anew()             # only if the run begins
            trackers.follow()                 # per result that was written
            trackers.send_checkpoint(path)    # when one was saved

    The end of the block ends the runs of the services and waits for that as long as they get on,
    see `FollowerThread.await_end`, while this process holds the run; Ctrl-C ends the wait.

    Args:
        algo: what is trained.
        directory: of the run; `trackers/NAME/run.json` in it says with which run to go on.
        plan: which services, and what they are sent besides numbers.
    """

    def __init__(self, algo: Algorithm, directory: RunDirectory, plan: RunPlan) -> None:
        self._kinds = plan.track_artifacts
        self._sinks: list[ServiceSink] = []
        self._followers: list[Follower] = []
        for name in plan.track:
            folder = _folder_of(directory.path, name)
            facts = {**facts_of(algo, folder), "name": directory.path.name}
            self._sinks.append(ServiceSink(tracker_service(name), facts, folder))
            self._followers.append(_follower(directory.rows, self._sinks[-1]))
        if "videos" in self._kinds:
            folders = [recorder.directory for recorder in objects_beside(algo, VideoRecorder)]
            for sink in self._sinks:
                sink.video_folders = folders
            if not folders:
                _LOGGER.warning(
                    "--track-artifacts videos: the run has no VideoRecorder among its callbacks, "
                    "so there will be no videos to send. Give one: --callbacks my_callbacks:Films, "
                    "a class that calls VideoRecorder's __init__ with a directory."
                )

    def begin_anew(self) -> None:
        """Begins new runs of the services; videos that lie there are of an earlier run."""
        for follower in self._followers:
            follower.set_aside()

    def follow(self) -> None:
        """Has the services get the newest results; none is waited for."""
        for follower in self._followers:
            follower.wake()

    def send_checkpoint(self, path: Path) -> None:
        """Hands a checkpoint over, if checkpoints are to be sent."""
        if "checkpoints" in self._kinds:
            for sink in self._sinks:
                sink.add(checkpoint_artifact(path))
            self.follow()

    def __enter__(self) -> RunTrackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        threads = [follower.thread for follower in self._followers]
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            for thread in threads:
                thread.abandon()
        else:
            finish_all(threads)


def _follower(rows: RowsFile, sink: ServiceSink) -> Follower:
    return Follower(rows, sink, FollowerThread(sink.name))


# ---- sending later


def track(arguments: argparse.Namespace) -> int:
    """`local-trainer track`: sends trackers what they lack of the rows that are kept."""
    path = Path(arguments.path).expanduser().resolve()
    rows, names = _kept_rows(path), _names(path, arguments.track)
    numbers = [line.end.number for line in rows.lines()]
    are_done = True
    with RunLock(path):
        followers = {}
        for name in names:
            folder = _folder_of(path, name)
            facts = read_bookmark(folder / "run.json").get("facts") or _facts_of_files(path)
            follower = _follower(rows, ServiceSink(tracker_service(name), facts, folder))
            if arguments.anew:
                follower.set_aside()
            followers[name] = follower, _num_behind(numbers, follower)
            follower.wake()
        finish_all([follower.thread for follower, _ in followers.values()])
        for name, (follower, num_missing) in followers.items():
            num_left = _num_behind(numbers, follower)
            are_done &= num_left == 0
            print_text(
                f"{name}: {num_missing - num_left} of {num_missing} missing rows sent, to its run "
                f"{follower.sink.get_state()['run']}"
            )
    return 0 if are_done else 1


def _num_behind(numbers: Sequence[int], follower: Follower) -> int:
    return sum(number > follower.sink.get_state()["sent"] for number in numbers)


def _kept_rows(path: Path) -> RowsFile:
    """The rows of a run of the command line, or of a tracking callback."""
    files = [path / name for name in (_CALLBACK_ROWS, RESULTS_FILE)]
    for file in files:
        if (rows := RowsFile(file)).last_row() is not None:
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


def _folder_of(path: Path, name: str) -> Path:
    """Where `run.json` says with which run of a service to go on."""
    is_of_callback = (path / _CALLBACK_ROWS).exists()
    return path if is_of_callback else path / "trackers" / name.partition(":")[0]


def _facts_of_files(path: Path) -> dict[str, Any]:
    """What a service is told of a run that it was told nothing of."""
    run = read_run(path) if (path / RESULTS_FILE).exists() else Run(path, rows=[])
    return {
        "name": path.name,
        "experiment": f"{run.algorithm}-{run.env}".strip("-") or path.name,
        "folder": str(path),
        "params": dict(named_leaves(jsonable(run.settings))),
    }


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

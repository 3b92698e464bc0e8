"""Trackers: results sent to Weights & Biases, MLflow, trackio or Aim, and kept in a folder.

Three parts, each usable by itself:

- A `TrackerService` (`callbacks.ready_made.tracker_services`) talks to one service. It may hang.
- `ServiceSender` hands rows to a service on a thread, through a queue of limited length, knows
  which were sent, and goes on with the same run after a resume.
- `WandbLogger`, `MLflowLogger`, `TrackioLogger`, `AimLogger` are the callbacks: every row is
  written to a file first and then handed to the sender.

What a service does never reaches training: a row that it refuses, or that finds the queue full, is
counted and told once. It stays in the file, and rows that are missing at the end of the service's
run are sent when the run is resumed.
"""

from __future__ import annotations

import atexit
import json
import logging
import re
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from callbacks.errors import CallbackConfigError
from callbacks.ready_made.metric_values import choice_problems, count_problems
from callbacks.ready_made.recorders import VideoRecorder
from callbacks.ready_made.result_files import (
    JSONLinesResults,
    iteration_of,
    jsonable,
)
from callbacks.ready_made.result_loggers import (
    EXIT_PATIENCE_S,
    BackgroundWriter,
    ResultLogger,
    objects_beside,
)
from callbacks.ready_made.tracker_services import (
    ARTIFACT_KINDS,
    AimService,
    Artifact,
    ArtifactKind,
    ArtifactService,
    MLflowService,
    TrackerService,
    TrackioService,
    WandbService,
)
from callbacks.views import AlgorithmView
from checkpoints.code import moved_path
from checkpoints.trees import named_leaves
from checkpoints.writer import write_whole_file

_LOGGER = logging.getLogger(__name__)
_STEP: Final = "num_env_steps_sampled_lifetime"

# ---- sending


class _ServiceRun:
    """One run of a service, and the file that says how far it is.

    Its methods are called on the sender's thread, unless they say otherwise.

    Args:
        service: it may hang and fail.
        file: holds the id of the run, the number of the last iteration that was sent, and the
            names of the videos that were.
        facts: for `TrackerService.open_run`.
        on_open: called when the service has opened the run.
        on_close: called when it is about to be closed.
    """

    def __init__(
        self,
        service: TrackerService,
        file: Path,
        facts: Mapping[str, Any],
        *,
        on_open: Callable[[], object],
        on_close: Callable[[], object],
    ) -> None:
        self._service = service
        self._file = file
        self._facts = facts
        self._on_open, self._on_close = on_open, on_close
        self._run: Any = None
        self._step = 0
        self._file_lock = threading.Lock()
        self._is_forgotten = False
        self.id, self.num_sent_iterations, self._sent_videos = self._known()

    def _known(self) -> tuple[str, int, list[str]]:
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
            videos = [str(name) for name in known.get("videos", ())]
            return str(known["run"]), int(known["sent"]), videos
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _LOGGER.warning(
                "%s, which says with which run of the tracker to go on, cannot be read (%s). The "
                "tracker gets a new run.",
                self._file,
                error,
            )
        return _new_run_id(self._facts), 0, []

    def take_over_from(self, other: ServiceSender) -> None:
        """Goes on where another sender of the process ends, which may still have rows to send."""
        other.close()
        if other.flush(EXIT_PATIENCE_S):
            self.id, self.num_sent_iterations, self._sent_videos = self._known()

    def take_row(self, row: Mapping[str, Any]) -> None:
        """Sends a row, unless it was sent before."""
        iteration = iteration_of(row)
        if iteration <= self.num_sent_iterations:
            return  # made again, with the same bytes
        run = self._opened()
        self._step = int(row.get(_STEP) or iteration)
        self._service.log_row(run, numbers_of(row), self._step)
        self.num_sent_iterations = iteration
        self._note()

    def take_artifact(self, artifact: Artifact) -> None:
        """Sends a file or folder; a video of the same name only once."""
        if self.has_sent(artifact):
            return
        if not artifact.path.exists():
            raise FileNotFoundError(f"{artifact.path} was removed before it could be sent")
        run = self._opened()
        assert isinstance(self._service, ArtifactService)  # noqa: S101 - checked by the callback
        self._service.log_artifact(run, artifact, self._step)
        if artifact.kind == "videos":
            self._sent_videos.append(artifact.name)
            self._note()

    def has_sent(self, artifact: Artifact) -> bool:
        """Whether it is a video that the service has; called on any thread."""
        return artifact.kind == "videos" and artifact.name in self._sent_videos

    def close(self) -> None:
        """Ends the run; the next row opens it again."""
        run, self._run = self._run, None
        if run is not None:
            self._on_close()
            self._service.close_run(run, failed=False)

    def forget(self) -> None:
        """Removes the file, which is not written any more; called on any thread."""
        with self._file_lock:
            self._is_forgotten = True
            self._file.unlink(missing_ok=True)

    def _opened(self) -> Any:
        if self._run is None:
            self._note()  # before there is a run that would not be found again
            self._run = self._service.open_run(self.id, self._facts)
            self._on_open()
        return self._run

    def _note(self) -> None:
        known = {"run": self.id, "sent": self.num_sent_iterations, "videos": self._sent_videos}
        text = json.dumps(known) + "\n"
        with self._file_lock:
            if not self._is_forgotten:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_whole_file(self._file, text.encode(), overwrite=True)


class ServiceSender:
    """Hands the rows of one run to a service, on a thread, in their order; never waits.

    A file says which run of the service it is and up to which iteration it has rows. So a resumed
    run goes on with it, sends what is missing at its end, and sends nothing twice. In one process,
    the run of the service is open once: the sender that had it ends it before the next one opens it
    (a service that has it open twice may lose rows, or make two runs of it).

    Args:
        service: it may hang and fail.
        file: where run and progress are written down; in the run's own folder.
        max_waiting: so many rows and artefacts wait at most; more are not sent.
    """

    def __init__(self, service: TrackerService, file: Path, *, max_waiting: int = 1000) -> None:
        self._service = service
        self._file = file
        self._max_waiting = max_waiting
        self._writer: BackgroundWriter | None = None
        self._run: _ServiceRun | None = None  # None: no row was handed over since `forget`
        self._early: list[Artifact] = []

    @property
    def num_lost(self) -> int:
        """How many rows and artefacts the service did not get in this process."""
        return 0 if self._writer is None else self._writer.num_lost

    def forget(self) -> None:
        """Begins a new run of the service with the next row, however far the last one came.

        What still waits for the last one is sent before; the same thread sends both.
        """
        self.close()
        run, self._run = self._run, None
        if run is None:
            self._file.unlink(missing_ok=True)
        else:
            run.forget()

    def send(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], earlier: Iterable[Mapping[str, Any]]
    ) -> None:
        """Hands over a row.

        `earlier` are all rows of the run that are kept; they and the facts are read with the first
        row.
        """
        run = self._run
        if run is None:
            run = self._begun(facts)
            for kept in earlier:
                if run.num_sent_iterations < iteration_of(kept) < iteration_of(row):
                    self._submit(partial(run.take_row, kept))
        self._submit(partial(run.take_row, row))
        while self._early:
            self.send_artifact(self._early.pop(0))

    def send_artifact(self, artifact: Artifact) -> None:
        """Hands over a file or folder; one that is there before the first row follows that row."""
        if self._run is None:
            self._early.append(artifact)
        elif not self._run.has_sent(artifact):
            self._submit(partial(self._run.take_artifact, artifact))

    def flush(self, timeout_s: float) -> bool:
        """Waits until all rows are sent, or lost; False if that takes longer."""
        return self._writer is None or self._writer.flush(timeout_s)

    def close(self) -> None:
        """Has the run of the service ended when all rows are sent; a further row opens it again."""
        run = self._run
        if run is not None:
            self._submit(run.close, has_limit=False)

    def _begun(self, facts: Mapping[str, Any]) -> _ServiceRun:
        self._run = _ServiceRun(
            self._service,
            self._file,
            facts,
            # After the service has registered its own end, so before that at the process's end.
            on_open=lambda: atexit.register(self._end),
            on_close=lambda: atexit.unregister(self._end),
        )
        if self._writer is None:
            name = f"{type(self._service).__name__} ({self._run.id})"
            self._writer = BackgroundWriter(_do, name=name, max_waiting=self._max_waiting)
        other, _SENDERS[self._file] = _SENDERS.get(self._file), self
        if other is not None and other is not self:
            self._submit(partial(self._run.take_over_from, other), has_limit=False)
        return self._run

    def _submit(self, action: Callable[[], object], *, has_limit: bool = True) -> None:
        assert self._writer is not None  # noqa: S101 - begun before
        self._writer.submit(action, has_limit=has_limit)

    def _end(self) -> None:
        """Ends the run of the service at the end of the process, if it answers."""
        if self._run is None or not self.flush(EXIT_PATIENCE_S):
            return
        if tuple(sys.version_info) < (3, 12):
            self.close()
            self.flush(EXIT_PATIENCE_S)
            return
        # No thread can be started any more at the end of the process. The service has answered all
        # rows, so that it is asked here, where nothing limits how long it takes.
        try:
            self._run.close()
        except Exception as error:  # noqa: BLE001 - of any service; training is over
            _LOGGER.warning("%s did not end its run: %r", type(self._service).__name__, error)


_SENDERS: Final[WeakValueDictionary[Path, ServiceSender]] = WeakValueDictionary()
"""The one of this process that began last, for each file."""


def _do(action: Callable[[], object]) -> None:
    action()


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row by slash path; truth values are none."""
    return {
        path: float(value)
        for path, value in named_leaves(jsonable(row))
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _new_run_id(facts: Mapping[str, Any]) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(facts["name"]))[:60]
    return f"{name}-{uuid.uuid4().hex[:8]}"


def facts_of(algorithm: AlgorithmView, folder: Path) -> dict[str, Any]:
    """What a service is told of a run; see `TrackerService.open_run`."""
    config = algorithm.config
    values = config.to_dict() if hasattr(config, "to_dict") else {}
    params = {
        path: value
        for path, value in named_leaves(jsonable(values))
        if value is not None and not path.startswith("_")  # which trackio refuses
    }
    name = f"{type(algorithm).__name__}-{params.get('env', '')}"
    seed = getattr(algorithm, "root_seed", None)
    return {
        "name": name if seed is None else f"{name}-{seed}",
        "experiment": name,
        "folder": str(folder),
        "params": {**params, "seed": seed},
    }


# ---- callbacks


class TrackedRows:
    """A sink: `rows.jsonl` in a folder, and a service behind it; see `ResultSink`.

    Args:
        service: where rows go besides.
        folder: of this run alone; made when it is needed.
        max_waiting: so many rows wait for the service.

    Attributes:
        path: the folder.
        facts: see `TrackerService.open_run`.
        video_folders: where videos appear that are to be sent.
    """

    holds_points = True

    def __init__(self, service: TrackerService, folder: str | Path, *, max_waiting: int) -> None:
        self._service = service
        self._max_waiting = max_waiting
        self.path = Path(folder).expanduser().resolve()
        self.video_folders: Sequence[Path] = ()
        name = self.path.name
        self.facts: Mapping[str, Any] = {
            "name": name, "experiment": name, "folder": str(self.path), "params": {}
        }  # fmt: skip
        self._open()

    def _open(self) -> None:
        self._rows = JSONLinesResults(self.path / "rows.jsonl")
        self.sender = ServiceSender(
            self._service, self.path / "run.json", max_waiting=self._max_waiting
        )
        self._saved: deque[Path] = deque()  # filled by the main thread, emptied by that of rows
        self._seen_videos: set[Path] = set()
        self._has_ended = False

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_service", "_max_waiting", "path", "facts", "video_folders")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, path=moved_path(state["path"]))
        self._open()

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Gives rows of an earlier run another name; the service gets a new run."""
        self._rows.start_anew(row)
        self.sender.forget()
        new_videos(self.video_folders, self._seen_videos)  # what lies there is of an earlier run

    def add_checkpoint(self, path: Path) -> None:
        """Notes a checkpoint for `send_artifacts`; called on any thread."""
        self._saved.append(path)

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a row, and hands it to the service with what lies there to be sent."""
        self._has_ended = False
        self._rows.append(row)
        self.sender.send(row, self.facts, self._rows.rows())
        self.send_artifacts()

    def end(self) -> None:
        """Has the service's run ended behind the rows and artefacts that were handed over.

        It is called by the thread of the rows, so none of them comes after it.
        """
        self._has_ended = True
        self.send_artifacts()

    def send_artifacts(self) -> None:
        """Hands over what is new; called by the thread of the rows.

        A checkpoint that was saved in the background may come after the end of the service's run,
        which then is opened and ended again.
        """
        for video in new_videos(self.video_folders, self._seen_videos):
            self.sender.send_artifact(video)
        while self._saved:
            self.sender.send_artifact(checkpoint_artifact(self._saved.popleft()))
        if self._has_ended:
            self.sender.close()


def new_videos(folders: Sequence[Path], seen: set[Path]) -> list[Artifact]:
    """The whole videos in the folders that are not among those seen, to which they are added."""
    new = []
    for folder in folders:
        prefix = f"{folder.name}-" if len(folders) > 1 else ""
        for path in sorted(folder.glob("[!.]*.mp4")):  # those being written begin with a dot
            if path not in seen:
                seen.add(path)
                new.append(Artifact("videos", path, artifact_name(f"{prefix}{path.stem}")))
    return new


def checkpoint_artifact(path: Path) -> Artifact:
    """A checkpoint as an artefact, named after its folder and the one around it."""
    return Artifact("checkpoints", path, artifact_name(f"{path.parent.name}-{path.name}"))


def artifact_name(text: str) -> str:
    """A name that every service takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


class TrackerLogger(ResultLogger):
    """Sends the numbers of every result to a service, and keeps the rows in a folder.

        config.callbacks([TrackerLogger(MyService(), "runs/mine/tracker")])

    Derive from it, or give it a `TrackerService` of your own. The service never delays training:
    its rows wait in a queue, on whose other side is a thread. `rows.jsonl` in the folder has all
    rows, and `run.json` says with which run of the service a resumed run goes on. A result that
    says `done` ends the service's run, as does the end of the process.

    Args:
        service: talks to the service.
        folder: of one callback and one run.
        max_waiting: so many rows wait for a service that is slow; more are not sent, and counted in
            `fault_tolerance/num_lost_rows_lifetime`.
        artifacts: what is sent besides numbers: "checkpoints" (every one that is saved while the
            algorithm trains) and "videos" (of the run's `VideoRecorder`s). A checkpoint that is
            removed before its turn is counted as a lost row.

    Raises:
        CallbackConfigError: an argument makes no sense, or the service takes no artefacts.
    """

    def __init__(
        self,
        service: TrackerService,
        folder: str | Path = "tracker",
        *,
        max_waiting: int = 1000,
        artifacts: Sequence[ArtifactKind] = (),
    ) -> None:
        problems = count_problems("max_waiting", max_waiting)
        problems += _artifact_problems(service, artifacts)
        if not isinstance(folder, str | Path) or str(folder) in ("", "."):
            problems.append(f"`folder={folder!r}` is no path of a folder")
        if problems:
            raise CallbackConfigError([f"{type(self).__name__}: {text}" for text in problems])
        self._tracked = TrackedRows(service, folder, max_waiting=max_waiting)
        super().__init__(self._tracked, max_waiting=max_waiting)
        self._artifacts = tuple(artifacts)

    @property
    def _num_lost_here(self) -> int:
        return super()._num_lost_here + self._tracked.sender.num_lost

    def on_algorithm_init(self, *, algorithm: AlgorithmView, **kwargs: Any) -> None:
        """Notes what the service is told of the run."""
        super().on_algorithm_init(algorithm=algorithm, **kwargs)
        self._tracked.facts = facts_of(algorithm, self._tracked.path)
        if "videos" in self._artifacts:
            recorders = objects_beside(algorithm, VideoRecorder)
            self._tracked.video_folders = [recorder.directory for recorder in recorders]

    def on_checkpoint_saved(self, **given: Any) -> None:
        """Waits for the rows that the checkpoint counts, and hands it to the service."""
        super().on_checkpoint_saved(**given)
        if "checkpoints" in self._artifacts:
            self._tracked.add_checkpoint(Path(given["path"]))
            self._follow_rows(self._tracked.send_artifacts)

    def _on_saved(self, result: Mapping[str, Any]) -> None:
        super()._on_saved(result)
        # Not with the row: that may be out since before the last checkpoint of the iteration.
        if result.get("done"):
            self._follow_rows(self._tracked.end)
        elif "videos" in self._artifacts and not self._is_behind:
            self._follow_rows(self._tracked.send_artifacts)

    def flush_service(self, timeout_s: float) -> bool:
        """Waits until the service has all rows, or has lost them; False if that takes longer."""
        return self.flush(timeout_s) and self._tracked.sender.flush(timeout_s)


def _artifact_problems(service: TrackerService, artifacts: Sequence[ArtifactKind]) -> list[str]:
    if isinstance(artifacts, str) or not isinstance(artifacts, Sequence):
        return [f'`artifacts={artifacts!r}` must be a list, such as ["checkpoints"]']
    problems = [
        text for kind in artifacts for text in choice_problems("artifacts", kind, ARTIFACT_KINDS)
    ]
    if artifacts and not isinstance(service, ArtifactService):
        problems.append(
            f"`artifacts={list(artifacts)!r}`: {type(service).__name__} has no `log_artifact`, "
            "which would send them. Write it, or leave `artifacts` out"
        )
    return problems


class WandbLogger(TrackerLogger):
    """Sends every result to Weights & Biases; RLlib's `WandbLoggerCallback`.

    Needs `pip install 'local-trainer[wandb]'`. `WANDB_MODE=offline` writes to the folder only.

    Args:
        project: name of the project.
        folder: where rows, the service's files and the id of the run are; of one run. None:
            "wandb-tracker".
        group: of the runs; None: algorithm and env.
        max_waiting: see `TrackerLogger`.
        artifacts: see `TrackerLogger`. Checkpoints become versions of one artefact per run.
        settings: further arguments of `wandb.init`.

    Raises:
        ImportError: the package is not installed.
    """

    _service_class: ClassVar = WandbService

    def __init__(
        self,
        project: str = "local-trainer",
        *,
        folder: str | Path | None = None,
        group: str | None = None,
        max_waiting: int = 1000,
        artifacts: Sequence[ArtifactKind] = (),
        **settings: Any,
    ) -> None:
        service = self._service_class(project, group, **settings)
        folder = f"{service.package}-tracker" if folder is None else folder
        super().__init__(service, folder, max_waiting=max_waiting, artifacts=artifacts)


class TrackioLogger(WandbLogger):
    """Sends every result to trackio, a store on this machine.

    Needs `pip install 'local-trainer[trackio]'`. Arguments as of `WandbLogger`; `settings` are
    those of `trackio.init`, and `folder` is "trackio-tracker" if it is None.
    """

    _service_class = TrackioService


class MLflowLogger(TrackerLogger):
    """Sends every result to MLflow; RLlib's `MLflowLoggerCallback`.

    Needs `pip install 'local-trainer[mlflow]'`.

    Args:
        tracking_uri: of the server, folder or database; None: MLflow's own choice.
        folder: where rows and the id of the run are; of one run.
        experiment_name: MLflow's experiment; None: algorithm and env.
        tags: of the run.
        max_waiting: see `TrackerLogger`.
        artifacts: see `TrackerLogger`.

    Raises:
        ImportError: the package is not installed.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        folder: str | Path = "mlflow-tracker",
        experiment_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        max_waiting: int = 1000,
        artifacts: Sequence[ArtifactKind] = (),
    ) -> None:
        service = MLflowService(tracking_uri, experiment_name=experiment_name, tags=tags)
        super().__init__(service, folder, max_waiting=max_waiting, artifacts=artifacts)


class AimLogger(TrackerLogger):
    """Sends every result to Aim, a store on this machine; RLlib's `AimLoggerCallback`.

    Needs `pip install 'local-trainer[aim]'`.

    Args:
        repo: see `AimService`.
        folder: where rows and the id of the run are; of one run.
        experiment_name: Aim's experiment; None: algorithm and env.
        max_waiting: see `TrackerLogger`.
        artifacts: see `TrackerLogger`.

    Raises:
        ImportError: the package is not installed.
    """

    def __init__(
        self,
        repo: str | None = None,
        *,
        folder: str | Path = "aim-tracker",
        experiment_name: str | None = None,
        max_waiting: int = 1000,
        artifacts: Sequence[ArtifactKind] = (),
    ) -> None:
        service = AimService(repo, experiment_name=experiment_name)
        super().__init__(service, folder, max_waiting=max_waiting, artifacts=artifacts)

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
import concurrent.futures.thread  # noqa: F401 - see "the end of the process"
import contextlib
import json
import logging
import os
import re
import threading
import time
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
    flush_all,
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
from checkpoints.writer import write_whole_file
from trainer_toolkit.trees import named_leaves

_LOGGER = logging.getLogger(__name__)
_STEP: Final = "num_env_steps_sampled_lifetime"
SERVICE_PATIENCE_S: Final = 300.0
"""How long the end waits for a service to open or close its run."""
_LOOK_EVERY_S: Final = 0.25
_TOLD_AFTER_S: Final = 2.0

# ---- sending


class _ServiceRun:
    """One run of a service, and the file that says how far it is.

    Its methods are called on the sender's thread, unless they say otherwise.

    Args:
        service: it may hang and fail.
        file: holds the id of the run, the facts, the number of the last iteration that was sent,
            and the names of the videos that were.
        facts: for `TrackerService.open_run`.
        max_unsent: so many rows wait for a service that cannot be opened.
        on_sent_late: called when a row is sent that `take_row` could not send.

    Attributes:
        is_at_ends: the run is not open yet, or is being closed.
    """

    def __init__(
        self,
        service: TrackerService,
        file: Path,
        facts: Mapping[str, Any],
        *,
        max_unsent: int,
        on_sent_late: Callable[[], object],
    ) -> None:
        self._service = service
        self._file = file
        self._facts = facts
        self._unsent: deque[Mapping[str, Any]] = deque(maxlen=max_unsent)
        self._on_sent_late = on_sent_late
        self._run: Any = None
        self._step = 0
        self._file_lock = threading.Lock()
        self._is_forgotten = False
        self.is_at_ends = True
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
        """Sends a row, unless it was sent before; it waits if the run cannot be opened."""
        if iteration_of(row) <= self.num_sent_iterations:
            return  # made again, with the same bytes
        self._unsent.append(row)
        run = self._opened()
        while len(self._unsent) > 1:
            self._send(run, self._unsent.popleft())
            self._on_sent_late()
        self._send(run, self._unsent.popleft())

    def _send(self, run: Any, row: Mapping[str, Any]) -> None:
        iteration = iteration_of(row)
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
        """Sends what waits, and ends the run; the next row opens it again."""
        if self._unsent:
            run = self._opened()
            while self._unsent:
                self._send(run, self._unsent.popleft())
                self._on_sent_late()
        run, self._run = self._run, None
        if run is not None:
            self.is_at_ends = True
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
            self.is_at_ends = False
        return self._run

    def _note(self) -> None:
        known = {
            "run": self.id,
            "sent": self.num_sent_iterations,
            "videos": self._sent_videos,
            "facts": jsonable(self._facts),
        }
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

    The end of the process ends the run, too, and waits for that; see `await_end`.

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
            self._submit(partial(self._close, run), has_limit=False)

    def _close(self, run: _ServiceRun) -> None:
        run.close()
        _UNFINISHED.discard(self)
        if self._writer is not None and self._writer.num_waiting > 1:  # besides this
            _UNFINISHED.add(self)

    def await_end(self) -> bool:
        """Waits for what `close` has begun, as long as the service gets on.

        One that is starting or ending may take five minutes: on a busy machine MLflow takes more
        than one to make its database. Any other answer may take 5 s.

        Returns:
            whether everything was sent, or lost; else a warning says what to do.
        """
        self.abandon()
        begun_at = changed_at = time.monotonic()
        before, has_logged = self._progress(), False
        while not self.flush(_LOOK_EVERY_S):
            now = time.monotonic()
            if (progress := self._progress()) != before:
                before, changed_at = progress, now
            patience_s = SERVICE_PATIENCE_S if self._is_at_ends else EXIT_PATIENCE_S
            if now - changed_at >= patience_s:
                _LOGGER.warning(
                    "%s has not answered for %.0f s, and gets nothing more. Rows are kept, and can "
                    "be sent later: local-trainer track --help.",
                    self._name,
                    patience_s,
                )
                return False
            if not has_logged and now - begun_at >= _TOLD_AFTER_S:
                has_logged = True
                _LOGGER.warning(
                    "%s is still busy with what it was sent; the end waits while it gets on. "
                    "Ctrl-C ends the wait.",
                    self._name,
                )
        if self.num_lost:
            _LOGGER.warning(
                "%s did not get everything. Rows are kept, and can be sent later: "
                "local-trainer track --help.",
                self._name,
            )
        return True

    @property
    def _is_at_ends(self) -> bool:
        return self._run is not None and self._run.is_at_ends

    def _progress(self) -> tuple[int, bool]:
        """What changes whenever the service takes something; what is lost changes nothing."""
        writer = self._writer
        return (0 if writer is None else writer.num_waiting + writer.num_lost), self._is_at_ends

    def abandon(self) -> None:
        """The end of the process does not wait for it."""
        _UNFINISHED.discard(self)

    @property
    def _name(self) -> str:
        return type(self._service).__name__

    def _begun(self, facts: Mapping[str, Any]) -> _ServiceRun:
        if self._writer is None:
            self._writer = BackgroundWriter(
                _do, name=self._name, max_waiting=self._max_waiting, is_awaited=False
            )
        self._run = _ServiceRun(
            self._service,
            self._file,
            facts,
            max_unsent=self._max_waiting,
            on_sent_late=self._writer.take_back_loss,
        )
        other, _SENDERS[self._file] = _SENDERS.get(self._file), self
        if other is not None and other is not self:
            self._submit(partial(self._run.take_over_from, other), has_limit=False)
        return self._run

    def _submit(self, action: Callable[[], object], *, has_limit: bool = True) -> None:
        assert self._writer is not None  # noqa: S101 - begun before
        self._writer.submit(action, has_limit=has_limit)
        _finish_before_threads_end(self)  # in this order, for `_close` looks in the other one


_SENDERS: Final[WeakValueDictionary[Path, ServiceSender]] = WeakValueDictionary()
"""The one of this process that began last, for each file."""


# ---- the end of the process
#
# Services start threads, also to end a run, and none can be started once the interpreter ends its
# own. So they are ended before, where only a private hook comes to; and before the executors of
# `concurrent.futures`, which are ended there, too: the hook that was registered last comes first,
# so theirs is registered by the import above.

_UNFINISHED: Final[set[ServiceSender]] = set()
"""Those of this process that were handed something since they were finished."""


class _Exit:
    """What this process does at its end; global because a process ends once."""

    is_registered = False


def _finish_before_threads_end(sender: ServiceSender) -> None:
    _UNFINISHED.add(sender)
    if not _Exit.is_registered:
        _Exit.is_registered = True
        register = getattr(threading, "_register_atexit", atexit.register)
        with contextlib.suppress(RuntimeError):  # the interpreter is ending already
            register(_finish_at_exit)


def _finish_at_exit() -> None:
    flush_all(EXIT_PATIENCE_S)  # loggers hand over rows that they still have
    finish_all(list(_UNFINISHED))


def finish_all(senders: Sequence[ServiceSender]) -> bool:
    """Closes senders and waits for all; Ctrl-C ends the wait. False if one was given up."""
    for sender in senders:
        sender.close()
    try:
        return all([sender.await_end() for sender in senders])  # noqa: C419 - each is awaited
    except KeyboardInterrupt:
        for sender in senders:
            sender.abandon()
        _LOGGER.warning(
            "Ctrl-C has ended the wait for trackers. Rows are kept, and can be sent later: "
            "local-trainer track --help."
        )
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_UNFINISHED.clear)  # their threads are the original's


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

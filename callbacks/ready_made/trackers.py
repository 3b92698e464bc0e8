"""Trackers: results sent to Weights & Biases, MLflow, trackio or Aim, and kept in a folder.

A `TrackerService` (`callbacks.ready_made.tracker_services`) talks to one service. It may hang.
`ServiceSink` is a run of it as a sink of a follower; `WandbLogger`, `MLflowLogger`,
`TrackioLogger`, `AimLogger` are the callbacks. What a service does never reaches training: the rows
are in a file, and it gets what it lacks when it answers again, at the end, or when the run is
resumed.
"""

from __future__ import annotations

import math
import re
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from callbacks.errors import CallbackConfigError
from callbacks.ready_made.followers import Sink
from callbacks.ready_made.metric_values import choice_problems, numbers_in
from callbacks.ready_made.recorders import VideoRecorder
from callbacks.ready_made.result_loggers import ResultLogger, objects_beside
from callbacks.ready_made.rows_file import jsonable
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
from trainer_toolkit.trees import named_leaves

_STEP: Final = "num_env_steps_sampled_lifetime"

# ---- sink


class ServiceSink(Sink):
    """A run of a service, which a resumed run goes on with.

    Which run it is, and up to which row the service has it, is kept with the bookmark. A service
    cannot take rows back: those that it has are not sent again. Files and folders wait in memory
    until all rows are sent.

    Args:
        service: it may hang and fail.
        facts: for `TrackerService.open_run`.
        folder: of the run.
        bookmark: the name of the bookmark there.
        run_id: for `TrackerService.open_run`; None: one of its own for each run.
        counts_rows: steps are numbers of rows, and only `end` ends the run. Else they are env
            steps, and a row that is `done` ends it, too.

    Attributes:
        video_folders: where videos appear that are to be sent.
    """

    must_end = True
    later = "local-trainer track sends it"

    def __init__(
        self,
        service: TrackerService,
        facts: Mapping[str, Any],
        folder: str | Path,
        *,
        bookmark: str = "run.json",
        run_id: str | None = None,
        counts_rows: bool = False,
    ) -> None:
        self.facts = facts
        self.video_folders: Sequence[Path] = ()
        self.is_at_ends = True
        self._service, self._bookmark_name = service, bookmark
        self._given_id, self._counts_rows = run_id, counts_rows
        self._run: Any = None
        self._step = 0
        self._is_done = False
        self._artifacts: deque[Artifact] = deque()  # filled by the main thread
        self._seen_videos: set[Path] = set()
        self._id, self._num_sent = "", 0
        self._sent_videos: list[str] = []
        super().__init__(folder)

    def _place(self, path: Path) -> None:
        self.path, self.name = path, type(self._service).__name__
        self.rows_path, self.bookmark = path / "rows.jsonl", path / self._bookmark_name

    def __getstate__(self) -> dict[str, Any]:
        """A copy has not opened the run, and has nothing to send."""
        return {**self.__dict__, "_run": None, "_artifacts": deque(), "is_at_ends": True}

    def get_state(self) -> dict[str, Any]:
        if not self._id:  # the facts may have come after the state
            name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(self.facts["name"]))[:60]
            self._id = self._given_id or f"{name}-{uuid.uuid4().hex[:8]}"
        return {
            "run": self._id,
            "sent": self._num_sent,
            "videos": self._sent_videos,
            "facts": jsonable(self.facts),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._id, self._num_sent = str(state.get("run", "")), int(state.get("sent", 0))
        self._sent_videos = [str(name) for name in state.get("videos", ())]

    def add(self, artifact: Artifact) -> None:
        """Has a file or folder sent behind the rows; called on any thread."""
        self._artifacts.append(artifact)

    def set_aside(self) -> None:
        """Videos that lie there are of an earlier run."""
        new_videos(self.video_folders, self._seen_videos)

    # ---- on the thread of the follower

    def append(self, number: int, row: dict[str, Any]) -> None:
        if number <= self._num_sent:
            return
        run = self._opened()
        self._step = number if self._counts_rows else int(row.get(_STEP) or number)
        self._service.log_row(run, numbers_of(row), self._step)
        self._num_sent = number
        self._is_done = bool(row.get("done")) and not self._counts_rows

    def rest(self) -> None:
        """Sends files and folders; a run whose last row is done ends.

        A checkpoint that was saved in the background may come after the end of the service's run,
        which then is opened and ended again.
        """
        if not self._num_sent:
            return
        self._artifacts += new_videos(self.video_folders, self._seen_videos)
        error = None
        while self._artifacts:
            run, artifact = self._opened(), self._artifacts.popleft()
            try:
                self._send(run, artifact)
            except Exception as caught:  # noqa: BLE001 - raised below, when the others are sent
                error = caught
                self.num_lost += 1
            self.num_steps += 1
        if self._is_done:
            self.end(failed=False)
        if error is not None:
            raise error

    def end(self, *, failed: bool) -> None:
        """Ends the run; the next row opens it again."""
        run, self._run = self._run, None
        if run is not None:
            self.is_at_ends = True
            self._service.close_run(run, failed=failed)

    def _send(self, run: Any, artifact: Artifact) -> None:
        """Sends a file or folder; a video of the same name only once."""
        if artifact.kind == "videos" and artifact.name in self._sent_videos:
            return
        if not artifact.path.exists():
            raise FileNotFoundError(f"{artifact.path} was removed before it could be sent")
        assert isinstance(self._service, ArtifactService)  # noqa: S101 - checked by the callback
        self._service.log_artifact(run, artifact, self._step)
        if artifact.kind == "videos":
            self._sent_videos.append(artifact.name)

    def _opened(self) -> Any:
        if self._run is None:
            self._run = self._service.open_run(self.get_state()["run"], self.facts)
            self.is_at_ends = False
        return self._run


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row by slash path; truth values are none."""
    return {path: value for path, value in numbers_in(row) if math.isfinite(value)}


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


# ---- callbacks


class TrackerLogger(ResultLogger):
    """Sends the numbers of every result to a service, and keeps the rows in a folder.

        config.callbacks([TrackerLogger(MyService(), "runs/mine/tracker")])

    Derive from it, or give it a `TrackerService` of your own. The service never delays training.
    `rows.jsonl` in the folder has all rows, and `run.json` says with which run of the service a
    resumed run goes on. A result that says `done` ends the service's run, as do `stop()` and the
    end of the process.

    Args:
        service: talks to the service.
        folder: of one callback and one run.
        artifacts: what is sent besides numbers: "checkpoints" (every one that is saved while the
            algorithm trains) and "videos" (of the run's `VideoRecorder`s). A checkpoint that is
            removed before its turn is counted as a lost row.

    Raises:
        CallbackConfigError: an argument makes no sense, or the service takes no artefacts.
    """

    _sink: ServiceSink

    def __init__(
        self,
        service: TrackerService,
        folder: str | Path = "tracker",
        *,
        artifacts: Sequence[ArtifactKind] = (),
    ) -> None:
        problems = _artifact_problems(service, artifacts)
        if not isinstance(folder, str | Path) or str(folder) in ("", "."):
            problems.append(f"`folder={folder!r}` is no path of a folder")
        if problems:
            raise CallbackConfigError([f"{type(self).__name__}: {text}" for text in problems])
        super().__init__(ServiceSink(service, {"name": type(service).__name__}, folder))
        self._artifacts = tuple(artifacts)

    def close(self) -> None:
        """Has the service's run ended; only the end of the process waits for that."""
        if self._follower is not None:
            self._follower.thread.end()

    def on_algorithm_init(self, *, algorithm: AlgorithmView, **kwargs: Any) -> None:
        """Notes what the service is told of the run."""
        self._sink.facts = facts_of(algorithm, self._sink.path)
        if "videos" in self._artifacts:
            recorders = objects_beside(algorithm, VideoRecorder)
            self._sink.video_folders = [recorder.directory for recorder in recorders]
        super().on_algorithm_init(algorithm=algorithm, **kwargs)

    def on_checkpoint_saved(self, **given: Any) -> None:
        """Has the checkpoint sent behind the next row, or when the run is over."""
        if "checkpoints" in self._artifacts:
            self._sink.add(checkpoint_artifact(Path(given["path"])))


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
        artifacts: Sequence[ArtifactKind] = (),
        **settings: Any,
    ) -> None:
        service = self._service_class(project, group, **settings)
        folder = f"{service.package}-tracker" if folder is None else folder
        super().__init__(service, folder, artifacts=artifacts)


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
        artifacts: Sequence[ArtifactKind] = (),
    ) -> None:
        service = MLflowService(tracking_uri, experiment_name=experiment_name, tags=tags)
        super().__init__(service, folder, artifacts=artifacts)


class AimLogger(TrackerLogger):
    """Sends every result to Aim, a store on this machine; RLlib's `AimLoggerCallback`.

    Needs `pip install 'local-trainer[aim]'`.

    Args:
        repo: see `AimService`.
        folder: where rows and the id of the run are; of one run.
        experiment_name: Aim's experiment; None: algorithm and env.
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
        artifacts: Sequence[ArtifactKind] = (),
    ) -> None:
        service = AimService(repo, experiment_name=experiment_name)
        super().__init__(service, folder, artifacts=artifacts)

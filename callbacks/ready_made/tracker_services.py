"""What trackers are: Weights & Biases, MLflow, trackio and Aim, each behind the same four methods.

A `TrackerService` opens a run, sends numbers and artefacts, ends the run. It may hang and fail; who
calls it, and what becomes of rows that it does not get, is in `callbacks.ready_made.trackers`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, Protocol, runtime_checkable

from callbacks.optional_import import optional_module
from checkpoints.writer import write_whole_file

ArtifactKind = Literal["checkpoints", "videos"]
"""What besides numbers a service may be sent."""

ARTIFACT_KINDS: Final = ("checkpoints", "videos")


@dataclass(frozen=True)
class Artifact:
    """A file or folder of a run.

    Attributes:
        kind: what it is.
        path: a folder for a checkpoint, an `.mp4` for a video. Files stay where they are.
        name: tells it from others of its kind in the run: letters, digits, `.`, `-` and `_`.
    """

    kind: ArtifactKind
    path: Path
    name: str


class TrackerService(Protocol):
    """Talks to one service. All methods are called on one thread, may raise, and may hang.

    It is copied and pickled before its first use, so it opens nothing before `open_run`.
    """

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> Any:
        """Begins a run, or goes on with the one of this id; returns what `log_row` is given.

        Args:
            run_id: the same for all processes that work on the run.
            facts: "name" and "experiment" as texts, "folder" for files of the service, and
                "params", the settings by slash path.
        """

    def log_row(self, run: Any, row: Mapping[str, float], step: int) -> None:
        """Sends finite numbers by slash path; `step` counts env steps and increases."""

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends the run; it may be opened again."""


@runtime_checkable
class ArtifactService(TrackerService, Protocol):
    """A service that takes files, too."""

    def log_artifact(self, run: Any, artifact: Artifact, step: int) -> None:
        """Sends a file or folder.

        Args:
            run: of `open_run`.
            artifact: it may be gone by now; what is raised then is counted.
            step: env steps of the newest row.
        """


class WandbService:
    """Weights & Biases; needs `pip install 'local-trainer[wandb]'`.

    Args:
        project: name of the project.
        group: of the runs; None: the experiment's name.
        settings: further arguments of `wandb.init`.

    Attributes:
        package: that it needs.

    Raises:
        ImportError: the package is not installed.
    """

    package = "wandb"

    def __init__(self, project: str, group: str | None = None, **settings: Any) -> None:
        self._module()  # a missing package is told now
        self._project, self._group, self._settings = project, group, settings

    def _module(self) -> ModuleType:
        return optional_module(self.package, user=type(self).__name__, extra=self.package)

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> Any:
        """One run of its own among several in this process."""
        return self._module().init(
            id=run_id,
            resume="allow",
            project=self._project,
            group=self._group or facts["experiment"],
            name=facts["name"],
            config=dict(facts["params"]),
            **{"dir": facts["folder"], "reinit": "create_new", **self._settings},
        )

    def log_row(self, run: Any, row: Mapping[str, float], step: int) -> None:
        """Sends a row."""
        run.log(dict(row), step=step)

    def log_artifact(self, run: Any, artifact: Artifact, step: int) -> None:
        """A video becomes media of its own name; a checkpoint a version of the run's artefact."""
        wandb = self._module()
        if artifact.kind == "videos":
            video = wandb.Video(str(artifact.path), format="mp4")
            run.log({f"videos/{artifact.name}": video}, step=step)
            return
        version = wandb.Artifact(f"checkpoint-{run.id}", type="checkpoint")
        version.add_dir(str(artifact.path))
        run.log_artifact(version, aliases=["latest", artifact.name])

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends a run with an exit code."""
        run.finish(exit_code=int(failed))


class TrackioService(WandbService):
    """trackio, a local store with W&B's names; needs `pip install 'local-trainer[trackio]'`.

    Arguments as of `WandbService`; `settings` are those of `trackio.init`.
    """

    package = "trackio"

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> Any:
        """One run by name."""
        return self._module().init(
            project=self._project,
            name=run_id,
            group=self._group or facts["experiment"],
            resume="allow",
            config=dict(facts["params"]),
            **self._settings,
        )

    def log_artifact(self, run: Any, artifact: Artifact, step: int) -> None:
        """A version of an artefact of the project, named after the run."""
        del step
        name = f"{run.name}-{artifact.kind}"
        if artifact.kind == "videos":
            name = f"{name}-{artifact.name}"
        run.log_artifact(str(artifact.path), name=name, type=artifact.kind)

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends a run."""
        del failed
        run.finish()


class MLflowService:
    """MLflow; needs `pip install 'local-trainer[mlflow]'`.

    Args:
        tracking_uri: of the server, folder or database; None: MLflow's own choice.
        experiment_name: MLflow's experiment; None: the experiment's name.
        tags: of every run.

    Raises:
        ImportError: the package is not installed.
    """

    _TAG: Final = "local_trainer_run"
    _MOST_PARAMS: Final = 100
    _MOST_CHARACTERS: Final = 500
    _UNKNOWN: Final = re.compile(r"[^\w\-. /]")

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        experiment_name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        optional_module("mlflow", user="MLflowService", extra="mlflow")
        self._uri, self._experiment, self._tags = tracking_uri, experiment_name, dict(tags or {})
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no connection."""
        return {**self.__dict__, "_client": None}

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> str:
        """The run with this tag, which may be there already."""
        mlflow = optional_module("mlflow", user="MLflowService", extra="mlflow")
        if self._uri is not None and self._uri.startswith(_SQLITE):
            _make_database(mlflow, Path(self._uri.removeprefix(_SQLITE)))
        self._client = mlflow.MlflowClient(self._uri)
        name = self._experiment or str(facts["experiment"])
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        runs = self._client.search_runs([experiment], f"tags.{self._TAG} = '{run_id}'")
        if runs:
            known = str(runs[0].info.run_id)
            self._client.update_run(known, status="RUNNING")
            return known
        tags = {**self._tags, self._TAG: run_id}
        made = str(
            self._client.create_run(experiment, tags=tags, run_name=facts["name"]).info.run_id
        )
        params = [
            mlflow.entities.Param(self._key(path), str(value)[: self._MOST_CHARACTERS])
            for path, value in facts["params"].items()
        ]
        for begin in range(0, len(params), self._MOST_PARAMS):
            self._client.log_batch(made, params=params[begin : begin + self._MOST_PARAMS])
        return made

    def log_row(self, run: str, row: Mapping[str, float], step: int) -> None:
        """Sends a row in one request."""
        entities = optional_module("mlflow.entities", user="MLflowService", extra="mlflow")
        now_ms = int(time.time() * 1000)
        metrics = [
            entities.Metric(self._key(path), value, now_ms, step) for path, value in row.items()
        ]
        self._client.log_batch(run, metrics=metrics)

    def log_artifact(self, run: str, artifact: Artifact, step: int) -> None:
        """Copies a file into `videos`, or a folder into `checkpoints/<name>`."""
        del step
        if artifact.path.is_dir():
            place = f"{artifact.kind}/{artifact.name}"
            self._client.log_artifacts(run, str(artifact.path), place)
        else:
            self._client.log_artifact(run, str(artifact.path), artifact.kind)

    def close_run(self, run: str, *, failed: bool) -> None:
        """Ends a run with a status."""
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")

    def _key(self, path: str) -> str:
        """A name that MLflow takes."""
        return self._UNKNOWN.sub("_", path)


_SQLITE: Final = "sqlite:///"


def _make_database(mlflow: ModuleType, file: Path) -> None:
    """Makes MLflow's tables in a new file, which gets its name when it is complete.

    MLflow does so in a hundred steps, up to minutes on a busy machine, and cannot go on with what a
    killed process left half done, nor with what another process is making at the same time.
    """
    if "?" in file.name or file.exists() or not file.parent.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix=f".{file.name}-", dir=file.parent) as folder:
        made, whole = Path(folder).absolute() / "made", Path(folder) / "whole"
        mlflow.MlflowClient(f"{_SQLITE}{made}").search_experiments()
        shutil.copyfile(made, whole)  # MLflow keeps the other one open
        # Another process was faster, or there are no hard links: then MLflow makes it in place.
        with contextlib.suppress(OSError):
            file.hardlink_to(whole)


class AimService:
    """Aim, a store on this machine; needs `pip install 'local-trainer[aim]'`.

    Aim names runs itself; `aim-run` in the folder of the run says which one is gone on with.

    Args:
        repo: the folder of the store (its `.aim` is made there), or `aim://host:port`; None: the
            current folder.
        experiment_name: Aim's experiment; None: the experiment's name.

    Raises:
        ImportError: the package is not installed.
    """

    def __init__(self, repo: str | None = None, *, experiment_name: str | None = None) -> None:
        self._module()
        self._repo = "." if repo is None else repo
        self._experiment = experiment_name

    def _module(self) -> ModuleType:
        return optional_module("aim", user="AimService", extra="aim")

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> Any:
        """A new run, or the one whose name lies in the folder."""
        aim, known = self._module(), Path(facts["folder"]) / "aim-run"
        repo: Any = self._repo
        if "://" not in repo:
            Path(repo).mkdir(parents=True, exist_ok=True)
            repo = aim.Repo.from_path(repo, init=True)
        own_id, _, name = known.read_text().partition(" ") if known.exists() else ("", "", "")
        if own_id == run_id:
            return aim.Run(name, repo=repo, force_resume=True, **_QUIET)
        experiment = self._experiment or str(facts["experiment"])
        run = aim.Run(repo=repo, experiment=experiment, **_QUIET)
        run.name = str(facts["name"])
        run["params"] = {path: str(value) for path, value in facts["params"].items()}
        # Aim itself refuses what is no address; the files lie beside those of the run.
        run.set_artifacts_uri((Path(facts["folder"]) / "aim-artifacts").absolute().as_uri())
        known.parent.mkdir(parents=True, exist_ok=True)
        write_whole_file(known, f"{run_id} {run.hash}".encode(), overwrite=True)
        return run

    def log_row(self, run: Any, row: Mapping[str, float], step: int) -> None:
        """Sends a row, number by number."""
        for path, value in row.items():
            run.track(value, name=path, step=step)

    def log_artifact(self, run: Any, artifact: Artifact, step: int) -> None:
        """Copies a file or folder to where Aim keeps files of the run."""
        del step
        name = f"{artifact.kind}/{artifact.name}"
        if artifact.path.is_dir():
            run.log_artifacts(str(artifact.path), name, block=True)
        else:
            run.log_artifact(str(artifact.path), f"{name}{artifact.path.suffix}", block=True)

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends a run."""
        del failed
        run.close()


_QUIET: Final = {"system_tracking_interval": None, "log_system_params": False}
"""Aim measures the machine on a thread of its own, unless it is told not to."""

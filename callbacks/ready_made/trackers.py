"""Trackers: results sent to Weights & Biases, MLflow or trackio, and kept in a folder beside.

Three parts, each usable by itself:

- A `TrackerService` talks to one service: opens a run, sends numbers, ends the run. It may hang.
- `ServiceSender` hands rows to a service on a thread, through a queue of limited length, knows
  which were sent, and goes on with the same run after a resume.
- `WandbLogger`, `MLflowLogger`, `TrackioLogger` are the callbacks: every row is written to a file
  first and then handed to the sender.

What a service does never reaches training: a row that it refuses, or that finds the queue full, is
counted and told once. It stays in the file, and rows that are missing at the end of the service's
run are sent when the run is resumed.
"""

from __future__ import annotations

import atexit
import json
import logging
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final, Protocol

from callbacks.errors import CallbackConfigError
from callbacks.optional_import import optional_module
from callbacks.ready_made.metric_values import count_problems
from callbacks.ready_made.result_files import (
    JSONLinesResults,
    iteration_of,
    jsonable,
)
from callbacks.ready_made.result_loggers import EXIT_PATIENCE_S, BackgroundWriter, ResultLogger
from callbacks.views import AlgorithmView
from checkpoints.code import moved_path
from checkpoints.trees import named_leaves
from checkpoints.writer import write_whole_file

_LOGGER = logging.getLogger(__name__)
_STEP: Final = "num_env_steps_sampled_lifetime"

# ---- services


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


class WandbService:
    """Weights & Biases; needs `pip install 'local-trainer[wandb]'`.

    Args:
        project: name of the project.
        group: of the runs; None: the experiment's name.
        settings: further arguments of `wandb.init`.

    Raises:
        ImportError: the package is not installed.
    """

    _package = "wandb"

    def __init__(self, project: str, group: str | None = None, **settings: Any) -> None:
        self._module()  # a missing package is told now
        self._project, self._group, self._settings = project, group, settings

    def _module(self) -> ModuleType:
        return optional_module(self._package, user=type(self).__name__, extra=self._package)

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

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends a run with an exit code."""
        run.finish(exit_code=int(failed))


class TrackioService(WandbService):
    """trackio, a local store with W&B's names; needs `pip install 'local-trainer[trackio]'`.

    Args:
        project: name of the project.
        group: of the runs; None: the experiment's name.
        settings: further arguments of `trackio.init`.

    Raises:
        ImportError: the package is not installed.
    """

    _package = "trackio"

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

    def close_run(self, run: str, *, failed: bool) -> None:
        """Ends a run with a status."""
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")

    def _key(self, path: str) -> str:
        """A name that MLflow takes."""
        return self._UNKNOWN.sub("_", path)


# ---- sending


class ServiceSender:
    """Hands the rows of one run to a service, on a thread, in their order; never waits.

    A file says which run of the service it is and up to which iteration it has rows. So a resumed
    run goes on with it, sends what is missing at its end, and sends nothing twice.

    Args:
        service: it may hang and fail.
        file: where run and progress are written down; in the run's own folder.
        max_waiting: so many rows wait at most; more are not sent.
    """

    def __init__(self, service: TrackerService, file: Path, *, max_waiting: int = 1000) -> None:
        self._service = service
        self._file = file
        self._max_waiting = max_waiting
        self._writer: BackgroundWriter | None = None
        self._facts: Mapping[str, Any] = {}
        self._run_id = ""
        self._num_sent_iterations = 0
        self._run: Any = None

    @property
    def num_lost(self) -> int:
        """How many rows the service did not get in this process."""
        return 0 if self._writer is None else self._writer.num_lost

    def forget(self) -> None:
        """Begins a new run of the service with the next row, however far the last one came."""
        self.close()
        self._writer = None
        self._file.unlink(missing_ok=True)

    def send(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], earlier: Iterable[Mapping[str, Any]]
    ) -> None:
        """Hands over a row.

        Args:
            row: as `ResultSink` gets it.
            facts: of the run, for `TrackerService.open_run`; read with the first row.
            earlier: all rows of the run that are kept; read with the first row.
        """
        if self._writer is None:
            self._begin(facts)
            for kept in earlier:
                if self._num_sent_iterations < iteration_of(kept) < iteration_of(row):
                    self._submit(kept)
        self._submit(row)

    def flush(self, timeout_s: float) -> bool:
        """Waits until all rows are sent, or lost; False if that takes longer."""
        return self._writer is None or self._writer.flush(timeout_s)

    def close(self) -> None:
        """Has the run of the service ended when all rows are sent; a further row opens it again."""
        if self._writer is not None:
            self._writer.submit(None, has_limit=False)

    def _begin(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
            self._run_id, self._num_sent_iterations = str(known["run"]), int(known["sent"])
        except FileNotFoundError:
            self._run_id, self._num_sent_iterations = _new_run_id(facts), 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            _LOGGER.warning(
                "%s, which says with which run of the tracker to go on, cannot be read (%s). The "
                "tracker gets a new run.",
                self._file,
                error,
            )
            self._run_id, self._num_sent_iterations = _new_run_id(facts), 0
        name = f"{type(self._service).__name__} ({self._run_id})"
        self._writer = BackgroundWriter(self._take, name=name, max_waiting=self._max_waiting)

    def _submit(self, row: Mapping[str, Any]) -> None:
        assert self._writer is not None  # noqa: S101 - begun before
        self._writer.submit(row)

    # On the thread:

    def _take(self, row: Mapping[str, Any] | None) -> None:
        if row is None:
            run, self._run = self._run, None
            if run is not None:
                atexit.unregister(self._end)
                self._service.close_run(run, failed=False)
            return
        iteration = iteration_of(row)
        if iteration <= self._num_sent_iterations:
            return  # made again, with the same bytes
        if self._run is None:
            self._note()  # before there is a run that would not be found again
            self._run = self._service.open_run(self._run_id, self._facts)
            # After the service has registered its own end, so before that at the process's end.
            atexit.register(self._end)
        self._service.log_row(self._run, numbers_of(row), int(row.get(_STEP) or iteration))
        self._num_sent_iterations = iteration
        self._note()

    def _note(self) -> None:
        text = json.dumps({"run": self._run_id, "sent": self._num_sent_iterations}) + "\n"

        def write(opened: BinaryIO) -> None:
            opened.write(text.encode())

        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole_file(self._file, write, overwrite=True)

    def _end(self) -> None:
        self.close()
        self.flush(EXIT_PATIENCE_S)


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
    """

    holds_points = True

    def __init__(self, service: TrackerService, folder: str | Path, *, max_waiting: int) -> None:
        self._service = service
        self._max_waiting = max_waiting
        self.path = Path(folder).expanduser().resolve()
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

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_service", "_max_waiting", "path", "facts")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, path=moved_path(state["path"]))
        self._open()

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Gives rows of an earlier run another name; the service gets a new run."""
        self._rows.start_anew(row)
        self.sender.forget()

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a row, and hands it to the service; one that says `done` ends the service's run.

        The end is handed over by the same thread as the rows, so none comes after it.
        """
        try:
            self._rows.append(row)
            self.sender.send(row, self.facts, self._rows.rows())
        finally:
            if row.get("done"):
                self.sender.close()


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

    Raises:
        CallbackConfigError: an argument makes no sense.
    """

    def __init__(
        self, service: TrackerService, folder: str | Path = "tracker", *, max_waiting: int = 1000
    ) -> None:
        problems = count_problems("max_waiting", max_waiting)
        if not isinstance(folder, str | Path) or str(folder) in ("", "."):
            problems.append(f"`folder={folder!r}` is no path of a folder")
        if problems:
            raise CallbackConfigError([f"{type(self).__name__}: {text}" for text in problems])
        self._tracked = TrackedRows(service, folder, max_waiting=max_waiting)
        super().__init__(self._tracked, max_waiting=max_waiting)

    @property
    def _num_lost_here(self) -> int:
        return super()._num_lost_here + self._tracked.sender.num_lost

    def on_algorithm_init(self, *, algorithm: AlgorithmView, **kwargs: Any) -> None:
        """Notes what the service is told of the run."""
        super().on_algorithm_init(algorithm=algorithm, **kwargs)
        self._tracked.facts = facts_of(algorithm, self._tracked.path)

    def flush_service(self, timeout_s: float) -> bool:
        """Waits until the service has all rows, or has lost them; False if that takes longer.

        Args:
            timeout_s: in seconds, at least 0.
        """
        return self.flush(timeout_s) and self._tracked.sender.flush(timeout_s)


class WandbLogger(TrackerLogger):
    """Sends every result to Weights & Biases; RLlib's `WandbLoggerCallback`.

    Needs `pip install 'local-trainer[wandb]'`. `WANDB_MODE=offline` writes to the folder only.

    Args:
        project: name of the project.
        folder: where rows, W&B's files and the id of the run are; of one run.
        group: of the runs; None: algorithm and env.
        max_waiting: see `TrackerLogger`.
        settings: further arguments of `wandb.init`.

    Raises:
        ImportError: the package is not installed.
    """

    def __init__(
        self,
        project: str = "local-trainer",
        *,
        folder: str | Path = "wandb-tracker",
        group: str | None = None,
        max_waiting: int = 1000,
        **settings: Any,
    ) -> None:
        super().__init__(WandbService(project, group, **settings), folder, max_waiting=max_waiting)


class TrackioLogger(TrackerLogger):
    """Sends every result to trackio, a store on this machine.

    Needs `pip install 'local-trainer[trackio]'`.

    Args:
        project: name of the project.
        folder: where rows and the id of the run are; of one run.
        group: of the runs; None: algorithm and env.
        max_waiting: see `TrackerLogger`.
        settings: further arguments of `trackio.init`.

    Raises:
        ImportError: the package is not installed.
    """

    def __init__(
        self,
        project: str = "local-trainer",
        *,
        folder: str | Path = "trackio-tracker",
        group: str | None = None,
        max_waiting: int = 1000,
        **settings: Any,
    ) -> None:
        super().__init__(
            TrackioService(project, group, **settings), folder, max_waiting=max_waiting
        )


class MLflowLogger(TrackerLogger):
    """Sends every result to MLflow; RLlib's `MLflowLoggerCallback`.

    Needs `pip install 'local-trainer[mlflow]'`.

    Args:
        tracking_uri: of the server, folder or database; None: MLflow's own choice.
        folder: where rows and the id of the run are; of one run.
        experiment_name: MLflow's experiment; None: algorithm and env.
        tags: of the run.
        max_waiting: see `TrackerLogger`.

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
    ) -> None:
        service = MLflowService(tracking_uri, experiment_name=experiment_name, tags=tags)
        super().__init__(service, folder, max_waiting=max_waiting)

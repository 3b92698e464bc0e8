"""Loggers that send each trial's rows to a service: Weights & Biases, MLflow, trackio.

One run per trial, whose id follows from experiment and trial: a restored experiment goes on with
the same runs. Services are talked to in a thread, through a queue of limited length. If one hangs
or fails, its rows are dropped with one warning; tuning never waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, Full, Queue
from types import ModuleType
from typing import Any, Final

from callbacks.optional_import import optional_module
from callbacks.ready_made.result_files import jsonable, leaves
from trainer.tune.callbacks import LoggerCallback, TrialView

_LOGGER = logging.getLogger(__name__)
_MOST_WAITING: Final = 1000
_LAST_WORDS_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.1


class ServiceLogger(LoggerCallback):
    """Sends rows to a service in a thread; derive from it for a service of your own.

    Write `open_run`, `log_row` and `close_run`, which are called in the thread.
    """

    def __init__(self) -> None:
        self._waiting: Queue[Callable[[], None]] = Queue(_MOST_WAITING)
        self._runs: dict[str, Any] = {}
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._has_told = False

    # ---- what a service is

    def open_run(self, run_id: str, trial: Mapping[str, Any]) -> Any:
        """Begins the run of a trial, or goes on with it; returns what `log_row` is given.

        Args:
            run_id: the same for the same trial of the same experiment.
            trial: "name", "experiment", "folder" and "params".
        """
        raise NotImplementedError

    def log_row(self, run: Any, row: Mapping[str, float], step: int) -> None:
        """Sends the numbers of a row; `step` is its number within the trial."""
        raise NotImplementedError

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends a run."""

    # ---- what is called in the tuner

    def log_trial_start(self, trial: TrialView) -> None:
        """Begins the trial's run."""
        folder = Path(trial.path)
        experiment = folder.parent.parent.name
        facts = {
            "name": trial.trial_name,
            "experiment": experiment,
            "folder": str(folder),
            "params": jsonable(trial.params),
        }
        run_id = f"{experiment}-{trial.trial_id}"

        def open_it() -> None:
            if facts["folder"] not in self._runs:
                self._runs[str(folder)] = self.open_run(run_id, facts)

        self._send(open_it)

    log_trial_restore = log_trial_start

    def log_trial_result(self, iteration: int, trial: TrialView, result: Mapping[str, Any]) -> None:
        """Sends the numbers of a row."""
        del iteration
        numbers = {
            key: float(value)
            for key, value in leaves(result)
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        path, step = trial.path, trial._trial.num_rows
        self._send(lambda: self._log(path, numbers, step))

    def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
        """Ends the trial's run."""
        path = trial.path
        self._send(lambda: self._close(path, failed=failed))

    def on_experiment_end(self, **_: Any) -> None:
        """Waits a few seconds for what is still to be sent, and ends the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._is_over.set()
            thread.join(_LAST_WORDS_S)

    # ---- the thread

    def _send(self, action: Callable[[], None]) -> None:
        if self._thread is None:
            self._is_over = threading.Event()
            self._thread = threading.Thread(
                target=self._work, args=(self._is_over,), name="logger", daemon=True
            )
            self._thread.start()
        try:
            self._waiting.put_nowait(action)
        except Full:
            self._tell(f"has not answered, and {_MOST_WAITING} rows wait for it")

    def _work(self, is_over: threading.Event) -> None:
        while not (is_over.is_set() and self._waiting.empty()):
            try:
                action = self._waiting.get(timeout=_LOOK_EVERY_S)
            except Empty:
                continue
            try:
                action()
            except Exception as error:  # noqa: BLE001 - of the service; told once
                self._tell(f"failed: {type(error).__name__}: {error}")

    def _tell(self, what: str) -> None:
        if not self._has_told:
            self._has_told = True
            _LOGGER.warning(
                "The service of %s %s. Rows are dropped for it; the trials go on, and their "
                "results.jsonl hold all rows.",
                type(self).__name__,
                what,
            )

    def _log(self, path: str, row: Mapping[str, float], step: int) -> None:
        if path in self._runs:
            self.log_row(self._runs[path], row, step)

    def _close(self, path: str, *, failed: bool) -> None:
        run = self._runs.pop(path, None)
        if run is not None:
            self.close_run(run, failed=failed)


class WandbLoggerCallback(ServiceLogger):
    """Sends each trial's rows to Weights & Biases; needs `pip install wandb`.

    Args:
        project: name of the project.
        group: of the runs; None: the experiment's name.
        settings: further arguments of `wandb.init`.

    Raises:
        ImportError: the package is not installed.
    """

    _package = "wandb"

    def __init__(self, project: str = "local-trainer", group: str | None = None, **settings: Any):
        super().__init__()
        self._module()  # a missing package is told now
        self._project, self._group, self._settings = project, group, settings

    def _module(self) -> ModuleType:
        name = self._package
        return optional_module(name, user=type(self).__name__, extra=name)

    def open_run(self, run_id: str, trial: Mapping[str, Any]) -> Any:
        """One run of its own among several in this process."""
        return self._module().init(
            id=run_id,
            resume="allow",
            project=self._project,
            group=self._group or trial["experiment"],
            name=trial["name"],
            config=trial["params"],
            **{"dir": trial["folder"], "reinit": "create_new", **self._settings},
        )

    def log_row(self, run: Any, row: Mapping[str, float], step: int) -> None:
        """Sends a row."""
        run.log(dict(row), step=step)

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends a run with an exit code."""
        run.finish(exit_code=int(failed))


class TrackioLoggerCallback(WandbLoggerCallback):
    """Sends each trial's rows to trackio, a local store; needs `pip install trackio`.

    Args:
        project: name of the project.
        group: of the runs; None: the experiment's name.
        settings: further arguments of `trackio.init`.

    Raises:
        ImportError: the package is not installed.
    """

    _package = "trackio"

    def open_run(self, run_id: str, trial: Mapping[str, Any]) -> Any:
        """One run by name."""
        return self._module().init(
            project=self._project,
            name=run_id,
            group=self._group or trial["experiment"],
            resume="allow",
            config=dict(trial["params"]),
            **self._settings,
        )

    def close_run(self, run: Any, *, failed: bool) -> None:
        """Ends a run."""
        del failed
        run.finish()


class MLflowLoggerCallback(ServiceLogger):
    """Sends each trial's rows to MLflow; needs `pip install mlflow-skinny`.

    Args:
        tracking_uri: of the server or folder; None: MLflow's own choice.
        experiment_name: MLflow's experiment; None: the name of the tuned one.
        tags: of every run.

    Raises:
        ImportError: the package is not installed.
    """

    _TAG: Final = "local_trainer_run"

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        experiment_name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._experiment, self._tags = experiment_name, dict(tags or {})
        mlflow = optional_module("mlflow", user="MLflowLoggerCallback", extra="mlflow")
        self._client = mlflow.MlflowClient(tracking_uri)

    def open_run(self, run_id: str, trial: Mapping[str, Any]) -> str:
        """The run with this trial's tag, which may be there already."""
        name = self._experiment or str(trial["experiment"])
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        runs = self._client.search_runs([experiment], f"tags.{self._TAG} = '{run_id}'")
        if runs:
            return str(runs[0].info.run_id)
        tags = {**self._tags, self._TAG: run_id}
        made = self._client.create_run(experiment, tags=tags, run_name=trial["name"])
        for path, value in trial["params"].items():
            self._client.log_param(made.info.run_id, path, value)
        return str(made.info.run_id)

    def log_row(self, run: str, row: Mapping[str, float], step: int) -> None:
        """Sends a row."""
        for key, value in row.items():
            self._client.log_metric(run, key, value, step=step)

    def close_run(self, run: str, *, failed: bool) -> None:
        """Ends a run with a status."""
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")

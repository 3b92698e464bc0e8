"""Loggers that send each trial's rows to a service: Weights & Biases, MLflow, trackio.

One run per trial, whose id follows from experiment and trial: a restored experiment goes on with
the same runs. Services are those of `callbacks.ready_made.tracker_services`; they are talked to on
a thread, through a queue of limited length. If one hangs or fails, its rows are dropped with one
warning; tuning never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from callbacks.ready_made.result_files import jsonable
from callbacks.ready_made.result_loggers import BackgroundWriter
from callbacks.ready_made.tracker_services import (
    MLflowService,
    TrackerService,
    TrackioService,
    WandbService,
)
from callbacks.ready_made.trackers import numbers_of
from trainer.tune.callbacks import LoggerCallback, TrialView

_MOST_WAITING: Final = 1000
_PATIENCE_S: Final = 5.0


class ServiceLogger(LoggerCallback):
    """Sends rows to a service on a thread.

    Args:
        service: that is talked to; None: `open_run`, `log_row` and `close_run` of a class derived
            from this one.
    """

    def __init__(self, service: TrackerService | None = None) -> None:
        self._service: TrackerService = self if service is None else service
        self._runs: dict[str, Any] = {}
        self._writer = BackgroundWriter(
            lambda action: action(), name=type(self).__name__, max_waiting=_MOST_WAITING
        )

    # ---- what a service is

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> Any:
        """Begins the run of a trial, or goes on with it; returns what `log_row` is given.

        The id is the same for the same trial of the same experiment; the facts are "name",
        "experiment", "folder" and "params".
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
        path, experiment = trial.path, Path(trial.path).parent.parent.name
        facts = {
            "name": trial.trial_name,
            "experiment": experiment,
            "folder": path,
            "params": jsonable(trial.params),
        }
        run_id = f"{experiment}-{trial.trial_id}"

        def open_it() -> None:
            if path not in self._runs:
                self._runs[path] = self._service.open_run(run_id, facts)

        self._writer.submit(open_it)

    log_trial_restore = log_trial_start

    def log_trial_result(self, iteration: int, trial: TrialView, result: Mapping[str, Any]) -> None:
        """Sends the numbers of a row."""
        del iteration
        path, numbers, step = trial.path, numbers_of(result), trial._trial.num_rows
        self._of_run(path, lambda run: self._service.log_row(run, numbers, step))

    def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
        """Ends the trial's run."""
        path = trial.path
        self._of_run(path, lambda run: self._service.close_run(run, failed=failed))
        self._writer.submit(lambda: self._runs.pop(path, None))

    def on_experiment_end(self, **_: Any) -> None:
        """Waits a few seconds for what is still to be sent."""
        self._writer.flush(_PATIENCE_S)

    def _of_run(self, path: str, action: Callable[[Any], None]) -> None:
        """Does something with a run in the thread; nothing if it could not be opened."""

        def do() -> None:
            if path in self._runs:
                action(self._runs[path])

        self._writer.submit(do)


class WandbLoggerCallback(ServiceLogger):
    """Sends each trial's rows to Weights & Biases; needs `pip install 'local-trainer[wandb]'`.

    Args:
        project: name of the project.
        group: of the runs; None: the experiment's name.
        settings: further arguments of `wandb.init`.

    Raises:
        ImportError: the package is not installed.
    """

    _service_class: ClassVar = WandbService

    def __init__(self, project: str = "local-trainer", group: str | None = None, **settings: Any):
        super().__init__(self._service_class(project, group, **settings))


class TrackioLoggerCallback(WandbLoggerCallback):
    """Sends each trial's rows to trackio, a local store; needs `local-trainer[trackio]`.

    Arguments as of `WandbLoggerCallback`; `settings` are those of `trackio.init`.
    """

    _service_class = TrackioService


class MLflowLoggerCallback(ServiceLogger):
    """Sends each trial's rows to MLflow; needs `pip install 'local-trainer[mlflow]'`.

    Args:
        tracking_uri: of the server, folder or database; None: MLflow's own choice.
        settings: `experiment_name` (None: that of the tuned one) and `tags` of every run; see
            `MLflowService`.

    Raises:
        ImportError: the package is not installed.
    """

    def __init__(self, tracking_uri: str | None = None, **settings: Any) -> None:
        super().__init__(MLflowService(tracking_uri, **settings))

"""Loggers that send each trial's rows to a service: Weights & Biases, MLflow, trackio.

One run per trial, whose id follows from experiment and trial: a restored experiment goes on with
the same runs. Services are those of `callbacks.ready_made.tracker_services`; they follow the rows
of trials on a thread. If one hangs or fails, it gets them later; tuning never waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from callbacks.ready_made.followers import Sink
from callbacks.ready_made.rows_file import jsonable
from callbacks.ready_made.tracker_services import (
    MLflowService,
    TrackerService,
    TrackioService,
    WandbService,
)
from callbacks.ready_made.trackers import ServiceSink
from trainer.tune.callbacks import FollowingLogger, TrialView


class ServiceLogger(FollowingLogger):
    """Sends rows to a service, in the background.

    Args:
        service: that is talked to; None: `open_run`, `log_row` and `close_run` of a class derived
            from this one.
    """

    def __init__(self, service: TrackerService | None = None) -> None:
        super().__init__()
        self._service: TrackerService = self if service is None else service

    def _sink_of(self, trial: TrialView) -> Sink:
        experiment = Path(trial.path).parent.parent.name
        facts = {
            "name": trial.trial_name,
            "experiment": experiment,
            "folder": trial.path,
            "params": jsonable(trial.params),
        }
        sink = ServiceSink(
            self._service,
            facts,
            trial.path,
            bookmark=f"{type(self).__name__}-{self.number}.bookmark",
            run_id=f"{experiment}-{trial.trial_id}",
            counts_rows=True,
        )
        sink.later = "Tuner.restore() sends it"
        return sink

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

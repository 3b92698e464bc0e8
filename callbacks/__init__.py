"""Callbacks of local-trainer: code of the user that runs at certain events.

    from callbacks import RLlibCallback

    class EpisodeReturn(RLlibCallback):
        def on_episode_end(self, *, episode, **kwargs):
            print(episode.get_return())

    config.callbacks(EpisodeReturn, on_train_result=lambda algorithm, **kwargs:
    print(algorithm.training_iteration))

`callbacks.events` is the table of events, `callbacks.chain` who is called in which order. This
package never imports `trainer`; what a callback may touch is declared in `callbacks.views`.
"""

from __future__ import annotations

from callbacks import rllib_names as rllib_names
from callbacks.callback import RLlibCallback
from callbacks.chain import CallbackChain
from callbacks.errors import (
    AnyCallbackError,
    CallbackConfigError,
    CallbackError,
    NonFiniteError,
    PackingError,
)
from callbacks.events import EVENTS, Event
from callbacks.ready_made.progress import ProgressPrinter
from callbacks.ready_made.recorders import EpisodeRecorder, VideoRecorder, load_episode
from callbacks.ready_made.result_loggers import (
    CSVLogger,
    JSONLinesLogger,
    ResultLogger,
    ResultSink,
    TensorBoardLogger,
)
from callbacks.ready_made.saving import BestCheckpoint, PeriodicCheckpoint
from callbacks.ready_made.stopping import EarlyStopping, NonFiniteGuard
from callbacks.ready_made.task_ladder import TaskLadder
from callbacks.ready_made.tracker_services import TrackerService
from callbacks.ready_made.trackers import (
    AimLogger,
    MLflowLogger,
    TrackerLogger,
    TrackioLogger,
    WandbLogger,
)
from callbacks.rllib_names import *  # noqa: F403 - names of RLlib
from callbacks.spec import CallbackSpec
from callbacks.views import (
    AlgorithmView,
    ConfigView,
    EnvRunnerGroupView,
    EnvRunnerView,
    EpisodeView,
    MetricsLoggerView,
    RLModuleView,
    SampleBatchView,
    VectorEnvView,
)

__all__ = [
    "EVENTS",
    "AimLogger",
    "AlgorithmView",
    "AnyCallbackError",
    "BestCheckpoint",
    "CSVLogger",
    "CallbackChain",
    "CallbackConfigError",
    "CallbackError",
    "CallbackSpec",
    "ConfigView",
    "EarlyStopping",
    "EnvRunnerGroupView",
    "EnvRunnerView",
    "EpisodeRecorder",
    "EpisodeView",
    "Event",
    "JSONLinesLogger",
    "MLflowLogger",
    "MetricsLoggerView",
    "NonFiniteError",
    "NonFiniteGuard",
    "PackingError",
    "PeriodicCheckpoint",
    "ProgressPrinter",
    "RLModuleView",
    "RLlibCallback",
    "ResultLogger",
    "ResultSink",
    "SampleBatchView",
    "TaskLadder",
    "TensorBoardLogger",
    "TrackerLogger",
    "TrackerService",
    "TrackioLogger",
    "VectorEnvView",
    "VideoRecorder",
    "WandbLogger",
    "load_episode",
]

__all__ += rllib_names.__all__
rllib_names.install()

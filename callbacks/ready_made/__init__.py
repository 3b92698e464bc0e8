"""Callbacks that are ready to be used; one file per idea."""

from __future__ import annotations

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

__all__ = [
    "AimLogger",
    "BestCheckpoint",
    "CSVLogger",
    "EarlyStopping",
    "EpisodeRecorder",
    "JSONLinesLogger",
    "MLflowLogger",
    "NonFiniteGuard",
    "PeriodicCheckpoint",
    "ProgressPrinter",
    "ResultLogger",
    "ResultSink",
    "TaskLadder",
    "TensorBoardLogger",
    "TrackerLogger",
    "TrackerService",
    "TrackioLogger",
    "VideoRecorder",
    "WandbLogger",
    "load_episode",
]

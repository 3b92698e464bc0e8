"""Callbacks that are ready to be used; one file per idea."""

from __future__ import annotations

from callbacks.ready_made.best_checkpoint import BestCheckpoint
from callbacks.ready_made.early_stopping import EarlyStopping
from callbacks.ready_made.episode_file import load_episode
from callbacks.ready_made.episode_recorder import EpisodeRecorder
from callbacks.ready_made.non_finite_guard import NonFiniteGuard
from callbacks.ready_made.periodic_checkpoint import PeriodicCheckpoint
from callbacks.ready_made.progress_printer import ProgressPrinter
from callbacks.ready_made.result_logging import (
    CSVLogger,
    JSONLinesLogger,
    ResultLogger,
    ResultSink,
    TensorBoardLogger,
)
from callbacks.ready_made.task_ladder import TaskLadder
from callbacks.ready_made.video_recorder import VideoRecorder

__all__ = [
    "BestCheckpoint",
    "CSVLogger",
    "EarlyStopping",
    "EpisodeRecorder",
    "JSONLinesLogger",
    "NonFiniteGuard",
    "PeriodicCheckpoint",
    "ProgressPrinter",
    "ResultLogger",
    "ResultSink",
    "TaskLadder",
    "TensorBoardLogger",
    "VideoRecorder",
    "load_episode",
]

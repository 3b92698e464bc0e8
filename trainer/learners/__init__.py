"""From episodes to better weights: columns, minibatches, and the base of all learners."""

from trainer.learners.columns import Columns, columns_from_episodes, minibatches, num_minibatches
from trainer.learners.learner import (
    EpisodeLearner,
    Learner,
    LearnerSettings,
    LearnerSpec,
    ReplayBatch,
    ReplayLearner,
    ReplaySettings,
    ReplayUpdate,
    TargetNetwork,
)
from trainer.learners.train_batch import BatchListener, Blame, TrainBatch, TrainBatchEvent

__all__ = [
    "BatchListener",
    "Blame",
    "Columns",
    "EpisodeLearner",
    "Learner",
    "LearnerSettings",
    "LearnerSpec",
    "ReplayBatch",
    "ReplayLearner",
    "ReplaySettings",
    "ReplayUpdate",
    "TargetNetwork",
    "TrainBatch",
    "TrainBatchEvent",
    "columns_from_episodes",
    "minibatches",
    "num_minibatches",
]

"""From episodes to better weights: columns, minibatches, and the base of all learners."""

from trainer.learners.columns import Columns, columns_from_episodes
from trainer.learners.episode_learner import EpisodeLearner
from trainer.learners.learner import Learner, LearnerSpec
from trainer.learners.minibatches import minibatches, num_minibatches
from trainer.learners.replay_learner import (
    ReplayBatch,
    ReplayLearner,
    ReplaySettings,
    ReplayUpdate,
)
from trainer.learners.settings import LearnerSettings
from trainer.learners.target_network import TargetNetwork
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

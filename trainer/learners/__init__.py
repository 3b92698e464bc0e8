"""From episodes to better weights: columns, minibatches, and the base of all learners."""

from trainer.learners.columns import (
    BatchListener,
    Blame,
    Columns,
    TrainBatch,
    TrainBatchEvent,
    columns_from_episodes,
    minibatches,
    num_minibatches,
)
from trainer.learners.learner import NOT_IN_TORCH, EpisodeLearner, Learner, LearnerSettings
from trainer.learners.learner_group import LearnerGroup, chunks_by_module
from trainer.learners.replay_learner import (
    ReplayBatch,
    ReplayLearner,
    ReplaySettings,
    ReplayUpdate,
    TargetNetwork,
    td_error_losses,
)
from trainer.learners.torch_learner import TorchLearner

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
from trainer.learners.learner import (
    GRADIENT_NORM,
    NOT_IN_TORCH,
    EpisodeLearner,
    Learner,
    LearnerSettings,
    means_of_losses,
)
from trainer.learners.learner_group import LearnerGroup, chunks_by_module
from trainer.learners.replay_learner import (
    CriticLoss,
    ReplayBatch,
    ReplayLearner,
    ReplaySettings,
    ReplayUpdate,
    TargetNetwork,
    critic_loss,
    loss_metrics,
    mean_errors,
    smallest_of,
    td_error_losses,
    td_targets,
    value_metrics,
)
from trainer.learners.torch_learner import TorchLearner

"""From episodes to better weights: columns, minibatches, and the base of all learners."""

from trainer.learners.columns import Columns, columns_from_episodes
from trainer.learners.learner import Learner, LearnerSpec
from trainer.learners.minibatches import minibatches, num_minibatches
from trainer.learners.settings import LearnerSettings

__all__ = [
    "Columns",
    "Learner",
    "LearnerSettings",
    "LearnerSpec",
    "columns_from_episodes",
    "minibatches",
    "num_minibatches",
]

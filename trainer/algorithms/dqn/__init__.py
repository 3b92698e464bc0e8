"""Deep Q-learning."""

from trainer.algorithms.dqn.algorithm import DQN
from trainer.algorithms.dqn.config import DQNConfig

__all__ = ["DQN", "DQNConfig"]

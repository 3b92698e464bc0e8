"""Deep Q-learning."""

from trainer.algorithms.dqn.algorithm import DQN, DQNConfig

__all__ = ["DQN", "DQNConfig"]

"""Deep Q-learning."""

from trainer.algorithms.dqn.dqn import DQN, DQNConfig, DQNLearner

__all__ = ["DQN", "DQNConfig", "DQNLearner"]

"""Proximal Policy Optimization."""

from trainer.algorithms.ppo.ppo import PPO, PPOConfig, PPOLearner
from trainer.algorithms.ppo.torch_learner import PPOTorchLearner

__all__ = ["PPO", "PPOConfig", "PPOLearner", "PPOTorchLearner"]

"""Proximal Policy Optimization."""

from trainer.algorithms.ppo.algorithm import PPO
from trainer.algorithms.ppo.config import PPOConfig

__all__ = ["PPO", "PPOConfig"]

"""Proximal Policy Optimization."""

from trainer.algorithms.ppo.algorithm import PPO, PPOConfig

__all__ = ["PPO", "PPOConfig"]

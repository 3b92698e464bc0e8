"""Proximal Policy Optimization."""

from trainer.algorithms.ppo.ppo import PPO, PPOConfig

__all__ = ["PPO", "PPOConfig"]

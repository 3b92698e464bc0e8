"""Twin delayed DDPG, and DDPG."""

from trainer.algorithms.td3.td3 import DDPG, TD3, DDPGConfig, TD3Config, TD3Learner, TD3Module

__all__ = ["DDPG", "TD3", "DDPGConfig", "TD3Config", "TD3Learner", "TD3Module"]

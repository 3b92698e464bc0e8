"""Soft actor-critic."""

from trainer.algorithms.sac.algorithm import SAC, SACConfig

__all__ = ["SAC", "SACConfig"]

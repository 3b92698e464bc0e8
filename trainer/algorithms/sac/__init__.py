"""Soft actor-critic."""

from trainer.algorithms.sac.sac import SAC, SACConfig

__all__ = ["SAC", "SACConfig"]

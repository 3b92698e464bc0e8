"""Soft actor-critic."""

from trainer.algorithms.sac.algorithm import SAC
from trainer.algorithms.sac.config import SACConfig

__all__ = ["SAC", "SACConfig"]

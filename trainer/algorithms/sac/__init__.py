"""Soft actor-critic."""

from trainer.algorithms.sac.sac import SAC, SACConfig, SACLearner

__all__ = ["SAC", "SACConfig", "SACLearner"]

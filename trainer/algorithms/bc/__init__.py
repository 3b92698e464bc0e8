"""Behaviour cloning: imitates recorded actions."""

from trainer.algorithms.bc.bc import BC, BCConfig

__all__ = ["BC", "BCConfig"]

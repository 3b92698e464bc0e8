"""Policy gradient without a value function (REINFORCE)."""

from trainer.algorithms.pg.algorithm import PG
from trainer.algorithms.pg.config import PGConfig

__all__ = ["PG", "PGConfig"]

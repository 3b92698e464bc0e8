"""Policy gradient without a value function (REINFORCE)."""

from trainer.algorithms.pg.pg import PG, PGConfig, PGLearner

__all__ = ["PG", "PGConfig", "PGLearner"]

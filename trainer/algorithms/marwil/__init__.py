"""Imitation that weighs recorded actions by how well they paid (MARWIL)."""

from trainer.algorithms.marwil.marwil import MARWIL, MARWILConfig, MARWILLearner

__all__ = ["MARWIL", "MARWILConfig", "MARWILLearner"]

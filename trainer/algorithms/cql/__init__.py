"""Conservative Q-learning: SAC from recordings, which mistrusts actions that were never played."""

from trainer.algorithms.cql.cql import CQL, CQLConfig, CQLLearner

__all__ = ["CQL", "CQLConfig", "CQLLearner"]

"""Names of `ray.tune.search.optuna`: write `trainer` for `ray` in the import."""

from trainer.tune.optuna_search import OptunaSearch

__all__ = ["OptunaSearch"]

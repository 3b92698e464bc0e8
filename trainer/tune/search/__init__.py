"""Names of `ray.tune.search`: write `trainer` for `ray` in the import."""

from trainer.tune.naming import create_searcher
from trainer.tune.search import optuna
from trainer.tune.searchers import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    RandomSearch,
    Searcher,
)

__all__ = [
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "RandomSearch",
    "Searcher",
    "create_searcher",
    "optuna",
]

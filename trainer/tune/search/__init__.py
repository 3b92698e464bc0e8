"""Names of `ray.tune.search`: write `trainer` for `ray` in the import."""

from collections.abc import Callable
from typing import NoReturn

from trainer.tune.naming import create_searcher, stand_in
from trainer.tune.search import optuna
from trainer.tune.searchers import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    RandomSearch,
    Repeater,
    Searcher,
)

__all__ = [
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "RandomSearch",
    "Repeater",
    "Searcher",
    "create_searcher",
    "optuna",
]


def __getattr__(name: str) -> Callable[..., NoReturn]:
    return stand_in(name, __all__, module=__name__)

"""Names of `ray.tune.schedulers`: write `trainer` for `ray` in the import."""

from collections.abc import Callable
from typing import NoReturn

from trainer.tune.naming import create_scheduler, stand_in
from trainer.tune.population_based_training import (
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from trainer.tune.scheduling import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    TrialScheduler,
    Verdict,
)

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "TrialScheduler",
    "Verdict",
    "create_scheduler",
]


def __getattr__(name: str) -> Callable[..., NoReturn]:
    return stand_in(name, __all__, module=__name__)

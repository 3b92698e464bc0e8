"""Names of `ray.tune.schedulers`: write `trainer` for `ray` in the import."""

from trainer.tune.naming import create_scheduler
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

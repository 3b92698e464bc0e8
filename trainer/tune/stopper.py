"""Names of `ray.tune.stopper`: write `trainer` for `ray` in the import."""
# ruff: noqa: F403, F405 - `__all__` lists them

from trainer.tune.stoppers import *

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
]

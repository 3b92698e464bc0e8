"""Tuning: searches settings with many trials, and survives every kill exactly.

    from trainer import tune

    def train(config):
        for step in range(10):
            tune.report({"loss": (config["x"] - 3) ** 2 / (step + 1)})

    grid = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 10)},
        tune_config=tune.TuneConfig(num_samples=20, metric="loss", mode="min", seed=0),
    ).fit()
    print(grid.get_best_result().config)

The names are those of Ray Tune. Kill a trial, the tuner or the machine at any moment, and restore:
the same trials, the same rows, the same best config come of it.
"""

from typing import NoReturn

from trainer.envs import register_env
from trainer.errors import (
    JournalError,
    SearchSpaceError,
    TrialError,
    TuneError,
    TuneSettingError,
)
from trainer.tune import logger, schedulers, search, stopper
from trainer.tune.callbacks import (
    Callback,
    CSVLoggerCallback,
    JsonLoggerCallback,
    LoggerCallback,
    TBXLoggerCallback,
)
from trainer.tune.callbacks import TrialView as Trial
from trainer.tune.checkpoint import Checkpoint
from trainer.tune.configs import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    SyncConfig,
    TuneConfig,
)
from trainer.tune.legacy import Experiment, ExperimentAnalysis, run, run_experiments
from trainer.tune.naming import create_scheduler, create_searcher, not_offered
from trainer.tune.optuna_search import OptunaSearch
from trainer.tune.output import CLIReporter, JupyterNotebookReporter, ProgressReporter
from trainer.tune.population_based_training import (
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from trainer.tune.results import Result, ResultGrid
from trainer.tune.scheduling import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    TrialScheduler,
)
from trainer.tune.search_space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from trainer.tune.searchers import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    RandomSearch,
    Repeater,
    Searcher,
)
from trainer.tune.session import TuneContext, get_checkpoint, get_context, report
from trainer.tune.stoppers import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)
from trainer.tune.trainables import (
    PlacementGroupFactory,
    Trainable,
    register_trainable,
    validate_save_restore,
    with_parameters,
    with_resources,
)
from trainer.tune.tuner import Tuner
from trainer_toolkit.nearest_names import did_you_mean

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "BasicVariantGenerator",
    "CLIReporter",
    "CSVLoggerCallback",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "CombinedStopper",
    "ConcurrencyLimiter",
    "Experiment",
    "ExperimentAnalysis",
    "ExperimentPlateauStopper",
    "FIFOScheduler",
    "FailureConfig",
    "FunctionStopper",
    "HyperBandScheduler",
    "JournalError",
    "JsonLoggerCallback",
    "JupyterNotebookReporter",
    "LoggerCallback",
    "MaximumIterationStopper",
    "MedianStoppingRule",
    "NoopStopper",
    "OptunaSearch",
    "PlacementGroupFactory",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ProgressReporter",
    "RandomSearch",
    "Repeater",
    "Result",
    "ResultGrid",
    "ResumeConfig",
    "RunConfig",
    "SearchSpaceError",
    "Searcher",
    "Stopper",
    "SyncConfig",
    "TBXLoggerCallback",
    "TimeoutStopper",
    "Trainable",
    "Trial",
    "TrialError",
    "TrialPlateauStopper",
    "TrialScheduler",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "TuneSettingError",
    "Tuner",
    "choice",
    "create_scheduler",
    "create_searcher",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "logger",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_env",
    "register_trainable",
    "report",
    "run",
    "run_experiments",
    "sample_from",
    "schedulers",
    "search",
    "stopper",
    "uniform",
    "validate_save_restore",
    "with_parameters",
    "with_resources",
]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    advice = not_offered(name)
    raise AttributeError(advice or f"trainer.tune has no {name!r}.{did_you_mean(name, __all__)}")

"""The few names of `ray.train` that scripts use inside of trials: those of `trainer.tune`.

from trainer import train

train.report(algo.train())
"""

from trainer.tune import (
    Checkpoint,
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    get_checkpoint,
    get_context,
    report,
)

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "RunConfig",
    "get_checkpoint",
    "get_context",
    "report",
]

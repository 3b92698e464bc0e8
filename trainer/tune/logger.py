"""Names of `ray.tune.logger`: write `trainer` for `ray` in the import."""
# ruff: noqa: F403, F405 - `__all__` lists them

from trainer.tune.callbacks import *
from trainer.tune.service_loggers import *

__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LegacyLoggerCallback",
    "Logger",
    "LoggerCallback",
    "MLflowLoggerCallback",
    "ServiceLogger",
    "TBXLoggerCallback",
    "TrackioLoggerCallback",
    "WandbLoggerCallback",
]

"""Names of `ray.tune.logger`: write `trainer` for `ray` in the import."""

from trainer.tune.callbacks import (
    CSVLoggerCallback,
    JsonLoggerCallback,
    LoggerCallback,
    TBXLoggerCallback,
)
from trainer.tune.service_loggers import (
    MLflowLoggerCallback,
    ServiceLogger,
    TrackioLoggerCallback,
    WandbLoggerCallback,
)

__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "MLflowLoggerCallback",
    "ServiceLogger",
    "TBXLoggerCallback",
    "TrackioLoggerCallback",
    "WandbLoggerCallback",
]

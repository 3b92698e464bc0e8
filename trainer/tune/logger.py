"""Names of `ray.tune.logger`: write `trainer` for `ray` in the import."""

from trainer.tune.callbacks import (
    CSVLoggerCallback,
    JsonLoggerCallback,
    LoggerCallback,
    TBXLoggerCallback,
)

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback"]

"""Older names of the members of `MetricsLogger`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class _MetricsLogger(Protocol):
    def aggregate(self, stats_dicts: Iterable[Mapping[Any, Any]], *, key: Any = None) -> None: ...


class MetricsLoggerNames:
    """Adds the older names to a metrics logger."""

    def merge_and_log_n_dicts(
        self: _MetricsLogger, stats_dicts: Iterable[Mapping[Any, Any]], *, key: Any = None
    ) -> None:
        """Older name of `aggregate`."""
        self.aggregate(stats_dicts, key=key)

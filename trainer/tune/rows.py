"""Reading values out of rows by key: plain keys, paths with slashes, and RLlib's old keys."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeGuard

import numpy as np

from trainer.errors import TuneError
from trainer.metrics import ResultDict
from trainer.old_names import OLD_NAMES
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.trees import at_path

_LOGGER: Final = logging.getLogger(__name__)

Row = Mapping[str, Any]
"""What a trial reported: a nested dict of plain values."""

Mode = Literal["min", "max"]
"""Whether a metric is better when it is small or when it is large."""

MISSING: Final = object()
"""What `value_at` gives where a row has no such key."""


def value_at(row: Row, key: str) -> Any:
    """The value of a key such as "loss" or "env_runners/episode_return_mean", or `MISSING`."""
    if key in row:
        return row[key]
    value = at_path(row, key, MISSING)
    if value is MISSING and key.split("/")[0] in OLD_NAMES.result_keys:
        return ResultDict(row).get(key, MISSING)
    return value


def row_of_end(row: Row | None) -> Row | None:
    """The last row of a trial that has ended in order, as searchers and schedulers hear of it."""
    if row is None:
        return None
    ended = {**row, "done": True}
    return ResultDict(ended) if isinstance(row, ResultDict) else ended


def is_of_clock(key: str) -> bool:
    """Whether the value of a key is read from a clock, so that decisions on it do not repeat."""
    return key.startswith("time_") or key == "timestamp"


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an int or a float."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_at(row: Row, key: str) -> float:
    """The value of a key as a float; NaN where it is missing or no number."""
    value = value_at(row, key)
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return float(value)
    return math.nan


def score_at(row: Row, metric: str, mode: Mode) -> float:
    """The metric, turned so that more is better; NaN, which ranks last, where it is missing."""
    value = number_at(row, metric)
    return -value if mode == "min" else value


def ranking_key(score: float, number: int) -> tuple[bool, float, int]:
    """Sorts trials from best to worst: NaN last, then by score, then the smaller number first."""
    if math.isnan(score):
        return (True, 0.0, number)
    return (False, -score, number)


def view_of(row: Row, keys: Iterable[str]) -> dict[str, Any]:
    """Only what decisions look at, flat, for the journal; keys that are missing are left out."""
    view = {}
    for key in keys:
        value = value_at(row, key)
        if value is None or isinstance(value, bool | int | float | str):
            view[key] = value
        elif isinstance(value, np.generic):
            view[key] = value.item()
    return view


def adopt_objective(part: Any, **objective: Any) -> None:
    """Fills in the metric and mode of the experiment; a TuneError if the part has others."""
    for name, value in objective.items():
        own = getattr(part, name, None)
        if own is not None and value is not None and own != value:
            raise TuneError(
                f"{type(part).__name__}({name}={own!r}) and TuneConfig({name}={value!r}) "
                "differ; expected it in one of the two places. Leave one of them out."
            )
        if own is None:
            setattr(part, name, value)


class AppearingKeys:
    """Notices keys that appear in none of the first rows of an experiment: misspelt ones."""

    NUM_ROWS: Final = 5

    def __init__(self, keys: Iterable[str]) -> None:
        self._unseen = set(keys)
        self._num_rows = 0

    def look(self, row: Row) -> str | None:
        """A sentence about keys that were in none of the rows, once: after the last that may.

        Gives None otherwise.
        """
        if not self._unseen:
            return None
        self._unseen = {key for key in self._unseen if value_at(row, key) is MISSING}
        self._num_rows += 1
        if not self._unseen or self._num_rows < self.NUM_ROWS:
            return None
        known = ResultDict(row).flat() if any(isinstance(v, Mapping) for v in row.values()) else row
        lines = [
            f"{key!r} is in none of them.{did_you_mean(key, known)}" for key in sorted(self._unseen)
        ]
        self._unseen = set()
        return f"After {self._num_rows} rows, {' '.join(lines)}"

    def warn(self, row: Row, scheduler: str) -> None:
        """Looks, and logs what a scheduler misses."""
        problem = self.look(row)
        if problem is not None:
            _LOGGER.warning("%s cannot decide. %s Correct its time_attr.", scheduler, problem)

"""Single values in order of time: windows, moving averages, and lists of everything."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from trainer.metrics.exact_sum import rounded_mean, rounded_sum
from trainer.types import State


class KeptValues:
    """The last values that were added, up to a limit.

    `merge` puts the other's values behind its own. With the same limit it is associative: whatever
    the grouping, the last values of the whole sequence remain.
    """

    __slots__ = ("values",)

    def __init__(self, limit: int | None = None, values: Iterable[Any] = ()) -> None:
        """Keeps `values`, at most the last `limit` of them (None: all)."""
        self.values: deque[Any] = deque(values, maxlen=limit)

    def add(self, value: Any) -> None:
        """Adds one value."""
        self.values.append(value)

    def merge(self, other: KeptValues) -> None:
        """Adds the other's values behind its own."""
        self.values.extend(other.values)

    def drop_newest(self) -> bool:
        """Forgets the newest value; whether there was one."""
        if not self.values:
            return False
        self.values.pop()
        return True

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added, not even NaN."""
        return not self.values

    def numbers(self) -> list[float]:
        """The values without NaN, if they are numbers; those in lists and arrays one by one."""
        found: list[float] = []
        for value in self.values:
            if isinstance(value, int | float):
                found.append(value)
            else:
                found.extend(np.ravel(value).tolist())
        return [number for number in found if not math.isnan(number)]

    @property
    def nan_count(self) -> int:
        """How many values are NaN."""
        return sum(isinstance(value, float) and math.isnan(value) for value in self.values)

    @property
    def count(self) -> int:
        """How many values there are, NaN left out."""
        return len(self.values) - self.nan_count

    @property
    def total(self) -> float:
        """The sum, rounded once; 0 without numbers; an int if all numbers are."""
        numbers = self.numbers()
        if all(type(number) is int for number in numbers):
            return sum(numbers)
        return rounded_sum(numbers)

    @property
    def mean(self) -> float:
        """The sum divided by the count; NaN without numbers."""
        numbers = self.numbers()
        return rounded_mean(numbers, len(numbers))

    @property
    def low(self) -> float:
        """The smallest number; NaN without numbers."""
        return min(self.numbers(), default=math.nan)

    @property
    def high(self) -> float:
        """The largest number; NaN without numbers."""
        return max(self.numbers(), default=math.nan)

    def moving_average(self, coefficient: float) -> float:
        """The first number, then c·new + (1 - c)·old for every other one; NaN if empty."""
        average = math.nan
        for number in self.numbers():
            if math.isnan(average):
                average = number
            else:
                average = coefficient * number + (1.0 - coefficient) * average
        return float(average)

    def percentiles(self, wanted: tuple[float, ...]) -> dict[float, float]:
        """{percentile: value}, linear between values; NaN without numbers."""
        numbers = sorted(self.numbers())
        return {percentile: _percentile(numbers, percentile) for percentile in wanted}

    def get_state(self) -> State:
        """Plain data."""
        return {"values": list(self.values)}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; the limit stays."""
        self.values = deque(state["values"], maxlen=self.values.maxlen)


def _percentile(numbers: list[float], percentile: float) -> float:
    """A percentile of sorted numbers. NumPy's warns of infinities and makes them NaN."""
    if not numbers:
        return math.nan
    place = (len(numbers) - 1) * percentile / 100.0
    below = math.floor(place)
    above = min(below + 1, len(numbers) - 1)
    weight = place - below
    if weight == 0.0 or numbers[below] == numbers[above]:
        return float(numbers[below])
    return (1.0 - weight) * numbers[below] + weight * numbers[above]

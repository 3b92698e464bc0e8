"""Count, exact sum, smallest and largest of many numbers, in bounded memory."""

from __future__ import annotations

import math
from typing import Any, Final

from trainer.metrics.exact_sum import exact_partials, rounded_mean, rounded_sum
from trainer.types import State

_LONGEST_BUFFER: Final = 512


class Moments:
    """What is left of numbers when only their mean, sum, smallest and largest are wanted.

    Numbers go into a short buffer that is folded now and then. `merge` is associative and
    commutative, bit for bit: see `trainer.metrics.exact_sum`. NaN is counted apart and ignored
    otherwise.

    Attributes:
        count: how many numbers, NaN left out.
        nan_count: how many NaN.
        is_integral: all numbers were integers, so sums and extremes are given as integers.
    """

    __slots__ = ("_buffer", "_high", "_low", "_partials", "count", "is_integral", "nan_count")

    def __init__(self) -> None:
        self._buffer: list[float] = []
        self._partials: list[float] = []
        self._low: float | None = None
        self._high: float | None = None
        self.count = 0
        self.nan_count = 0
        self.is_integral = True

    def add(self, value: float) -> None:
        """Adds one number (an int or float; the caller has checked that)."""
        buffer = self._buffer
        buffer.append(value)
        if len(buffer) >= _LONGEST_BUFFER:
            self.fold()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added, not even NaN."""
        return not (self._buffer or self.count or self.nan_count)

    def fold(self) -> None:
        """Works the buffered numbers into the rest."""
        values = self._buffer
        if not values:
            return
        self._buffer = []
        if math.isnan(rounded_sum(values)):
            numbers = [value for value in values if not math.isnan(value)]
            self.nan_count += len(values) - len(numbers)
            values = numbers
        if values:
            self.is_integral = self.is_integral and set(map(type, values)) == {int}
            self._partials = exact_partials(self._partials + values)
            self._widen(min(values), max(values))
            self.count += len(values)

    def merge(self, other: Moments) -> None:
        """Adds everything that was added to `other` (which stays the same)."""
        self.fold()
        other.fold()
        self.nan_count += other.nan_count
        if other._low is not None and other._high is not None:
            self.is_integral = self.is_integral and other.is_integral
            self._partials = exact_partials(self._partials + other._partials)
            self._widen(other._low, other._high)
            self.count += other.count

    def _widen(self, low: float, high: float) -> None:
        low = low if self._low is None else min(self._low, low)
        high = high if self._high is None else max(self._high, high)
        # Which of 0.0 and -0.0, or of 1 and 1.0, comes first must not show.
        self._low = low if self.is_integral else float(low) + 0.0
        self._high = high if self.is_integral else float(high) + 0.0

    @property
    def total(self) -> float:
        """The sum, rounded once; 0 without numbers; an int if all numbers were."""
        self.fold()
        total = rounded_sum(self._partials)
        return int(total) if self.is_integral else total

    @property
    def mean(self) -> float:
        """The sum divided by the count; NaN without numbers."""
        self.fold()
        return rounded_mean(self._partials, self.count)

    @property
    def low(self) -> float:
        """The smallest number; NaN without numbers."""
        self.fold()
        return math.nan if self._low is None else self._low

    @property
    def high(self) -> float:
        """The largest number; NaN without numbers."""
        self.fold()
        return math.nan if self._high is None else self._high

    def get_state(self) -> State:
        """Plain data; equal for equal numbers, however they were grouped."""
        self.fold()
        return {
            "count": self.count,
            "nan_count": self.nan_count,
            "is_integral": self.is_integral,
            "partials": list(self._partials),
            "low": self._low,
            "high": self._high,
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave."""
        self._buffer = []
        self._partials = list(state["partials"])
        self._low, self._high = state["low"], state["high"]
        self.count, self.nan_count = state["count"], state["nan_count"]
        self.is_integral = state["is_integral"]

    def __getstate__(self) -> State:
        return self.get_state()

    def __setstate__(self, state: Any) -> None:
        self.set_state(state)

"""One metric: the values that were logged, and what a result says about them."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from trainer.errors import MetricsError
from trainer.metrics.result import REDUCTIONS, Options
from trainer.types import State
from trainer_toolkit.checks import shown

# ---- exact sum
#
# Sums of floats that do not depend on how the numbers were grouped or ordered. Adding floats
# rounds after every step, so three processes that add up their own numbers first get another
# total than one process that adds all of them. Here a sum is kept as *partials*: a short list of
# floats whose sum is exactly the sum of everything added so far. Partials can be merged in any
# order, and only reading a total rounds, once.
#
# The list is canonical: the exact sum rounded to a float, what is then still missing rounded to a
# float, and so on. Two sums are equal if and only if their partials are equal, hence so are the
# bytes of a checkpoint. Most sums need one or two partials, none more than about forty, so memory
# is bounded. A sum beyond the range of floats is infinite from then on, whatever follows.
#
# Source: J. R. Shewchuk, "Adaptive precision floating-point arithmetic and fast robust geometric
# predicates", Discrete & Computational Geometry 18 (1997), as implemented by `math.fsum`; ours is
# the use of its rounded result for peeling off partials, because that runs in C.

_DOWNSCALING: Final = 2.0**-70


def rounded_sum(values: Iterable[float]) -> float:
    """The sum of `values`, rounded once (±inf when too large for a float, NaN for inf - inf)."""
    values = values if isinstance(values, Sequence) else list(values)
    try:
        return math.fsum(values)
    except ValueError:  # inf and -inf among the values
        return math.nan
    except OverflowError:
        # Finite values whose running sum left the range of floats. Scaling down loses at most bits
        # that are 2**-70 times the smallest normal float, which no sum near 1e308 can show.
        scaled = math.fsum(value * _DOWNSCALING for value in values)
        return scaled / _DOWNSCALING


def rounded_mean(values: Iterable[float], count: int) -> float:
    """The sum of `values`, rounded once, divided by `count`; NaN without numbers.

    Never -0.0, as no sum is: a sum just below zero may be too small to be divided.

    Args:
        values: the numbers, or partials of their sum.
        count: how many numbers there were.
    """
    return rounded_sum(values) / count + 0.0 if count else math.nan


def exact_partials(values: Iterable[float]) -> list[float]:
    """The canonical partials of a sum: largest first, empty when the sum is zero.

    Args:
        values: floats, or partials of earlier sums, or both. A sum that is not finite has one
        partial.
    """
    remaining = list(values)
    partials: list[float] = []
    while remaining:
        rounded = rounded_sum(remaining)
        if rounded == 0.0:
            break
        partials.append(rounded)
        if not math.isfinite(rounded):
            break
        remaining.append(-rounded)
    return partials


# ---- kept values


class _ReadValues:
    """What can be asked of values that are kept one by one, in order of time."""

    __slots__ = ()

    @property
    def values(self) -> Sequence[Any]:
        """The values: numbers, also NaN, or lists and arrays of numbers."""
        raise NotImplementedError

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
    def is_empty(self) -> bool:
        """Whether nothing was added, not even NaN."""
        return not self.values

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


class KeptValues(_ReadValues):
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


# ---- moments
#
# Count, exact sum, smallest and largest of many numbers, in bounded memory.

_LONGEST_BUFFER: Final = 512


class Moments:
    """What is left of numbers when only their mean, sum, smallest and largest are wanted.

    Numbers go into a short buffer that is folded now and then. `merge` is associative and
    commutative, bit for bit: see `trainer.metrics.statistic`. NaN is counted apart and ignored
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
        self._buffer = []
        self._partials = list(state["partials"])
        self._low, self._high = state["low"], state["high"]
        self.count, self.nan_count = state["count"], state["nan_count"]
        self.is_integral = state["is_integral"]

    def __getstate__(self) -> State:
        return self.get_state()

    def __setstate__(self, state: Any) -> None:
        self.set_state(state)


# ---- values by index


class ValuesByIndex(_ReadValues):
    """The last entries up to a limit; an entry is what several loggers logged at the same index.

    For `reduce_per_index_on_aggregate=True`. Indices are counted from the newest value, because
    windows end there: the newest values of all loggers form one entry, those before them another.
    What comes out depends on the number of runners, which is why it is not the default.

    `merge` puts entries behind others (time), `merge_beside` lays them side by side (runners). Both
    are associative.
    """

    __slots__ = ("_entries", "_reduction")

    def __init__(self, limit: int | None, *, reduction: str) -> None:
        """No entries: at most the last `limit` (None: all), each reduced as `REDUCTIONS` names."""
        self._entries: deque[Moments] = deque(maxlen=limit)
        self._reduction = reduction

    def add(self, value: float) -> None:
        """Adds an entry of one value."""
        entry = Moments()
        entry.add(value)
        self._entries.append(entry)

    def merge(self, other: ValuesByIndex) -> None:
        """Adds copies of the other's entries behind its own."""
        self._entries.extend(_joined([entry]) for entry in other._entries)

    def merge_beside(self, other: ValuesByIndex) -> None:
        """Joins each entry with the other's of the same index, counted from the newest."""
        own, theirs = list(self._entries), list(other._entries)
        newest_first: list[Moments] = []
        for pair in itertools.zip_longest(reversed(own), reversed(theirs)):
            newest_first.append(_joined(entry for entry in pair if entry is not None))
        self._entries = deque(reversed(newest_first), maxlen=self._entries.maxlen)

    def drop_newest(self) -> bool:
        """Forgets the newest entry; whether there was one."""
        if not self._entries:
            return False
        self._entries.pop()
        return True

    @property
    def values(self) -> list[float]:
        """The reduced entries in order of time, NaN where an entry has no number."""
        name = REDUCTIONS[self._reduction]
        return [getattr(entry, name) if entry.count else math.nan for entry in self._entries]

    def get_state(self) -> State:
        """Plain data."""
        return {"entries": [entry.get_state() for entry in self._entries]}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; limit and reduction stay."""
        entries = [Moments() for _ in state["entries"]]
        for entry, saved in zip(entries, state["entries"], strict=True):
            entry.set_state(saved)
        self._entries = deque(entries, maxlen=self._entries.maxlen)


def _joined(parts: Iterable[Moments]) -> Moments:
    """A new entry of everything in the parts."""
    joined = Moments()
    for part in parts:
        joined.merge(part)
    return joined


# ---- statistic

Stat = Literal["mean", "sum", "min", "max", "count", "nan_count"]
"""What else can be asked of a metric than its own reduction."""

Values = Moments | KeptValues | ValuesByIndex
"""The ways to keep values: what is left of them, one by one, or in entries of parallel ones."""

_LARGEST_EXACT_INT: Final = 2**53
"""Larger integers are no exact floats."""


@dataclass(frozen=True)
class Delta:
    """What one logger has got since it last handed over, on its way to another logger.

    Attributes:
        options: how the metric is reduced.
        values: the values, or what is left of them.
    """

    options: Options
    values: Values

    def beside(self, other: Delta) -> Delta:
        """Both together, where values of the same index become one (`ValuesByIndex`).

        Raises:
            MetricsError: the other one does not keep its values by index.
        """
        if not isinstance(other.values, ValuesByIndex):
            raise _cannot_merge("A key", other.options, self.options)
        joined: Any = empty_values(self.options)
        joined.merge_beside(self.values)
        joined.merge_beside(other.values)
        return Delta(self.options, joined)

    def read(self) -> Any:
        """What a result of these values alone says."""
        statistic = Statistic("", self.options)
        statistic.merge(self)
        return statistic.read()


def empty_values(options: Options) -> Values:
    """Where the values of a metric are kept."""
    if options.is_by_index:
        return ValuesByIndex(options.window, reduction=str(options.reduce))
    return KeptValues(options.window) if options.keeps_values else Moments()


def _cannot_merge(name: str, theirs: Options, own: Options) -> MetricsError:
    return MetricsError(
        f"{name}: values reduced as {theirs} cannot be merged into {own}. What was thrown away "
        "cannot be recovered. Log the key with the same options everywhere."
    )


class Statistic:
    """The values of one metric, as *held* (before the last hand-over or result) and *new* ones.

    Life: `log` and `merge` add to the new ones; `read` looks at both; `drain` hands the new ones
    over and holds them; `end_result` holds or forgets them, as the options say.
    """

    __slots__ = (
        "_clock",
        "_held",
        "_new",
        "_read_at_s",
        "_throughput",
        "_unmeasured",
        "_waits_for_first",
        "given",
        "has_warned",
        "name",
        "options",
    )

    def __init__(
        self,
        name: str,
        options: Options,
        *,
        given: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A metric without values.

        Args:
            name: for error texts.
            options: how it is reduced.
            given: the arguments that `options` were made of, compared at every later call.
            clock: seconds, for the throughput.
        """
        self.name = name
        self.options = options
        self.given = given
        self.has_warned = False
        # Any: both are of one kind, which the options choose for good.
        self._held: Any = empty_values(options)
        self._new: Any = empty_values(options)
        self._clock = clock
        self._read_at_s: float | None = None
        self._throughput = math.nan
        # The first amount has no time before it that it could be divided by.
        self._waits_for_first = options.with_throughput
        self._unmeasured = 0.0

    def log(self, value: Any) -> None:
        """Adds a value.

        Raises:
            MetricsError: it is not a number (or, with reduce=None, no array or list either).
        """
        kind = type(value)
        if kind is not float and not (
            kind is int and -_LARGEST_EXACT_INT <= value <= _LARGEST_EXACT_INT
        ):
            value = self.accepted(value)
        self._new.add(value)
        if self._waits_for_first:
            self._begin_measuring()

    def accepted(self, value: Any) -> Any:
        """A value as it is kept; a MetricsError for what `log` refuses."""
        if self.options.reduce is None and isinstance(value, np.ndarray | list | tuple):
            return self._accepted_array(value)
        if isinstance(value, bool | int | np.bool_ | np.integer):
            return int(value) if abs(int(value)) <= _LARGEST_EXACT_INT else self._as_float(value)
        if isinstance(value, float | np.floating):
            return self._as_float(value)
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            return self.accepted(value.item())
        raise self._refused(value)

    def _as_float(self, value: Any) -> float:
        with contextlib.suppress(OverflowError):  # of int; the long float of NumPy becomes infinite
            number = float(value)
            if math.isfinite(number) or not np.isfinite(value):
                return number
        raise MetricsError(
            f"{self.name}: {shown(value)} cannot be logged. Metrics are floats, and none is larger "
            f"than {sys.float_info.max:.3g}. Log it in another unit, or log its logarithm."
        )

    def _accepted_array(self, value: Any) -> Any:
        try:
            array = np.asarray(value)
        except ValueError as cause:
            raise self._refused(value) from cause
        if array.dtype.kind not in "biuf":
            raise self._refused(value)
        if self.options.percentiles is not None and array.ndim:
            raise self._refused(value)
        return value.copy() if isinstance(value, np.ndarray) else value

    def _refused(self, value: Any) -> MetricsError:
        kind = type(value).__name__
        shape = getattr(value, "shape", None)
        described = f"{kind} of shape {shape}" if shape else f"{kind} {shown(value)}"
        return MetricsError(
            f"{self.name}: {described} cannot be logged with reduce={self.options.reduce!r}. "
            "Metrics are numbers; arrays and lists of numbers can be kept with reduce=None "
            "(without percentiles). Log a number, such as `float(x)` or `float(x.mean())`."
        )

    def merge(self, delta: Delta) -> None:
        """Adds what another logger handed over, as if it had been logged here.

        Raises:
            MetricsError: the other logger reduces the metric in another way.
        """
        if type(delta.values) is not type(self._new):
            raise _cannot_merge(self.name, delta.options, self.options)
        new: Any = self._new
        new.merge(delta.values)
        if self._waits_for_first:
            self._begin_measuring()

    def _total(self) -> Any:
        total: Any = empty_values(self.options)
        total.merge(self._held)
        total.merge(self._new)
        return total

    def read(self, stat: Stat | None = None) -> Any:
        """What a result would say now, or `stat` in the place of the reduction."""
        total, options = self._total(), self.options
        wanted = options.reduce if stat is None else stat
        if stat is None and options.ema_coeff is not None:
            return total.moving_average(options.ema_coeff)
        if wanted is None and options.percentiles is not None:
            return total.percentiles(options.percentiles)
        if wanted is None:
            return list(total.values)
        return getattr(total, REDUCTIONS.get(wanted, wanted))

    def values(self) -> list[Any]:
        """The single values as far as they are kept, otherwise the reduced one."""
        return list(self._total().values) if self.options.keeps_values else [self.read()]

    @property
    def throughput(self) -> float:
        """Amount per second, smoothed over results; before the first one, since the first log.

        NaN as long as no time has passed.
        """
        return self._rate(self._clock()) if math.isnan(self._throughput) else self._throughput

    def drain(self) -> Delta | None:
        """Hands over everything new since the last time (None if there is nothing)."""
        new = self._new
        if new.is_empty:
            return None
        if self.options.with_throughput:
            self._measure_throughput()
        self._end_of_new()
        return Delta(self.options, new)

    def end_result(self) -> None:
        """Measures the throughput and forgets what is to be cleared, after a result was made."""
        if self.options.with_throughput:
            self._measure_throughput()
        self._end_of_new()

    def _end_of_new(self) -> None:
        if self.options.clear_on_reduce:
            self._held = empty_values(self.options)
        else:
            self._held.merge(self._new)
            if self.options.ema_coeff is not None:
                average = self._held.moving_average(self.options.ema_coeff)
                self._held = KeptValues(None, [] if math.isnan(average) else [average])
        self._new = empty_values(self.options)

    def _begin_measuring(self) -> None:
        self._waits_for_first = False
        self._read_at_s, self._unmeasured = self._clock(), self._new.total

    def _rate(self, now_s: float) -> float:
        """Amount per second since the last result, or the first log."""
        if self._read_at_s is None or now_s <= self._read_at_s:
            return math.nan
        return float((self._new.total - self._unmeasured) / (now_s - self._read_at_s))

    def _measure_throughput(self) -> None:
        now_s = self._clock()
        rate = self._rate(now_s)
        if not math.isnan(rate):
            weight = 1.0 if math.isnan(self._throughput) else self.options.throughput_ema_coeff
            old = 0.0 if math.isnan(self._throughput) else self._throughput
            self._throughput = weight * rate + (1.0 - weight) * old
        self._read_at_s, self._unmeasured = now_s, 0.0

    def set_value(self, value: Any) -> None:
        """Overwrites the newest value of a window or list, and everything otherwise."""
        value = self.accepted(value)  # before anything is dropped for it
        if self.options.keeps_values and self.options.ema_coeff is None:
            if not self._new.drop_newest():
                self._held.drop_newest()
        else:
            self._held, self._new = empty_values(self.options), empty_values(self.options)
            self._unmeasured = 0.0
        self.log(value)

    def get_state(self) -> State:
        """Plain data, without anything that depends on the clock."""
        return {"held": self._held.get_state(), "new": self._new.get_state()}

    def set_state(self, state: State) -> None:
        self._held.set_state(state["held"])
        self._new.set_state(state["new"])

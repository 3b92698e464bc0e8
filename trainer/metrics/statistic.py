"""One metric: the values that were logged, and what a result says about them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from trainer.errors import MetricsError
from trainer.metrics.kept_values import KeptValues
from trainer.metrics.moments import Moments
from trainer.metrics.options import Options
from trainer.metrics.values_by_index import ValuesByIndex
from trainer.types import State

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
            value = self._accepted(value)
        self._new.add(value)
        if self._waits_for_first:
            self._begin_measuring()

    def _accepted(self, value: Any) -> Any:
        if self.options.reduce is None and isinstance(value, np.ndarray | list | tuple):
            return self._accepted_array(value)
        if isinstance(value, bool | int | np.bool_ | np.integer):
            return int(value) if abs(int(value)) <= _LARGEST_EXACT_INT else float(value)
        if isinstance(value, float | np.floating):
            return float(value)
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            return self._accepted(value.item())
        raise self._refused(value)

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
        described = f"{kind} of shape {shape}" if shape else f"{kind} {value!r:.60}"
        return MetricsError(
            f"{self.name}: {described} cannot be logged with reduce={self.options.reduce!r}. "
            "Metrics are numbers; arrays and lists of numbers can be kept with reduce=None "
            "(without percentiles). Log a number, such as `float(x.mean())`."
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
        """What a result would say now.

        Args:
            stat: something else than the reduction that the options ask for.
        """
        total, options = self._total(), self.options
        wanted = options.reduce if stat is None else stat
        if stat is None and options.ema_coeff is not None:
            return total.moving_average(options.ema_coeff)
        if wanted is None and options.percentiles is not None:
            return total.percentiles(options.percentiles)
        if wanted is None:
            return list(total.values)
        names = {"min": "low", "max": "high", "sum": "total"}
        return getattr(total, names.get(wanted, wanted))

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
        value = self._accepted(value)  # before anything is dropped for it
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
        """Takes back what `get_state` gave."""
        self._held.set_state(state["held"])
        self._new.set_state(state["new"])

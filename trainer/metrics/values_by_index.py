"""Values of parallel loggers, reduced where their places in time are the same."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable

from trainer.metrics.exact_sum import rounded_mean, rounded_sum
from trainer.metrics.moments import Moments
from trainer.types import State


class ValuesByIndex:
    """The last entries up to a limit; an entry is what several loggers logged at the same index.

    For `reduce_per_index_on_aggregate=True`. Indices are counted from the newest value, because
    windows end there: the newest values of all loggers form one entry, those before them another.
    What comes out depends on the number of runners, which is why it is not the default.

    `merge` puts entries behind others (time), `merge_beside` lays them side by side (runners). Both
    are associative.
    """

    __slots__ = ("_entries", "_reduction")

    def __init__(self, limit: int | None, *, reduction: str) -> None:
        """No entries.

        Args:
            limit: keep so many of the last entries; None keeps all.
            reduction: what becomes of an entry: "mean", "sum", "min" or "max".
        """
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
    def is_empty(self) -> bool:
        """Whether nothing was added, not even NaN."""
        return not self._entries

    @property
    def values(self) -> list[float]:
        """The reduced entries in order of time, NaN where an entry has no number."""
        names = {"mean": "mean", "sum": "total", "min": "low", "max": "high"}
        name = names[self._reduction]
        return [getattr(entry, name) if entry.count else math.nan for entry in self._entries]

    def _numbers(self) -> list[float]:
        return [value for value in self.values if not math.isnan(value)]

    @property
    def count(self) -> int:
        """How many entries have a number."""
        return len(self._numbers())

    @property
    def nan_count(self) -> int:
        """How many entries have none."""
        return len(self._entries) - self.count

    @property
    def total(self) -> float:
        """The sum of the reduced entries, rounded once; an int if all are."""
        numbers = self._numbers()
        return sum(numbers) if all(type(n) is int for n in numbers) else rounded_sum(numbers)

    @property
    def mean(self) -> float:
        """The mean of the reduced entries; NaN without numbers."""
        numbers = self._numbers()
        return rounded_mean(numbers, len(numbers))

    @property
    def low(self) -> float:
        """The smallest reduced entry; NaN without numbers."""
        return min(self._numbers(), default=math.nan)

    @property
    def high(self) -> float:
        """The largest reduced entry; NaN without numbers."""
        return max(self._numbers(), default=math.nan)

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

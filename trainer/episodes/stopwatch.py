"""The one place where episodes read a clock."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Adds up the seconds between `start()` and `stop()`; both may be called again without effect.

    An episode's time runs from its reset to its end and rests while its chunk waits for the next
    call of `sample()`, so that training does not count as playing. The clock is read at starts and
    stops only, never per step.
    """

    __slots__ = ("_clock", "_elapsed_s", "_started_at_s")

    def __init__(
        self, elapsed_s: float = 0.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._elapsed_s = elapsed_s
        self._started_at_s: float | None = None

    def start(self) -> None:
        """Lets the time run."""
        if self._started_at_s is None:
            self._started_at_s = self._clock()

    def stop(self) -> None:
        """Lets the time rest."""
        if self._started_at_s is not None:
            self._elapsed_s += self._clock() - self._started_at_s
            self._started_at_s = None

    def successor(self) -> Stopwatch:
        """A resting stopwatch with the same clock that goes on from here."""
        return Stopwatch(self.elapsed_s, clock=self._clock)

    @property
    def elapsed_s(self) -> float:
        """Seconds so far, also while the time runs."""
        if self._started_at_s is None:
            return self._elapsed_s
        return self._elapsed_s + self._clock() - self._started_at_s

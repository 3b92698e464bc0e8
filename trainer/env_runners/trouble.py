"""What went wrong with a runner while it was asked, and whether its episodes are to blame."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from trainer.runtime.outcomes import Failed, Lost

_STRAY_FAILURES: Final = 5


@dataclass
class Trouble:
    """What went wrong with one runner in this round.

    Attributes:
        failures: in a row, of any kind.
        while_asked: those that came while it did what it was asked.
        places: how far it was each time: whether it was being made, and its signs of progress.
        blames_episodes: its running episodes are why, as far as one can tell.
        noticed_at: when the first failure came that is not repaired; seconds, None if all are.
    """

    failures: int = 0
    while_asked: int = 0
    places: Counter[tuple[bool, int]] = field(default_factory=Counter)
    blames_episodes: bool = False
    noticed_at: float | None = None

    def add(self, outcome: Failed | Lost, *, was_starting: bool, num_signs: int) -> None:
        """Notes a failure.

        Sampling is pure, so what an episode does to its runner comes again at the very same step,
        while a process that is killed from outside dies anywhere. Some faults of an env depend on
        the clock or the memory: after a few failures at different places the episodes are blamed,
        too.
        """
        self.failures += 1
        self.while_asked += not was_starting
        if self.noticed_at is None:
            self.noticed_at = time.monotonic()
        if num_signs or isinstance(outcome, Failed):
            self.places[was_starting, num_signs] += 1
            has_come_again = self.places[was_starting, num_signs] > 1
            is_enough = self.places.total() >= _STRAY_FAILURES
            self.blames_episodes |= has_come_again or is_enough

    def end(self) -> float:
        """Notes that the runner is back; returns the seconds that it took, waiting included."""
        begun, self.noticed_at = self.noticed_at, None
        return 0.0 if begun is None else time.monotonic() - begun

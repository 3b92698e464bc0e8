"""Where a runner was: noted in shared memory, so that it is known even if its process dies.

runner     `episode_begins` per episode, `doing` per reset and event; nothing per env step
main       `last_words` of a process that was lost
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainer.runtime.worker import CallSignals

NOTHING: Final = ""
STEPPING: Final = "step()"
RESETTING: Final = "reset()"
MAKING: Final = "making its envs"
PUTTING_BACK: Final = "putting its episodes back"
MENDING: Final = "making a sub-env anew"

DOINGS: Final = (
    NOTHING,
    STEPPING,
    RESETTING,
    MAKING,
    PUTTING_BACK,
    MENDING,
    "on_episode_created",
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_postprocess_trajectory",
    "on_sample_end",
)
_CODES: Final = {doing: code for code, doing in enumerate(DOINGS)}

# What the numbers in `CallSignals.notes` mean.
DOING, ENV_INDEX, STREAM, EPISODE, SEED, SIGNS = range(6)


def is_putting_back(notes: Sequence[int]) -> bool:
    """Whether a runner was last putting its episodes back, as `CallSignals.notes` say."""
    return notes[DOING] == _CODES[PUTTING_BACK]


class Whereabouts:
    """Notes what a runner does.

    Attributes:
        last: what it did last, for the errors that it raises itself.
    """

    def __init__(self, signals: CallSignals | None) -> None:
        """Args: signals: shared with the main process; None in the main process itself."""
        self._signals = signals
        self.last = ""

    def doing(self, what: str) -> None:
        """Notes what begins now, one of the names above or of an event."""
        self.last = what
        if self._signals is not None:
            self._signals.notes[DOING] = _CODES[what]

    def episode_begins(self, env_index: int, *, stream: int, number: int, seed: int) -> None:
        """Notes the episode that a sub-env is about to be reset for."""
        signals = self._signals
        if signals is not None:
            notes = signals.notes
            # One more, because 0 is what is there before anything is noted.
            notes[ENV_INDEX] = env_index + 1
            notes[STREAM], notes[EPISODE], notes[SEED] = stream, number, seed
            notes[SIGNS] = signals.num_signs
        self.doing(RESETTING)

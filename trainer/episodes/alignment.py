"""The invariant of an episode: which lengths its columns must have."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.episodes import nested
from trainer.episodes.columns import INFOS, OBS, REWARDS
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError


def check_alignment(columns: Mapping[str, LookbackBuffer]) -> None:
    """Checks that T + 1 observations and infos go with T items of every other column.

    Before the reset there is nothing at all. Look-back counts, and is the same in all columns.

    Args:
        columns: {name: column}, those of all episodes and the extra outputs.

    Raises:
        EpisodeError: a column is too short or too long, or has another look-back than the rest;
            names all of them with their lengths.
    """
    found = {
        name: nested.checked_length(column.data, name=name) if column.is_numpy else column.total
        for name, column in columns.items()
    }
    steps = found[REWARDS]
    first = steps + 1 if found[OBS] else 0
    expected = {**dict.fromkeys(columns, steps), OBS: first, INFOS: first}
    if found != expected or (steps and not first):
        raise EpisodeError(
            f"The columns of an episode do not fit together: {found} items each. T steps need "
            "T + 1 observations and infos, and T actions, rewards and extra outputs "
            "(look-back included). Give the missing items."
        )
    lookbacks = {name: column.lookback for name, column in columns.items()}
    if len(set(lookbacks.values())) > 1 or not 0 <= lookbacks[REWARDS] <= steps:
        raise EpisodeError(
            f"The columns of an episode of {steps} steps have the look-backs {lookbacks}. All "
            "columns have the same, and it is a part of the steps. Use the getters and setters, "
            "which keep columns aligned."
        )

"""What users hand to episodes as whole columns, checked and brought into the episode's own form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from checkpoints.arguments import shown
from trainer.episodes import nested
from trainer.episodes.columns import ACTIONS, INFOS, OBS, REWARDS
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError, EpisodeIndexError


def given_columns(
    given: Mapping[str, Any], outputs: Mapping[str, Any], *, lookback: object
) -> dict[str, Any]:
    """The data as arguments of `EpisodeColumns.fill_columns`; lists are copied, arrays shared.

    Args:
        given: {column: list, batch, `LookbackBuffer` or None}.
        outputs: ditto for the extra outputs.
        lookback: "auto", or the number of steps that are look-back at most.

    Raises:
        EpisodeError: a column is neither a list nor a batch, or the look-back is no number.
    """
    if not isinstance(outputs, Mapping):
        raise EpisodeError(
            f"extra_model_outputs={shown(outputs)} is a {type(outputs).__name__}; expected a dict "
            "{name: one value per env step}. Give it as that."
        )
    infos = given[INFOS]
    return {
        "observations": _column(OBS, given[OBS]),
        "infos": None if infos is None else list(_column(INFOS, infos)),
        "actions": _column(ACTIONS, given[ACTIONS]),
        "rewards": _column(REWARDS, given[REWARDS]),
        "extra_model_outputs": {name: _column(name, data) for name, data in outputs.items()},
        "lookback": _lookback(lookback, given[REWARDS]),
    }


def _column(name: str, data: Any) -> Any:
    if isinstance(data, LookbackBuffer):
        data = data.data
    if data is None:
        return []
    if isinstance(data, list):
        return copied_data(data)
    nested.checked_length(data, name=name)
    return data


def _lookback(wanted: object, rewards: Any) -> int:
    """The number of steps that are look-back."""
    if wanted == "auto" and isinstance(rewards, LookbackBuffer):
        return rewards.lookback
    if isinstance(rewards, LookbackBuffer):
        steps = rewards.total
    else:
        steps = 0 if rewards is None else len(rewards)
    if wanted == "auto":
        return steps
    if not isinstance(wanted, int) or wanted < 0:
        raise EpisodeError(
            f"An episode cannot have {wanted!r} steps of look-back. Look-back is data from before "
            "the chunk. Give a number ≥ 0, or 'auto' if all the given steps are look-back."
        )
    return min(wanted, steps)


def new_output(
    key: str, new_data: Any, *, lookback: int, total: int, is_numpy: bool
) -> LookbackBuffer:
    """A column for a new extra output.

    Args:
        key: its name.
        new_data: list or batch; for all steps, or for those after the look-back, which then gets
            zeros.
        lookback: how many of the steps are look-back.
        total: the number of steps, look-back included.
        is_numpy: whether the other columns are arrays.

    Raises:
        EpisodeIndexError: there are more or fewer items than steps.
    """
    column = LookbackBuffer(_column("new_data", new_data))
    given = column.total
    if given not in (total, total - lookback):
        raise EpisodeIndexError(
            f"The new extra output {key!r} has {given} items, but this episode has "
            f"{total - lookback} steps after {lookback} steps of look-back. A new column needs one "
            "item for every step, with or without the look-back."
        )
    if given < total:
        column.data = column.get(slice(-lookback, None), neg_index_as_lookback=True, fill=0)
    if is_numpy:
        column.to_numpy(name=key)
    else:
        column.to_list()
    column.lookback = lookback
    return column


def copied_data(data: Any) -> Any:
    """A copy of a column: of the list, whose items are shared, or of the arrays."""
    if data is None:
        return None
    return list(data) if isinstance(data, list) else nested.map_leaves(np.array, data)

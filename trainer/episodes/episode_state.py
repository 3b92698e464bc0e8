"""Episodes as plain data: for checkpoints and for the way between processes.

Spaces are not part of it (they are objects; whoever restores an episode knows them), nor is time
(so that two equal runs write equal bytes).
"""

from __future__ import annotations

import copy
from typing import Any, Final

from trainer.episodes.episode_columns import EpisodeColumns
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError
from trainer.types import Array, State

_COLUMNS: Final = frozenset(
    {"observations", "infos", "actions", "rewards", "extra_model_outputs", "lookback"}
)


def columns_state(columns: EpisodeColumns) -> State:
    """All columns as the lists or arrays they are; infos that are all empty as None."""
    infos = columns.infos.data
    return {
        "observations": _data(columns.observations),
        "infos": list(infos) if any(infos) else None,
        "actions": _data(columns.actions),
        "rewards": _data(columns.rewards),
        "extra_model_outputs": {
            key: _data(column) for key, column in columns.extra_model_outputs.items()
        },
        "lookback": columns.lookback,
        "earlier_return": list(columns.earlier_return),
    }


def restore_columns(
    columns: EpisodeColumns, state: State, *, observation_space: Any, action_space: Any
) -> None:
    """The inverse of `columns_state`.

    Raises:
        EpisodeError: the state lacks a column, or columns do not fit together.
    """
    missing = sorted((_COLUMNS | {"earlier_return"}) - state.keys())
    if missing:
        raise EpisodeError(
            f"The state of an episode lacks {missing}; it has {sorted(state)}. Without them it "
            "cannot be continued. Pass what `episode.get_state()` returned."
        )
    arguments = {name: copied_list(state[name]) for name in _COLUMNS}
    arguments["extra_model_outputs"] = {
        key: copied_list(data) for key, data in state["extra_model_outputs"].items()
    }
    columns.fill_columns(
        **arguments, observation_space=observation_space, action_space=action_space
    )
    columns.earlier_return = list(state["earlier_return"])
    columns.validate()


def _data(column: LookbackBuffer) -> Any:
    return copied_list(column.data)


def copied_list(data: Any) -> Any:
    """A copy of a list, so that two episodes never grow the same one; arrays are shared."""
    return list(data) if isinstance(data, list) else data


def copied_containers(value: Any) -> Any:
    """A copy of nested dicts, lists, sets, tuples and arrays; anything else is shared.

    Unlike `copy.deepcopy` it never fails: objects that cannot be copied are left for the codec to
    name.
    """
    if isinstance(value, dict):
        return {key: copied_containers(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(copied_containers(item) for item in value)
    if isinstance(value, set):
        return set(value)
    return _copied_array(value) if hasattr(value, "__array_interface__") else value


def _copied_array(value: Array) -> Array:
    copied: Array = value.copy()
    return copied


def deep_copied(custom_data: dict[Any, Any]) -> dict[Any, Any]:
    """A deep copy of an episode's `custom_data`.

    Raises:
        EpisodeError: something in it cannot be copied.
    """
    if not custom_data:
        return {}
    try:
        return copy.deepcopy(custom_data)
    except Exception as cause:  # whatever the objects' own copying raises; re-raised here
        raise EpisodeError(
            f"`custom_data` with the keys {sorted(map(str, custom_data))} cannot be copied "
            f"({cause}). The cut chunk keeps a copy, for the learner. Put objects like files, "
            "locks and envs into `user_data` instead."
        ) from cause

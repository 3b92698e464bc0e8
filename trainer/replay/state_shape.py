"""What the state of a replay buffer looks like, to be compared before it is taken."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from checkpoints.errors import CheckpointMismatchError
from checkpoints.state_shapes import (
    TEXT,
    anything,
    array,
    check_shape,
    count,
    dict_of,
    fields,
    list_of,
    number,
    of_type,
)
from trainer.errors import ReplayError
from trainer.replay.step_ring import NO_ROW
from trainer.replay.transitions import ACTIONS, NEXT_OBS, OBS
from trainer.types import Array, State

_STATE: Final = fields(
    {
        "type": TEXT,
        "capacity": count,
        "num_added": count,
        "following": array(dtype=np.int64, shape=(None,)),
        "layout": dict_of(of_type(list)),
        "columns": dict_of(array()),
        "nesting": dict_of(anything),
        "running_episodes": list_of(of_type(list)),
    },
    optional={
        "alpha": number,
        "priorities": array(dtype=np.float64, shape=(None,)),
        "largest_priority": number,
    },
)


def check_replay_state(state: State) -> None:
    """Raises unless the parts of a state fit each other.

    Raises:
        CheckpointMismatchError: names what does not.
    """
    if "layout" not in state or not isinstance(state["layout"], dict):
        check_shape(state, _STATE)
    problems = [*_STATE(state, ""), *_layout_problems(state)]
    if not problems:
        problems = [*_row_problems(state), *_nesting_problems(state)]
    if problems:
        raise CheckpointMismatchError("; ".join(problems))


def refuse_other_type(state: State, kind: str) -> None:
    """Raises a ReplayError unless the state is that of a buffer of this class."""
    saved = state.get("type")
    if saved != kind:
        raise ReplayError(
            f"The saved replay buffer is a {saved}, this one a {kind}. Build the algorithm with "
            f'the type that was saved: replay_buffer_config={{"type": "{saved}"}}.'
        )


def _layout_problems(state: State) -> list[str]:
    problems = []
    for name, entry in state["layout"].items():
        try:
            dtype, shape = entry
            if np.dtype(dtype).hasobject or not all(type(length) is int for length in shape):
                problems.append(f"['layout'][{name!r}] is {entry!r}, expected [dtype, shape]")
        except (TypeError, ValueError):
            problems.append(f"['layout'][{name!r}] is {entry!r}, expected [dtype, shape]")
    return problems


def _row_problems(state: State) -> list[str]:
    """Every column has a row for each step that is stored."""
    rows = min(state["num_added"], state["capacity"])
    expected = {name: (np.dtype(d), (rows, *shape)) for name, (d, shape) in state["layout"].items()}
    given = state["columns"]
    problems = [f"['columns'] lacks {name!r}" for name in expected if name not in given]
    problems += [f"['columns'] has the unknown {name!r}" for name in given if name not in expected]
    for name in expected.keys() & given.keys():
        dtype, shape = expected[name]
        problems += array(dtype=dtype, shape=shape)(given[name], f"['columns'][{name!r}]")
    problems += array(shape=(rows,))(state["following"], "['following']")
    if "priorities" in state:
        problems += array(shape=(rows,))(state["priorities"], "['priorities']")
    if not problems and not _are_rows(state["following"], rows, smallest=NO_ROW):
        problems.append("['following'] names rows that hold nothing")
    for index, entry in enumerate(state["running_episodes"]):
        is_whole = len(entry) == 3 and [type(value) for value in entry] == [str, int, int]
        if not is_whole:
            problems.append(
                f"['running_episodes'][{index}] is {entry!r}, expected [id, position, steps]"
            )
    return problems


def _are_rows(values: Array, rows: int, *, smallest: int) -> bool:
    return bool(not len(values) or (values.min() >= smallest and values.max() < rows))


def _nesting_problems(state: State) -> list[str]:
    """The nesting of observations and actions names the very columns that there are."""
    wanted: set[str] = set()
    try:
        for name, template in state["nesting"].items():
            wanted |= set(_names(name, template))
            if name == OBS:
                wanted |= set(_names(NEXT_OBS, template))
    except (TypeError, ValueError, KeyError, AttributeError):
        return [f"['nesting'] is {state['nesting']!r}, which is no nesting"]
    nested = {name for name in state["columns"] if name.split("[")[0] in (OBS, NEXT_OBS, ACTIONS)}
    if wanted != nested:
        return [f"['nesting'] is of the columns {sorted(wanted)}, stored are {sorted(nested)}"]
    return []


def _names(name: str, template: Any) -> list[str]:
    if template is None:
        return [name]
    if "dict" in template:
        pairs = [(f"{name}[{key!r}]", part) for key, part in template["dict"]]
    else:
        pairs = [(f"{name}[{index}]", part) for index, part in enumerate(template["tuple"])]
    return [inner for place, part in pairs for inner in _names(place, part)]

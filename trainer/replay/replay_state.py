"""What the state of a replay buffer looks like, to be compared before it is taken."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from checkpoints import check_shape
from checkpoints.errors import CheckpointMismatchError
from trainer.errors import ReplayError
from trainer.replay.frame_store import Split, can_be_shared
from trainer.replay.step_ring import (
    IDS,
    NEXT_OBS,
    NO_ROW,
    OBS,
    REWARDS,
    TERMINATEDS,
)
from trainer.types import Array, State
from trainer_toolkit import checks

_STATE: Final = checks.fields(
    {
        "type": checks.TEXT,
        "capacity": checks.COUNT,
        "num_added": checks.COUNT,
        "following": checks.array(dtype=np.int64, shape=(None,)),
        "layout": checks.dict_of(checks.of_type(list)),
        "columns": checks.dict_of(checks.array()),
        "nesting": checks.dict_of(checks.anything()),
        "running_episodes": checks.list_of(checks.of_type(list)),
    },
    optional={
        "frames": checks.dict_of(
            checks.fields(
                {"split": checks.list_of(checks.COUNT, length=2), "frames": checks.array()}
            )
        ),
        "alpha": checks.ANY_NUMBER,
        "priorities": checks.array(dtype=np.float64, shape=(None,)),
        "largest_priority": checks.ANY_NUMBER,
    },
)


def check_replay_state(state: State) -> None:
    """Raises a CheckpointMismatchError unless the parts of a state fit each other."""
    if "layout" not in state or not isinstance(state["layout"], dict):
        check_shape(state, _STATE)
    problems = [*_STATE(state, ""), *_layout_problems(state)]
    for part in (_frame_problems, _row_problems, _id_problems, _nesting_problems):
        problems = problems or part(state)
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


def _frame_problems(state: State) -> list[str]:
    """The layout says of what observations the frames are, and how many there are of each."""
    problems = []
    for place, saved in state.get("frames", {}).items():
        where, names = f"['frames'][{place!r}]", (OBS + place, NEXT_OBS + place)
        layouts = [state["layout"].get(name) for name in names]
        if layouts[0] is None or layouts[0] != layouts[1]:
            problems.append(f"{where} is of {names[0]!r} and {names[1]!r}, which have no layout")
            continue
        dtype, shape = np.dtype(layouts[0][0]), tuple(layouts[0][1])
        axis, num_frames = saved["split"]
        can_be = can_be_shared(dtype) and axis < len(shape)
        if not can_be or not 0 < num_frames <= shape[axis] or shape[axis] % num_frames:
            problems.append(
                f"{where}['split'] is {saved['split']}, of observations of {layouts[0]}"
            )
            continue
        frame_shape = Split(axis, num_frames).frame_shape(shape)
        problems += checks.array(dtype=dtype, shape=(None, *frame_shape))(
            saved["frames"], f"{where}['frames']"
        )
    return problems


def _id_problems(state: State) -> list[str]:
    """Rows show frames that are there; the first frame, which stands for nothing, is all zeros."""
    problems = [
        f"['frames'][{place!r}]['frames'] begins with numbers other than 0"
        for place, saved in state.get("frames", {}).items()
        if saved["frames"][:1].any()
    ]
    return problems + [
        f"['columns'][{name!r}] names frames that are not there"
        for place, saved in state.get("frames", {}).items()
        for name in (OBS + place, NEXT_OBS + place)
        if not len(saved["frames"])
        or not _are_rows(state["columns"][name], len(saved["frames"]), smallest=0)
    ]


def _row_problems(state: State) -> list[str]:
    """Every column has a row for each step that is stored."""
    rows = min(state["num_added"], state["capacity"])
    expected = {name: (np.dtype(d), (rows, *shape)) for name, (d, shape) in state["layout"].items()}
    for place, saved in state.get("frames", {}).items():
        for name in (OBS + place, NEXT_OBS + place):
            expected[name] = IDS, (rows, saved["split"][1])
    given = state["columns"]
    problems = [f"['columns'] lacks {name!r}" for name in expected if name not in given]
    problems += [f"['columns'] has the unknown {name!r}" for name in given if name not in expected]
    for name in expected.keys() & given.keys():
        dtype, shape = expected[name]
        problems += checks.array(dtype=dtype, shape=shape)(given[name], f"['columns'][{name!r}]")
    problems += checks.array(shape=(rows,))(state["following"], "['following']")
    if "priorities" in state:
        problems += checks.array(shape=(rows,))(state["priorities"], "['priorities']")
    if not problems and not _are_rows(state["following"], rows, smallest=NO_ROW):
        problems.append("['following'] names rows that hold nothing")
    for index, entry in enumerate(state["running_episodes"]):
        is_whole = len(entry) == 3 and [type(value) for value in entry] == [str, int, int]
        if not is_whole or not 0 <= entry[1] < state["num_added"]:
            problems.append(
                f"['running_episodes'][{index}] is {entry!r}, expected [id, position, steps] of a "
                f"step below number {state['num_added']}"
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
    nested = set(state["columns"]) - {REWARDS, TERMINATEDS}
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

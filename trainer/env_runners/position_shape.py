"""What the saved positions of env slots look like, to be compared before they are taken.

A runner takes a position with its next request, possibly in another process: too late to refuse it.
What runners take from an env (`trainer.envs.env_checks`) is taken here, too: whoever could train
with an env, however loosely it keeps to its spaces, must be able to go on with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from callbacks.chain import CHAIN_STATE
from checkpoints.state_shapes import (
    FLAG,
    NOTHING,
    ShapeCheck,
    anything,
    count,
    described,
    dict_of,
    fields,
    like,
    list_of,
    of_type,
    one_of,
)
from trainer.envs.env_checks import is_number
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_state import EPISODE_STATE
from trainer.modules import RLModuleSpec
from trainer.types import Array

_PLAYED: Final = fields(
    {
        "episode_number": count,
        "env_seed": one_of(count, NOTHING),
        "actions": list_of(anything),
        "observation": anything,
        "episode": one_of(EPISODE_STATE, NOTHING),
        "earlier_chunks": list_of(EPISODE_STATE),
    },
    optional={
        "tasks": list_of(of_type(list)),
        "env_state": anything,
        "carried_state": anything,
        "connectors": of_type(dict),
    },
)

CALLBACK_STATES: Final = dict_of(CHAIN_STATE)
"""Of the callbacks of runners, by the runner's number."""


def group_state(module_spec: RLModuleSpec) -> ShapeCheck:
    """The check for the state of an `EnvRunnerGroup`.

    Args:
        module_spec: knows the spaces of the envs.
    """
    return fields(
        {"slots": slots_of(module_spec), "callbacks": CALLBACK_STATES, "is_continued": FLAG},
        optional={"lost": list_of(count, length=2)},
    )


def slots_of(module_spec: RLModuleSpec) -> ShapeCheck:
    """The check for the positions of env slots."""

    def slot(value: Any, place: str) -> Iterator[str]:
        problems = list(_PLAYED(value, place))
        yield from problems or _slot_problems(value, place, module_spec)

    def slots(value: Any, place: str) -> Iterator[str]:
        problems = list(list_of(slot)(value, place))
        yield from problems or _unlike_each_other(value, place)

    return slots


def _slot_problems(slot: dict[str, Any], place: str, spec: RLModuleSpec) -> Iterator[str]:
    for index, task in enumerate(slot.get("tasks", ())):
        if len(task) != 2 or type(task[0]) is not int:
            yield f"{place}['tasks'][{index}] is {task!r}, expected [env steps made before, task]"
    running = [slot["env_seed"], slot["episode"], slot["observation"]]
    if all(value is None for value in running):
        if slot["actions"]:
            yield f"{place}['actions'] is of an episode, but none runs"
        return
    if slot["env_seed"] is None or slot["episode"] is None:
        yield f"{place} has only a part of 'env_seed', 'observation' and 'episode': all or none"
        return
    episode = slot["episode"]
    yield from _element(spec.observation_space)(slot["observation"], f"{place}['observation']")
    for chunk, inside in _chunks(slot, place):
        yield from _chunk_problems(chunk, inside, spec)
    yield from _action_problems(slot["actions"], f"{place}['actions']", spec, steps=episode["t"])


def _unlike_each_other(slots: list[dict[str, Any]], place: str) -> Iterator[str]:
    """Whether the module's outputs look the same in all running episodes."""
    example: dict[str, Any] = {}
    for index, slot in enumerate(slots):
        rows, inside = _newest_outputs(slot), f"{place}[{index}]['episode']['extra_model_outputs']"
        example = example or rows
        for name, row in rows.items():
            if not isinstance(row, np.ndarray | np.generic | int | float):
                yield f"{inside}[{name!r}] holds {described(row)}, expected numbers"
            # They may be missing where random actions were played; nobody learns from them.
            elif name in example:
                yield from like(example[name])(row, f"{inside}[{name!r}]")


def _newest_outputs(slot: dict[str, Any]) -> dict[str, Any]:
    """What the module gave beside the last action, by name; {} if no step was made."""
    outputs = (slot["episode"] or {}).get("extra_model_outputs", {})
    rows = {name: column for name, column in outputs.items() if isinstance(column, list)}
    return {name: column[-1] for name, column in rows.items() if column}


def _chunks(slot: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], str]]:
    yield slot["episode"], f"{place}['episode']"
    for index, chunk in enumerate(slot["earlier_chunks"]):
        yield chunk, f"{place}['earlier_chunks'][{index}]"


def _chunk_problems(chunk: dict[str, Any], place: str, spec: RLModuleSpec) -> Iterator[str]:
    """Whether an episode can be made of it, and its rows are of the spaces."""
    try:
        SingleAgentEpisode.from_state(chunk)
    except Exception as error:  # noqa: BLE001 - whatever it is, no episode can be made of that
        yield f"{place} is no episode: {type(error).__name__}: {error}"
        return
    if isinstance(chunk["observations"], list):  # else arrays, of a chunk that is finished
        for index, row in enumerate(chunk["observations"]):
            yield from _element(spec.observation_space)(row, f"{place}['observations'][{index}]")
    if isinstance(chunk["actions"], list):
        for index, row in enumerate(chunk["actions"]):
            yield from _element(spec.action_space)(row, f"{place}['actions'][{index}]")
    for name in ("rewards", "earlier_return"):
        values = chunk[name]
        if isinstance(values, list):
            yield from list_of(_reward)(values, f"{place}[{name!r}]")
    for name, rows in chunk["extra_model_outputs"].items():
        if isinstance(rows, list):
            for index, row in enumerate(rows):
                yield from like(rows[0])(row, f"{place}['extra_model_outputs'][{name!r}][{index}]")


def _reward(value: Any, place: str) -> Iterator[str]:
    if not is_number(value):
        yield f"{place} is {described(value)}, expected a number"


def _action_problems(
    chunks: list[Any], place: str, spec: RLModuleSpec, *, steps: int
) -> Iterator[str]:
    problems = []
    total = 0
    for index, chunk in enumerate(chunks):
        problems += list(_element(spec.action_space, rows=True)(chunk, f"{place}[{index}]"))
        if not problems:
            total += nested.batch_length(chunk)
    if not problems and total != steps:
        problems.append(f"{place} are of {total} steps, but the episode has {steps}")
    yield from problems


def _element(space: gym.Space[Any] | None, *, rows: bool = False) -> ShapeCheck:
    """The check for an element of a space, or for an array with a row for each of several."""
    if isinstance(space, spaces.Dict):
        return fields({key: _element(part, rows=rows) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return _tuple_of([_element(part, rows=rows) for part in space.spaces])
    if space is None or space.shape is None:
        return anything
    shape, is_float = space.shape, np.issubdtype(space.dtype or np.float64, np.floating)
    kinds = "fiub" if is_float or isinstance(space, spaces.MultiBinary) else "iub"

    def check(value: Any, place: str) -> Iterator[str]:
        found = _as_array(value)
        if found is None:
            yield f"{place} is {described(value)}, expected an element of {space}"
        elif found.shape[rows:] != shape or (rows and not found.ndim):
            expected = ("n", *shape) if rows else shape
            yield f"{place} has shape {found.shape}, expected {expected}"
        elif found.dtype.kind not in kinds:
            yield f"{place} has dtype {found.dtype}, expected {space.dtype}"

    return check


def _as_array(value: Any) -> Array | None:
    """The array that a leaf of an observation or action is or becomes; None if it becomes none."""
    if not isinstance(value, np.ndarray | np.generic | int | float | list):
        return None
    try:
        return np.asarray(value)
    except (ValueError, OverflowError):  # rows of different lengths
        return None


def _tuple_of(parts: list[ShapeCheck]) -> ShapeCheck:
    def check(value: Any, place: str) -> Iterator[str]:
        if type(value) is not tuple or len(value) != len(parts):
            yield f"{place} is {described(value)}, expected a tuple of {len(parts)}"
            return
        for index, (part, entry) in enumerate(zip(parts, value, strict=True)):
            yield from part(entry, f"{place}[{index}]")

    return check

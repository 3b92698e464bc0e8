"""Gymnasium's spaces as plain data and back, so that checkpoints can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.types import Array


def space_record(space: gym.Space[Any]) -> dict[str, Any]:
    """A space as plain data; its random state is left out.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, Text, or Dict and Tuple of these; not of
            a class derived from them, whose meaning nobody knows.

    Raises:
        UnsupportedSpaceError: it is, or holds, another space.
    """
    kind = type(space)
    if isinstance(space, spaces.Box) and kind is spaces.Box:
        bounds = {"low": _compact(space.low), "high": _compact(space.high)}
        facts: dict[str, Any] = {"shape": list(space.shape), "dtype": space.dtype.str, **bounds}
    elif isinstance(space, spaces.Discrete) and kind is spaces.Discrete:
        facts = {"n": int(space.n), "start": int(space.start), "dtype": _dtype(space)}
    elif isinstance(space, spaces.MultiDiscrete) and kind is spaces.MultiDiscrete:
        facts = {
            "nvec": np.array(space.nvec),
            "start": np.array(space.start),
            "dtype": _dtype(space),
        }
    elif isinstance(space, spaces.MultiBinary) and kind is spaces.MultiBinary:
        facts = {"shape": list(space.shape)}
    elif isinstance(space, spaces.Text) and kind is spaces.Text:
        lengths = {"min_length": space.min_length, "max_length": space.max_length}
        facts = {**lengths, "characters": "".join(space.character_list)}
    elif isinstance(space, spaces.Dict) and kind is spaces.Dict:
        facts = {"spaces": [[key, space_record(part)] for key, part in space.spaces.items()]}
    elif isinstance(space, spaces.Tuple) and kind is spaces.Tuple:
        facts = {"spaces": [space_record(part) for part in space.spaces]}
    else:
        raise UnsupportedSpaceError(
            f"{space} of class {kind.__name__} has no plain description. Checkpoints know Box, "
            "Discrete, MultiDiscrete, MultiBinary, Text, and Dict and Tuple of these. Give the "
            "space again when you restore."
        )
    return {"space": kind.__name__, **facts}


def space_from_record(record: Any) -> gym.Space[Any]:
    """The space that `space_record` described.

    Raises:
        UnsupportedSpaceError: it describes none.
    """
    try:
        return _made(record)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise UnsupportedSpaceError(
            f"{record!r} describes no space ({type(error).__name__}: {error}). Give the space "
            "itself: observation_space=..., action_space=..."
        ) from error


def _made(record: Mapping[str, Any]) -> gym.Space[Any]:
    kind = record["space"]
    if kind == "Box":
        shape, dtype = tuple(record["shape"]), np.dtype(record["dtype"])
        low, high = (_full(record[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(record["n"], start=record["start"], **_numbers(record))
    if kind == "MultiDiscrete":
        # dtype first: the space refuses others of integers that it would take.
        dtype = np.dtype(record["dtype"]).type
        return spaces.MultiDiscrete(record["nvec"], dtype=dtype, start=record["start"])
    if kind == "MultiBinary":
        shape = record["shape"]
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Text":
        lengths = {"min_length": record["min_length"], "max_length": record["max_length"]}
        return spaces.Text(charset=record["characters"], **lengths)
    if kind == "Dict":
        return spaces.Dict({key: _made(part) for key, part in record["spaces"]})
    if kind == "Tuple":
        return spaces.Tuple([_made(part) for part in record["spaces"]])
    raise ValueError(f"unknown kind {kind!r}")


def _compact(bounds: Array) -> Array:
    """The bounds, or one number if they are all the same: images have many."""
    first = bounds.reshape(-1)[:1]
    compact: Array = first if bounds.size and (bounds == first).all() else bounds
    return np.array(compact)


def _full(bounds: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    given = np.array(bounds, dtype)
    filled: Array = np.full(shape, given.reshape(-1)[0]) if given.size == 1 else given
    return filled


def _dtype(space: gym.Space[Any]) -> str:
    return str(np.dtype(space.dtype).str)


def _numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """The dtype, where gymnasium lets one choose it (from 1.2 on) and it is not the usual one."""
    dtype = np.dtype(record["dtype"])
    return {} if dtype == np.int64 else {"dtype": dtype.type}

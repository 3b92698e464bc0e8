"""Every way to spoil a state a little: a key gone or renamed, another shape, dtype or type."""

import copy
from typing import Any

import numpy as np

Path = tuple[Any, ...]
Mutation = tuple[str, Path]
"""What is done, and where."""


def mutations(state, path=()):
    """All mutations of a state."""
    if isinstance(state, dict):
        if path:
            yield "wrong type", path
        yield "key added", path
        for key, value in state.items():
            yield "key gone", (*path, key)
            yield "key renamed", (*path, key)
            yield from mutations(value, (*path, key))
    elif isinstance(state, list | tuple):
        yield "wrong type", path
        for index, value in enumerate(state):
            yield from mutations(value, (*path, index))
    elif isinstance(state, np.ndarray):
        yield from ((what, path) for what in ("row added", "axis added", "dtype", "wrong type"))
    else:
        yield "wrong type", path


def mutated(state, mutation):
    """A copy of a state with one mutation."""
    what, path = mutation
    changed = copy.deepcopy(state)
    if what == "key added":
        at(changed, path)["of another release"] = 1
        return changed
    parent, last = at(changed, path[:-1]), path[-1]
    if what == "key gone":
        del parent[last]
    elif what == "key renamed":
        renamed = {f"{key}_" if key == last else key: value for key, value in parent.items()}
        parent.clear()
        parent.update(renamed)
    else:
        spoilt = _spoilt(what, parent[last])
        if isinstance(parent, tuple):
            rows = list(parent)
            rows[last] = spoilt
            return mutated_parent(changed, path[:-1], tuple(rows))
        parent[last] = spoilt
    return changed


def mutated_parent(changed, path, value):
    """The state with another value at a path."""
    if not path:
        return value
    parent = at(changed, path[:-1])
    if isinstance(parent, tuple):
        rows = list(parent)
        rows[path[-1]] = value
        return mutated_parent(changed, path[:-1], tuple(rows))
    parent[path[-1]] = value
    return changed


def at(state, path):
    """What stands at a path."""
    for step in path:
        state = state[step]
    return state


def _spoilt(what, value):
    if what == "row added":
        return np.concatenate([np.atleast_1d(value), np.atleast_1d(value)[:1]])
    if what == "axis added":
        return value[..., None]
    if what == "dtype":
        return value.astype(np.complex64 if value.dtype.kind == "f" else np.float32)
    if isinstance(value, str):
        return 3
    return "spoilt"

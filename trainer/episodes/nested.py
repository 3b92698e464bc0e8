"""Values made of dicts and tuples with arrays as leaves, as nested spaces produce them.

Pure functions only. Dicts and tuples are structure; everything else (arrays, numbers, strings,
lists) is a leaf. A *batch* is such a value whose leaves have one leading dimension more than those
of an *item*.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from trainer.errors import EpisodeError
from trainer.types import Array

# ---- nested

_DTYPE: Final = attrgetter("dtype")


def map_leaves(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Calls `function` with the leaves at the same place of all trees."""
    if isinstance(tree, dict):
        return {
            key: map_leaves(function, value, *[other[key] for other in others])
            for key, value in tree.items()
        }
    if isinstance(tree, tuple):
        rows = zip(tree, *others, strict=True)
        return tuple(map_leaves(function, *row) for row in rows)
    return function(tree, *others)


def first_leaf(tree: Any) -> Any:
    """The leftmost leaf (None for an empty dict or tuple)."""
    while isinstance(tree, dict | tuple):
        children = list(tree.values()) if isinstance(tree, dict) else tree
        tree = children[0] if children else None
    return tree


def stack(items: Sequence[Any], *, name: str) -> Any:
    """One batch from at least one item.

    Raises:
        EpisodeError: the items differ in structure or shape, or are no numbers, strings or arrays.
    """
    first = items[0]
    if isinstance(first, dict):
        return {key: stack(_children(items, key, name), name=f"{name}[{key!r}]") for key in first}
    if isinstance(first, tuple):
        columns = [_children(items, i, name) for i in range(len(first))]
        return tuple(stack(column, name=f"{name}[{i}]") for i, column in enumerate(columns))
    if type(first) is np.ndarray and first.ndim == 1:
        joined = _join_vectors(items, first)
        if joined is not None:
            return joined
    return _stack_leaves(items, name)


def _children(items: Sequence[Any], key: Any, name: str) -> list[Any]:
    try:
        return [item[key] for item in items]
    except (KeyError, IndexError, TypeError) as cause:
        raise EpisodeError(
            f"The items of `{name}` differ in structure: not all of them have {key!r}. An episode "
            "becomes arrays only if every step has the same dict or tuple entries. Let the env "
            "return the same structure at every step."
        ) from cause


def _join_vectors(vectors: Sequence[Any], first: Array) -> Array | None:
    """Stacks 1-D arrays of one dtype and length, or returns None if they are not that.

    Measured for 256 vectors of 4 floats: 19 µs, where `np.array` needs 27 µs and `np.stack` 81 µs.
    This is most of the cost of handing a chunk to the learner.
    """
    try:
        if list(map(_DTYPE, vectors)).count(first.dtype) != len(vectors):
            return None
        if list(map(len, vectors)).count(len(first)) != len(vectors) or first.dtype.hasobject:
            return None
        joined = bytearray().join(vectors)
    except (AttributeError, TypeError, BufferError):  # not an array, or not contiguous
        return None
    batch = np.frombuffer(joined, dtype=first.dtype)
    return (
        batch.reshape(len(vectors), len(first)) if batch.size == len(vectors) * first.size else None
    )


def _stack_leaves(items: Sequence[Any], name: str) -> Array:
    try:
        batch = np.array(items)
    except ValueError as cause:
        raise _not_stackable(items, name) from cause
    if batch.dtype.hasobject:
        raise _not_stackable(items, name)
    return batch


def _not_stackable(items: Sequence[Any], name: str) -> EpisodeError:
    first = describe(items[0])
    for step, item in enumerate(items):
        if describe(item) != first:
            return EpisodeError(
                f"The items of `{name}` cannot be stacked: item 0 is {first}, item {step} is "
                f"{describe(item)}. An episode becomes arrays only if all its steps have one "
                "shape. Check what the env returns, or pad it."
            )
    return EpisodeError(
        f"The items of `{name}` cannot be stacked: they are {first}. Episodes hold numbers, "
        "strings and arrays of one shape, in dicts and tuples. Convert the values before they are "
        "added to the episode."
    )


def describe(value: Any) -> str:
    """Type and shape of a value for error texts, such as "float32 array of shape (4,)"."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    if isinstance(value, list):
        return f"list of length {len(value)}"
    return type(value).__name__


def take(batch: Any, where: Any) -> Any:
    """Indexes the leading dimension of every leaf: an item, or a smaller batch."""
    if type(batch) is np.ndarray:
        return batch[where]
    return map_leaves(lambda leaf: leaf[where], batch)


def unstack(batch: Any, length: int) -> list[Any]:
    """The items of a batch of `length` rows, or of a list; they share memory with the batch."""
    if type(batch) is np.ndarray or type(batch) is list:
        return list(batch)
    # Whole leaves at once: row by row it is five times as dear, and acting with memory does it.
    if type(batch) is dict and batch:
        parts = [unstack(part, length) for part in batch.values()]
        return [dict(zip(batch, row, strict=True)) for row in zip(*parts, strict=True)]
    if type(batch) is tuple and batch:
        return list(zip(*(unstack(part, length) for part in batch), strict=True))
    return [take(batch, row) for row in range(length)]


def concatenate(first: Any, *others: Any) -> Any:
    """Batches of the same structure, one after the other."""
    return map_leaves(lambda *leaves: np.concatenate(leaves), first, *others)


def batch_copy(data: Any, *, name: str) -> Any:
    """A batch with memory of its own, from a batch or a list of at least one item; see `stack`."""
    return stack(data, name=name) if isinstance(data, list) else map_leaves(np.array, data)


def batch_length(batch: Any) -> int:
    """The number of rows of a batch."""
    leaf = first_leaf(batch)
    return 0 if leaf is None else len(leaf)


def checked_length(batch: Any, *, name: str) -> int:
    """The number of rows of a batch that a user gave.

    Raises:
        EpisodeError: a leaf is not an array with a leading dimension, or they differ in length.
    """
    lengths: set[int] = set()

    def note(leaf: Any) -> None:
        if not isinstance(leaf, np.ndarray) or leaf.ndim == 0 or leaf.dtype.hasobject:
            raise EpisodeError(
                f"`{name}` is {describe(batch)} with {describe(leaf)} in it, which is neither a "
                "list of items nor a batch. A batch is an array with one row per item, or a dict "
                "or tuple of such arrays. Give a list with one item per step."
            )
        lengths.add(len(leaf))

    map_leaves(note, batch)
    if len(lengths) > 1:
        raise EpisodeError(
            f"The arrays of `{name}` have {sorted(lengths)} rows. A batch has one row per item in "
            "every array. Give arrays of one length."
        )
    return lengths.pop() if lengths else 0


def form(batch: Any) -> Any:
    """The structure of a batch with the shape of an item at each leaf."""
    return map_leaves(lambda leaf: np.shape(leaf)[1:], batch)


def equal(first: Any, second: Any) -> bool:
    """Whether two values have the same structure and the same numbers (NaN equals NaN)."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, dict | tuple) or isinstance(second, dict | tuple):
        return False
    a, b = np.asarray(first), np.asarray(second)
    inexact = a.dtype.kind in "fc" and b.dtype.kind in "fc"
    return np.array_equal(a, b, equal_nan=inexact)


# ---- observations
#
# What envs answer, of any structure: copies that no env can change, and comparing them.

_IMMUTABLE: Final = frozenset(
    {bool, int, float, complex, str, bytes, type(None), np.bool_, np.int64, np.float32, np.float64}
)
"""The usual types of values that cannot change; looked up first."""


def copied(value: Any) -> Any:
    """A value with memory of its own, as deep as dicts, tuples, lists and arrays go.

    Envs may answer with the same memory again and again, in any pattern: one buffer, two in turn, a
    view of their own state. So everything that is recorded is copied, always: no rule that looks at
    some answers holds for the next. Measured: 0.1 µs for a vector of 4, 2 µs for 84x84x4 bytes.

    Args:
        value: an observation, an action, an info or a reward. Objects of other classes are kept.
    """
    if type(value) is np.ndarray:
        return value.copy()
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, dict):
        return _copied_dict(value)
    if isinstance(value, tuple):
        parts = map(copied, value)
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if isinstance(value, list):
        return [copied(part) for part in value]
    if isinstance(value, np.ndarray | set | bytearray | deque):
        return copy.copy(value)
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return copy.deepcopy(value)  # arrays of other libraries
    return value


def _copied_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    parts = {key: copied(part) for key, part in value.items()}
    if type(value) is dict:
        return parts
    own = copy.copy(value)  # keeps the class, and what else it has
    own.update(parts)
    return own


def copied_info(info: Any) -> Any:
    """An info with memory of its own; see `copied`."""
    try:
        return copied(info)
    except RecursionError:  # it holds itself
        return copy.copy(info)

"""Nested values: dicts, lists and tuples with anything as leaves. Rebuilt, walked, compared.

What envs answer has structure of its own, in which lists are leaves: see `trainer.episodes.nested`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np

_Value = TypeVar("_Value")


def mapped(
    function: Callable[[Any], Any],
    value: Any,
    *,
    dict_type: Callable[[dict[Any, Any]], Any] = dict,
    list_type: Callable[[list[Any]], Any] = list,
) -> Any:
    """Return a copy of nested dicts, lists and tuples in which each leaf went through `function`.

    Args:
        function: from a leaf to what stands there in the copy.
        value: its dicts become plain ones; named tuples stay what they are. Other mappings, such as
            spaces of gymnasium, are leaves.
        dict_type: what is made of each dict of the copy.
        list_type: what is made of each list of the copy.

    Raises:
        RecursionError: it is nested very deep, or holds itself.
    """

    def again(part: Any) -> Any:
        if isinstance(part, dict):
            return dict_type({key: again(entry) for key, entry in part.items()})
        if isinstance(part, list):
            return list_type([again(entry) for entry in part])
        if isinstance(part, tuple):
            entries = map(again, part)
            return type(part)(*entries) if hasattr(part, "_fields") else tuple(entries)
        return function(part)

    return again(value)


def copied_if_possible(value: _Value) -> _Value:
    """Return a deep copy, or the value itself where its own copying raises."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever the object's own copying raises
        return value


def leaves(
    tree: Mapping[Any, Any], prefix: tuple[Any, ...] = (), *, keep_empty: bool = False
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield (path, value) of all that is in nested dicts, in their order; paths are tuples of keys.

    Args:
        tree: a dict.
        prefix: what all paths begin with.
        keep_empty: whether empty dicts inside are values, too, instead of nothing.
    """
    for key, value in tree.items():
        if isinstance(value, Mapping) and (value or not keep_empty):
            yield from leaves(value, (*prefix, key), keep_empty=keep_empty)
        else:
            yield (*prefix, key), value


def named_leaves(tree: Mapping[Any, Any], *, keep_empty: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the same with paths as texts, such as "env_runners/episode_return_mean"."""
    return (("/".join(map(str, path)), leaf) for path, leaf in leaves(tree, keep_empty=keep_empty))


def at_path(tree: Any, path: str, default: Any = None) -> Any:
    """Return what a path such as "a/b" leads to in nested dicts; `default` if it leads nowhere."""
    for part in path.split("/"):
        if not isinstance(tree, Mapping) or part not in tree:
            return default
        tree = tree[part]
    return tree


def same(left: Any, right: Any) -> bool:
    """Return whether two values are the same; never raises.

    Containers are compared part by part, a list is no tuple; arrays by dtype, shape and bytes.
    Numbers are compared by value, but True is not 1, 0.0 is not -0.0, and NaN is NaN. Objects
    without an equality of their own are compared by class and attributes: else a copy would never
    be the same; this needs the attributes to be all that they consist of. Partials are compared by
    their parts. Anything else is as equal as it says: functions and classes only with themselves.
    Two of what cannot be compared, or contains itself, are not known to be the same.
    """
    try:
        return _are_same(left, right)
    except Exception:  # noqa: BLE001 - whatever a user's `==` or `__array__` raises
        return False


def _are_same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    both_dicts = isinstance(left, dict) and isinstance(right, dict)
    if both_dicts or (type(left) is type(right) and isinstance(left, Mapping)):
        return left.keys() == right.keys() and all(_are_same(left[key], right[key]) for key in left)
    for kind in (list, tuple):
        if isinstance(left, kind) and isinstance(right, kind):
            return len(left) == len(right) and all(map(_are_same, left, right))
    if _is_array(left) or _is_array(right):
        both = _is_array(left) and _is_array(right)
        return both and _same_arrays(_array(left), _array(right))
    if isinstance(left, bool | np.bool_) != isinstance(right, bool | np.bool_):
        return False
    if isinstance(left, float | np.floating) and isinstance(right, float | np.floating):
        return _same_floats(float(left), float(right))
    if type(left) is type(right) and isinstance(left, partial):
        return _are_same(_parts(left), _parts(right))
    if type(left) is type(right) and _is_its_attributes(left):
        return _are_same(vars(left), vars(right))
    return bool(left == right) or bool(left != left and right != right)


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and not isinstance(value, np.generic)


def _array(value: Any) -> np.ndarray[Any, Any]:
    # Tensors of Torch that have a gradient are no arrays before they are detached from it.
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def _same_arrays(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.hasobject:
        return all(map(_are_same, left.ravel().tolist(), right.ravel().tolist()))
    return left.tobytes() == right.tobytes()


def _same_floats(left: float, right: float) -> bool:
    if left != left or right != right:
        return left != left and right != right
    return left == right and math.copysign(1.0, left) == math.copysign(1.0, right)


def _parts(value: partial[Any]) -> tuple[Any, ...]:
    return value.func, value.args, value.keywords, vars(value)


class _Plain:
    """Has nothing but attributes."""


def _is_its_attributes(value: Any) -> bool:
    """Return whether `__dict__` is all that an object without an equality of its own consists of.

    A function has its code beside it, a file its descriptor, an exception its arguments. What is
    written in C keeps such things in the object itself, which is therefore larger; `__slots__`
    do, too. Who overrides `__reduce__` says that there is something else.
    """
    kind: Any = type(value)
    return (
        kind.__eq__ is object.__eq__
        and kind.__reduce__ is object.__reduce__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__basicsize__ <= _Plain.__basicsize__
        and not any(vars(ancestor).get("__slots__") for ancestor in kind.__mro__)
        and hasattr(value, "__dict__")
    )

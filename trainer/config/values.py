"""Pure functions on the values of settings: merging, comparing, telling data from code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.config.read_only import copy_value


def deep_merge(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    """A new dict with the entries of both; dicts in both are merged, otherwise `new` wins."""
    merged: dict[Any, Any] = copy_value(dict(old))
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = deep_merge(merged[key], value)
        else:
            merged[key] = copy_value(value)
    return merged


def merge_by_type(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    """Like `deep_merge`, but on every level a dict of another `type` replaces the old one.

    Its other entries are arguments of that type.
    """
    if "type" in new and not same_value(new["type"], old.get("type")):
        replaced: dict[Any, Any] = copy_value(dict(new))
        return replaced
    merged: dict[Any, Any] = copy_value(dict(old))
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = merge_by_type(merged[key], value)
        else:
            merged[key] = copy_value(value)
    return merged


def same_value(first: Any, second: Any) -> bool:
    """Whether two values are equal.

    Containers are compared entry by entry, arrays by dtype and content; NaN is equal to NaN.
    """
    if first is second:
        return True
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return _same_array(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            same_value(value, second[key]) for key, value in first.items()
        )
    for kind in (list, tuple):
        if isinstance(first, kind) and isinstance(second, kind):
            return len(first) == len(second) and all(map(same_value, first, second))
    if isinstance(first, bool) != isinstance(second, bool):
        return False
    if isinstance(first, float) and isinstance(second, float) and first != first:
        return second != second
    equal = first == second
    return isinstance(equal, (bool, np.bool_)) and bool(equal)


def _same_array(first: Any, second: Any) -> bool:
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return False
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return first.tobytes() == second.tobytes()


def is_plain_data(value: Any) -> bool:
    """Whether a value is data that a checkpoint can hold: no classes, functions or objects."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, dict):
        return all(is_plain_data(key) and is_plain_data(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return not hasattr(value, "_fields") and all(map(is_plain_data, value))
    return False

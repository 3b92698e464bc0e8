"""What envs answer, of any structure: copies that no env can change, and comparing them."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, Final

import numpy as np

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


def is_same(left: Any, right: Any) -> bool:
    """Whether two observations are the same bit for bit; containers are compared part by part."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return len(left) == len(right) and all(
            is_same(a, b) for a, b in zip(left, right, strict=True)
        )
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype == object or b.dtype == object:
        return type(left) is type(right) and bool(np.all(left == right))
    # Bytes and not values: NaN equals NaN here, and 0.0 differs from -0.0.
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()

"""Observations of any structure: whether they are the same, whether they share memory, copies."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np


def shares_memory(left: Any, right: Any) -> bool:
    """Whether two observations use the same memory, as those of an env with one buffer do."""
    if isinstance(left, dict) and isinstance(right, dict):
        return any(shares_memory(left[key], right[key]) for key in left.keys() & right.keys())
    if isinstance(left, (tuple, list)) and isinstance(right, (tuple, list)):
        return any(map(shares_memory, left, right))
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.may_share_memory(left, right)
    return False


def copied(observation: Any) -> Any:
    """The observation with memory of its own."""
    if isinstance(observation, np.ndarray):
        return observation.copy()
    is_container = isinstance(observation, (dict, tuple, list))
    return copy.deepcopy(observation) if is_container else observation


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

"""What tasks are here: any plain data, compared by value, and when which of them was in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class TaskInForce:
    """A task, and from when on it was in force in an episode.

    Attributes:
        step: env steps of the episode that were made before it was set.
        task: whatever `set_task` takes.
    """

    step: int
    task: Any


def followed_by(tasks: tuple[TaskInForce, ...], task: Any, *, step: int) -> tuple[TaskInForce, ...]:
    """The tasks of a running episode after another one was set.

    A task under which no step was made is left out, but for the one that the reset was made under.

    Args:
        tasks: in force so far; the first one was at the reset.
        task: in force now.
        step: env steps that the episode has made.
    """
    is_replaced = len(tasks) > 1 and tasks[-1].step == step
    return (*(tasks[:-1] if is_replaced else tasks), TaskInForce(step, task))


def same_task(left: Any, right: Any) -> bool:
    """Whether two tasks are equal: arrays by value, NaN equals itself, others part by part."""
    if left is right:
        return True
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            same_task(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return (
            isinstance(left, tuple) == isinstance(right, tuple)
            and len(left) == len(right)
            and all(map(same_task, left, right))
        )
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return _same_arrays(left, right)
    if type(left) is type(right) and _has_no_equality(left):
        return same_task(vars(left), vars(right))  # else a copy would never be the same
    try:
        return bool(left == right) or bool(left != left and right != right)
    except Exception:  # noqa: BLE001 - whatever a user's `==` raises: not known to be equal
        return False


def _has_no_equality(task: Any) -> bool:
    return getattr(type(task), "__eq__", None) is object.__eq__ and hasattr(task, "__dict__")


def _same_arrays(left: Any, right: Any) -> bool:
    if type(left) is not type(right) or left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.hasobject:
        return all(map(same_task, left.ravel().tolist(), right.ravel().tolist()))
    has_nan = left.dtype.kind in "fc"
    return bool(np.array_equal(left, right, equal_nan=has_nan))

"""Why a value is not plain data, and what to save instead. Used by the codec only.

A refusal is raised at the value, collects the path on its way out, and becomes one `StateError`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import pathlib
import uuid
from typing import Any, Final

import numpy as np

_PLAIN: Final = (
    "Checkpoints hold plain data only: None, bool, int, float, complex, str, bytes, list, tuple, "
    "dict, set, frozenset, NumPy arrays and NumPy scalars."
)

_ADVICE: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (enum.Enum, "save its `.name` and look it up in set_state()"),
    ((dt.date, dt.time), "save its `.isoformat()`"),
    (dt.timedelta, "save its `.total_seconds()`"),
    (uuid.UUID, "save its `.hex`"),
    (pathlib.PurePath, "save `str(path)`"),
    ((bytearray, memoryview), "save `bytes(value)`"),
    (np.ndarray, "save `np.asarray(value)`, and a mask as an array of its own"),
    (np.random.Generator, "save its `.bit_generator.state`"),
    (np.random.BitGenerator, "save its `.state`"),
    (tuple, "save `tuple(value)`"),
    (dict, "save `dict(value)`"),
    (list, "save `list(value)`"),
    ((set, frozenset), "save `set(value)` or `frozenset(value)`"),
    (str, "save `str(value)`"),
    (int, "save `int(value)`"),
    (float, "save `float(value)`"),
    (bytes, "save `bytes(value)`"),
)


class Refusal(Exception):  # noqa: N818 - internal, never reaches a user
    """Internal: this value cannot be saved; the path grows while the exception travels outwards."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._advice = advice
        self._steps: list[str] = []

    @classmethod
    def of(cls, value: Any) -> Refusal:
        """Refuse a value because of its type."""
        kind = type(value)
        what = f"a value of type {kind.__module__}.{kind.__qualname__} cannot be saved"
        return cls(what, f"In get_state(), {_advice_for(value)}.")

    @classmethod
    def dtype(cls, what: str, reason: str) -> Refusal:
        """Refuse an array or scalar because of its dtype."""
        return cls(
            f"{what} cannot be saved: {reason}",
            "In get_state(), save a list of its items, or an array of numbers.",
        )

    @classmethod
    def too_deep(cls, max_depth: int) -> Refusal:
        """Refuse a value because it is nested too deeply, or holds itself."""
        return cls(
            f"containers are nested more than {max_depth} deep, or one holds itself",
            "In get_state(), flatten it.",
        )

    def within(self, step: str) -> Refusal:
        """Add the step that leads to the value from one container further out."""
        self._steps.append(step)
        return self

    def message(self, name: str) -> str:
        """Return the whole message for a value that is called `name`."""
        steps = self._steps[::-1]
        if len(steps) > 20:
            steps = [*steps[:10], "...", *steps[-10:]]
        return f"{name}{''.join(steps)}: {self._problem}. {_PLAIN} {self._advice}"


def _advice_for(value: Any) -> str:
    if isinstance(value, type) or callable(value):
        return "leave it out: code is supplied by the program that restores"
    for kinds, advice in _ADVICE:
        if isinstance(value, kinds):
            return advice
    if dataclasses.is_dataclass(value):
        return "save `dataclasses.asdict(value)`"
    return "save the data from which set_state() can make it again"

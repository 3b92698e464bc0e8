"""The values of a result as files can hold them: copies, JSON, the cells of a table.

Pure functions. NaN and infinities become null (JSON) or an empty cell (CSV): neither format has
them, and readers stumble over `NaN`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

MAX_ELEMENTS_PER_CELL: Final = 1000
MAX_CHARACTERS_PER_CELL: Final = 100_000
"""Readers of CSV refuse larger cells: Python's own more than 131,072 characters."""

_LINE_BREAKS: Final = {"\n": "\\n", "\r": "\\r", "\x00": "\\x00"}


def row_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a result to be written later: plain containers, without the config.

    Nothing in it changes when the result is changed. The checkpoint has the config.
    """
    return {str(key): _frozen(value) for key, value in result.items() if key != "config"}


def iteration_of(row: Mapping[str, Any]) -> int:
    """The iteration that a row belongs to.

    Raises:
        ValueError: the row does not say.
    """
    iteration = row.get("training_iteration")
    if isinstance(iteration, bool) or not isinstance(iteration, int | np.integer):
        raise ValueError(
            f"a result with training_iteration={iteration!r} cannot be written: the iteration, an "
            "integer, says where its row belongs. Do not remove or replace it in on_train_result."
        )
    return int(iteration)


def jsonable(value: Any) -> Any:
    """The value as `json.dumps(..., allow_nan=False)` takes it; what JSON lacks becomes text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def leaves(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All (slash path, value) of a nested row, in its order; empty dicts have none."""
    for key, value in row.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}/")
        else:
            yield path, value


def cells_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row by the name of their column; no name and no cell breaks the line."""
    return {_on_one_line(path): _on_one_line(_cell(value)) for path, value in leaves(row)}


def _frozen(value: Any) -> Any:
    """A copy that shares nothing changeable; objects of other kinds become their text."""
    if isinstance(value, Mapping):
        return {str(key): _frozen(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_frozen(item) for item in value]
    if isinstance(value, np.ndarray):
        return _frozen(value.tolist()) if value.dtype.hasobject else value.copy()
    if isinstance(value, (bool, int, float, str, type(None), np.generic)):
        return value
    return str(value)


def _cell(value: Any) -> str:
    """One value as text; what is too big for a table is described instead."""
    if isinstance(value, np.ndarray) and value.size > MAX_ELEMENTS_PER_CELL:
        return f"array of shape {value.shape}, {value.dtype}"
    value = jsonable(value)
    if isinstance(value, list):
        number = _num_elements(value)
        if number > MAX_ELEMENTS_PER_CELL:
            return f"list of {number} values"
        text = json.dumps(value, allow_nan=False)
    else:
        text = "" if value is None else str(value)
    too_long = len(text) > MAX_CHARACTERS_PER_CELL
    return f"text of {len(text)} characters" if too_long else text


def _num_elements(value: Any) -> int:
    if isinstance(value, Mapping):
        value = list(value.values())
    return sum(map(_num_elements, value)) if isinstance(value, list) else 1


def _on_one_line(text: str) -> str:
    for found, written in _LINE_BREAKS.items():
        text = text.replace(found, written)
    return text

"""SampleBatch: columns with one row per env step, as callbacks get them and may rewrite them.

It knows nothing of episodes or losses: who makes a batch also decides what becomes of it.
"""

from __future__ import annotations

import difflib
from typing import Any, NoReturn

import numpy as np

from checkpoints.arguments import checked_methods
from trainer.episodes import nested
from trainer.errors import EpisodeError
from trainer.rllib_names.sample_batch_names import SampleBatchNames
from trainer.types import Array

_NUMBERS = "biuf"


@checked_methods()
class SampleBatch(dict[str, Any], SampleBatchNames):
    """{column: one row per env step}; the names are those of `trainer.episodes.columns`.

    Columns are arrays, or dicts and tuples of arrays where a space is one. As in RLlib, `len()` and
    `count` are the number of rows, not of columns.
    """

    @property
    def count(self) -> int:
        """The number of rows (env steps)."""
        return nested.batch_length(next(iter(self.values()))) if self.keys() else 0

    def __len__(self) -> int:
        return self.count

    def __missing__(self, name: str) -> NoReturn:
        near = difflib.get_close_matches(str(name), self, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if name == "dones":
            hint = "; it became two: 'terminateds' and 'truncateds'"
        raise KeyError(f"there is no column {name!r}{hint}. There are {', '.join(self)}")

    def copy(self, shallow: bool = False) -> SampleBatch:
        """Another batch with the same columns.

        Args:
            shallow: share the arrays instead of copying them.
        """
        if shallow:
            return SampleBatch(self)
        return SampleBatch({name: nested.map_leaves(np.array, self[name]) for name in self})


def read_only(column: Any) -> Any:
    """A view of a column that cannot be written to: a mistake shows where it is made."""

    def seal(leaf: Array) -> Array:
        view: Array = leaf.view()
        view.flags.writeable = False
        return view

    return nested.map_leaves(seal, column)


def fitted_column(name: str, given: Any, *, like: Any, num_rows: int) -> Any:
    """A column that somebody rewrote, checked, in the form it had before.

    Args:
        name: of the column.
        given: what it is now: arrays or lists.
        like: the column before: dtypes, shapes of a row, and structure. Where it held numbers that
            are not finite itself, nobody is blamed for them.
        num_rows: how many rows it must have.

    Raises:
        EpisodeError: structure, number of rows, shape or dtype do not fit, or a number is not
            finite.
    """
    if isinstance(like, dict | tuple):
        parts = like.items() if isinstance(like, dict) else enumerate(like)
        _check_structure(name, given, like)
        fitted = {
            key: fitted_column(f"{name}[{key!r}]", given[key], like=part, num_rows=num_rows)
            for key, part in parts
        }
        return fitted if isinstance(like, dict) else tuple(fitted.values())
    array = _numbers(name, given, num_rows=num_rows)
    if array.shape[1:] != like.shape[1:]:
        raise EpisodeError(
            f"The rows of the column {name!r} have the shape {array.shape[1:]} now, but had "
            f"{like.shape[1:]}. Give every row the shape it had."
        )
    if array.dtype != like.dtype and not np.can_cast(array.dtype, like.dtype, "same_kind"):
        raise EpisodeError(
            f"The column {name!r} holds {array.dtype} now, which {like.dtype} cannot hold. Convert "
            f"it: `batch[{name!r}] = values.astype({str(like.dtype)!r})`."
        )
    _check_finite(name, array, before=like)
    fitted_array: Array = array.astype(like.dtype, copy=False)
    return fitted_array


def new_column(name: str, given: Any, *, num_rows: int) -> Array:
    """A column that somebody added, checked.

    Raises:
        EpisodeError: it is no array of finite numbers with one entry per row.
    """
    array = _numbers(name, given, num_rows=num_rows)
    _check_finite(name, array)
    return array


def _numbers(name: str, given: Any, *, num_rows: int) -> Array:
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.ndim == 0 or array.dtype.kind not in _NUMBERS:
        raise EpisodeError(
            f"The column {name!r} is {nested.describe(given)} now; a column is an array of numbers "
            "with one row per env step. Assign such an array, or remove what was added."
        )
    if len(array) != num_rows:
        raise EpisodeError(
            f"The column {name!r} has {len(array)} rows now, but the others have {num_rows}. Every "
            "column has one row per env step. Change rows in place, or assign as many rows."
        )
    return array


def _check_structure(name: str, given: Any, like: Any) -> None:
    keys = set(like) if isinstance(like, dict) else len(like)
    found: Any = None
    if isinstance(given, dict) and isinstance(like, dict):
        found = set(given)
    elif isinstance(given, tuple) and isinstance(like, tuple):
        found = len(given)
    if found != keys:
        raise EpisodeError(
            f"The column {name!r} is {nested.describe(given)} now, but was {type(like).__name__} "
            f"with {len(like)} parts. Keep its structure and change the arrays in it."
        )


def _check_finite(name: str, array: Array, *, before: Array | None = None) -> None:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    if before is not None and not np.isfinite(before).all():
        return
    row = int(np.argwhere(~np.isfinite(array))[0, 0])
    raise EpisodeError(
        f"The column {name!r} holds {array[row]} in row {row} now; nothing can be learnt from "
        "numbers that are not finite. Look for a division by zero or a logarithm of zero in what "
        "was assigned."
    )

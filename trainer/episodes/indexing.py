"""What the indices of the getters and setters mean, as positions in the stored data.

The data of a column is its look-back followed by the steps of the chunk:

    look-back   [4, 5, 6 | 7, 8, 9]   steps
    positions    0  1  2   3  4  5
    index                  0  1  2    counts from the first step
    index       -6 -5 -4  -3 -2 -1    negative: counts from the end and may reach into the look-back
    index       -3 -2 -1   0  1  2    with `neg_index_as_lookback=True`

Positions below 0 or beyond the end are possible here; it is up to the caller to refuse, clip or
fill them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.errors import EpisodeIndexError

Indices = int | slice | Sequence[int] | None
"""One index, a slice, a list of indices, or None for all steps without the look-back."""


def position(index: int, *, total: int, lookback: int, neg_index_as_lookback: bool) -> int:
    """The position that an index means.

    Args:
        index: the index, counted from the first step after the look-back.
        total: the number of items stored, look-back included.
        lookback: how many of them are look-back.
        neg_index_as_lookback: whether -1 is the last item of the look-back rather than the newest
            item.
    """
    number = whole_number(index)
    if number < 0 and not neg_index_as_lookback:
        return total + number
    return lookback + number


def positions(
    indices: slice | Sequence[int], *, total: int, lookback: int, neg_index_as_lookback: bool
) -> range | list[int]:
    """The positions that a slice (as a range) or a list of indices (as a list) means.

    Raises:
        EpisodeIndexError: there is something else than whole numbers, or a step of 0.
    """

    def place(index: int) -> int:
        return position(
            index, total=total, lookback=lookback, neg_index_as_lookback=neg_index_as_lookback
        )

    if not isinstance(indices, slice):
        if not np.iterable(indices):
            raise _no_index(indices)
        return [place(index) for index in indices]
    step = 1 if indices.step is None else whole_number(indices.step)
    if step == 0:
        raise _no_index(indices)
    first, end = (lookback, total) if step > 0 else (total - 1, lookback - 1)
    start = first if indices.start is None else place(indices.start)
    stop = end if indices.stop is None else place(indices.stop)
    return range(start, stop, step)


def clipped(where: range, total: int) -> range:
    """The part of a range of positions that exists; same step."""
    if where.step == 1:
        start = max(where.start, 0)
        return range(start, max(start, min(where.stop, total)))
    inside = [p for p in where if 0 <= p < total]
    return (
        range(inside[0], inside[-1] + (1 if where.step > 0 else -1), where.step)
        if inside
        else range(0)
    )


def as_slice(where: range) -> slice:
    """The slice that picks a range of existing positions."""
    if not where:
        return slice(0, 0)
    stop = where.stop if where.stop >= 0 else None
    return slice(where.start, stop, where.step)


def is_one_index(indices: object) -> bool:
    """Whether `indices` is a single number (Python's or NumPy's)."""
    return isinstance(indices, int | np.integer)


def whole_number(index: Any) -> int:
    """The index as Python's int.

    Raises:
        EpisodeIndexError: it is not a whole number. Truth values are refused as well: a mask would
            otherwise pick the items 0 and 1 again and again.
    """
    if type(index) is int:
        return index
    if isinstance(index, bool | np.bool_):
        raise _no_index(index)
    try:
        return operator.index(index)
    except TypeError as cause:
        raise _no_index(index) from cause


def _no_index(index: Any) -> EpisodeIndexError:
    return EpisodeIndexError(
        f"{index!r} is not an index into an episode. Items are picked by whole numbers. Give an "
        "int, a list of ints, a slice of ints with a step other than 0, or None for all steps."
    )

"""Putting new items in the place of old ones, in lists and in arrays.

Pure functions, except that arrays which can hold the new items are written in place. Before and
after `to_numpy()` the same items are read back; an array never cuts a number down to its own dtype
without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.episodes import nested
from trainer.errors import EpisodeError
from trainer.types import Array


def num_items(items: Any) -> int:
    """How many items a list or a batch holds.

    Raises:
        EpisodeError: it is neither.
    """
    return len(items) if isinstance(items, list) else nested.checked_length(items, name="new_data")


def overwritten(data: Any, places: Sequence[int], new_items: Any, *, total: int) -> Any:
    """The column with new items at some places.

    Args:
        data: list or batch of `total` items.
        places: existing positions.
        new_items: list or batch with one item for each place.
        total: the number of items of the column.

    Raises:
        EpisodeError: `data` is a batch, and the new items have another form than those that stay.
    """
    if isinstance(data, list):
        items = new_items
        if not isinstance(items, list):
            items = nested.unstack(items, len(places))
        for place, item in zip(places, items, strict=True):
            data[place] = item
        return data
    batch = new_items
    if isinstance(batch, list):
        batch = nested.stack(batch, name="new_data")
    if nested.form(batch) != nested.form(data):
        if len(set(places)) < total:
            raise EpisodeError(
                f"New items of the form {nested.form(batch)} cannot stand beside items of the form "
                f"{nested.form(data)}. All items of a column have one form after `to_numpy()`. "
                "Give items of the same shape, or replace all of them."
            )
        data = nested.map_leaves(np.empty_like, batch)
    where = np.array(places, np.intp)

    def write(old: Array, new: Any) -> Array:
        rows = np.asarray(new)
        dtype = _dtype_for(rows, old.dtype)
        leaf = old if dtype == old.dtype and old.flags.writeable else old.astype(dtype)
        leaf[where] = rows
        return leaf

    return nested.map_leaves(write, data, batch)


def _dtype_for(new: Array, own: np.dtype[Any]) -> np.dtype[Any]:
    """The array's own dtype if it can hold the new numbers, rounded to its precision at most."""
    if new.dtype == own:
        return own
    if own.kind in "fc" and np.can_cast(new.dtype, own, "same_kind"):
        return own
    if own.kind in "iu" and new.dtype.kind in "biu":
        limits = np.iinfo(own)
        if limits.min <= int(new.min()) and int(new.max()) <= limits.max:
            return own
    return np.result_type(own, new.dtype)

"""Room for the columns of a replay buffer that is being restored, filled by whoever reads a file.

A column is longer than what was saved of it: it has room for every step to come. If the reader's
arrays are the beginnings of such columns, nothing needs to be copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from checkpoints import NewArray
from trainer.types import Array


class ColumnRooms:
    """Columns that were made and not taken yet. Its life:

    `with rooms.opened() as make_array:` the reader fills what `make_array` gives, and the ring
    takes from `whole_column` what it was given. What nobody took is gone after the block.
    """  # noqa: D415 - the first line announces the list

    def __init__(self, num_rows: int) -> None:
        """Nothing is made yet.

        Args:
            num_rows: of a column.
        """
        self._num_rows = num_rows
        self._made: list[Array] = []

    @contextlib.contextmanager
    def opened(self) -> Iterator[NewArray]:
        """Within, columns are made; gives the function that makes them."""
        try:
            yield self._make
        finally:
            self._made = []

    def whole_column(self, rows: Array, num_rows: int) -> Array:
        """A column that begins with these rows: a copy, or the room that they are in.

        Args:
            rows: [num_rows, …].
            num_rows: of them.

        Raises:
            ValueError: there are more or fewer rows.
        """
        for index, room in enumerate(self._made):
            if rows.base is room and _begins_with(room, rows, num_rows):
                return self._made.pop(index)
        column: Array = np.zeros((self._num_rows, *rows.shape[1:]), rows.dtype)
        column[:num_rows] = rows
        return column

    def _make(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array | None:
        if not shape or shape[0] > self._num_rows:
            return None
        try:
            room: Array = np.zeros((self._num_rows, *shape[1:]), dtype)
        except (MemoryError, ValueError):
            return None  # it is no column of ours
        self._made.append(room)
        return room[: shape[0]]


def _begins_with(room: Array, rows: Array, num_rows: int) -> bool:
    """Whether the rows are just the first ones of the room, as they were made."""
    first = room[:num_rows]
    return (rows.dtype, rows.shape, rows.strides) == (
        first.dtype,
        first.shape,
        first.strides,
    ) and rows.ctypes.data == first.ctypes.data

"""Steps of many episodes in preallocated arrays; the newest overwrite the oldest."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from checkpoints import NewArray, state_array
from checkpoints.arguments import shown
from trainer.errors import ReplayError
from trainer.replay.column_rooms import ColumnRooms
from trainer.replay.nesting import plain_array
from trainer.types import Array, State

NO_ROW: Final = -1
"""Where nothing follows. As an index it is the row behind the last one, which is all zeros and
followed by itself, so that walking along the links needs no case for an end."""

MAX_STEPS: Final = 2**40
"""More than any memory holds; NumPy would say so with an error of its own."""

Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Name of a column → number type and shape of one row."""


class StepRing:
    """A ring of rows, one per env step, and for each row the row of the step that followed.

    From the first steps on, all columns are there in full length; adding writes in place, and
    nothing is ever copied as a whole.

    A row that follows another is always the newer one, so it is overwritten later: a link never
    leads to a row of another episode.

    The step that was added as number p (its *position*) stands in row p mod capacity.

    Attributes:
        capacity: rows.
        num_added: steps ever added.
        num_tails: rows that no other row follows: one per episode of which steps are here.
        columns: name → array [capacity + 1, …].
        following: the row of the next step of the same episode, or -1; int64 [capacity + 1].
    """

    def __init__(self, capacity: int) -> None:
        """An empty ring.

        Args:
            capacity: how many steps it holds, ≥ 1.
        """
        self.capacity = capacity
        self.num_added = 0
        self.num_tails = 0
        self.columns: dict[str, Array] = {}
        self.following: Array = np.full(capacity + 1, NO_ROW, np.int64)
        self._undo: list[Callable[[], None]] = []
        self._rooms = ColumnRooms(capacity + 1)

    @property
    def num_stored(self) -> int:
        """Steps that are here; they stand in the rows from 0 on."""
        return min(self.num_added, self.capacity)

    @property
    def layout(self) -> Layout:
        """What a row consists of; empty before the first steps."""
        return {name: (column.dtype, column.shape[1:]) for name, column in self.columns.items()}

    @property
    def num_bytes(self) -> int:
        """What the stored steps take; the columns grow to it as rows are written."""
        row = sum(column[:1].nbytes for column in self.columns.values())
        return self.num_stored * (row + self.following.itemsize)

    def allocate(self, layout: Layout) -> None:
        """Makes room for the first steps, which costs memory only as rows are written."""

        def undo() -> None:
            self.columns = {}

        self.remember(undo)
        self.columns = self._empty_columns(layout)

    def _empty_columns(self, layout: Layout) -> dict[str, Array]:
        return {
            name: np.zeros((self.capacity + 1, *shape), dtype)
            for name, (dtype, shape) in layout.items()
        }

    def append(
        self,
        columns: Mapping[str, Sequence[Array]],
        *,
        lengths: Sequence[int],
        continues: Sequence[int],
        num_skipped: int = 0,
    ) -> Array:
        """Adds the steps of chunks, N in all.

        Args:
            columns: as in `layout`; the pieces of each, in order, have N ≤ capacity rows in all.
            lengths: steps of each chunk, ≥ 1.
            continues: for each chunk the row that its first step follows, or -1; that may be a row
                of this same call, but no other that this call overwrites.
            num_skipped: steps of the only chunk that are counted, but not stored, because N =
                capacity steps of it come after them.

        Returns:
            The rows that were written, int64 [N].
        """
        ends = list(accumulate(lengths))
        start = self.num_added + num_skipped
        stop = start + ends[-1]
        overwritten = self._spans(max(start, self.capacity), stop)
        if num_skipped:
            overwritten = [slice(0, self.num_stored)]
        self._remember_rows(overwritten, [row for row in continues if row >= 0])
        for span in overwritten:
            self.num_tails -= int(np.count_nonzero(self.following[span] < 0))
        rows = np.arange(start, stop) % self.capacity
        spans = self._spans(start, stop)
        for name, pieces in columns.items():
            self._write(self.columns[name], spans, pieces)
        following = np.empty_like(rows)
        following[:-1] = rows[1:]
        following[[end - 1 for end in ends]] = NO_ROW
        self._write(self.following, spans, [following])
        self.num_tails += len(lengths)
        for row, end, length in zip(continues, ends, lengths, strict=True):
            if row >= 0:
                self.following[row] = (start + end - length) % self.capacity
                self.num_tails -= 1
        self.num_added = stop
        return rows

    def _spans(self, start: int, stop: int) -> list[slice]:
        """The rows of the positions from `start` up to `stop`: none, one or two slices."""
        if start >= stop:
            return []
        first = start % self.capacity
        end = first + stop - start
        if end <= self.capacity:
            return [slice(first, end)]
        return [slice(first, self.capacity), slice(0, end - self.capacity)]

    def _write(self, column: Array, spans: list[slice], pieces: Sequence[Array]) -> None:
        if len(spans) == 1:
            np.concatenate(pieces, out=column[spans[0]], casting="unsafe")
            return
        values = np.concatenate(pieces)
        num_before = spans[0].stop - spans[0].start
        column[spans[0]], column[spans[1]] = values[:num_before], values[num_before:]

    def chains(self, rows: Array, length: int) -> Array:
        """Rows and those that follow them, -1 behind the end of an episode.

        Args:
            rows: int64 [B].
            length: T ≥ 1.

        Returns:
            int64 [T, B].
        """
        chains = np.empty((length, len(rows)), np.int64)
        chains[0] = rows
        for step in range(1, length):
            chains[step] = self.following.take(chains[step - 1])
        return chains

    # ---- undoing

    def mark(self) -> None:
        """Everything from now on can be undone by `rollback`."""
        counts = self.num_added, self.num_tails

        def restore_counts() -> None:
            self.num_added, self.num_tails = counts

        self._undo = [restore_counts]

    def rollback(self) -> None:
        """Undoes everything since `mark`; does nothing without one."""
        while self._undo:
            self._undo.pop()()

    @contextlib.contextmanager
    def restoring(
        self, *, mark: Callable[[], None], rollback: Callable[[], None]
    ) -> Iterator[NewArray]:
        """The block of `checkpoints.HasLargeArrays`; until it is left, the previous columns stay.

        What it changed is undone by an earlier mark, too, and can be forgotten if there is none.

        Args:
            mark: that of the owner, who may remember more.
            rollback: likewise.
        """
        earlier, self._undo = self._undo, []
        try:
            with self._rooms.opened() as make_array:
                mark()
                yield make_array
        except BaseException:
            rollback()
            raise
        finally:
            self._undo = [*earlier, *self._undo] if earlier else []

    def remember(self, undo: Callable[[], None]) -> None:
        """Adds what undoes a change that is about to be made, if there is a mark."""
        if self._undo:
            self._undo.append(undo)

    def _remember_rows(self, spans: list[slice], tails: list[int]) -> None:
        """Keeps what is about to be overwritten; rows that hold nothing yet need no copy."""
        if not self._undo:
            return
        kept = [
            (
                span,
                self.following[span].copy(),
                {name: column[span].copy() for name, column in self.columns.items()},
            )
            for span in spans
        ]

        def undo() -> None:
            self.following[tails] = NO_ROW
            for span, following, columns in kept:
                self.following[span] = following
                for name, values in columns.items():
                    self.columns[name][span] = values

        self._undo.append(undo)

    # ---- state

    def get_state(self) -> State:
        """All rows that hold something, as plain data."""
        count = self.num_stored
        return {
            "capacity": self.capacity,
            "num_added": self.num_added,
            "following": state_array(self.following[:count]),
            "layout": {
                name: [dtype.str, list(shape)] for name, (dtype, shape) in self.layout.items()
            },
            "columns": {name: state_array(column[:count]) for name, column in self.columns.items()},
        }

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; `rollback` undoes that, too.

        Raises:
            ReplayError: it is of a ring of another capacity; nothing is changed.
        """
        if state["capacity"] != self.capacity:
            raise ReplayError(
                f"The saved replay buffer holds up to {state['capacity']:,} steps, this one "
                f"{self.capacity:,}. Build the algorithm with the capacity that was saved: "
                f'replay_buffer_config={{"capacity": {state["capacity"]}}}.'
            )
        layout = {
            name: (np.dtype(dtype), tuple(shape))
            for name, (dtype, shape) in state["layout"].items()
        }
        num_added = int(state["num_added"])
        count = min(num_added, self.capacity)
        columns = {
            name: self._rooms.whole_column(plain_array(state["columns"][name], dtype, shape), count)
            for name, (dtype, shape) in layout.items()
        }
        following = self._rooms.whole_column(
            plain_array(state["following"], np.dtype(np.int64), ()), count
        )
        following[count:] = NO_ROW
        self._replace(num_added, following, columns)

    def _replace(self, num_added: int, following: Array, columns: dict[str, Array]) -> None:
        before = self.following, self.columns

        def undo() -> None:
            self.following, self.columns = before

        self.remember(undo)
        self.num_added, self.following, self.columns = num_added, following, columns
        self.num_tails = int(np.count_nonzero(following[: self.num_stored] < 0))


def checked_capacity(capacity: Any) -> int:
    """The capacity, if it is one; raises a ReplayError."""
    try:
        steps = 0 if isinstance(capacity, bool) else operator.index(capacity)
    except TypeError:
        steps = 0
    if not 1 <= steps <= MAX_STEPS:
        raise ReplayError(
            f"capacity={shown(capacity)}: expected an integer of at least 1 env step, and at most "
            f"{MAX_STEPS:,}."
        )
    return steps

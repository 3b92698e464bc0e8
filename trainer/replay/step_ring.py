"""Steps of many episodes in preallocated arrays; transitions and sequences drawn from them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from checkpoints import state_array
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ReplayError
from trainer.types import Array, State
from trainer_toolkit.arguments import checked
from trainer_toolkit.checks import integer
from trainer_toolkit.undo import Undo

# ---- nesting
#
# Nested observations and actions as flat columns, and back. A Dict or Tuple space becomes one
# column per part, named as Python would reach it: `obs['camera']`, `obs[0]`. So no two parts ever
# share a name, whatever characters the keys have. A *template* is the nesting without its arrays:
# None stands for an array.


def parts_of(name: str, tree: Any) -> Iterator[tuple[str, Array]]:
    """Column name and array of every part of a nested batch, in order."""
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from parts_of(f"{name}[{key!r}]", part)
    elif isinstance(tree, tuple):
        for index, part in enumerate(tree):
            yield from parts_of(f"{name}[{index}]", part)
    else:
        yield name, tree


def template_of(tree: Any) -> Any:
    """The nesting of a batch."""
    if isinstance(tree, dict):
        return {key: template_of(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(template_of(part) for part in tree)
    return None


def gathered(name: str, template: Any, columns: Mapping[str, Array], rows: Array) -> Any:
    """Rows of the columns of `name`, nested as the template is; a copy.

    Args:
        name: of the whole, such as "obs".
        template: its nesting.
        columns: name → [N, …].
        rows: int64, of any shape S.

    Returns:
        Arrays [S…, …].
    """
    if template is None:
        return columns[name].take(rows, axis=0)
    if isinstance(template, dict):
        return {
            key: gathered(f"{name}[{key!r}]", part, columns, rows) for key, part in template.items()
        }
    return tuple(
        gathered(f"{name}[{index}]", part, columns, rows) for index, part in enumerate(template)
    )


def plain_template(template: Any) -> Any:
    """A template as MessagePack can hold it, which knows no tuples and no keys but strings."""
    if isinstance(template, dict):
        return {"dict": [[key, plain_template(part)] for key, part in template.items()]}
    if isinstance(template, tuple):
        return {"tuple": [plain_template(part) for part in template]}
    return None


def template_from(plain: Any) -> Any:
    """The template that `plain_template` described."""
    if plain is None:
        return None
    if "dict" in plain:
        return {key: template_from(part) for key, part in plain["dict"]}
    return tuple(template_from(part) for part in plain["tuple"])


def plain_array(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An array of a saved state, which is nested lists if MessagePack has brought it back.

    Args:
        values: [N, …].
        dtype: of the result.
        shape: of one row.
    """
    return np.asarray(values, dtype).reshape(len(values), *shape)


# ---- column rooms
#
# Room for the columns of a replay buffer that is being restored, filled by the reader of a file.
# A column is longer than what was saved of it: it has room for every step to come. If the
# reader's arrays are the beginnings of such columns, nothing needs to be copied.


class ColumnRooms:
    """Columns that were made and not taken yet.

    The reader fills what `make` gives, and the ring takes from `whole_column` what it was given.
    What nobody has any more is gone.
    """

    def __init__(self, num_rows: int) -> None:
        """Nothing is made yet; a column is to have so many rows."""
        self._num_rows = num_rows
        self._made: list[weakref.ref[Array]] = []

    def __reduce__(self) -> tuple[type[ColumnRooms], tuple[int]]:
        return ColumnRooms, (self._num_rows,)

    def whole_column(self, rows: Array, num_rows: int) -> Array:
        """A column that begins with these rows: a copy, or the room that they are in.

        Args:
            rows: [num_rows, …].
            num_rows: of them.

        Raises:
            ValueError: there are more or fewer rows.
        """
        for made in self._made:
            room = made()
            if room is not None and rows.base is room and _begins_with(room, rows, num_rows):
                self._made.remove(made)
                return room
        column: Array = np.zeros((self._num_rows, *rows.shape[1:]), rows.dtype)
        column[:num_rows] = rows
        return column

    def make(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array | None:
        """The beginning of a new column; None if it would be none of the ring's."""
        if not shape or shape[0] > self._num_rows:
            return None
        try:
            room: Array = np.zeros((self._num_rows, *shape[1:]), dtype)
        except (MemoryError, ValueError):
            return None  # it is no column of ours
        self._made = [made for made in self._made if made() is not None]
        self._made.append(weakref.ref(room))
        return room[: shape[0]]


def _begins_with(room: Array, rows: Array, num_rows: int) -> bool:
    """Whether the rows are just the first ones of the room, as they were made."""
    first = room[:num_rows]
    return (rows.dtype, rows.shape, rows.strides) == (
        first.dtype,
        first.shape,
        first.strides,
    ) and rows.ctypes.data == first.ctypes.data


# ---- step ring

NO_ROW: Final = -1
"""Where nothing follows. As an index it is the row behind the last one, which is all zeros and
followed by itself, so that walking along the links needs no case for an end."""

MAX_STEPS: Final = 2**40
"""More than any memory holds; NumPy would say so with an error of its own."""

Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Name of a column → number type and shape of one row."""


class UndoLog:
    """What undoes the changes of a ring, one by one, as long as a mark is kept.

    A mark is a function that undoes all since it was made. Marks may be nested: an inner one that
    was not called leaves its changes to the outer one.
    """

    def __init__(self) -> None:
        self._undos: list[Undo] = []
        self._outermost: weakref.ref[_Mark] | None = None

    def __reduce__(self) -> tuple[type[UndoLog], tuple[()]]:
        return UndoLog, ()  # of a copy nobody has a mark

    @property
    def is_kept(self) -> bool:
        """Whether somebody could undo what is changed now."""
        return self._outermost is not None and self._outermost() is not None

    def mark(self) -> Undo:
        """What undoes everything that is added from now on."""
        if self.is_kept:
            return _Mark(self._undos, len(self._undos))
        undos = self._undos = []
        outermost = _Mark(undos, 0)
        # What it held, such as whole columns, goes with it.
        self._outermost = weakref.ref(outermost, lambda _: undos.clear())
        return outermost

    def add(self, undo: Undo) -> None:
        """Remembers what undoes a change, if there is a mark."""
        if self.is_kept:
            self._undos.append(undo)


class _Mark:
    """Undoes what was added to a log since it was made."""

    __slots__ = ("__weakref__", "_begin", "_undos")

    def __init__(self, undos: list[Undo], begin: int) -> None:
        self._undos, self._begin = undos, begin

    def __call__(self) -> None:
        while len(self._undos) > self._begin:
            self._undos.pop()()


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
        """An empty ring for so many steps, ≥ 1."""
        self.capacity = capacity
        self.num_added = 0
        self.num_tails = 0
        self.columns: dict[str, Array] = {}
        self.following: Array = np.full(capacity + 1, NO_ROW, np.int64)
        self._log = UndoLog()
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

        self._log.add(undo)
        self.columns = {
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
        if len(spans) == 1 and len(pieces) > 1:
            np.concatenate(pieces, out=column[spans[0]], casting="unsafe")
            return
        values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        if len(spans) == 1:
            column[spans[0]] = values
            return
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

    def mark(self) -> Undo:
        """What puts everything back to now; changes are remembered as long as it is kept."""
        counts, mark = (self.num_added, self.num_tails), self._log.mark()

        def restore_counts() -> None:
            self.num_added, self.num_tails = counts

        self._log.add(restore_counts)
        return mark

    def remember(self, undo: Undo) -> None:
        """Adds what undoes a change that is about to be made, if there is a mark."""
        self._log.add(undo)

    def make_large_array(self, dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Array | None:
        """See `checkpoints.HasLargeArrays`: rows are read into the columns that they stay in."""
        return self._rooms.make(dtype, shape)

    def remember_rows_to_come(self, num_rows: int, tails: Sequence[int]) -> None:
        """Keeps what the next rows will overwrite, for those that write them one by one.

        Args:
            num_rows: at most the capacity.
            tails: positions of steps that rows to come may follow.
        """
        spans = self._spans(max(self.num_added, self.capacity), self.num_added + num_rows)
        oldest = self.num_added - self.capacity
        self._remember_rows(spans, [at % self.capacity for at in tails if at >= max(oldest, 0)])

    def _remember_rows(self, spans: list[slice], tails: list[int]) -> None:
        """Keeps what is about to be overwritten; rows that hold nothing yet need no copy."""
        if not self._log.is_kept:
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

        self._log.add(undo)

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
        """Takes back what `get_state` gave; a mark undoes that, too.

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

        self._log.add(undo)
        self.num_added, self.following, self.columns = num_added, following, columns
        self.num_tails = int(np.count_nonzero(following[: self.num_stored] < 0))


def checked_capacity(capacity: Any) -> int:
    """The capacity, if it is one; raises a ReplayError."""
    return int(checked(capacity, integer(1, MAX_STEPS), name="capacity", error=ReplayError))


# ---- transitions
#
# What is stored of an episode's steps, and what comes out: transitions and sequences.
# Observations and actions keep their own number types (images stay bytes).

OBS: Final = "obs"
NEXT_OBS: Final = "new_obs"
ACTIONS: Final = "actions"
REWARDS: Final = "rewards"
TERMINATEDS: Final = "terminateds"


@dataclass(frozen=True)
class Transitions:
    """A batch to learn from; B rows.

    Attributes:
        obs: observations before the steps, as the env gave them: [B, …], or a dict or tuple of such
            arrays.
        actions: as the policy chose them, likewise.
        rewards: discounted sums over up to n steps, float32 [B].
        next_obs: observations after the last of these steps.
        discounts: what the value of `next_obs` counts: γ^m after m ≤ n steps, and 0 where the
            episode reached a final state, float32 [B].
        weights: importance weights, float32 [B]; 1 without priorities.
        rows: where the steps are stored, for `update_priorities`, int64 [B].
    """

    obs: Any
    actions: Any
    rewards: Array
    next_obs: Any
    discounts: Array
    weights: Array
    rows: Array


@dataclass(frozen=True)
class Sequences:
    """B pieces of episodes, T steps each, for modules that remember.

    Where an episode ends (or its newest step is reached) before T steps, zeros follow.

    Attributes:
        obs: observations before the steps: [B, T, …], or a dict or tuple of such arrays.
        actions: as the policy chose them, likewise.
        rewards: of the single steps, float32 [B, T].
        next_obs: observations after the steps.
        terminateds: whether a step reached a final state, bool [B, T].
        mask: whether there is a step, bool [B, T]; the first one of a sequence always is.
        weights: importance weights of the sequences' first steps, float32 [B].
        rows: where the steps are stored, or -1, int64 [B, T].
    """

    obs: Any
    actions: Any
    rewards: Array
    next_obs: Any
    terminateds: Array
    mask: Array
    weights: Array
    rows: Array


def columns_of(chunk: SingleAgentEpisode) -> dict[str, Array]:
    """One row per step of a chunk, without look-back; views into its arrays.

    Whether the last step reached a final state is left to the caller, who has many chunks.

    Raises:
        ReplayError: the chunk still holds lists.
    """
    if not chunk.is_numpy:
        raise ReplayError(
            f"Episode {chunk.id_} still holds lists, but replay stores arrays. Call `to_numpy()` "
            "before adding it."
        )
    columns = {}
    # Straight to the arrays: the getters, which know many kinds of indices, cost twice as much.
    first = chunk.observations.lookback
    for name, part in parts_of("", chunk.observations.data):
        columns[OBS + name] = part[first:-1]
        columns[NEXT_OBS + name] = part[first + 1 :]
    first = chunk.actions.lookback
    for name, part in parts_of(ACTIONS, chunk.actions.data):
        columns[name] = part[first:]
    columns[REWARDS] = chunk.rewards.data[chunk.rewards.lookback :]
    return columns


def n_step_sums(rewards: Array, chains: Array, gamma: float) -> tuple[Array, Array, Array]:
    """Rewards over up to n steps, and where they lead.

    Args:
        rewards: of all rows, float32 [N + 1], the last one 0.
        chains: rows of consecutive steps, -1 behind the last one of each chain, int64 [n, B].
        gamma: γ, the discount per step.

    Returns:
        The last rows int64 [B], Σ γ^k·r_k float32 [B], and γ^m after the m steps of each chain
        float32 [B].
    """
    # γ^0 … γ^n in float64, as sums may be long; each the product of the one before.
    powers = np.multiply.accumulate(np.array([1.0] + [gamma] * len(chains)))
    # Behind an end stand zeros, so no sum needs to know where it stops.
    sums = (rewards.take(chains) * powers[:-1, None]).sum(axis=0)
    num_steps = np.count_nonzero(chains >= 0, axis=0)
    last = chains[num_steps - 1, np.arange(chains.shape[1])]
    return last, sums.astype(np.float32), powers.take(num_steps).astype(np.float32)


def layout_of(columns: Mapping[str, Array]) -> Layout:
    """The layout of a buffer whose first steps these are.

    Args:
        columns: as from `columns_of`.

    Raises:
        ReplayError: a column holds Python objects.
    """
    layout = {name: (values.dtype, values.shape[1:]) for name, values in columns.items()}
    for name, (dtype, _) in layout.items():
        if dtype.hasobject:
            raise ReplayError(
                f"{name} of the env's steps holds Python objects, and replay stores numbers. "
                "Return arrays of numbers from the env, or wrap it."
            )
    return {
        **layout,
        REWARDS: (np.dtype(np.float32), ()),
        TERMINATEDS: (np.dtype(np.bool_), ()),
    }


def check_layout(columns: Mapping[str, Array], layout: Layout, *, episode_id: str) -> None:
    """Compares steps with what a buffer holds; rewards may have any number type.

    Raises:
        ReplayError: they differ in names, number types or shapes.
    """
    fits = len(columns) == len(layout) - 1  # `columns_of` leaves one out
    for name, values in columns.items():
        dtype, shape = layout.get(name, (None, None))
        if values.shape[1:] != shape or (values.dtype != dtype and name != REWARDS):
            fits = False
    if fits:
        return
    given = {name: (values.dtype, values.shape[1:]) for name, values in columns.items()}
    stored = {name: layout[name] for name in layout if name != TERMINATEDS}
    raise ReplayError(
        f"The replay buffer holds steps of {_text(stored)}, but episode {episode_id} has "
        f"{_text(given)}. All steps of a run must have the same shapes and number types: check "
        "what the env returns, and what callbacks wrote into episodes."
    )


def _text(layout: Layout) -> str:
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in layout.items())

"""Steps of many episodes in preallocated arrays; transitions and sequences drawn from them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from checkpoints import state_array
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ReplayError
from trainer.replay.frame_store import FrameStore, Split, is_worth_sharing, split_of
from trainer.replay.undo_log import UndoLog
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


def gathered(name: str, template: Any, take: Callable[[str], Array]) -> Any:
    """The columns of `name`, nested as the template is.

    Args:
        name: of the whole, such as "obs".
        template: its nesting.
        take: gives of a column, by its name, what is wanted.
    """
    if template is None:
        return take(name)
    if isinstance(template, dict):
        return {key: gathered(f"{name}[{key!r}]", part, take) for key, part in template.items()}
    return tuple(gathered(f"{name}[{index}]", part, take) for index, part in enumerate(template))


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
        """Nothing is made yet; a column is to have so many rows at least."""
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
            ValueError: there are fewer rows.
        """
        for made in self._made:
            room = made()
            if room is not None and rows.base is room and _begins_with(room, rows, num_rows):
                self._made.remove(made)
                return room
        length = max(num_rows, self._num_rows)
        column: Array = np.zeros((length, *rows.shape[1:]), rows.dtype)
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

IDS: Final = np.dtype(np.int64)
"""What a column consists of that holds the numbers of frames."""

Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Name of a column → number type and shape of one row."""


class StepRing:
    """A ring of rows, one per env step, and for each row the row of the step that followed.

    From the first steps on, all columns are there in full length; adding writes in place, and
    nothing is ever copied as a whole.

    A row that follows another is always the newer one, so it is overwritten later: a link never
    leads to a row of another episode.

    The step that was added as number p (its *position*) stands in row p mod capacity.

    Of large observations the columns hold the numbers of their frames; see `FrameStore`.

    Attributes:
        capacity: rows.
        num_added: steps ever added.
        num_tails: rows that no other row follows: one per episode of which steps are here.
        columns: name → array [capacity + 1, …].
        frame_stores: what the columns `OBS` + place and `NEXT_OBS` + place hold numbers of, by
            place.
        following: the row of the next step of the same episode, or -1; int64 [capacity + 1].
    """

    def __init__(self, capacity: int) -> None:
        """An empty ring for so many steps, ≥ 1."""
        self.capacity = capacity
        self.num_added = 0
        self.num_tails = 0
        self.columns: dict[str, Array] = {}
        self.frame_stores: dict[str, FrameStore] = {}
        self.following: Array = np.full(capacity + 1, NO_ROW, np.int64)
        self._log = UndoLog()
        # Episodes begin with more frames than one, so that there are more of them than steps.
        self._num_slots = capacity + capacity // 4 + 1
        self._rooms = ColumnRooms(self._num_slots)

    @property
    def num_stored(self) -> int:
        """Steps that are here; they stand in the rows from 0 on."""
        return min(self.num_added, self.capacity)

    @property
    def layout(self) -> Layout:
        """What a row consists of; empty before the first steps."""
        layout = {}
        for name, column in self.columns.items():
            store = self._store_of(name)
            layout[name] = (column.dtype, column.shape[1:]) if store is None else store.layout
        return layout

    def _store_of(self, name: str) -> FrameStore | None:
        """Where the frames are that a column holds numbers of; None if it holds values."""
        return self.frame_stores.get(name.removeprefix(NEXT_OBS).removeprefix(OBS))

    @property
    def num_bytes(self) -> int:
        """What the stored steps take; the columns grow to it as rows are written."""
        row = sum(column[:1].nbytes for column in self.columns.values())
        frames = sum(store.num_bytes for store in self.frame_stores.values())
        return self.num_stored * (row + self.following.itemsize) + frames

    def allocate(self, layout: Layout, splits: Mapping[str, Split]) -> None:
        """Makes room for the first steps, which costs memory only as rows are written.

        Args:
            layout: what a row consists of.
            splits: of the observations that are kept as frames, by place.
        """

        def undo() -> None:
            self.columns, self.frame_stores = {}, {}

        self._log.add(undo)
        for place, split in splits.items():
            dtype, shape = layout[OBS + place]
            slots = np.zeros((self._num_slots, *split.frame_shape(shape)), dtype)
            self.frame_stores[place] = FrameStore(shape, split, slots, self._log)
        for name, (dtype, shape) in layout.items():
            store = self._store_of(name)
            if store is not None:
                dtype, shape = IDS, (store.split.num_frames,)
            self.columns[name] = np.zeros((self.capacity + 1, *shape), dtype)

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
            continues: for each chunk the position of the step that its first one follows, or -1; it
                may be of this same call, and may be overwritten already or by this call.
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
        # What follows a step that will be overwritten then follows nothing.
        oldest = max(0, stop - self.capacity)
        linked = [at % self.capacity if at >= oldest else NO_ROW for at in continues]
        self._remember_rows(overwritten, [row for row in linked if row >= 0])
        for span in overwritten:
            self.num_tails -= int(np.count_nonzero(self.following[span] < 0))
        rows = np.arange(start, stop) % self.capacity
        spans = self._spans(start, stop)
        for name, pieces in columns.items():
            if self._store_of(name) is None:
                self._write(self.columns[name], spans, pieces)
        for place in self.frame_stores:
            chunks = zip(columns[OBS + place], columns[NEXT_OBS + place], continues, strict=True)
            position = start
            for observations, next_observations, before in chunks:
                for pair in zip(observations, next_observations, strict=True):
                    self.write_frames(place, position, pair, follows=before)
                    before, position = position, position + 1
        following = np.empty_like(rows)
        following[:-1] = rows[1:]
        following[[end - 1 for end in ends]] = NO_ROW
        self._write(self.following, spans, [following])
        self.num_tails += len(lengths)
        for row, end, length in zip(linked, ends, lengths, strict=True):
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

    def write_frames(
        self, place: str, position: int, observations: tuple[Any, Any], *, follows: int
    ) -> None:
        """Writes one part of the observations before and after a step, as frames.

        Args:
            place: of the part.
            position: of the step; its row still holds the step that it overwrites.
            observations: before the step, and after it.
            follows: position of the step before it in its episode, or -1.
        """
        store = self.frame_stores[place]
        ids, next_ids = self.columns[OBS + place], self.columns[NEXT_OBS + place]
        row, ids_before = position % self.capacity, None
        # Only of a step that is still here, whatever a saved state says.
        if max(NO_ROW, position - self.capacity) < follows < position:
            ids_before = next_ids[follows % self.capacity]
        if row < self.num_stored:
            store.release(ids[row])
            store.release(next_ids[row])
        ids[row] = store.put(observations[0], ids_before)
        next_ids[row] = store.put(observations[1], ids[row])
        store.hold(ids[row])
        store.hold(next_ids[row])

    def take(self, name: str, rows: Array) -> Array:
        """What rows hold of a column, as copies.

        Args:
            name: of the column.
            rows: int64 [S…]; -1 gives zeros.

        Returns:
            [S…, …].
        """
        values = self.columns[name].take(rows, axis=0)
        store = self._store_of(name) if self.frame_stores else None
        return values if store is None else store.take(values)

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
        stores = [(place, store.num_used) for place, store in self.frame_stores.items()]

        def restore_counts() -> None:
            self.num_added, self.num_tails = counts
            for place, num_used in stores:
                self._count_frames(place, num_used)

        self._log.add(restore_counts)
        return mark

    def _count_frames(self, place: str, num_used: int) -> None:
        names, count = (OBS + place, NEXT_OBS + place), self.num_stored
        shown = [self.columns[name][:count] for name in names]
        self.frame_stores[place].count(num_used, shown)

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
        state = {
            "capacity": self.capacity,
            "num_added": self.num_added,
            "following": state_array(self.following[:count]),
            "layout": {
                name: [dtype.str, list(shape)] for name, (dtype, shape) in self.layout.items()
            },
            "columns": {name: state_array(column[:count]) for name, column in self.columns.items()},
        }
        if self.frame_stores:
            state["frames"] = {
                place: {"split": list(store.split), "frames": state_array(store.frames)}
                for place, store in self.frame_stores.items()
            }
        return state

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
        stores, nums_used = {}, {}
        for place, saved in state.get("frames", {}).items():
            dtype, shape = layout[OBS + place]
            split = Split(*saved["split"])
            frames = plain_array(saved["frames"], dtype, split.frame_shape(shape))
            slots = self._rooms.whole_column(frames, len(frames))
            stores[place] = FrameStore(shape, split, slots, self._log)
            nums_used[place] = len(frames)
            layout[OBS + place] = layout[NEXT_OBS + place] = IDS, (split.num_frames,)
        columns = {
            name: self._whole_column(state["columns"][name], dtype, shape, count)
            for name, (dtype, shape) in layout.items()
        }
        following = self._whole_column(state["following"], np.dtype(np.int64), (), count)
        following[count:] = NO_ROW
        self._replace(num_added, following, columns, stores)
        for place, num_used in nums_used.items():
            self._count_frames(place, num_used)

    def _whole_column(
        self, values: Any, dtype: np.dtype[Any], shape: tuple[int, ...], count: int
    ) -> Array:
        rows = plain_array(values, dtype, shape)
        return self._rooms.whole_column(rows, count)[: self.capacity + 1]

    def _replace(
        self,
        num_added: int,
        following: Array,
        columns: dict[str, Array],
        stores: dict[str, FrameStore],
    ) -> None:
        before = self.following, self.columns, self.frame_stores

        def undo() -> None:
            self.following, self.columns, self.frame_stores = before

        self._log.add(undo)
        self.num_added, self.following = num_added, following
        self.columns, self.frame_stores = columns, stores
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


def splits_of(columns: Mapping[str, Array]) -> dict[str, Split]:
    """How observations are kept that are large enough to share frames, by place.

    Args:
        columns: of the first steps, as from `columns_of`.
    """
    return {
        name.removeprefix(OBS): split_of(values, columns[NEXT_OBS + name.removeprefix(OBS)])
        for name, values in columns.items()
        if name.startswith(OBS) and is_worth_sharing(values.dtype, values.shape[1:])
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

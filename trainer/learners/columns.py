"""From episodes to columns: arrays with one row per env step, ready to learn from.

The letters in all docstrings about learning:

    T   env steps of one chunk (an episode or a part of it), in order of time
    C   chunks of one update
    B   rows of a batch: the steps of all chunks one after another, or of one minibatch
    A   numbers that make up one action
    D   numbers of one encoded observation
    K   action distribution inputs of one row
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from trainer.connectors import ObservationEncoder, PreviousSteps, SampleBatch
from trainer.connectors.sample_batch import fitted_column, new_column, read_only
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_block import flat_columns, row_sources
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    EPISODE_IDS,
    REWARDS,
    STATE_IN,
    TERMINATEDS,
    TIMESTEPS,
    TRUNCATEDS,
    VALUE_TARGETS,
    VF_PREDS,
)
from trainer.episodes.fragment import RowRange, RowSource
from trainer.errors import EpisodeError
from trainer.modules import RLModule
from trainer.types import Array, FloatArray

# ---- columns

_OWN = frozenset({ACTION_LOGP, ACTION_DIST_INPUTS, ADVANTAGES, VALUE_TARGETS, STATE_IN, VF_PREDS})
"""Extra outputs that learners know; all others belong to users."""


@dataclass(frozen=True)
class GivenRows:
    """Values that callbacks decided on, which the learner takes instead of computing its own.

    Attributes:
        rows: which rows, int64 [R].
        values: float64 [R].
    """

    rows: Array
    values: Array

    def put_into(self, column: Array) -> Array:
        """The column, [B], with these values at their rows; a new array."""
        replaced: Array = column.copy()
        replaced[self.rows] = self.values
        return replaced


@dataclass(frozen=True)
class Columns:
    """All steps of several chunks, one after another.

    Attributes:
        observations: encoded observations before each step, then the one after each chunk, float32
            [B + C, D].
        actions: as the policy emitted them, [B, ...]; nested ones are dicts and tuples of arrays.
        action_logp: log-probability when acting, float32 [B]; NaN where it is not known, of
            recordings.
        action_dist_inputs: of the policy that acted, float32 [B, K]; K is 0 then.
        rewards: float64 [B].
        terminateds: the episode reached a final state at this step, bool [B].
        lengths: T of each chunk, ≥ 1, int64 [C].
        is_terminated: the chunk's episode reached a final state at its end, bool [C].
        given: of `advantages` and `value_targets`, the rows that callbacks decided on.
        extras: columns of users that all chunks have, [B, ...] each.
        state_in: of a network with memory: its state before each step, [B, ...]; else None.
        vf_preds: what a network that values while it acts gave for the steps, float32 [B]; else
            None.
        last_inputs: of `extras`, what such a network reads with the observation after each chunk,
            [C, ...] each.
    """

    observations: FloatArray
    actions: Any
    action_logp: FloatArray
    action_dist_inputs: FloatArray
    rewards: Array
    terminateds: Array
    lengths: Array
    is_terminated: Array
    given: Mapping[str, GivenRows] = field(default_factory=dict)
    extras: Mapping[str, Array] = field(default_factory=dict)
    state_in: Any = None
    vf_preds: FloatArray | None = None
    last_inputs: Mapping[str, Array] = field(default_factory=dict)

    @property
    def obs(self) -> FloatArray:
        """Encoded observations before each step, [B, D]; a view."""
        return self.observations[: len(self.rewards)]

    @property
    def last_obs(self) -> FloatArray:
        """Encoded observation after each chunk, [C, D]; a view."""
        return self.observations[len(self.rewards) :]


class RowMemory:
    """The memory of a batch's observations, used again for the next batch if it is not referred to.

    The system takes longer to give fresh memory than images take to be copied (measured for 115 MB:
    240 against 40 ms).
    """

    def __init__(self) -> None:
        self._flat: FloatArray = np.empty(0, np.float32)
        self._own_references = sys.getrefcount(self._flat)

    def rows(self, count: int, width: int) -> FloatArray:
        """An array [count, width] with any numbers in it, which belongs to the caller."""
        size = count * width
        # Every view refers to the array that has the memory.
        if size > len(self._flat) or sys.getrefcount(self._flat) > self._own_references:
            self._flat = np.empty(size, np.float32)
        return self._flat[:size].reshape(count, width)


def columns_from_episodes(
    episodes: Sequence[SingleAgentEpisode],
    *,
    encoder: ObservationEncoder,
    previous: PreviousSteps | None = None,
    memory: RowMemory | None = None,
    needs_policy: bool = True,
) -> Columns:
    """Lays the chunks one after another, in the order given.

    Args:
        episodes: chunks after `to_numpy()`; look-back is left out, chunks without steps are passed
            over.
        encoder: of the observation space.
        previous: what a network reads of the step before; None for nothing.
        memory: for the observations; None: new memory.
        needs_policy: chunks have to say how probable their actions were.

    Raises:
        EpisodeError: there is no step, or a chunk lacks what the policy knew when it acted.
    """
    chunks = [episode for episode in episodes if len(episode) > 0]
    if not chunks:
        raise EpisodeError(
            f"There is nothing to learn from: {len(episodes)} episodes with 0 steps were given. "
            "Sample at least one env step before an update."
        )
    sources = row_sources(chunks) if previous is None else None
    usual = {ACTION_LOGP, ACTION_DIST_INPUTS}
    if sources is not None and all(source.flat()[3].keys() == usual for source, _ in sources):
        is_terminated = np.array([chunk.is_terminated for chunk in chunks])
        return _columns_from_rows(sources, is_terminated, encoder, memory or RowMemory())
    _require_arrays(chunks)
    if needs_policy:
        _require_model_outputs(chunks)
    lengths = np.array([len(chunk) for chunk in chunks])
    is_terminated = np.array([chunk.is_terminated for chunk in chunks])
    terminateds = np.zeros(lengths.sum(), np.bool_)
    terminateds[np.cumsum(lengths) - 1] = is_terminated
    rewards = np.concatenate([chunk.get_rewards() for chunk in chunks])
    return Columns(
        observations=_observations(chunks, encoder, memory or RowMemory()),
        actions=nested.concatenate(*[chunk.get_actions() for chunk in chunks]),
        **(_policy_columns(chunks) if needs_policy else _unknown_policy(len(rewards))),
        rewards=rewards.astype(np.float64, copy=False),
        terminateds=terminateds,
        lengths=lengths,
        is_terminated=is_terminated,
        given=_given_rows(chunks, lengths),
        extras=_extras(chunks),
        state_in=_states(chunks),
        vf_preds=_values(chunks),
        last_inputs={} if previous is None else previous.after(chunks),
    )


def _columns_from_rows(
    sources: Sequence[tuple[RowSource, Sequence[RowRange]]],
    is_terminated: Array,
    encoder: ObservationEncoder,
    memory: RowMemory,
) -> Columns:
    """The columns of chunks whose rows stand in arrays already: no chunk is looked at by itself."""
    parts = [flat_columns(source, spans, with_lookback=False) for source, spans in sources]
    lengths = np.array([span.stop - span.begin for _, spans in parts for span in spans])
    ends = np.cumsum(lengths)
    is_last = np.zeros(ends[-1] + len(lengths), np.bool_)
    is_last[ends + np.arange(len(lengths))] = True
    encoded = np.concatenate([encoder.encode(block.observations) for block, _ in parts])
    observations = memory.rows(len(is_last), encoder.size)
    observations[: ends[-1]], observations[ends[-1] :] = encoded[~is_last], encoded[is_last]
    terminateds = np.zeros(ends[-1], np.bool_)
    terminateds[ends - 1] = is_terminated
    rewards = np.concatenate([block.rewards for block, _ in parts])

    def output(name: str) -> FloatArray:
        column = np.concatenate([block.outputs[name] for block, _ in parts])
        return column.astype(np.float32, copy=False)

    return Columns(
        observations=observations,
        actions=np.concatenate([block.actions for block, _ in parts]),
        action_logp=output(ACTION_LOGP),
        action_dist_inputs=output(ACTION_DIST_INPUTS),
        rewards=rewards.astype(np.float64, copy=False),
        terminateds=terminateds,
        lengths=lengths,
        is_terminated=is_terminated,
    )


def _states(chunks: Sequence[SingleAgentEpisode]) -> Any:
    """The states before all steps; None if some chunk does not say them."""
    if not all(STATE_IN in chunk.extra_model_outputs for chunk in chunks):
        return None
    return nested.concatenate(*[chunk.get_extra_model_outputs(STATE_IN) for chunk in chunks])


def _values(chunks: Sequence[SingleAgentEpisode]) -> FloatArray | None:
    """The values of all steps; None if some chunk does not say them."""
    if not all(VF_PREDS in chunk.extra_model_outputs for chunk in chunks):
        return None
    return _extra_column(chunks, VF_PREDS)


def _observations(
    chunks: Sequence[SingleAgentEpisode], encoder: ObservationEncoder, memory: RowMemory
) -> FloatArray:
    """The rows of all chunks in one piece of memory: images of a batch take 100 MB and more."""
    num_steps = sum(len(chunk) for chunk in chunks)
    rows = memory.rows(num_steps + len(chunks), encoder.size)
    last = np.empty((len(chunks), encoder.size), np.float32)
    start = 0
    for number, chunk in enumerate(chunks):
        stop = start + len(chunk)
        # The row behind a chunk's steps is the next chunk's: there for a moment only.
        encoder.encode(chunk.get_observations(), out=rows[start : stop + 1])
        last[number] = rows[stop]
        start = stop
    rows[num_steps:] = last
    return rows


def _given_rows(chunks: Sequence[SingleAgentEpisode], lengths: Array) -> dict[str, GivenRows]:
    """The advantages and value targets that are in the chunks already."""
    starts = np.cumsum(lengths) - lengths
    given: dict[str, GivenRows] = {}
    for name in (ADVANTAGES, VALUE_TARGETS):
        having = [
            (start, chunk)
            for start, chunk in zip(starts, chunks, strict=True)
            if name in chunk.extra_model_outputs
        ]
        if having:
            rows = [np.arange(start, start + len(chunk)) for start, chunk in having]
            values = [_numbers(chunk, name) for _, chunk in having]
            given[name] = GivenRows(np.concatenate(rows), np.concatenate(values))
    return given


def _numbers(chunk: SingleAgentEpisode, name: str) -> Array:
    column: Array = np.asarray(chunk.get_extra_model_outputs(name))
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise EpisodeError(
            f"Episode {chunk.id_} has {name!r} of {column.dtype} with the shape {column.shape}; "
            f"expected one number per step, [{len(chunk)}]. Assign such an array."
        )
    return column.astype(np.float64)


def _extras(chunks: Sequence[SingleAgentEpisode]) -> dict[str, Array]:
    """Columns of numbers that callbacks added to every chunk."""
    names = [name for name in chunks[0].extra_model_outputs if name not in _OWN]
    extras: dict[str, Array] = {}
    for name in names:
        if not all(name in chunk.extra_model_outputs for chunk in chunks):
            continue
        columns = [chunk.get_extra_model_outputs(name) for chunk in chunks]
        if not all(isinstance(column, np.ndarray) for column in columns):
            continue  # dicts and tuples of arrays: not for a loss
        shapes = {column.shape[1:] for column in columns}
        if len(shapes) > 1:
            raise EpisodeError(
                f"The column {name!r} has rows of the shapes {sorted(shapes)} in different "
                "episodes, so they cannot stand in one batch. Give every episode the same."
            )
        extras[name] = np.concatenate(columns)
    return {name: column for name, column in extras.items() if column.dtype.kind in "biuf"}


def _extra_column(chunks: Sequence[SingleAgentEpisode], name: str) -> FloatArray:
    column = np.concatenate([chunk.get_extra_model_outputs(name) for chunk in chunks])
    return column.astype(np.float32, copy=False)


def _policy_columns(chunks: Sequence[SingleAgentEpisode]) -> dict[str, FloatArray]:
    return {name: _extra_column(chunks, name) for name in (ACTION_LOGP, ACTION_DIST_INPUTS)}


def _unknown_policy(num_rows: int) -> dict[str, FloatArray]:
    """What there is of these columns if nobody knows which policy acted."""
    logp = np.full(num_rows, np.nan, np.float32)
    return {ACTION_LOGP: logp, ACTION_DIST_INPUTS: np.empty((num_rows, 0), np.float32)}


def _require_arrays(chunks: Sequence[SingleAgentEpisode]) -> None:
    for chunk in chunks:
        if not chunk.is_numpy:
            raise EpisodeError(
                f"Episode {chunk.id_} still holds lists, but a batch is made of arrays. Call "
                "`to_numpy()` on it before the update."
            )


def _require_model_outputs(chunks: Sequence[SingleAgentEpisode]) -> None:
    """Refuses chunks that do not say how probable their actions were."""
    for chunk in chunks:
        missing = [
            name
            for name in (ACTION_LOGP, ACTION_DIST_INPUTS)
            if name not in chunk.extra_model_outputs
        ]
        if missing:
            raise EpisodeError(
                f"Episode {chunk.id_} has no {' and no '.join(missing)}: its actions were not "
                "chosen by a policy (were they sampled with `random_actions=True`?), so their "
                "probability is not known. Learn only from episodes sampled with the module."
            )


# ---- minibatches
#
# Minibatches: several passes over a batch, in an order that is drawn per update. The rows of all
# passes form one endless stream, which is cut into minibatches of exactly the same size; the last
# one goes on into one more pass (RLlib's cyclic iterator). So no row is left out, and memory is
# used again and again.


def num_minibatches(num_rows: int, *, minibatch_size: int, num_epochs: int) -> int:
    """How many minibatches cover `num_epochs` passes over `num_rows` rows (all ≥ 1)."""
    return -(-num_rows * num_epochs // minibatch_size)


def minibatches(
    columns: Mapping[str, Any],
    *,
    minibatch_size: int,
    num_epochs: int,
    rng: np.random.Generator | None,
) -> Iterator[dict[str, Any]]:
    """Yields minibatches as views that are valid until the next one is taken.

    Narrow rows of an epoch are gathered once, so that a minibatch costs a slice per column
    (measured for six columns of 2048 rows: 34 µs per epoch, 1 µs per minibatch). Wide ones, such as
    images, are gathered for each minibatch, into memory that stays in the processor's cache.

    Args:
        columns: arrays [B, ...] with the same B ≥ 1, or dicts and tuples of such.
        minibatch_size: rows per minibatch, ≥ 1.
        num_epochs: passes over the data, ≥ 1.
        rng: draws a new order for every pass; None keeps the rows in order.
    """
    num_rows = nested.batch_length(next(iter(columns.values())))

    def gathering(leaf: Array) -> _GatheredByEpoch | _GatheredByMinibatch:
        is_wide = leaf[:1].nbytes >= _WIDE_ROW_BYTES
        return (_GatheredByMinibatch if is_wide else _GatheredByEpoch)(leaf, minibatch_size)

    gathered = {name: nested.map_leaves(gathering, column) for name, column in columns.items()}
    is_flat = not any(isinstance(column, dict | tuple) for column in gathered.values())
    remaining = num_minibatches(num_rows, minibatch_size=minibatch_size, num_epochs=num_epochs)
    left_over = 0
    while remaining > 0:
        order = None if rng is None else rng.permutation(num_rows)
        for column in gathered.values():
            nested.map_leaves(lambda rows, order=order: rows.begin_epoch(order), column)
        available = left_over + num_rows
        whole = min(available // minibatch_size, remaining)
        for first in range(0, whole * minibatch_size, minibatch_size):
            if is_flat:
                yield {name: rows.minibatch(first) for name, rows in gathered.items()}
                continue
            yield {
                name: nested.map_leaves(lambda rows, first=first: rows.minibatch(first), column)
                for name, column in gathered.items()
            }
        remaining -= whole
        left_over = available - whole * minibatch_size
        if remaining > 0:
            for column in gathered.values():
                nested.map_leaves(
                    lambda rows, count=left_over, end=available: rows.keep(count, end), column
                )


_WIDE_ROW_BYTES: Final = 4096


class _GatheredByEpoch:
    """The rows of one array in the order of learning: all of an epoch, behind what was left over.

    Life, epoch by epoch: `begin_epoch`; `minibatch` from 0 on; `keep`.
    """

    def __init__(self, leaf: Array, minibatch_size: int) -> None:
        self._leaf = leaf
        self._size = minibatch_size
        self._left_over = 0
        self._memory = np.empty((len(leaf) + minibatch_size, *leaf.shape[1:]), leaf.dtype)

    def begin_epoch(self, order: Array | None) -> None:
        """Gathers the rows in an order; None: as they stand."""
        target = self._memory[self._left_over : self._left_over + len(self._leaf)]
        if order is None:
            target[:] = self._leaf
        else:
            # mode="clip": the default first writes into a buffer of its own; no index is out of
            # range here.
            np.take(self._leaf, order, axis=0, out=target, mode="clip")

    def minibatch(self, first: int) -> Array:
        """The minibatch from that row of the epoch on."""
        return self._memory[first : first + self._size]

    def keep(self, count: int, end: int) -> None:
        """Leaves the last rows before `end` for the next epoch."""
        self._memory[:count] = self._memory[end - count : end].copy()
        self._left_over = count


class _GatheredByMinibatch:
    """The same, one minibatch at a time; see `_GatheredByEpoch`."""

    def __init__(self, leaf: Array, minibatch_size: int) -> None:
        self._leaf = leaf
        self._size = minibatch_size
        self._left_over: Array = np.empty(0, np.int64)
        self._memory = np.empty((minibatch_size, *leaf.shape[1:]), leaf.dtype)

    def begin_epoch(self, order: Array | None) -> None:
        """Notes the order."""
        in_order = np.arange(len(self._leaf)) if order is None else order
        self._order = np.concatenate([self._left_over, in_order])

    def minibatch(self, first: int) -> Array:
        """Gathers the minibatch from that row of the epoch on."""
        rows = self._order[first : first + self._size]
        return np.take(self._leaf, rows, axis=0, out=self._memory, mode="clip")

    def keep(self, count: int, end: int) -> None:
        """Leaves the last rows before `end` for the next epoch."""
        self._left_over = self._order[end - count : end]


# ---- train batch
#
# The train batch as callbacks see and may change it before a module learns from it.


class TrainBatch(SampleBatch):
    """All rows of one update: the columns of the loss, and others to read.

    Columns of the loss may be changed in place or replaced, also by fewer or more rows if all of
    them get the same number. Columns may be added; a loss that knows them finds them in its
    minibatches. The other columns (rewards, ends, ids) have done their work: they are read-only.
    """

    def __init__(
        self,
        rows: Mapping[str, Any],
        readable: Mapping[str, Array],
        *,
        keeps_rows: bool = False,
    ) -> None:
        """Lays out the batch.

        Args:
            rows: the columns of the loss, [B, ...] each; changed in place by listeners.
            readable: further columns.
            keeps_rows: the number of rows must stay what it is: each belongs to a replayed step.
        """
        super().__init__(rows)
        self._num_rows = nested.batch_length(next(iter(rows.values()))) if keeps_rows else None
        self._has_states = STATE_IN in rows
        self._forms = {name: _form(column) for name, column in rows.items()}
        self._readable = {name: read_only(column) for name, column in readable.items()}
        for name, column in self._readable.items():
            self.setdefault(name, column)

    def learnable_rows(self) -> dict[str, Any]:
        """The columns of the loss as they are now, checked; and those that were added.

        Raises:
            EpisodeError: a column is missing, or columns differ in length, or one holds what cannot
                be learnt from.
        """
        num_rows = self._check_lengths()
        rows: dict[str, Any] = {}
        for name, like in self._forms.items():
            rows[name] = fitted_column(name, self[name], like=like, num_rows=num_rows)
        for name in [name for name in self if name not in rows and name not in self._readable]:
            rows[name] = new_column(name, self[name], num_rows=num_rows)
        return rows

    def _check_lengths(self) -> int:
        missing = [name for name in self._forms if name not in self]
        if missing:
            raise EpisodeError(
                f"The column {missing[0]!r} was removed, but the loss needs it. Leave "
                f"{', '.join(self._forms)} in the train batch."
            )
        lengths = {name: _num_rows(self[name]) for name in self._forms}
        first = next(iter(lengths))
        different = [name for name in lengths if lengths[name] != lengths[first]]
        if different or lengths[first] in ((), (0,)):
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise EpisodeError(
                f"The columns of the train batch have different numbers of rows now, or none: "
                f"{found}. Every column has one row per env step. Change rows in place, or give "
                "all columns as many rows."
            )
        num_rows: int = lengths[first][0]
        if self._num_rows not in (None, num_rows):
            why, how = (
                ("is a step of a sequence that the network runs through", "advantage 0")
                if self._has_states
                else ("belongs to a step in the replay buffer", "weight 0")
            )
            column = how.replace("advantage", "advantages").replace("weight", "weights").split()[0]
            raise EpisodeError(
                f"The train batch has {num_rows} rows now instead of {self._num_rows}, but every "
                f"row {why}. Leave the number of rows as it is, and give those that are not to "
                f"count the {how}: `train_batch[{column!r}][i] = 0`."
            )
        for name, column in self._readable.items():
            if len(column) == num_rows and not nested.equal(self.get(name, column), column):
                raise EpisodeError(
                    f"The column {name!r} of the train batch was changed, but advantages were "
                    "computed from it before, so that nothing would come of it. Change advantages "
                    "here, or rewards in `on_postprocess_trajectory`."
                )
        return num_rows


Blame = Callable[[Exception], Exception]
"""Makes the error to raise from what is wrong with the batch: it names those who changed it."""

BatchListener = Callable[[RLModule, TrainBatch, dict[str, Any]], "Blame | None"]
"""Is told the module that will learn, the batch, and a dict for metrics.

It may return whom to blame for a batch that cannot be learnt from.
"""


class TrainBatchEvent:
    """Shows the complete train batch of one update to a listener, if there is one.

    Attributes:
        result: what the listener wants to see among the learner's metrics.
    """

    def __init__(
        self,
        module: RLModule,
        episodes: Sequence[SingleAgentEpisode],
        listener: BatchListener | None,
        *,
        keeps_rows: bool = False,
    ) -> None:
        """Prepares the event.

        Args:
            module: that will learn.
            episodes: what the batch is made of, in order; none if it comes from replay.
            listener: None without a listener; then the event costs nothing.
            keeps_rows: see `TrainBatch`.
        """
        self.result: dict[str, Any] = {}
        self._module = module
        self._chunks = [episode for episode in episodes if len(episode) > 0]
        self._listener = listener
        self._keeps_rows = keeps_rows

    def fire(self, rows: dict[str, Any], **readable: Array) -> dict[str, Any]:
        """Shows the batch; a learner calls it once per update, when all columns are there.

        Args:
            rows: the columns of the loss, [B, ...] each.
            readable: further columns to read, [B, ...] each.

        Returns:
            The columns to learn from.

        Raises:
            EpisodeError: the listener left what cannot be learnt from; or what its `Blame` makes of
                that.
        """
        check_actions = self._module.action_distribution.check_actions
        check_actions(rows[ACTIONS])
        if self._listener is None:
            return rows
        readable = {**_columns_to_read(self._chunks), **readable}
        batch = TrainBatch(rows, readable, keeps_rows=self._keeps_rows)
        # The update runs with warnings switched off; those of a listener's own numbers are wanted.
        with np.errstate(over="warn", invalid="warn", divide="warn"):
            blame = self._listener(self._module, batch, self.result)
        try:
            rows = batch.learnable_rows()
            check_actions(rows[ACTIONS])
        except EpisodeError as error:
            if blame is None:
                raise
            raise blame(error) from error
        return rows


def _columns_to_read(chunks: Sequence[SingleAgentEpisode]) -> dict[str, Array]:
    if not chunks:
        return {}
    names = (REWARDS, TERMINATEDS, TRUNCATEDS, EPISODE_IDS, TIMESTEPS)
    columns = [chunk.get_data_dict() for chunk in chunks]
    return {name: np.concatenate([column[name] for column in columns]) for name in names}


def _form(column: Any) -> Any:
    """Dtype, shape of a row, and whether all is finite, without holding on to the rows."""

    def form(leaf: Array) -> Array:
        if leaf.dtype.kind != "f" or np.isfinite(leaf).all():
            leaf, filler = leaf[:0], 0.0
        else:
            leaf, filler = leaf[:1], np.nan
        formed: Array = np.full_like(leaf, filler)
        return formed

    return nested.map_leaves(form, column)


def _num_rows(column: Any) -> tuple[int, ...]:
    """The rows of a column as callbacks left it: (number,), or () if it has none."""
    shape: tuple[int, ...] = np.shape(nested.first_leaf(column))
    return shape[:1]

"""How rows become batches: rows by themselves, or whole sequences for a network with memory.

Both kinds have the same methods, so that a learner is written once. Sequences are cut from chunks
every `max_seq_len` steps, and each begins with the state that the network had there when it acted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from trainer.connectors import PreviousSteps
from trainer.episodes import nested
from trainer.episodes.episode_columns import ACTIONS, OBS, REWARDS, SEQ_LENS, STATE_IN
from trainer.errors import EpisodeError
from trainer.learners.columns import Columns, minibatches, num_minibatches
from trainer.modules import RLModule
from trainer.modules.memory import max_seq_len_of, state_form
from trainer.types import Array


class Batching(Protocol):
    """Makes batches for one module.

    Attributes:
        keeps_rows: callbacks may not leave out or add rows of the train batch.
        previous: what the module reads of the step before; None for nothing.
    """

    keeps_rows: bool
    previous: PreviousSteps | None

    def state_rows(self, columns: Columns) -> dict[str, Any]:
        """The columns of the loss that the network's state needs, [B, ...] each."""

    def values(self, module: RLModule, columns: Columns) -> Array:
        """The values of all steps, then those of the observations after each chunk, [B + C]."""

    def num_minibatches(self, lengths: Array, num_rows: int, *, minibatch_size: int) -> int:
        """How many minibatches one pass over the rows makes."""

    def minibatches(
        self,
        rows: Mapping[str, Any],
        lengths: Array,
        *,
        minibatch_size: int,
        num_epochs: int,
        rng: np.random.Generator | None,
    ) -> Iterator[dict[str, Any]]:
        """Yields minibatches, valid until the next one is taken.

        Args:
            rows: columns [B, ...].
            lengths: T of each chunk, int64 [C].
            minibatch_size: rows per minibatch, ≥ 1; of whole sequences, about so many.
            num_epochs: passes over the rows, ≥ 1.
            rng: draws a new order for every pass; None keeps it.
        """

    def whole(self, rows: Mapping[str, Any], lengths: Array) -> dict[str, Any]:
        """All rows as one batch."""


def batching_for(module: RLModule) -> Batching:
    """What a module learns from.

    Raises:
        ConfigError: `max_seq_len` is no number of steps.
        ModuleError: its initial state is none.
    """
    if not module.is_stateful():
        return RowBatching()
    state_form(module)
    return SequenceBatching(
        max_seq_len_of(module.model_config),
        PreviousSteps(module.action_space, module.model_config),
    )


class RowBatching:
    """Rows by themselves, in any order; see `Batching`."""

    keeps_rows = False
    previous: PreviousSteps | None = None

    def state_rows(self, columns: Columns) -> dict[str, Any]:
        """Nothing: there is no state."""
        del columns
        return {}

    def values(self, module: RLModule, columns: Columns) -> Array:
        """See `Batching.values`; what was valued when acting is not computed again."""
        if columns.vf_preds is None or not module.gives_values:
            every: Array = module.compute_values({OBS: columns.observations})
            return every
        last = module.compute_values({OBS: columns.last_obs})
        return np.concatenate([columns.vf_preds, last])

    def num_minibatches(self, lengths: Array, num_rows: int, *, minibatch_size: int) -> int:
        del lengths
        return num_minibatches(num_rows, minibatch_size=minibatch_size, num_epochs=1)

    def minibatches(
        self,
        rows: Mapping[str, Any],
        lengths: Array,
        *,
        minibatch_size: int,
        num_epochs: int,
        rng: np.random.Generator | None,
    ) -> Iterator[dict[str, Any]]:
        del lengths
        return minibatches(rows, minibatch_size=minibatch_size, num_epochs=num_epochs, rng=rng)

    def whole(self, rows: Mapping[str, Any], lengths: Array) -> dict[str, Any]:
        del lengths
        return dict(rows)


def values_of_chunk(module: RLModule, obs: Array, columns: Mapping[str, Any]) -> Array:
    """The values of the T + 1 observations of one chunk, [T + 1].

    Args:
        module: what values them.
        obs: encoded observations, [T + 1, D]: the last one follows the chunk.
        columns: of its T steps, [T, ...]: actions, rewards, and of a module with memory what it
            read: `state_in` and others.
    """
    if not module.is_stateful():
        flat: Array = module.compute_values({OBS: obs})
        return flat
    batch: dict[str, Any] = {OBS: obs, SEQ_LENS: np.array([len(obs)])}
    batch[STATE_IN] = nested.take(columns[STATE_IN], slice(0, 1))
    previous = PreviousSteps(module.action_space, module.model_config)
    last = nested.take(columns[ACTIONS], -1), float(columns[REWARDS][-1])
    for name, column in previous.columns([last[0]], [last[1]]).items():
        batch[name] = np.concatenate([columns[name], column])
    values: Array = module.compute_values(batch)
    return values


class SequenceBatching:
    """Whole sequences in any order, the rows of each in order of time; see `Batching`.

    In a batch, `state_in` holds the state before the first row of each sequence, [N, ...], and
    `seq_lens` the rows of each, [N]. A minibatch holds a fixed number of sequences, or one less,
    so that all of a pass have about `minibatch_size` rows; every row is in one minibatch of a pass.
    """

    keeps_rows = True

    def __init__(self, max_seq_len: int, previous: PreviousSteps | None = None) -> None:
        """Batches nothing yet; sequences have at most `max_seq_len` rows, ≥ 1."""
        self._max_seq_len = max_seq_len
        self.previous = previous

    def state_rows(self, columns: Columns) -> dict[str, Any]:
        """The states before all steps, as `state_in`; an EpisodeError if episodes lack them."""
        return {STATE_IN: self._states(columns)}

    def _states(self, columns: Columns) -> Any:
        if columns.state_in is None:
            raise EpisodeError(
                f"Episodes have no {STATE_IN!r}, but the network has memory: what it remembered "
                "when it acted is not known. Learn only from episodes sampled with the module."
            )
        return columns.state_in

    def values(self, module: RLModule, columns: Columns) -> Array:
        """See `Batching.values`; the observation after a chunk goes on with its last sequence."""
        lengths = columns.lengths
        ends = np.cumsum(lengths)
        # Row by row: the steps of a chunk, then the observation after it.
        is_last = np.zeros(len(columns.obs) + len(lengths), np.bool_)
        is_last[ends + np.arange(len(lengths))] = True
        obs = np.empty((len(is_last), *columns.obs.shape[1:]), columns.obs.dtype)
        obs[~is_last], obs[is_last] = columns.obs, columns.last_obs
        batch: dict[str, Any] = {OBS: obs}
        for name, column in columns.last_inputs.items():
            both = np.empty((len(is_last), *column.shape[1:]), column.dtype)
            both[~is_last], both[is_last] = columns.extras[name], column
            batch[name] = both
        starts, cut = self._cut(lengths)
        of_chunk = np.searchsorted(starts, ends - 1, side="right") - 1  # its last sequence
        cut[of_chunk] += 1
        batch[STATE_IN] = nested.take(self._states(columns), starts)
        batch[SEQ_LENS] = cut
        values = module.compute_values(batch)
        return np.concatenate([values[~is_last], values[is_last]])

    def num_minibatches(self, lengths: Array, num_rows: int, *, minibatch_size: int) -> int:
        num_sequences = len(self._cut(lengths)[0])
        return min(num_sequences, max(1, round(num_rows / minibatch_size)))

    def minibatches(
        self,
        rows: Mapping[str, Any],
        lengths: Array,
        *,
        minibatch_size: int,
        num_epochs: int,
        rng: np.random.Generator | None,
    ) -> Iterator[dict[str, Any]]:
        starts, cut = self._cut(lengths)
        num_rows = int(cut.sum())
        parts = self.num_minibatches(lengths, num_rows, minibatch_size=minibatch_size)
        for _ in range(num_epochs):
            order = np.arange(len(cut)) if rng is None else rng.permutation(len(cut))
            for chosen in np.array_split(order, parts):
                yield self._batch(rows, starts[chosen], cut[chosen])

    def whole(self, rows: Mapping[str, Any], lengths: Array) -> dict[str, Any]:
        return self._batch(rows, *self._cut(lengths))

    def _cut(self, lengths: Array) -> tuple[Array, Array]:
        """The first row and the number of rows of each sequence of chunks with so many rows."""
        longest = self._max_seq_len
        counts = -(-lengths // longest)  # sequences of each chunk
        first = np.cumsum(counts) - counts
        number = np.arange(counts.sum()) - np.repeat(first, counts)  # within its chunk
        starts = np.repeat(np.cumsum(lengths) - lengths, counts) + number * longest
        return starts, np.minimum(longest, np.repeat(lengths, counts) - number * longest)

    @staticmethod
    def _batch(rows: Mapping[str, Any], starts: Array, cut: Array) -> dict[str, Any]:
        """The rows of some sequences."""
        before = np.cumsum(cut) - cut
        chosen = np.arange(cut.sum()) + np.repeat(starts - before, cut)
        batch = {name: nested.take(rows[name], chosen) for name in rows if name != STATE_IN}
        batch[STATE_IN] = nested.take(rows[STATE_IN], starts)
        batch[SEQ_LENS] = cut
        return batch

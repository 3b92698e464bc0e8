"""The Torch half of a `TorchRLModule` with memory: [B, T, ...] for the user, rows for all others.

acting      every row is a sequence of one step, [B, 1, ...], with the state of its env slot
learning    rows of whole sequences are padded to [N, L, ...]; what the forward pass gives is
taken out of the padding in Torch, so autograd gives padding no gradient
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from trainer.episodes import nested
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    LOSS_MASK,
    OBS,
    SEQ_LENS,
    STATE_IN,
    STATE_OUT,
)
from trainer.modules.memory import Sequences, StateForm
from trainer.modules.spaces import masked_outputs
from trainer.modules.torch_layers import TorchLayers
from trainer.nn.torch_network import aligned_copy
from trainer.types import Array


class TorchMemoryLayers(TorchLayers):
    """Layers of a module that overrides `get_initial_state`; see `TorchLayers`."""

    _form: StateForm | None = None
    _sequences: Sequences | None = None
    """Of the rows that are computed now; None: every row by itself."""

    @property
    def form(self) -> StateForm:
        """What the module's state looks like."""
        if self._form is None:
            self._form = StateForm(self._module, self._number_type)
        return self._form

    def _in_torch(self, state: Any) -> Any:
        """A state as tensors in memory of their own."""
        return nested.map_leaves(self.aligned, state)

    # ---- what the user's methods get

    def _tensors_of(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        tensors = super()._tensors_of(columns)
        return {**tensors, STATE_IN: self._in_torch(columns[STATE_IN])}

    def batch(self, rows: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
        """See `TorchLayers.batch`; columns of rows become [N, L, ...]."""
        count = len(rows)
        sequences = self._sequences or Sequences(np.ones(count, np.int64))
        padded = {
            name: self._padded(column, sequences)
            for name, column in columns.items()
            if name not in (STATE_IN, SEQ_LENS)
        }
        state = columns.get(STATE_IN)
        if state is None:
            state = self._in_torch(self.form.repeated(len(sequences)))
        lengths, mask = (
            self._placed(self.torch.from_numpy(array))
            for array in (sequences.lengths, sequences.mask)
        )
        flat = self._padded(rows, sequences).reshape(-1, rows.shape[1])
        observations = self._nested(flat)
        shape = sequences.mask.shape  # [N · L, ...] as [N, L, ...]
        obs = nested.map_leaves(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), observations)
        return {**padded, OBS: obs, STATE_IN: state, SEQ_LENS: lengths, LOSS_MASK: mask}

    def _padded(self, column: Any, sequences: Sequences) -> Any:
        """A column of rows as [N, L, ...]; another one as it is."""
        if len(column) != sequences.num_rows:
            return column
        shape = (*sequences.mask.shape, *column.shape[1:])
        if sequences.is_full:
            return column.reshape(shape)
        padded = self.torch.zeros(
            (sequences.mask.size, *column.shape[1:]), dtype=column.dtype, device=column.device
        )
        padded[self._places(sequences)] = column
        return padded.reshape(shape)

    def _places(self, sequences: Sequences) -> Any:
        return self._placed(self.torch.from_numpy(sequences.places))

    # ---- what the user's methods give

    def _inputs(self, forward: Callable[..., Any], outputs: Any, count: int) -> Any:
        sequences = self._sequences or Sequences(np.ones(count, np.int64))
        inputs = self._checked_inputs(forward, outputs, sequences.mask.shape)
        return self._returned(self._rows_of(inputs, sequences))

    def _checked_values(self, values: Any, count: int) -> Any:
        sequences = self._sequences or Sequences(np.ones(count, np.int64))
        self._check_shape_of_values(values, sequences.mask.shape)
        return self._returned(self._rows_of(values, sequences))

    def _rows_of(self, padded: Any, sequences: Sequences) -> Any:
        """The rows [R, ...] of [N, L, ...]."""
        flat = padded.reshape(sequences.mask.size, *padded.shape[2:])
        return flat if sequences.is_full else flat[self._places(sequences)]

    # ---- computing

    def act(self, forward: Callable[..., Any], obs: Array) -> Array:
        """The action distribution inputs of first steps of episodes."""
        inputs, _ = self._acted_in_blocks(forward, obs, self.form.repeated(len(obs)))
        return inputs

    def acted(
        self, forward: Callable[..., Any], rows: Array, batch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `TorchLayers.acted`; with `state_out`."""
        state = self.form.given(batch, len(rows))
        others = {name: batch[name] for name in batch if name not in (OBS, STATE_IN)}
        inputs, state_out = self._acted_in_blocks(forward, rows, state, others)
        return {ACTION_DIST_INPUTS: inputs, STATE_OUT: state_out}

    def _acted_in_blocks(
        self,
        forward: Callable[..., Any],
        obs: Array,
        state: Any,
        others: Mapping[str, Array] | None = None,
    ) -> tuple[Array, Any]:
        """Inputs [B, K] and states after the step, [B, ...], the same for a row in any batch."""
        module, size = self._module, self.rows_at_once
        rows = self.with_masks(obs)
        where = f"{type(module).__name__}.{forward.__name__}"
        inputs: list[Array] = []
        states: list[Any] = []
        self._sequences = None
        columns = {OBS: rows, STATE_IN: state, **(others or {})}
        with self.computing(is_training=False):
            for start in range(0, len(rows), size):
                block = nested.map_leaves(partial(self._block_of, start=start), columns)
                count = min(size, len(rows) - start)
                outputs = forward(self.batch(block.pop(OBS), block))
                inputs.append(self._inputs(forward, outputs, size).numpy()[:count].copy())
                after = self.form.returned(outputs, size, where=where)
                states.append(nested.map_leaves(np.array, nested.take(after, slice(0, count))))
        found = np.concatenate(inputs)
        if self._masks is not None:
            found = masked_outputs(found, self._masks.effective(rows))
        return found, nested.concatenate(states[0], *states[1:])

    def _block_of(self, rows: Array, *, start: int) -> Any:
        """Rows of one block, with zeros behind the last one, as a tensor."""
        part = rows[start : start + self.rows_at_once]
        if len(part) < self.rows_at_once:
            more = np.zeros((self.rows_at_once - len(part), *part.shape[1:]), part.dtype)
            part = np.concatenate([part, more])
        return aligned_copy(self.torch, part, self._dtype)

    def act_as_part(
        self, rows: Any, state: Sequence[Any], columns: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """See `TorchLayers.act_as_part`; every row is a sequence of one step."""
        forward, leaves, initial = self._module._forward_inference, iter(state), self.form.initial
        steps = {name: column[:, None] for name, column in columns.items()}
        obs = nested.map_leaves(lambda leaf: leaf[:, None], self._nested(rows))
        lengths = self.torch.ones_like(rows[:, 0], dtype=self.torch.int64)
        outputs = forward(
            {
                **steps,
                OBS: obs,
                STATE_IN: nested.map_leaves(lambda _: next(leaves), initial),
                SEQ_LENS: lengths,
                LOSS_MASK: lengths[:, None] > 0,
            }
        )
        inputs = self._checked_inputs(forward, outputs, (rows.shape[0], 1))[:, 0]
        after: list[Any] = []
        nested.map_leaves(lambda _, leaf: after.append(leaf), initial, outputs[STATE_OUT])
        return (inputs, *after)

    def learn(self, rows: Array, columns: Mapping[str, Any]) -> dict[str, Array]:
        """See `TorchLayers.learn`; the rows are those of whole sequences."""
        return super().learn(rows, self._begin(rows, columns))

    def learn_from_loss(
        self, rows: Array, columns: Mapping[str, Any], loss_of: Callable[..., Any]
    ) -> float:
        """See `TorchLayers.learn_from_loss`; the rows are those of whole sequences, not padded."""
        return super().learn_from_loss(rows, self._begin(rows, columns), loss_of)

    def evaluate(self, rows: Array, columns: Mapping[str, Any], name: str) -> Array:
        return super().evaluate(rows, self._begin(rows, columns), name)

    def values(self, rows: Array, columns: Mapping[str, Any]) -> Array:
        """The values of rows of whole sequences, [R], in evaluation mode."""
        columns, rows = self._begin(rows, columns), self.with_masks(rows)
        with self._where_it_learns(), self.computing(is_training=False):
            batch = self.batch(self.aligned(rows), self._tensors_of(columns))
            values = self._checked_values(self.values_of(batch, None), len(rows))
        array: Array = values.numpy()
        return array

    def _begin(self, rows: Array, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Says which sequences are computed now; the columns with their states."""
        self._sequences = sequences = Sequences.of(columns, len(rows))
        return {**columns, STATE_IN: self.form.given(columns, len(sequences))}

    # ---- the probe

    def _returns_values(self) -> bool:
        """No: what a sequence's values are is computed where it is learnt from."""
        return False

    def _probe_rows(self, rng: np.random.Generator, count: int) -> Array:
        """Observations with the numbers of a drawn state behind them."""
        rows = super()._probe_rows(rng, count)
        state = rng.standard_normal((count, self._state_size)).astype(self._number_type)
        return np.concatenate([rows, state], axis=1)

    def _probed(self, forward: Callable[..., Any], rows: Array) -> Array:
        """Inputs and states after a step, side by side, of rows of `_probe_rows`."""
        width = self._block.shape[1]
        parts: list[Array] = []
        place = width

        def part(leaf: Array) -> Array:
            nonlocal place
            columns = rows[:, place : place + leaf.size]
            place += leaf.size
            return columns.reshape(len(rows), *leaf.shape)

        state = nested.map_leaves(part, self.form.initial)
        inputs, after = self._acted_in_blocks(forward, rows[:, :width], state)
        nested.map_leaves(lambda leaf: parts.append(leaf.reshape(len(rows), -1)), after)
        return np.concatenate([inputs, *parts], axis=1)

    @property
    def _state_size(self) -> int:
        sizes: list[int] = []
        nested.map_leaves(lambda leaf: sizes.append(leaf.size), self.form.initial)
        return sum(sizes)

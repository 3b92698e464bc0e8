"""PrioritizedReplayBuffer: steps whose values were wrong are drawn more often."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from checkpoints import state_array
from checkpoints.arguments import checked_methods
from trainer.errors import ReplayError
from trainer.replay.batch_buffer import PrioritizedBatchReplayBuffer
from trainer.replay.reduce_tree import ReduceTree, SumTree
from trainer.replay.replay_buffer import ReplayBuffer
from trainer.replay.state_shape import refuse_other_type
from trainer.types import Array, State

SMALLEST_PRIORITY = 1e-6
"""Added to every error, so that no step is lost for good."""


@checked_methods(but=("__init__",))
class PrioritizedReplayBuffer(ReplayBuffer):
    """Proportional prioritized experience replay (Schaul et al. 2016, sections 3.3 and 3.4).

    A step is drawn with probability P(i) = p_i^α / Σ p^α, where p = |TD error| + 1e-6; steps that
    were never drawn have the largest priority so far. Importance weights are (N·P(i))^-β, divided
    by the largest weight that any stored step could get.
    """

    _for_batches = PrioritizedBatchReplayBuffer

    def __init__(self, capacity: int = 50_000, *, alpha: float = 0.6, beta: float = 0.4) -> None:
        """An empty buffer.

        Args:
            capacity: in env steps, ≥ 1.
            alpha: exponent of the priorities, ≥ 0.
            beta: exponent of the weights, in [0, 1].

        Raises:
            ReplayError: a number is outside its range.
        """
        super().__init__(capacity)
        self._alpha = _number("alpha", alpha, maximum=math.inf)
        self._beta = _number("beta", beta, maximum=1.0)
        self._largest = 1.0
        self._make_trees()

    def _make_trees(self) -> None:
        self._sums = SumTree(self.capacity)
        self._minima = ReduceTree(self.capacity, reduction=np.minimum, identity=math.inf)

    def _on_added(self, rows: Array) -> None:
        self._set_leaves(rows, self._largest**self.alpha)

    def _set_leaves(self, rows: Array, values: Array | float) -> None:
        # A copy, as callers may change theirs. Rows that held nothing become identities again.
        rows = rows.copy()
        sums = self._sums.leaves[rows]

        def undo() -> None:
            self._sums.set(rows, sums)
            self._minima.set(rows, np.where(sums > 0, sums, math.inf))

        self._ring.remember(undo)
        self._sums.set(rows, values)
        self._minima.set(rows, values)

    def _draw(self, num_items: int, rng: np.random.Generator) -> Array:
        # One from each of B equal shares of the total priority.
        return self._sums.find((np.arange(num_items) + rng.random(num_items)) / num_items)

    @property
    def alpha(self) -> float:
        """How much priorities count (0 is uniform); fixed: stored ones follow from it."""
        return self._alpha

    @property
    def beta(self) -> float:
        """How much the weights correct, in [0, 1]; the default of `sample`, and fixed."""
        return self._beta

    def _weights_of(self, rows: Array, beta: float | None) -> Array:
        exponent = self.beta if beta is None else beta
        # (N·P)^-β divided by its largest value: N and the total cancel out.
        weights = (self._sums.leaves[rows] / self._minima.root()) ** -exponent
        return weights.astype(np.float32)

    def update_priorities(self, rows: Array, td_errors: Array) -> None:
        """Sets the priorities of steps that were learnt from.

        Args:
            rows: `Transitions.rows`, or those of `Sequences` where its mask is true; int64 [B]. Of
                a row named twice, the last error counts.
            td_errors: finite, [B]; the sign does not matter.

        Raises:
            ReplayError: an error is not finite, or a row holds no step; nothing is changed then.
        """
        rows = np.asarray(rows)
        if np.shape(td_errors) != rows.shape:
            raise ReplayError(
                f"{rows.shape} rows were given with TD errors of shape {np.shape(td_errors)}: "
                "expected one error per row."
            )
        if rows.size == 0:
            return
        if rows.min() < 0 or rows.max() >= len(self):
            raise ReplayError(
                f"Rows from {rows.min()} to {rows.max()} were given, but steps are stored in rows "
                f"0 to {len(self) - 1}. Give the rows of a sample from this buffer."
            )
        priorities = np.abs(td_errors).astype(np.float64) + SMALLEST_PRIORITY
        largest = float(priorities.max())
        if not math.isfinite(largest):
            raise ReplayError(
                f"A TD error is {largest}; priorities must be finite. Lower `lr`, or check the "
                "rewards."
            )
        self._set_leaves(rows, priorities**self.alpha)
        self._set_largest(max(self._largest, largest))

    def _set_largest(self, value: float) -> None:
        before = self._largest

        def undo() -> None:
            self._largest = before

        self._ring.remember(undo)
        self._largest = value

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """See `ReplayBuffer`."""
        return (), {"capacity": self.capacity, "alpha": self.alpha, "beta": self.beta}

    def _own_state(self) -> State:
        """See `ReplayBuffer.get_state`; `priorities` are p^α."""
        return {
            **super()._own_state(),
            "alpha": self.alpha,
            "priorities": state_array(self._sums.leaves[: len(self)]),
            "largest_priority": self._largest,
        }

    def set_state(self, state: State) -> None:
        """See `ReplayBuffer.set_state`.

        Raises:
            ReplayError: type, capacity or alpha differ; nothing is changed.
        """
        refuse_other_type(state, type(self).__name__)
        if state["alpha"] != self.alpha:
            raise ReplayError(
                f"The saved replay buffer has alpha={state['alpha']}, this one {self.alpha}. Build "
                "the algorithm with the alpha that was saved: "
                f'replay_buffer_config={{"alpha": {state["alpha"]}}}.'
            )
        priorities = np.asarray(state["priorities"], np.float64)
        largest = float(state["largest_priority"])
        before = self._sums, self._minima

        def undo() -> None:
            self._sums, self._minima = before

        super().set_state(state)
        self._ring.remember(undo)
        self._make_trees()
        rows = np.arange(len(self))
        self._sums.set(rows, priorities)
        self._minima.set(rows, priorities)
        self._set_largest(largest)


def _number(name: str, value: Any, *, maximum: float) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and 0 <= value <= maximum):
        limits = "of at least 0" if maximum == math.inf else f"in [0, {maximum:g}]"
        raise ReplayError(f"{name}={value!r}: expected a number {limits}.")
    return float(value)

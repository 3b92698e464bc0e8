"""Replay buffers: steps drawn uniformly or by priority; and how one is made from its config."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from checkpoints import Checkpointable, state_array
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ReplayError
from trainer.old_names import OLD_NAMES
from trainer.replay.batch_buffer import BatchReplayBuffer, PrioritizedBatchReplayBuffer
from trainer.replay.episode_writer import EpisodeWriter, Running
from trainer.replay.replay_state import check_replay_state, refuse_other_type
from trainer.replay.step_ring import (
    ACTIONS,
    MAX_STEPS,
    NEXT_OBS,
    NO_ROW,
    OBS,
    REWARDS,
    TERMINATEDS,
    Sequences,
    StepRing,
    Transitions,
    check_layout,
    checked_capacity,
    columns_of,
    gathered,
    layout_of,
    n_step_sums,
    plain_template,
    splits_of,
    template_from,
    template_of,
)
from trainer.types import Array, State
from trainer_toolkit.arguments import argument_error, checked
from trainer_toolkit.checks import instance, number, several
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.undo import Undo

# ---- replay buffer

NStep = int | tuple[int, int]
"""Steps per transition, or the smallest and the largest number, both included."""

_EPISODES: Final = several(instance(SingleAgentEpisode, "an episode"))
_LONGEST_SEQUENCE: Final = 2**31


def _with_arrays(chunk: SingleAgentEpisode) -> SingleAgentEpisode:
    """The chunk, or a copy with arrays of one that holds lists and may still grow."""
    return chunk if chunk.is_numpy else copy.deepcopy(chunk).to_numpy()


# One of two kinds, uniform and prioritized, that users name and subclass.
class ReplayBuffer(Checkpointable):
    """Stores the steps of episodes and hands out transitions over n steps.

    Chunks of a running episode are joined: a transition may begin in one and end in the next. Where
    an episode ends (or its newest step is reached) before n steps, the transition is shorter and
    says so by its discount; none is left out.

    Memory: one preallocated array per column; the pages of rows that were never written cost
    nothing. Small observations are stored twice, before and after the step, so that a sample is one
    gathering per column. Of observations of 2 kB and more each frame is stored once, however many
    steps and stacks show it: 84 × 84 pictures, four of them stacked, take 7 kB per step.

    A subclass may override `_draw`, `_weights_of` and `_on_added`, and call `super()` in the
    methods for undoing and state.

    Attributes:
        capacity: how many steps it holds; the oldest are overwritten.
        num_added: steps ever added.
    """

    _for_batches: ClassVar[type[BatchReplayBuffer]] = BatchReplayBuffer

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """With RLlib's `storage_unit`, another kind of buffer: one that stores batches."""
        # Not in place of a subclass of the user's, which may have an argument of that name.
        if "storage_unit" in kwargs and "_for_batches" in vars(cls):
            return cls._for_batches(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, capacity: int = 50_000) -> None:
        """An empty buffer.

        Args:
            capacity: in env steps, ≥ 1.

        Raises:
            ReplayError: the capacity is no positive integer.
        """
        self._ring = StepRing(checked_capacity(capacity))
        self._templates: dict[str, Any] = {}
        # Of each running episode the position of its newest step here, and how long it was then;
        # the one that waits longest comes first.
        self._running: Running = {}

    @property
    def capacity(self) -> int:
        """How many steps it holds."""
        return self._ring.capacity

    @property
    def num_added(self) -> int:
        """Steps ever added."""
        return self._ring.num_added

    def __len__(self) -> int:
        """Steps that are stored."""
        return self._ring.num_stored

    def __repr__(self) -> str:
        steps = f"{len(self):,} of {self.capacity:,} env steps"
        episodes = f"{self.get_num_episodes():,} episodes, {self._ring.num_bytes / 1e6:,.1f} MB"
        return f"<{type(self).__name__}: {steps}, {episodes}>"

    @property
    def num_bytes_per_step(self) -> int:
        """What the values of a step take, stored or not; 1 before the first one."""
        layout = self._ring.layout.values()
        return max(1, sum(dtype.itemsize * math.prod(shape) for dtype, shape in layout))

    def get_num_timesteps(self) -> int:
        """Steps that are stored (RLlib's name)."""
        return self._ring.num_stored

    def get_num_episodes(self) -> int:
        """Episodes of which at least one step is stored."""
        return self._ring.num_tails

    # ---- adding

    def add(self, episodes: SingleAgentEpisode | Iterable[SingleAgentEpisode]) -> None:
        """Stores the steps of chunks, of ended and of running episodes; look-back is left out.

        A chunk goes on where an earlier one of the same episode ended, if that one's last step is
        still here. One that holds lists is copied.

        Raises:
            ReplayError: the steps of a chunk differ from those stored; nothing is added then.
        """
        if hasattr(episodes, "timeslices"):
            raise ReplayError(
                f"A {type(episodes).__name__} was added to a {type(self).__name__}, which stores "
                "the steps of episodes. For batches, say what an item is: "
                f'{type(self).__name__}(capacity={self.capacity}, storage_unit="timesteps").'
            )
        given: Any = [episodes] if isinstance(episodes, SingleAgentEpisode) else episodes
        given = list(given) if isinstance(given, Iterable) else given
        if not _EPISODES.accepts(given):
            expected = "an episode, or a list of episodes"
            raise argument_error("ReplayBuffer.add()", "episodes", episodes, expected)
        chunks = [_with_arrays(chunk) for chunk in given if len(chunk) > 0]
        if not chunks:
            return
        parts = [columns_of(chunk) for chunk in chunks]
        layout = self._ring.layout or layout_of(parts[0])
        for chunk, part in zip(chunks, parts, strict=True):
            check_layout(part, layout, episode_id=chunk.id_)
        if not self._ring.columns:
            self._ring.allocate(layout, splits_of(parts[0]))
            self._set_templates(
                {
                    OBS: template_of(chunks[0].observations.data),
                    ACTIONS: template_of(chunks[0].actions.data),
                }
            )
        start = 0
        while start < len(chunks):  # usually once; more often if more is added than fits
            end, num_steps = start + 1, len(chunks[start])
            while end < len(chunks) and num_steps + len(chunks[end]) <= self.capacity:
                num_steps += len(chunks[end])
                end += 1
            self._append(chunks[start:end], parts[start:end], max(0, num_steps - self.capacity))
            start = end

    def _append(
        self, chunks: list[SingleAgentEpisode], parts: list[dict[str, Array]], num_skipped: int
    ) -> None:
        """Stores chunks that fit together, or the end of one that is too long."""
        if num_skipped:
            parts = [{name: values[num_skipped:] for name, values in parts[0].items()}]
        lengths = [len(part[REWARDS]) for part in parts]
        terminateds = np.zeros(sum(lengths), np.bool_)
        stop = self.num_added + num_skipped
        running = dict(self._running)
        continues, num_before = [], 0
        for chunk, length in zip(chunks, lengths, strict=True):
            position, t = running.pop(chunk.id_, (NO_ROW, NO_ROW))
            continues.append(position if t == chunk.t_started else NO_ROW)
            num_before += length
            if not chunk.is_done:
                running[chunk.id_] = (stop + num_before - 1, chunk.t)
            terminateds[num_before - 1] = chunk.is_terminated
        columns = {name: [part[name] for part in parts] for name in parts[0]}
        columns[TERMINATEDS] = [terminateds]
        rows = self._ring.append(
            columns, lengths=lengths, continues=continues, num_skipped=num_skipped
        )
        self._set_running(running)
        self._on_added(rows)

    @contextlib.contextmanager
    def writing(self, num_rows: int) -> Iterator[EpisodeWriter]:
        """A block in which steps are stored while their episodes grow; see `EpisodeWriter`.

        Args:
            num_rows: how many, at most the capacity. The buffer holds steps already.
        """
        writer = EpisodeWriter(
            self._ring,
            self._templates,
            self._running,
            num_rows=num_rows,
            on_added=self._on_added,
        )
        yield writer
        self._set_running(writer.running)

    def _set_running(self, running: Running) -> None:
        """Takes over the running episodes, but for those whose newest step is overwritten."""
        oldest, before = self.num_added - self.capacity, self._running
        for id_ in list(takewhile(lambda id_: running[id_][0] < oldest, running)):
            del running[id_]

        def undo() -> None:
            self._running = before

        self._ring.remember(undo)
        self._running = running

    def _set_templates(self, templates: dict[str, Any]) -> None:
        before = self._templates

        def undo() -> None:
            self._templates = before

        self._ring.remember(undo)
        self._templates = templates

    def _on_added(self, rows: Array) -> None:
        """Told which rows were written."""

    # ---- sampling

    def sample(
        self,
        num_items: int,
        *,
        rng: np.random.Generator | None = None,
        n_step: NStep = 1,
        gamma: float = 0.99,
        beta: float | None = None,
    ) -> Transitions:
        """Draws transitions, with replacement.

        Args:
            num_items: B, ≥ 1.
            rng: where the draws come from; None draws from the operating system.
            n_step: steps per transition, or the bounds between which each draws its own.
            gamma: discount per step, in [0, 1].
            beta: exponent of importance weights; None as constructed. Of no effect without
                priorities.

        Raises:
            ReplayError: nothing is stored, or a number is outside its range.
        """
        rng = rng or np.random.default_rng()
        if type(gamma) is not float or not 0.0 <= gamma <= 1.0:
            checked(gamma, _SHARE, name="gamma", error=ReplayError)
        rows = self._checked_draw(num_items, rng)
        columns = self._ring.columns
        if n_step == 1:
            last, rewards = rows, columns[REWARDS].take(rows)
            discounts = np.empty(num_items, np.float32)  # a third of the time of `np.full`
            discounts.fill(gamma)
        else:
            chains = self._chains(rows, rng, n_step)
            last, rewards, discounts = n_step_sums(columns[REWARDS], chains, gamma)
        discounts[columns[TERMINATEDS].take(last)] = 0.0
        return Transitions(
            obs=self._taken(OBS, rows),
            actions=self._taken(ACTIONS, rows),
            rewards=rewards,
            next_obs=self._taken(NEXT_OBS, last),
            discounts=discounts,
            weights=self._weights_of(rows, beta),
            rows=rows,
        )

    def sample_sequences(
        self,
        num_items: int,
        *,
        length: int,
        rng: np.random.Generator | None = None,
        beta: float | None = None,
    ) -> Sequences:
        """Draws pieces of episodes; every stored step may be the first of one.

        Args:
            num_items: B, ≥ 1.
            length: T, steps per sequence, ≥ 1.
            rng: where the draws come from; None draws from the operating system.
            beta: as in `sample`.

        Raises:
            ReplayError: nothing is stored, or a number is outside its range.
        """
        if not 1 <= length < _LONGEST_SEQUENCE:
            raise ReplayError(f"length={length!r}: expected at least 1 env step per sequence.")
        starts = self._checked_draw(num_items, rng or np.random.default_rng())
        rows = np.ascontiguousarray(self._ring.chains(starts, length).T)
        columns = self._ring.columns
        return Sequences(
            obs=self._taken(OBS, rows),
            actions=self._taken(ACTIONS, rows),
            rewards=columns[REWARDS].take(rows),
            next_obs=self._taken(NEXT_OBS, rows),
            terminateds=columns[TERMINATEDS].take(rows),
            mask=rows >= 0,
            weights=self._weights_of(starts, beta),
            rows=rows,
        )

    def _taken(self, name: str, rows: Array) -> Any:
        """What rows hold of observations or actions, nested as they were."""
        template = self._templates[ACTIONS if name == ACTIONS else OBS]
        return gathered(name, template, lambda column: self._ring.take(column, rows))

    def _checked_draw(self, num_items: int, rng: np.random.Generator) -> Array:
        if not len(self):
            raise ReplayError(
                "The replay buffer is empty, so there is nothing to sample. Add episodes first; "
                "during training, wait until num_steps_sampled_before_learning_starts steps were "
                "sampled."
            )
        if not 1 <= num_items <= MAX_STEPS:
            raise ReplayError(f"num_items={num_items!r}: expected from 1 to {MAX_STEPS:,}.")
        return self._draw(num_items, rng)

    def _draw(self, num_items: int, rng: np.random.Generator) -> Array:
        """The rows of the steps to begin with, int64 [num_items]; the buffer is not empty."""
        # 2 µs where `rng.integers` takes 6; the product is below the length, however it is rounded.
        rows: Array = (rng.random(num_items) * len(self)).astype(np.int64)
        return rows

    def _weights_of(self, rows: Array, beta: float | None) -> Array:  # noqa: ARG002 - priorities
        """Importance weights of drawn rows, float32 [B]; β is the caller's or the own one."""
        weights = np.empty(len(rows), np.float32)
        weights.fill(1.0)
        return weights

    def _chains(self, rows: Array, rng: np.random.Generator, n_step: NStep) -> Array:
        """Rows and up to n - 1 more steps of their episodes, int64 [n, B]; see `n_step_sums`."""
        low, high = (n_step, n_step) if isinstance(n_step, int) else n_step
        if not 1 <= low <= high:
            raise ReplayError(
                f"n_step={n_step!r}: expected an integer of at least 1, or a pair of them in order."
            )
        chains = self._ring.chains(rows, high)
        if low < high:
            wanted = rng.integers(low, high + 1, len(rows))
            chains[np.arange(high)[:, None] >= wanted] = NO_ROW
        return chains

    # ---- undoing and state

    def mark(self) -> Undo:
        """What undoes everything from now on, at the cost of what changes while it is kept."""
        return self._ring.mark()

    def make_large_array(self, dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Array | None:
        """See `checkpoints.HasLargeArrays`: rows are read into the columns that they stay in."""
        return self._ring.make_large_array(dtype, shape)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {"capacity": self.capacity}

    def _own_state(self) -> State:
        """Everything, as dicts, lists and arrays of its own.

        `ormsgpack.packb(state, option=ormsgpack.OPT_SERIALIZE_NUMPY)` takes it as it is, and
        `set_state` takes what `ormsgpack.unpackb` makes of that (lists).
        """
        return {
            "type": type(self).__name__,
            **self._ring.get_state(),
            "nesting": {name: plain_template(tree) for name, tree in self._templates.items()},
            "running_episodes": [[id_, last, t] for id_, (last, t) in self._running.items()],
        }

    def check_state(self, state: State) -> None:
        check_replay_state(state)

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; a mark undoes that, too.

        Raises:
            ReplayError: it is of another type of buffer, or the capacities differ; nothing is
                changed.
        """
        refuse_other_type(state, type(self).__name__)
        templates = {name: template_from(tree) for name, tree in state["nesting"].items()}
        running = {id_: (last, t) for id_, last, t in state["running_episodes"]}
        self._ring.set_state(state)
        self._set_templates(templates)
        self._set_running(running)


# ---- reduce tree
#
# Sums and minima over many numbers that change a few at a time: flat trees with wide nodes.

BRANCHES: Final = 32
"""Children of a node."""

TOP: Final = 1024
"""The tree ends at a level of at most so many nodes, which is reduced and searched as a whole.

Every level costs a few calls to NumPy. Measured at 10⁶ leaves and 256 places: a binary tree finds
in 0.45 ms, one with 32 children up to a single root in 0.2 ms, this one in 0.1 ms."""


class ReduceTree:
    """Leaves and, above them, levels of nodes that each reduce their children.

    A node is always reduced anew from all its children, never corrected by a difference. So its
    value is a function of the leaves alone, whatever happened before: a restored tree has the same
    bits.

    Attributes:
        leaves: float64, one per place; to be changed by `set` only.
    """

    def __init__(self, num_leaves: int, *, reduction: np.ufunc, identity: float) -> None:
        """A tree whose leaves are all the identity.

        Args:
            num_leaves: ≥ 1.
            reduction: `np.add` or `np.minimum`.
            identity: what an empty place counts: 0 for sums, infinity for minima.
        """
        self._reduction = reduction
        self._families: list[Array] = []  # each level below the top, [nodes above, BRANCHES]
        size = num_leaves
        while size > TOP:
            size = -(-size // BRANCHES)
            self._families.append(np.full((size, BRANCHES), identity))
        self._top = np.full(size, identity)
        self._link(num_leaves)

    def _link(self, num_leaves: int) -> None:
        """Makes the views: of the leaves, and of the nodes above each level."""
        flat = [family.reshape(-1) for family in self._families] + [self._top]
        self.leaves, self._above = flat[0][:num_leaves], flat[1:]

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copied one by one, its arrays would no longer be views of each other.
        vars(self).update(state)
        self._link(len(self.leaves))

    def set(self, places: Array, values: Array | float) -> None:
        """Sets leaves and everything above them.

        Args:
            places: int64 [B]; of a place named twice, the last value counts.
            values: [B] or one for all.
        """
        self.leaves[places] = values
        for family, above in zip(self._families, self._above, strict=True):
            places = places // BRANCHES
            above[places] = self._reduction.reduce(family.take(places, axis=0), axis=1)

    def root(self) -> float:
        """The reduction of all leaves."""
        return float(self._reduction.reduce(self._top))


class SumTree(ReduceTree):
    """A tree of sums that finds the leaf at which a running sum passes a target."""

    def __init__(self, num_leaves: int) -> None:
        """A tree of zeros."""
        super().__init__(num_leaves, reduction=np.add, identity=0.0)

    def find(self, shares: Array) -> Array:
        """The leaves at which the running sum passes the given shares of the whole sum.

        Leaves of 0 are never found, as long as one is above 0.

        Args:
            shares: float64 [B], in [0, 1).

        Returns:
            int64 [B].
        """
        sums = np.add.accumulate(self._top)
        # Rounding may put a target on the whole sum, behind which there is no leaf.
        targets = np.minimum(shares * sums[-1], np.nextafter(sums[-1], 0.0))
        nodes: Array = sums.searchsorted(targets, side="right")
        targets = targets - np.where(nodes > 0, sums[nodes - 1], 0.0)
        rows = np.arange(len(targets)) * BRANCHES
        for family in reversed(self._families):
            sums = np.add.accumulate(family.take(nodes, axis=0), axis=1)
            targets = np.minimum(targets, np.nextafter(sums[:, -1], 0.0))
            # The first sum above the target; there is one, as the last is.
            children = (sums > targets[:, None]).argmax(axis=1)
            before = sums.take(rows + np.maximum(children - 1, 0))
            targets = targets - np.where(children > 0, before, 0.0)
            nodes = nodes * BRANCHES + children
        return nodes


# ---- prioritized

SMALLEST_PRIORITY = 1e-6
"""Added to every error, so that no step is lost for good."""


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
        self._alpha = float(checked(alpha, number(0), name="alpha", error=ReplayError))
        self._beta = float(checked(beta, _SHARE, name="beta", error=ReplayError))
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
        checked(exponent, _SHARE, name="beta", error=ReplayError)
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
        if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(self):
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


_SHARE: Final = number(0, maximum=1)


# ---- making

REPLAY_BUFFERS: Final[Mapping[str, type[ReplayBuffer]]] = MappingProxyType(
    {
        "ReplayBuffer": ReplayBuffer,
        "PrioritizedReplayBuffer": PrioritizedReplayBuffer,
        # RLlib's names. Steps of all episodes are linked here, so that one class serves both.
        "EpisodeReplayBuffer": ReplayBuffer,
        "PrioritizedEpisodeReplayBuffer": PrioritizedReplayBuffer,
        "MultiAgentReplayBuffer": ReplayBuffer,
        "MultiAgentPrioritizedReplayBuffer": PrioritizedReplayBuffer,
        "MultiAgentEpisodeReplayBuffer": ReplayBuffer,
        "MultiAgentPrioritizedEpisodeReplayBuffer": PrioritizedReplayBuffer,
    }
)
"""Every name that `type` may have."""

_PRIORITIES: Final = ("alpha", "beta")
_PATHS: Final = ("", "ray", "trainer")
"""First parts of dotted paths that mean our classes; a user's class is given as a class."""


def make_replay_buffer(config: Mapping[str, Any]) -> ReplayBuffer:
    """The buffer that a config asks for.

    Args:
        config: `type`, a name or a class, and the arguments of its constructor.

    Raises:
        ReplayError: the type does not exist, or an argument is unknown or wrong.
    """
    arguments = {
        OLD_NAMES.replay_arguments.get(name, name): value for name, value in config.items()
    }
    buffer_class = _class_of(arguments.pop("type", "PrioritizedEpisodeReplayBuffer"))
    parameters = dict(inspect.signature(buffer_class.__init__).parameters)
    parameters.pop("self")
    known = list(parameters)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not set(_PRIORITIES) & set(known):
        # The default config has them, and merging keeps them: a uniform buffer has no use for them.
        arguments = {name: v for name, v in arguments.items() if name not in _PRIORITIES}
    unknown = [name for name in arguments if name not in known and not takes_all]
    for name in [name for name in unknown if name in OLD_NAMES.idle_replay_arguments]:
        if arguments[name] == OLD_NAMES.idle_replay_arguments[name]:
            del arguments[name]
            unknown.remove(name)
    if unknown:
        refused = OLD_NAMES.refused_replay_arguments
        told = [
            f"{buffer_class.__name__} has no argument {name!r}."
            + (f" {refused[name]}" if name in refused else did_you_mean(name, known))
            for name in unknown
        ]
        raise ReplayError(f"{' '.join(told)} It takes {', '.join(known)}.")
    return buffer_class(**arguments)


def names_replay_buffer(name: str) -> bool:
    """Whether a `type` means one of `REPLAY_BUFFERS`."""
    package, _, short = name.rpartition(".")
    return short in REPLAY_BUFFERS and package.partition(".")[0] in _PATHS


def _class_of(kind: Any) -> type[ReplayBuffer]:
    if isinstance(kind, type) and issubclass(kind, ReplayBuffer):
        return kind
    if isinstance(kind, str) and names_replay_buffer(kind):
        return REPLAY_BUFFERS[kind.rpartition(".")[2]]
    hint = did_you_mean(kind, REPLAY_BUFFERS)
    raise ReplayError(
        f"There is no replay buffer {kind!r}.{hint} Give one of {', '.join(REPLAY_BUFFERS)}, or a "
        "subclass of ReplayBuffer."
    )

"""ReplayBuffer: the last steps of all episodes, drawn uniformly."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import Any, ClassVar, Final

import numpy as np

from checkpoints import Checkpointable, NewArray
from checkpoints.arguments import (
    argument_error,
    checked_methods,
    instance,
    judges_arguments,
    several,
)
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ReplayError
from trainer.replay.batch_buffer import BatchReplayBuffer
from trainer.replay.nesting import gathered, plain_template, template_from, template_of
from trainer.replay.state_shape import check_replay_state, refuse_other_type
from trainer.replay.step_ring import MAX_STEPS, NO_ROW, StepRing, checked_capacity
from trainer.replay.transitions import (
    ACTIONS,
    NEXT_OBS,
    OBS,
    REWARDS,
    TERMINATEDS,
    Sequences,
    Transitions,
    check_layout,
    columns_of,
    layout_of,
    n_step_sums,
)
from trainer.types import Array, State

NStep = int | tuple[int, int]
"""Steps per transition, or the smallest and the largest number, both included."""

_EPISODES: Final = several(instance(SingleAgentEpisode, "an episode"))
_LONGEST_SEQUENCE: Final = 2**31


@checked_methods(but=("__init__",))
class ReplayBuffer(Checkpointable):
    """Stores the steps of episodes and hands out transitions over n steps.

    Chunks of a running episode are joined: a transition may begin in one and end in the next. Where
    an episode ends (or its newest step is reached) before n steps, the transition is shorter and
    says so by its discount; none is left out.

    Memory: one preallocated array per column; the pages of rows that were never written cost
    nothing. Observations are stored twice, before and after the step, so that a sample is one
    gathering per column.

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
        self._running: dict[str, tuple[int, int]] = {}

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

    def get_num_timesteps(self) -> int:
        """Steps that are stored (RLlib's name)."""
        return self._ring.num_stored

    def get_num_episodes(self) -> int:
        """Episodes of which at least one step is stored."""
        return self._ring.num_tails

    # ---- adding

    @judges_arguments
    def add(self, episodes: SingleAgentEpisode | Iterable[SingleAgentEpisode]) -> None:
        """Stores the steps of chunks, after `to_numpy()`; look-back is left out.

        A chunk goes on where an earlier one of the same episode ended, if that one's last step is
        still here.

        Raises:
            ReplayError: a chunk still holds lists, or its steps differ from those stored; nothing
                is added then.
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
        chunks = [chunk for chunk in given if len(chunk) > 0]
        if not chunks:
            return
        parts = [columns_of(chunk) for chunk in chunks]
        layout = self._ring.layout or layout_of(parts[0])
        for chunk, part in zip(chunks, parts, strict=True):
            check_layout(part, layout, episode_id=chunk.id_)
        if not self._ring.columns:
            self._ring.allocate(layout)
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
        oldest = stop + len(terminateds) - self.capacity
        running = dict(self._running)
        continues, num_before = [], 0
        for chunk, length in zip(chunks, lengths, strict=True):
            position, t = running.pop(chunk.id_, (-1, -1))
            is_continued = t == chunk.t_started and position >= oldest
            continues.append(position % self.capacity if is_continued else -1)
            num_before += length
            if not chunk.is_done:
                running[chunk.id_] = (stop + num_before - 1, chunk.t)
            terminateds[num_before - 1] = chunk.is_terminated
        columns = {name: [part[name] for part in parts] for name in parts[0]}
        columns[TERMINATEDS] = [terminateds]
        rows = self._ring.append(
            columns, lengths=lengths, continues=continues, num_skipped=num_skipped
        )
        for id_ in list(takewhile(lambda id_: running[id_][0] < oldest, running)):
            del running[id_]
        self._set_running(running)
        self._on_added(rows)

    def _set_running(self, running: dict[str, tuple[int, int]]) -> None:
        before = self._running

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
        rows = self._checked_draw(num_items, rng)
        columns, template = self._ring.columns, self._templates[OBS]
        if n_step == 1:
            last, rewards = rows, columns[REWARDS].take(rows)
            discounts = np.full(num_items, gamma, np.float32)
        else:
            chains = self._chains(rows, rng, n_step)
            last, rewards, discounts = n_step_sums(columns[REWARDS], chains, gamma)
        discounts[columns[TERMINATEDS].take(last)] = 0.0
        return Transitions(
            obs=gathered(OBS, template, columns, rows),
            actions=gathered(ACTIONS, self._templates[ACTIONS], columns, rows),
            rewards=rewards,
            next_obs=gathered(NEXT_OBS, template, columns, last),
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
        columns, template = self._ring.columns, self._templates[OBS]
        return Sequences(
            obs=gathered(OBS, template, columns, rows),
            actions=gathered(ACTIONS, self._templates[ACTIONS], columns, rows),
            rewards=columns[REWARDS].take(rows),
            next_obs=gathered(NEXT_OBS, template, columns, rows),
            terminateds=columns[TERMINATEDS].take(rows),
            mask=rows >= 0,
            weights=self._weights_of(starts, beta),
            rows=rows,
        )

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
        return np.ones(len(rows), np.float32)

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

    def mark(self) -> None:
        """Everything from now on can be undone by `rollback`, at the cost of what changes."""
        self._ring.mark()

    def rollback(self) -> None:
        """Undoes everything since the newest `mark`, and takes the mark away."""
        self._ring.rollback()

    def restoring_large_arrays(self) -> AbstractContextManager[NewArray]:
        """See `checkpoints.HasLargeArrays`: rows are read into the columns that they stay in."""
        return self._ring.restoring(mark=self.mark, rollback=self.rollback)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """See `Checkpointable`."""
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
        """See `Checkpointable`."""
        check_replay_state(state)

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; `rollback` undoes that, too.

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

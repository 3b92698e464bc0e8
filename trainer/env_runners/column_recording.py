"""What the sub-envs of a vector env play in one request, recorded as columns.

Between two requests, slots hold what they hold for every env. Within one, a running episode is two
row numbers in a `Fragment`, and a random number is read from an array that the slots' streams have
filled block by block. Who plays and when is decided in `vector_player`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainer.env_runners.env_slot import EnvSlot
from trainer.envs.native_vector_env import VectorStep
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, ACTION_LOGP
from trainer.episodes.fragment import Fragment, FragmentEpisode, RowRange
from trainer.types import Array


class UnseenEpisode(NamedTuple):
    """An episode, or its first chunk, that is no object yet.

    Attributes:
        span: where it is in the fragment.
        number: of the episode in its slot.
        ends: whether it is terminated, truncated.
        elapsed_s: seconds it took.
        head: what there was of it when the recording began; None if it began within it.
    """

    span: RowRange
    number: int
    ends: tuple[bool, bool]
    elapsed_s: float
    head: SingleAgentEpisode | None


class ColumnRecording:
    """Rows of a fragment, and where in it the slots' running episodes began.

    Life: `go_on`, `carry` or `begin` for each slot that plays; per vector step `observations`,
    `noise` and `write`; `end` for each slot whose episode is over; `settle` for those that run.

    Attributes:
        fragment: what is recorded.
        heads: by slot: the chunk so far of a running episode that is no object meanwhile; None
            where there is no such episode.
        row: of the step to come.
        is_running: whose steps are recorded, bool [S].
        num_running: how many these are.
        unseen: finished episodes that have no object yet; the caller clears the list.
    """

    def __init__(
        self,
        slots: Sequence[EnvSlot],
        observations: Array,
        *,
        num_carried: int,
        num_rows: int,
        noise_width: int,
    ) -> None:
        """No slot plays yet.

        Args:
            slots: of all sub-envs.
            observations: what the sub-envs show now, [S, …].
            num_carried: most steps that the chunk of a running episode has already.
            num_rows: steps that are expected.
            noise_width: random numbers per step and slot.
        """
        count = len(slots)
        self.fragment = Fragment(observations, num_rows=num_carried + num_rows)
        self.fragment.write_observations(num_carried, observations)
        self.row = num_carried
        self.is_running: Array = np.zeros(count, np.bool_)
        self.num_running = 0
        self.unseen: list[UnseenEpisode] = []
        self.heads: list[SingleAgentEpisode | None] = [None] * count
        self._begun_at_s = [0.0] * count
        self._slots = slots
        self._first, self._begin = [0] * count, [0] * count
        self._noise: Array = np.zeros((count, num_carried + num_rows, noise_width))
        self._noise_from, self._noise_until = [0] * count, [-1] * count
        self._noise_ends: dict[int, list[int]] = {}
        self._carried: list[tuple[int, int, SingleAgentEpisode]] = []
        self._tails: list[tuple[Fragment, list[int]]] = []

    # ---- who plays

    def go_on(self, slot: EnvSlot, episode: SingleAgentEpisode) -> None:
        """Goes on with an episode whose chunk so far is in lists, look-back included."""
        index, row, fragment = slot.index, self.row, self.fragment
        carried = episode.rewards.total  # look-back, and after an error steps of this chunk, too
        first = row - carried
        self._plays(slot, first=first, begin=first + episode.lookback)
        fragment.write_observations_of(index, first, episode.observations.data)
        for span, info in enumerate(episode.infos.data, start=first):
            if info:
                fragment.infos[index, span] = info
        if carried:
            self._carried.append((index, first, episode))

    def carry(self, carried: Sequence[tuple[EnvSlot, SingleAgentEpisode]], *, now_s: float) -> None:
        """Goes on with episodes that are no objects meanwhile.

        Args:
            carried: slots, and of each the episode's chunk so far, without a step.
            now_s: when.
        """
        # What was cut together is taken over together.
        cut_together: dict[int, tuple[Fragment, list[int]]] = {}
        for slot, head in carried:
            index = slot.index
            self.heads[index], self._begun_at_s[index] = head, now_s
            tail = head.fragment if isinstance(head, FragmentEpisode) else None
            if not isinstance(head, FragmentEpisode) or not isinstance(tail, Fragment):
                self.go_on(slot, head)
                continue
            cut_together.setdefault(id(tail), (tail, []))[1].append(index)
            span = head.span
            self._plays(slot, first=self.row + span.first - span.stop, begin=self.row)
        self._tails = list(cut_together.values())
        for tail, sub_envs in self._tails:
            self.fragment.write_tail(self.row, tail, sub_envs)

    def begin(self, slot: EnvSlot, *, now_s: float) -> None:
        """Begins an episode with what the sub-env shows at this row."""
        self._begun_at_s[slot.index] = now_s
        self._plays(slot, first=self.row, begin=self.row)

    def _plays(self, slot: EnvSlot, *, first: int, begin: int) -> None:
        index = slot.index
        self._first[index], self._begin[index] = first, begin
        self.is_running[index] = True
        self.num_running += 1
        self._draw(index)

    # ---- steps

    @property
    def observations(self) -> Array:
        """What the sub-envs show now, [S, …]; not to be written into."""
        return self.fragment.observations[:, self.row]

    def noise(self) -> Array:
        """The random numbers of the step to come, [S, W]; zeros where no agent plays."""
        row = self._row_with_room()
        for index in self._noise_ends.pop(row, ()):
            if self._noise_until[index] == row and self.is_running[index]:
                self._slots[index].seat.noise.pass_over(row - self._noise_from[index])
                self._draw(index)
        return self._noise[:, row]

    def _row_with_room(self) -> int:
        if self.row == self.fragment.num_rows:
            self.fragment.make_room()
            self._noise = np.concatenate([self._noise, np.zeros_like(self._noise)], axis=1)
        return self.row

    def _draw(self, index: int) -> None:
        """Takes over the rows that a slot's stream has ready, from this row on."""
        row = self.row
        ahead = self._slots[index].seat.noise.rows_ahead()[: self._noise.shape[1] - row]
        until = row + len(ahead)
        self._noise[index, row:until] = ahead
        self._noise_from[index], self._noise_until[index] = row, until
        self._noise_ends.setdefault(until, []).append(index)

    def write(self, actions: Array, outputs: Mapping[str, Array], step: VectorStep) -> None:
        """Records a step of all sub-envs, and goes on to the next row."""
        fragment, row = self.fragment, self.row
        if fragment.actions is None:
            fragment.open_actions(actions, dict(outputs))
            for tail, sub_envs in self._tails:
                fragment.write_tail_actions(row, tail, sub_envs)
            self._tails = []
            for index, first, episode in self._carried:
                fragment.write_carried(index, first, episode)
            self._carried = []
        fragment.write_step(row, actions, step.rewards, outputs)
        fragment.is_recorded[:, row] = self.is_running
        fragment.write_observations(row + 1, step.observations)
        self.row = row + 1

    def leave_out(self, observations: Array) -> None:
        """Goes on to the next row after a step in which no agent played.

        Args:
            observations: what the sub-envs show now, [S, …].
        """
        self.row = self._row_with_room() + 1
        self.fragment.write_observations(self.row, observations)

    def note_infos(self, step: VectorStep, *, apart: bool) -> None:
        """Records the infos of the step that was written last.

        `apart`: the row of an episode's last observation belongs to the next episode.
        """
        is_last = step.ended
        indices = np.flatnonzero(self.is_running).tolist()
        if not step.has_own_infos:
            indices = [index for index in indices if is_last[index]]
        for index in indices:
            info = step.info(index, is_last=bool(is_last[index]))
            if info:
                kept = self.fragment.last_infos if apart and is_last[index] else self.fragment.infos
                kept[index, self.row] = info

    def note_apart(self, index: int, last_observation: Any, first_observation: Any) -> None:
        """Records that an episode ended with one observation, and its row shows another one."""
        self.fragment.last_observations[index, self.row] = last_observation
        self.fragment.write_observations_of(index, self.row, np.asarray(first_observation)[None])

    # ---- ends

    def end(self, slot: EnvSlot) -> RowRange:
        """The rows of an episode that ended with the step that was written last."""
        index = slot.index
        self.is_running[index] = False
        self.num_running -= 1
        self._noise_until[index] = -1
        return self._span(index)

    def end_unseen(self, slot: EnvSlot, ends: tuple[bool, bool], *, now_s: float) -> None:
        """Ends an episode that is no object yet; `ends` are its last flags."""
        ended = self._unseen(slot, self.end(slot), ends, now_s)
        self.heads[slot.index] = None
        self.unseen.append(ended)

    def running_unseen(self, slot: EnvSlot, span: RowRange, *, now_s: float) -> UnseenEpisode:
        """An episode that is no object yet and runs on."""
        return self._unseen(slot, span, (False, False), now_s)

    def _unseen(
        self, slot: EnvSlot, span: RowRange, ends: tuple[bool, bool], now_s: float
    ) -> UnseenEpisode:
        head, elapsed_s = self.heads[slot.index], now_s - self._begun_at_s[slot.index]
        if head is not None:
            elapsed_s += head.get_duration_s()
        return UnseenEpisode(span, slot.episode_number, ends, elapsed_s, head)

    def settle(self, slot: EnvSlot) -> RowRange:
        """Writes noise position and observation of a running slot back, not its episode.

        Settled once more, it stands where it stood.

        Returns:
            its rows.
        """
        index = slot.index
        slot.seat.noise.pass_over(self.row - self._noise_from[index])
        self._noise_from[index] = self.row
        slot.observation = self.fragment.observations[index, self.row].copy()
        return self._span(index)

    def _span(self, index: int) -> RowRange:
        return RowRange(index, self._first[index], self._begin[index], self.row)

    def tail(self, lookback: int, *, but: Collection[str]) -> Fragment:
        """The last rows and what the sub-envs show now, in memory of their own.

        As many rows as there are, at most `lookback`; outputs of `but` are left out.
        """
        return self.fragment.tail(self.row, min(lookback, self.row), but=but)

    def add_logp(self, compute: Callable[[Array, Array], Array]) -> None:
        """Adds the log-likelihoods of all recorded steps, look-back included, to the outputs."""
        fragment = self.fragment
        if ACTION_LOGP in fragment.outputs or fragment.actions is None:
            return
        recorded = fragment.is_recorded
        inputs = fragment.outputs[ACTION_DIST_INPUTS][recorded]
        values = compute(inputs, fragment.actions[recorded])
        column: Array = np.zeros(recorded.shape, values.dtype)
        column[recorded] = values
        fragment.outputs[ACTION_LOGP] = column


def fill(episode: SingleAgentEpisode, columns: Mapping[str, Any], *, num_steps: int) -> None:
    """Gives an episode, whose chunk was recorded elsewhere, its columns.

    Args:
        episode: as it was before the chunk's steps; what it knows of earlier chunks stays.
        columns: as of `Fragment.chunk` or `Fragment.lists`.
        num_steps: of the chunk.
    """
    earlier = episode.earlier_return
    episode.fill_columns(
        **columns,
        observation_space=episode.observation_space,
        action_space=episode.action_space,
    )
    episode.earlier_return = earlier
    episode.t = episode.t_started + num_steps

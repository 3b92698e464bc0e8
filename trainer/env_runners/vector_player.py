"""Plays a vector env that steps all its sub-envs in one call (`envs.native_vector_env`).

Episodes are recorded in one of two ways, with the same bytes:

    as columns      of all sub-envs side by side (`column_recording`): the price of a step is that
                    of NumPy's calls, shared by all sub-envs
    one by one      sub-env by sub-env, as for other envs: where code of users has to see an episode
                    while it runs, or where an observation or an action is no single array

Measured for 64 CartPoles and two layers of 64 units, recording as columns makes the steps of a
request 2 to 3 times as fast.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from trainer.env_runners.acting import Choice, Rows
from trainer.env_runners.column_recording import ColumnRecording, UnseenEpisode, fill
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import (
    STEPPING,
    Assignment,
    RunnerParts,
    SampleRequest,
    SlotPosition,
)
from trainer.env_runners.single_agent_player import SingleAgentPlayer
from trainer.env_runners.sub_env_repair import make_native_vector_env
from trainer.envs.env_checks import check_step
from trainer.envs.native_vector_env import NativeVectorEnv, VectorStep
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import ACTION_LOGP
from trainer.episodes.episode_state import is_bare
from trainer.episodes.fragment import Fragment, FragmentEpisode, RowRange, own_memory
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.errors import EnvContractError
from trainer.metrics import EpisodeRecord
from trainer.metrics.statistic import exact_partials, rounded_sum
from trainer.runtime.engine import Signals
from trainer.seeding import Role, evaluation_index, training_index
from trainer.types import Array
from trainer_toolkit.interrupts import signals_deferred

_LOGGER = logging.getLogger(__name__)

_ROOM_FOR_RESETS: Final = 1.125
"""Rows of a fragment per row that is asked for: in NEXT_STEP mode, resets take some."""


class VectorPlayer(SingleAgentPlayer):
    """Like `SingleAgentPlayer`, with one call of `step` for all sub-envs.

    Sub-envs cannot be stepped, held or reset one by one. So:

    - Env steps are counted over all: a request ends with the step of all sub-envs in which it has
      what was asked for, which may be some more.
    - An episode begins when the vector env begins one. A sub-env whose slot has nothing to play
      goes on without being recorded, until it is due.
    - If no slot has a running episode when a request begins, all sub-envs are reset, with the seed
      of the first episode that starts.
    """

    def __init__(self, runner: RunnerParts, *, signals: Signals | None) -> None:
        super().__init__(runner, signals=signals)
        why_not = self._why_not_as_columns()
        self._records_columns = not why_not
        if why_not and self._spec.worker_index <= 1 and not self._spec.in_evaluation:
            _LOGGER.info(
                "The sub-envs of the vector env %r are recorded one by one, because %s; columns "
                "of all of them would be faster.",
                self._spec.env_factory.name,
                why_not,
            )

    def _why_not_as_columns(self) -> str:
        """What keeps requests from being recorded as columns; empty if nothing does."""
        policy = self.policy
        reasons = {
            "a callback listens to on_episode_step": self._listens_to_steps,
            "a callback listens to on_postprocess_trajectory": self._trajectories is not None,
            "observations or actions are no single arrays": not self._whole.holds_arrays,
            "they have tasks": any(slot.tasks is not None for slot in self.slots),
            "the network has memory": policy.state_form is not None,
            "noise on weights differs from sub-env to sub-env": policy.strategy is not None
            and policy.strategy.perturbs_weights,
        }
        return " and ".join(reason for reason, holds in reasons.items() if holds)

    @property
    def _whole(self) -> NativeVectorEnv:
        env: NativeVectorEnv = self._runner.env  # type: ignore[assignment]
        return env

    def replace_envs_that_cannot_go_back(self, positions: Sequence[SlotPosition]) -> None:
        """Makes the whole vector env anew if a sub-env is to stand as it was made."""
        pairs = zip(self.slots, positions, strict=True)
        if not any(slot.needs_other_env(position) for slot, position in pairs):
            return
        self._whole.close()
        whole = make_native_vector_env(self._runner, is_recreated=True)
        self._runner.env = whole
        for slot, env in zip(self.slots, whole.envs, strict=True):
            slot.take_env(env)

    def put_back(self, slot: EnvSlot, position: SlotPosition) -> bool:
        """See `EpisodePlayer.put_back`; the first slot brings the whole vector env back."""
        if slot.index == 0 and position.env_state is None:
            self._whole.must_reset = True
        return super().put_back(slot, position)

    def play(self, request: SampleRequest) -> list[Any]:
        self._due: list[EnvSlot] = []
        self._ended: list[EnvSlot] = []
        self._must_reset_if_idle()
        asked = self._asked_together(request)
        if self._can_be_columns(asked):
            return self._play_columns(asked)
        return super().play(asked)

    def _asked_together(self, request: SampleRequest) -> SampleRequest:
        """The request with env steps counted over all slots."""
        shares = [assignment.num_env_steps for assignment in request.assignments]
        given = [share for share in shares if share is not None]
        self._counts_together = len(given) == len(shares) <= len(self.slots)
        self._is_complete = not self._counts_together
        self._steps_to_go = 0
        if not self._counts_together:
            return request
        self._steps_to_go = total = sum(given)
        return replace(
            request,
            assignments=tuple(
                replace(assignment, num_env_steps=total) for assignment in request.assignments
            ),
        )

    def _give_up_episodes(self) -> None:
        super()._give_up_episodes()
        self._must_reset_if_idle()

    def _must_reset_if_idle(self) -> None:
        if all(slot.episode is None for slot in self.slots):
            self._whole.must_reset = True

    # ---- who plays

    def _starts(self, slot: EnvSlot) -> bool:
        if self._whole.is_fresh(slot.index):
            return super()._starts(slot)
        self._due.append(slot)
        return False

    def _take_up(self, slots: Sequence[EnvSlot], waiting: deque[Assignment]) -> list[EnvSlot]:
        active = super()._take_up(slots, waiting)
        return self._joined(active) if len(slots) > 1 or len(self.slots) == 1 else active

    def _after_step(
        self, active: list[EnvSlot], waiting: deque[Assignment], samples: list[list[Any]]
    ) -> list[EnvSlot]:
        if self._listens_to_steps or self._is_complete:
            return self._joined(super()._after_step(active, waiting, samples))
        # Most of many sub-envs just go on: they are not looked at (a third of the time, at 64).
        ended, self._ended = self._ended, []
        going_on = [slot for slot in active if slot not in ended] if ended else active
        begun = super()._after_step(ended, waiting, samples)
        return self._joined(sorted([*going_on, *begun], key=_index_of) if begun else going_on)

    def _joined(self, active: list[EnvSlot]) -> list[EnvSlot]:
        """Those who play, with those whose sub-env has begun another episode."""
        self._due = [slot for slot in self._due if not slot.has_finished]
        while self._due:
            ready = [slot for slot in self._due if self._whole.is_fresh(slot.index)]
            self._due = [slot for slot in self._due if slot not in ready]
            for slot in ready:
                self._start_episode(slot)
            active = sorted([*active, *ready], key=_index_of)
            if active:
                break
            self._step_whole([], [])
        return active

    # ---- steps

    def _step_whole(self, active: list[EnvSlot], actions: list[Any]) -> VectorStep:
        """One step of all sub-envs, with these actions where an agent plays."""
        whole = self._whole
        if len(active) == len(self.slots):
            return whole.step_all(actions)
        batch = [whole.no_action] * len(self.slots)
        for slot, action in zip(active, actions, strict=True):
            batch[slot.index] = action
        return whole.step_all(batch)

    def _step(self, active: list[EnvSlot], actions: list[Any], outputs: list[Any] | None) -> bool:
        """One step of the vector env; whether some episode or the request came to its end."""
        self._slot_at_work = active[0]
        given = actions
        if self.policy.needs_decoding:
            given = [self.policy.to_env(action) for action in actions]
        step = self._step_whole(active, given)
        if self._must_check_step:
            self._check_whole(step, active[0].index)
        needs_attention = bool(self._due)
        observations, rewards = step.observations, step.rewards.tolist()
        terminateds, truncateds = step.terminateds.tolist(), step.truncateds.tolist()
        keeps_apart, has_infos = self._keeps_apart, step.has_infos
        for row, slot in enumerate(active):
            index = slot.index
            observation, is_last = observations[index], terminateds[index] or truncateds[index]
            if is_last and self._whole.gives_next_observation:
                observation = step.last_observation(index)
            slot.observation = observation
            info = step.info(index, is_last=is_last) if has_infos else {}
            if keeps_apart:
                slot.keep_apart(observation, actions[row])
            if outputs is not None:
                slot.record(observation, actions[row], rewards[index], info, outputs[row])
            else:
                slot.record_random_step(observation, actions[row], rewards[index], info)
            slot.steps_left -= 1
            if is_last:
                slot.episode.end(  # type: ignore[union-attr]
                    terminated=terminateds[index], truncated=truncateds[index]
                )
                needs_attention = True
                self._ended.append(slot)
        self.num_env_steps += len(active)
        self.tick()
        return self._counted(len(active)) or needs_attention

    def _counted(self, num_steps: int) -> bool:
        """Counts env steps; whether there are as many as were asked for."""
        if not self._counts_together:
            return any(slot.steps_left <= 0 for slot in self.slots)
        self._steps_to_go -= num_steps
        if self._steps_to_go > 0:
            return False
        self._is_complete = True
        for slot in self.slots:
            slot.steps_left = 0
        return True

    def _check_whole(self, step: VectorStep, index: int) -> None:
        """Checks the first answer, in one sub-env."""
        self._must_check_step = False
        if self._spec.checks_env:
            parts = (
                step.observations[index],
                step.rewards.tolist()[index],
                bool(step.terminateds[index]),
                bool(step.truncateds[index]),
                step.info(index, is_last=False),
            )
            space = self._runner.env.single_observation_space
            check_step(parts, space, name=self._spec.env_factory.name)

    # ---- recorded as columns

    def _can_be_columns(self, request: SampleRequest) -> bool:
        assignments = request.assignments
        return (
            self._records_columns
            and self._steps_to_go > 0
            and len(assignments) == len(self.slots)
            and not request.random_actions
            and not any(assignment.whole_episodes for assignment in assignments)
            and all(has_outputs(slot.episode, self.policy.outputs) for slot in self.slots)
        )

    def _play_columns(self, request: SampleRequest) -> list[Any]:
        """Plays what is asked; see `play`."""
        self.tick()
        if request.force_reset:
            self._give_up_episodes()
        explore = self._spec.explore if request.explore is None else request.explore
        acting = ActingRequest(request.timestep, explore)
        self.policy.refresh()
        for slot, assignment in zip(self.slots, request.assignments, strict=True):
            slot.assign(assignment)
        recording, carried = self._new_recording()
        samples: list[list[Any]] = [[] for _ in self.slots]
        try:
            for slot in carried:  # from here on, only the recording has their episodes
                slot.episode = None
            while self._steps_to_go > 0:
                if recording.num_running == 0:
                    self._step_unplayed(recording)
                else:
                    self._step_columns(recording, samples, acting)
            return self._hand_out_columns(recording, samples)
        except BaseException:
            with signals_deferred():
                self._settle_as_played(recording)
            raise

    def _new_recording(self) -> tuple[ColumnRecording, list[EnvSlot]]:
        """Begins where the slots stand, with the episodes of those sub-envs that are fresh.

        Returns:
            the recording, and the slots whose episodes are no objects while it goes on.
        """
        carried: set[int] = set()
        hears_nothing = not (self._events.listens_to_begins or self._events.listens_to_ends)
        for slot in self.slots:
            if slot.episode is not None and hears_nothing and is_plain(slot.episode):
                carried.add(slot.index)
            elif slot.episode is not None:
                self._go_on(slot, slot.episode)
            elif self._whole.is_fresh(slot.index):
                self._start_episode(slot)
        playing = [(slot, slot.episode) for slot in self.slots if slot.episode is not None]
        num_rows = -(-self._steps_to_go // len(self.slots))
        recording = ColumnRecording(
            self.slots,
            self._whole.observations,
            num_carried=max((num_carried(episode) for _, episode in playing), default=0),
            num_rows=int(num_rows * _ROOM_FOR_RESETS) + 2,
            noise_width=self.policy.noise_width,
        )
        heads = [(slot, episode) for slot, episode in playing if slot.index in carried]
        recording.carry(heads, now_s=time.perf_counter())
        for slot, episode in playing:
            if slot.index not in carried:
                recording.go_on(slot, episode)
        self.activity.doing(STEPPING)
        return recording, [slot for slot, _ in heads]

    def _step_columns(
        self, recording: ColumnRecording, samples: list[list[Any]], request: ActingRequest
    ) -> None:
        """One step of the vector env, and what ends and begins with it.

        The hot loop of vector envs: all that is done here per sub-env and not per step must wait
        for the end of an episode.
        """
        whole, begun_at = self._whole, time.perf_counter()
        plays = recording.is_running if recording.num_running < len(self.slots) else None
        noise = recording.noise()
        actions, outputs, _ = self._choose(recording.observations, noise, plays, request)
        given: Any = self.policy.to_env(actions) if self.policy.needs_decoding else actions
        if plays is not None:
            given = np.array(given)
            given[~plays] = whole.no_action
        acted_at = time.perf_counter()
        step = whole.step_all(given)
        if self._must_check_step:
            self._check_whole(step, int(recording.is_running.argmax()))
        recording.write(actions, outputs, step)
        if step.has_infos:
            recording.note_infos(step, apart=whole.resets_at_once)
        self.num_env_steps += recording.num_running
        self.tick()
        self._counted(recording.num_running)
        now = time.perf_counter()
        self._inference_s += acted_at - begun_at
        self._stepping_s += now - acted_at
        ended = np.flatnonzero(step.ended & recording.is_running).tolist()
        resets_at_once = whole.resets_at_once
        for index in ended:
            if resets_at_once or self.slots[index].episode is not None:
                self._end_in_columns(recording, index, step)
        for index in ended:  # all have ended before a callback may raise
            self._hand_out_ended(recording, samples, index, step, now)
            if resets_at_once:
                self._begin_in_columns(recording, index, now)
        if not resets_at_once and recording.num_running < len(self.slots):
            self._begin_fresh(recording, now)

    def _choose(
        self, observations: Array, noise: Array, plays: Array | None, request: ActingRequest
    ) -> Choice:
        """The choice for all sub-envs; what stands in rows of those that do not play means nothing.

        Without a strategy, these are computed, too: the others don't notice.

        Args:
            observations: of all sub-envs, [S, …]; those that do not play may show anything.
            noise: their random numbers of this step, [S, W].
            plays: which of them play, bool [S]; None for all.
            request: how to act.

        Raises:
            EnvContractError: an observation does not belong to its space; names the sub-env.
        """
        policy, rows = self.policy, self._indices
        if plays is None or policy.strategy is None:
            try:
                return policy.choose(Rows(observations, noise, rows), request)
            except EnvContractError:
                pass  # it is of a sub-env that does not play, or comes again below
        if plays is not None:
            rows = np.flatnonzero(plays).tolist()
        try:
            choice = policy.choose(Rows(observations[rows], noise[rows], rows), request)
        except EnvContractError:
            for index in rows:
                self._check_observation(index, observations[index])
            raise

        def spread(column: Array) -> Array:
            whole = np.zeros((len(observations), *column.shape[1:]), column.dtype)
            whole[rows] = column
            return whole

        outputs = {name: spread(column) for name, column in choice.outputs.items()}
        return Choice(spread(choice.actions), outputs)

    def _check_observation(self, index: int, observation: Any) -> None:
        """Raises an EnvContractError that names the sub-env unless this can be encoded."""
        try:
            self.policy.encoded([observation], [index])
        except EnvContractError as error:
            raise EnvContractError(f"Sub-env {index} of the vector env: {error}") from error

    def _step_unplayed(self, recording: ColumnRecording) -> None:
        """A step in which no agent plays, such as the reset of all."""
        begun_at = time.perf_counter()
        self._step_whole([], [])
        recording.leave_out(self._whole.observations)
        self.tick()
        now = time.perf_counter()
        self._stepping_s += now - begun_at
        self._begin_fresh(recording, now)

    def _begin_fresh(self, recording: ColumnRecording, now_s: float) -> None:
        for index in np.flatnonzero(self._whole.fresh & ~recording.is_running).tolist():
            self._begin_in_columns(recording, index, now_s)

    def _begin_in_columns(self, recording: ColumnRecording, index: int, now_s: float) -> None:
        """Begins the next episode of a fresh sub-env, if the request goes on."""
        if self._steps_to_go <= 0:
            return
        slot = self.slots[index]
        if self._events.listens_to_begins or self._events.listens_to_ends:
            self._start_episode(slot)
            if slot.episode is not None:
                recording.go_on(slot, slot.episode)
            self.activity.doing(STEPPING)
            return
        stream = slot.assignment.stream
        if self._signals is not None:
            self.activity.episode_begins(
                index, stream=stream, number=slot.episode_number, seed=self._seed_of(slot)
            )
            self.activity.doing(STEPPING)
        slot.begin_unseen()
        recording.begin(slot, now_s=now_s)
        info = self._whole.first_info(index)
        if info:
            recording.fragment.infos[index, recording.row] = info

    def _seed_of(self, slot: EnvSlot) -> int:
        """The seed of the slot's episode: vector envs use that of their first one only."""
        spec, stream, number = self._spec, slot.assignment.stream, slot.episode_number
        if spec.role is Role.EVALUATION:
            return self._seeds.seed(spec.role, evaluation_index(stream, number))
        return self._seeds.seed(spec.role, training_index(stream, number, spec.num_slots))

    def _end_in_columns(self, recording: ColumnRecording, index: int, step: VectorStep) -> None:
        """Ends the episode of a sub-env, if it is an object, with the step that was recorded."""
        slot, whole = self.slots[index], self._whole
        if whole.resets_at_once:
            last = (
                step.last_observation(index)
                if whole.gives_next_observation
                else step.observations[index]
            )
            recording.note_apart(index, last, whole.observations[index])
        episode = slot.episode
        if episode is None:
            return
        span, fragment = recording.end(slot), recording.fragment
        # Callbacks of `on_episode_end` find lists, as with every other env.
        columns = fragment.lists(span) if self._keeps_chunks else fragment.chunk(span)
        fill(episode, columns, num_steps=span.stop - span.begin)
        episode.end(
            terminated=bool(step.terminateds[index]), truncated=bool(step.truncateds[index])
        )

    def _hand_out_ended(
        self,
        recording: ColumnRecording,
        samples: list[list[Any]],
        index: int,
        step: VectorStep,
        now_s: float,
    ) -> None:
        """Hands out an episode that has ended, after its events; notes it if it is no object."""
        slot = self.slots[index]
        if slot.episode is None:
            ends = bool(step.terminateds[index]), bool(step.truncateds[index])
            has_head = recording.heads[index] is not None
            recording.end_unseen(slot, ends, now_s=now_s)
            if has_head:
                slot.finish()
            else:
                slot.episode_number += slot.assignment.stride
            return
        self._finish_unseen(recording, samples)  # those that ended before
        self._slot_at_work = slot
        samples[index].append(self._end_episode(slot, slot.episode))
        self._slot_at_work = None
        self.activity.doing(STEPPING)

    def _finish_unseen(self, recording: ColumnRecording, samples: list[list[Any]]) -> None:
        """Makes objects and records of the episodes that were not seen."""
        if not recording.unseen:
            return
        rewards, module_id = recording.fragment.rewards, self._spec.module_specs.only_id
        add, of_plain = self.finished.add, EpisodeRecord.of_plain
        for unseen in recording.unseen:
            sub_env, _, begin, stop = unseen.span
            episode = self._make_unfilled_episode(recording.fragment, unseen)
            samples[sub_env].append(episode)
            paid = rewards[sub_env, begin:stop].tolist()
            if unseen.head is not None:
                paid = [*unseen.head.earlier_return, *paid]
            record = of_plain(
                episode.id_,
                episode_return=rounded_sum(paid),
                length=episode.t,
                duration_s=unseen.elapsed_s,
                module_id=module_id,
            )
            add(sub_env, unseen.number, record)
        recording.unseen.clear()

    def _make_unfilled_episode(self, fragment: Fragment, unseen: UnseenEpisode) -> FragmentEpisode:
        """An episode as an object; its columns are filled in when it is looked at."""
        index, head = unseen.span.sub_env, unseen.head
        env = self._runner.env
        attributes = {
            "is_terminated": unseen.ends[0],
            "is_truncated": unseen.ends[1],
            "elapsed_s": unseen.elapsed_s,
            "env_id": index,
            "_player": self._as_player,
        }
        if head is None:
            attributes["id_"] = self._id_of(self.slots[index], unseen.number)
        else:
            attributes["id_"], attributes["t_started"] = head.id_, head.t_started
            attributes["earlier_return"] = head.earlier_return
        spaces = (env.single_observation_space, env.single_action_space)
        return FragmentEpisode.of(fragment, unseen.span, spaces, attributes)

    def _hand_out_columns(self, recording: ColumnRecording, samples: list[list[Any]]) -> list[Any]:
        """Cuts the running episodes and brings all that was played into its final form."""
        recording.add_logp(self.policy.logp)
        self._finish_unseen(recording, samples)
        tail = None
        if recording.fragment.is_plain and recording.fragment.actions is not None:
            but = {ACTION_LOGP} - set(self.policy.outputs)
            tail = recording.tail(self._spec.lookback, but=but)
        with signals_deferred():  # an interrupt finds each slot before its cut or behind it
            chunks = self._cut_running_episodes(recording, samples, tail)
        episodes = [episode for of_slot in samples for episode in of_slot]
        filled = [
            episode
            for episode in episodes
            if not isinstance(episode, FragmentEpisode) or episode.fragment is None
        ]
        self._finish_columns(filled)
        for slot, chunk in chunks:
            slot.remember(chunk, keep_chunk=self._keeps_chunks)
        self._add_logp(filled)
        self._slot_at_work = None
        return episodes

    def _cut_running_episodes(
        self, recording: ColumnRecording, samples: list[list[Any]], tail: Fragment | None
    ) -> list[tuple[EnvSlot, SingleAgentEpisode]]:
        """Adds the chunks of running episodes to the samples; what goes on is in the slots again.

        Args:
            recording: what was played; no slot plays in it any more.
            samples: by slot.
            tail: the rows to rest on for an episode that is no object; None if rows say not all.

        Returns:
            the chunks that are filled, with their slots.
        """
        chunks = []
        for slot in self.slots:
            if not recording.is_running[slot.index]:
                continue
            if slot.episode is None and tail is not None:
                chunk: SingleAgentEpisode = self._cut_unfilled_episode(recording, slot, tail)
            else:
                chunk = self._fill_running_chunk(recording, slot)
                slot.cut(self._spec.lookback)
                if slot.episode is not None:
                    self._forget_logp(slot.episode)
                    own_memory(slot.episode)
                chunks.append((slot, chunk))
            samples[slot.index].append(chunk)
            recording.is_running[slot.index] = False
        return chunks

    def _forget_logp(self, episode: SingleAgentEpisode) -> None:
        """Leaves out what is computed for all steps at the end of each request."""
        if ACTION_LOGP not in self.policy.outputs:
            episode.extra_model_outputs.pop(ACTION_LOGP, None)

    def _fill_running_chunk(self, recording: ColumnRecording, slot: EnvSlot) -> SingleAgentEpisode:
        """The running chunk of a slot, with its columns; it is the slot's episode still."""
        span, episode = recording.settle(slot), slot.episode
        if episode is not None:
            fragment = recording.fragment
            columns = (fragment.copied_chunk if self._keeps_chunks else fragment.chunk)(span)
            fill(episode, columns, num_steps=span.stop - span.begin)
            return episode
        unseen = recording.running_unseen(slot, span, now_s=time.perf_counter())
        slot.episode = made = self._make_unfilled_episode(recording.fragment, unseen)
        if unseen.head is None:
            slot.env_seed = self._seed_of(slot)
        return made

    def _cut_unfilled_episode(
        self, recording: ColumnRecording, slot: EnvSlot, tail: Fragment
    ) -> FragmentEpisode:
        """Cuts an episode that is no object: returns the chunk; the slot has what goes on."""
        span, now_s = recording.settle(slot), time.perf_counter()
        unseen = recording.running_unseen(slot, span, now_s=now_s)
        chunk = self._make_unfilled_episode(recording.fragment, unseen)
        sub_env, first, begin, stop = span
        paid = recording.fragment.rewards[sub_env, begin:stop].tolist()
        if unseen.head is None:
            slot.env_seed = self._seed_of(slot)
        else:
            paid = [*unseen.head.earlier_return, *paid]
        end = tail.num_rows
        slot.episode = FragmentEpisode.resting(
            tail,
            RowRange(sub_env, end - min(end, stop - first), end, end),
            chunk.spaces,
            {
                "id_": chunk.id_,
                "is_terminated": False,
                "is_truncated": False,
                "elapsed_s": unseen.elapsed_s,
                "env_id": sub_env,
                "t_started": chunk.t,
                "earlier_return": exact_partials(paid),
                "_player": self._as_player,
            },
        )
        slot.remember_actions(recording.fragment.actions[sub_env, begin:stop].copy())
        return chunk

    def _settle_as_played(self, recording: ColumnRecording) -> None:
        """After an error: gives every slot what was recorded, so that it knows where it stands."""
        for slot in self.slots:
            episode = slot.episode
            if not recording.is_running[slot.index]:
                if episode is not None and episode.is_done:  # a callback raised before its end
                    recording.settle(slot)
                    slot.observation = nested.copied(episode.observations.data[-1])
                continue
            span = recording.settle(slot)
            head = recording.heads[slot.index]
            if episode is None and head is not None:
                slot.episode = episode = head
                head.resume()
            if episode is None:
                episode = self._make_episode(slot, self._id_of(slot, slot.episode_number), 0)
                first = recording.fragment.observations[slot.index, span.begin]
                episode.add_env_reset(first.copy(), self._whole.first_info(slot.index))
                slot.episode, slot.env_seed = episode, self._seed_of(slot)
            if span.stop > span.begin:
                columns = recording.fragment.lists(span)
                fill(episode, columns, num_steps=span.stop - span.begin)
                self._forget_logp(episode)
            self._slot_at_work = self._slot_at_work or slot

    def _id_of(self, slot: EnvSlot, number: int) -> str:
        return f"{self._role_name}-{slot.assignment.stream}-{number}"


def is_plain(episode: SingleAgentEpisode) -> bool:
    """Whether a chunk that goes on is nothing but its columns, which hold no infos, and numbers."""
    if isinstance(episode, FragmentEpisode) and episode.fragment is not None:
        return episode.is_untouched
    return (
        is_bare(episode)
        and len(episode) == 0
        and not episode.is_numpy
        and not any(episode.infos.data)
    )


def has_outputs(episode: SingleAgentEpisode | None, names: Collection[str]) -> bool:
    """Whether all steps of a running chunk have these; `random_actions` leave steps without."""
    if episode is None or (isinstance(episode, FragmentEpisode) and episode.fragment is not None):
        return True
    columns, count = episode.extra_model_outputs, episode.rewards.total
    return count == 0 or all(name in columns and columns[name].total == count for name in names)


def num_carried(episode: SingleAgentEpisode) -> int:
    """Rows that go before a running chunk's next step: its steps, look-back included, or more.

    What was cut together is taken over together, also if all of it is younger than the look-back.
    """
    if isinstance(episode, FragmentEpisode) and episode.fragment is not None:
        return episode.span.stop
    return episode.rewards.total


def _index_of(slot: EnvSlot) -> int:
    return slot.index

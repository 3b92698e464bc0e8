"""Plays a vector env that steps all its sub-envs in one call (`envs.native_vector_env`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import Assignment, SampleRequest, SlotPosition
from trainer.env_runners.single_agent_player import SingleAgentPlayer
from trainer.envs.env_checks import check_step
from trainer.envs.native_vector_env import NativeVectorEnv, VectorStep


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

    @property
    def _whole(self) -> NativeVectorEnv:
        env: NativeVectorEnv = self._runner.env  # type: ignore[assignment]
        return env

    def put_back(self, slot: EnvSlot, position: SlotPosition) -> bool:
        """See `EpisodePlayer.put_back`; the first slot brings the whole vector env back."""
        if slot.index == 0 and position.env_state is None:
            self._whole.must_reset = True
        return super().put_back(slot, position)

    def play(self, request: SampleRequest) -> list[Any]:
        """See `EpisodePlayer.play`."""
        self._due: list[EnvSlot] = []
        self._ended: list[EnvSlot] = []
        self._must_reset_if_idle()
        return super().play(self._asked_together(request))

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
        self,
        active: list[EnvSlot],
        waiting: deque[Assignment],
        samples: list[list[Any]],
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
        """One step of all sub-envs, with these actions where somebody plays."""
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
        if self._acting.needs_decoding:
            given = [self._acting.to_env(action) for action in actions]
        step = self._step_whole(active, given)
        if self._must_check_step:
            self._check_whole(step, active[0].index)
        needs_attention = bool(self._due)
        observations, rewards = step.observations, step.rewards
        terminateds, truncateds = step.terminateds, step.truncateds
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
                step.rewards[index],
                step.terminateds[index],
                step.truncateds[index],
                step.info(index, is_last=False),
            )
            space = self._runner.env.single_observation_space
            check_step(parts, space, name=self._spec.env_factory.name)


def _index_of(slot: EnvSlot) -> int:
    return slot.index

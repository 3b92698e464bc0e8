"""The loop that makes every env step of a run: plays assignments in the slots of one runner.

What one slot experiences does not depend on its neighbours: its seeds and noise come from its own
position, and the module's acting forward computes each row with the same bits whatever the other
rows are. So it makes no difference how slots are spread over runners.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from callbacks import CallbackChain
from trainer.env_runners.acting import Acting
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.observations import copied, shares_memory
from trainer.env_runners.spec import Assignment, EnvRunnerSpec, SampleRequest
from trainer.envs import VectorEnv
from trainer.envs.env_checks import check_reset, check_step
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.columns import ACTION_DIST_INPUTS
from trainer.episodes.conversion import to_numpy_together
from trainer.metrics import EpisodeRecord, MetricsLogger
from trainer.modules import RLModule
from trainer.runtime.worker_main import ProgressCounter
from trainer.seeding import (
    EnvSeeds,
    NoiseStream,
    Role,
    evaluation_index,
    position_rng,
    training_index,
)

_EPISODE_EVENTS = (
    "on_episode_created",
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
)


class RunnerParts(Protocol):
    """The parts of a runner that the loop works with."""

    spec: EnvRunnerSpec
    env: VectorEnv
    module: RLModule
    metrics: MetricsLogger
    callbacks: CallbackChain


class EpisodePlayer:
    """Steps the sub-envs of a runner side by side: one forward pass for all of them per step.

    Order of events per vector step: all sub-envs step; then, slot by slot: `on_episode_step`, and
    if the episode is over `on_episode_end`, and `on_episode_created` and `on_episode_start` of the
    next one if the slot still has to play.

    Attributes:
        slots: one per sub-env.
        records: of the finished episodes, in the order in which they ended.
        numbers: their episode numbers.
        num_env_steps: steps made.
    """

    def __init__(self, runner: RunnerParts, *, progress: ProgressCounter | None) -> None:
        """Prepares the slots.

        Args:
            runner: whose envs, module and callbacks to play with; it is what callbacks see.
            progress: shared counter that rises with every step and reset.
        """
        spec = runner.spec
        self.records: list[EpisodeRecord] = []
        self.numbers: list[int] = []
        self.num_env_steps = 0
        self._runner = runner
        self._spec = spec
        self._progress = progress
        self._seeds = EnvSeeds(spec.root_seed)
        self._acting = Acting(
            runner.module,
            normalize_actions=spec.normalize_actions,
            clip_actions=spec.clip_actions,
        )
        self.slots = [
            EnvSlot(index, env, self._noise_stream()) for index, env in enumerate(runner.env.envs)
        ]
        emitters = {event: runner.callbacks.emitter(event) for event in _EPISODE_EVENTS}
        # Events that nobody listens to are not there: they cost nothing.
        self._emitters = {event: emit for event, emit in emitters.items() if emit is not None}
        self._listens_to_steps = "on_episode_step" in self._emitters
        self._keeps_chunks = "on_episode_end" in self._emitters
        self._slot_at_work: EnvSlot | None = None
        self._must_check_reset = spec.checks_env
        self._must_check_step = True
        self._must_copy = False

    def _noise_stream(self) -> NoiseStream:
        return NoiseStream(
            self._spec.root_seed,
            self._spec.role,
            kind=self._acting.noise_kind,
            width=self._acting.noise_width,
        )

    @property
    def to_env(self) -> Callable[[Any], Any]:
        """Turns an action of the module into one of the env."""
        return self._acting.to_env

    def forget_unreported(self) -> None:
        """Forgets what was played since it was last reported."""
        self.records = []
        self.numbers = []
        self.num_env_steps = 0

    def play(self, request: SampleRequest) -> list[SingleAgentEpisode]:
        """Plays what is asked.

        Returns:
            finished episodes and chunks of running ones, ordered by slot, then time.
        """
        if request.force_reset:
            self._give_up_episodes()
        explore = self._spec.explore if request.explore is None else request.explore
        samples: list[list[SingleAgentEpisode]] = [[] for _ in self.slots]
        waiting = deque(request.assignments)
        active = self._take_up(self.slots, waiting)
        while active:
            actions, outputs = (
                self._draw_uniformly(active)
                if request.random_actions
                else self._act(active, explore=explore)
            )
            if self._step(active, actions, outputs) or self._listens_to_steps:
                active = self._after_step(active, waiting, samples)
        return self._hand_out(samples)

    def _hand_out(self, samples: list[list[SingleAgentEpisode]]) -> list[SingleAgentEpisode]:
        """Cuts the running episodes and brings all that was played into its final form."""
        chunks = [(slot, slot.cut(self._spec.lookback)) for slot in self.slots]
        for slot, chunk in chunks:
            if chunk is not None:
                samples[slot.index].append(chunk)
        episodes = [episode for of_slot in samples for episode in of_slot]
        if self._spec.episodes_to_numpy:
            to_numpy_together(episodes)
        self._acting.add_logp(episodes)
        for slot, chunk in chunks:
            if chunk is not None:
                slot.remember(chunk, keep_chunk=self._keeps_chunks)
        return episodes

    # ---- one step

    def _act(self, active: list[EnvSlot], *, explore: bool) -> tuple[list[Any], list[Any]]:
        noise = None
        if explore:
            rows = [slot.noise.next_row() for slot in active]
            noise = np.concatenate(rows).reshape(len(rows), -1)
        return self._acting.act([slot.observation for slot in active], noise)

    def _draw_uniformly(self, active: list[EnvSlot]) -> tuple[list[Any], None]:
        """Actions drawn uniformly from the action space, a function of each slot's position."""
        space = self._acting.space
        actions = []
        for slot in active:
            rng = position_rng(
                self._spec.root_seed,
                Role.EXPLORATION,
                slot.assignment.stream,
                slot.episode_number,
                slot.num_steps_played,
            )
            space.seed(int(rng.integers(2**31)))
            actions.append(space.sample())
            slot.noise.next_row()  # the stream stays in step with the episode
        return actions, None

    def _step(self, active: list[EnvSlot], actions: list[Any], outputs: list[Any] | None) -> bool:
        """One step of every active sub-env; whether some episode or assignment came to its end.

        The hot loop: at 70,000 steps/s everything here costs 14 µs per step, half of it the env's.
        """
        needs_attention = False
        to_env = self._acting.to_env if self._acting.needs_decoding else None
        must_check, must_copy = self._must_check_step, self._must_copy
        slot = active[0]
        try:
            for row, slot in enumerate(active):
                action = actions[row]
                answer = slot.env.step(action if to_env is None else to_env(action))
                if must_check:
                    must_copy |= self._check_step(answer, slot)
                observation, reward, terminated, truncated, info = answer
                if must_copy:
                    observation = copied(observation)
                slot.observation = observation
                if outputs is not None:
                    slot.record(observation, action, reward, info, outputs[row])
                else:
                    slot.record_random_step(observation, action, reward, info)
                slot.steps_left -= 1
                if terminated or truncated:
                    slot.episode.end(terminated=terminated, truncated=truncated)  # type: ignore[union-attr]
                    needs_attention = True
                elif slot.steps_left <= 0:
                    needs_attention = True
        except BaseException:
            self._slot_at_work = slot
            raise
        self._must_check_step, self._must_copy = False, must_copy
        self.num_env_steps += len(active)
        self.tick()
        return needs_attention

    def tick(self) -> None:
        """Shows that the runner makes progress."""
        if self._progress is not None:
            self._progress.value += 1

    def _check_step(self, answer: Any, slot: EnvSlot) -> bool:
        """Checks a slot's first answer; whether its observations must be copied (one buffer)."""
        if self._spec.checks_env:
            space = self._runner.env.single_observation_space
            check_step(answer, space, name=self._spec.env_factory.name)
        return shares_memory(slot.first_answer, answer[0])

    def _after_step(
        self,
        active: list[EnvSlot],
        waiting: deque[Assignment],
        samples: list[list[SingleAgentEpisode]],
    ) -> list[EnvSlot]:
        """Fires a step's events, ends and starts episodes; returns the slots that play on."""
        still_active = []
        for slot in active:
            self._slot_at_work = slot
            if self._listens_to_steps:
                self._fire("on_episode_step", slot)
            if slot.episode is not None and slot.episode.is_done:
                samples[slot.index].append(self._end_episode(slot, slot.episode))
            if slot.has_finished:
                if waiting:
                    slot.drop()
                still_active += self._take_up([slot], waiting)
                continue
            if slot.episode is None:
                self._start_episode(slot)
            still_active.append(slot)
        self._slot_at_work = None
        return still_active

    # ---- episodes

    def _take_up(self, slots: Sequence[EnvSlot], waiting: deque[Assignment]) -> list[EnvSlot]:
        """Gives slots their next assignments and starts their episodes; returns those that play."""
        active = []
        for slot in slots:
            if not waiting:
                break
            slot.assign(waiting.popleft())
            if slot.has_finished:
                continue
            active.append(slot)
            if slot.episode is None:
                self._start_episode(slot)
            else:
                slot.record = slot.episode.step_recorder(ACTION_DIST_INPUTS)
        return active

    def _start_episode(self, slot: EnvSlot) -> None:
        self._slot_at_work = slot
        spec, env = self._spec, self._runner.env
        stream, number = slot.assignment.stream, slot.episode_number
        if spec.role is Role.EVALUATION:
            index = evaluation_index(stream, number)
        else:
            index = training_index(stream, number, spec.num_slots)
        seed = self._seeds.seed(spec.role, index)
        episode = SingleAgentEpisode(
            id_=f"{spec.role.name.lower()}-{stream}-{number}",
            observation_space=env.single_observation_space,
            action_space=env.single_action_space,
        )
        slot.begin(episode, seed)
        self._fire("on_episode_created", slot)
        answer = slot.env.reset(seed=seed)
        if self._must_check_reset:
            check_reset(answer, env.single_observation_space, name=spec.env_factory.name)
            self._must_check_reset = False
        observation, infos = answer
        slot.first_answer = observation
        slot.observation = copied(observation)  # whether the env reuses its memory shows later
        episode.add_env_reset(slot.observation, infos)
        slot.record = episode.step_recorder(ACTION_DIST_INPUTS)
        self.tick()
        self._fire("on_episode_start", slot)

    def _end_episode(self, slot: EnvSlot, episode: SingleAgentEpisode) -> SingleAgentEpisode:
        if self._keeps_chunks:
            self._acting.add_logp([episode])
            self._fire("on_episode_end", slot, prev_episode_chunks=slot.earlier_chunks)
        # Made after the event, so that what it stores in the episode is reported, and before
        # `on_sample_end`, so that rewards rewritten there do not change the reported return.
        self.records.append(EpisodeRecord.from_episode(episode))
        self.numbers.append(slot.episode_number)
        slot.finish()
        return episode

    def _give_up_episodes(self) -> None:
        for slot in self.slots:
            if slot.episode is not None:
                slot.drop()
                slot.episode_number += 1

    def _fire(self, event: str, slot: EnvSlot, **more: Any) -> None:
        emit = self._emitters.get(event)
        if emit is not None:
            runner = self._runner
            emit(
                episode=slot.episode,
                env_runner=runner,
                metrics_logger=runner.metrics,
                env=runner.env,
                rl_module=runner.module,
                env_index=slot.index,
                **more,
            )

    # ---- telling

    def failure_context(self) -> dict[str, Any]:
        """Where an error happened: what a user needs to play that episode again."""
        slot = self._slot_at_work
        if slot is None:
            return {}
        context: dict[str, Any] = {"sub-env": slot.index}
        if slot.episode is not None:
            context["episode"] = slot.episode.id_
            context["step"] = slot.num_steps_played
            context["seed"] = slot.env_seed
        return context

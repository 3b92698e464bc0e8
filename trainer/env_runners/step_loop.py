"""The loop that makes every env step of a run, and what is done if a sub-env fails in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trainer.env_runners.action_source import ActionSource
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.misshapen_answers import blame_step
from trainer.env_runners.observations import copied, copied_info
from trainer.env_runners.runner_parts import RunnerParts
from trainer.env_runners.sub_env_repair import SubEnvRepair
from trainer.env_runners.whereabouts import STEPPING, Whereabouts
from trainer.envs.env_checks import check_step
from trainer.runtime.worker_main import CallSignals


class StepLoop:
    """Steps the slots of a runner; which of them play, and what, is for the `EpisodePlayer` to say.

    Attributes:
        slots: one per sub-env.
        actions: where actions come from.
        num_env_steps: steps made.
        resetting_s: seconds spent in resets so far.
        repair: mends sub-envs that fail.
        whereabouts: what it is doing.
    """

    def __init__(self, runner: RunnerParts, *, signals: CallSignals | None) -> None:
        """Prepares the slots; see `EpisodePlayer`."""
        spec = runner.spec
        self.num_env_steps, self.resetting_s = 0, 0.0
        self._runner, self._spec = runner, spec
        self._signals = signals
        self.actions = ActionSource(runner.module, spec, where=self._place_of_row)
        self._acting = self.actions.acting
        self.slots = [
            EnvSlot(
                index,
                env,
                self.actions.noise_stream(),
                runner=spec.title,
                keeps_actions=spec.sub_env_tolerance is not None,
            )
            for index, env in enumerate(runner.env.envs)
        ]
        self.whereabouts = Whereabouts(signals)
        self.repair = SubEnvRepair(runner, self.whereabouts, to_env=self.to_env, on_step=self.tick)
        self._slot_at_work: EnvSlot | None = None
        self._must_check_step = True
        # Who listens to steps may write into the running episode: only its record changes then.
        self._keeps_apart = runner.callbacks.emitter("on_episode_step") is not None

    @property
    def to_env(self) -> Callable[[Any], Any]:
        """Turns an action of the module into one of the env."""
        return self._acting.to_env

    def _place_of_row(self, active: list[EnvSlot], row: int) -> str:
        """Which observation a row is, for an error text."""
        slot = self._slot_at_work = active[row]
        episode = "none" if slot.episode is None else slot.episode.id_
        return f"the observation at step {slot.num_steps_played} of episode {episode}"

    def _step(self, active: list[EnvSlot], actions: list[Any], outputs: list[Any] | None) -> bool:
        """One step of every active sub-env; whether some episode or assignment came to its end.

        The hot loop: at 70,000 steps/s everything here costs 14 µs per step, half of it the env's.
        """
        needs_attention = False
        to_env = self._acting.to_env if self._acting.needs_decoding else None
        must_check, keeps_apart = self._must_check_step, self._keeps_apart
        slot, answer, failure = active[0], None, None
        try:
            for row, slot in enumerate(active):
                action = actions[row]
                answer = slot.env.step(action if to_env is None else to_env(action))
                if must_check:
                    self._check_step(answer)
                observation, reward, terminated, truncated, info = answer
                # Copied, for the env may reuse its memory. The usual kinds first: 0.2 µs in all.
                if type(observation) is np.ndarray:
                    slot.observation = observation = observation.copy()
                else:
                    slot.observation = observation = copied(observation)
                if type(reward) is np.ndarray:
                    reward = reward.copy()
                info = copied_info(info) if info else {}
                if keeps_apart:
                    slot.keep_apart(observation, action)
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
        except BaseException as error:
            self._slot_at_work = slot
            blame_step(error, answer, slot, name=self._spec.env_factory.name)
            if not self.repair.is_on or not isinstance(error, Exception):
                raise
            failure = error
        if failure is not None:
            return self._step_on(row, failure, active, actions, outputs) or needs_attention
        self._must_check_step = False
        self.num_env_steps += len(active)
        self.tick()
        return needs_attention

    def _step_on(
        self,
        first: int,
        error: Exception,
        active: list[EnvSlot],
        actions: list[Any],
        outputs: list[Any] | None,
    ) -> bool:
        """Goes on with a step that a sub-env failed in, sub-env by sub-env; see `_step`."""
        must_check, needs_attention = self._must_check_step, False
        self.num_env_steps += first
        for row in range(first, len(active)):
            slot, this = active[row], slice(row, row + 1)
            if row == first and not self._mend(slot, error):
                needs_attention = True  # it begins another episode
                continue
            self._must_check_step = must_check
            needs_attention |= self._step(
                active[this], actions[this], None if outputs is None else outputs[this]
            )
            if row == first and slot.episode is not None:
                self.repair.note_progress(slot)
        self._slot_at_work = None
        return needs_attention

    def _mend(self, slot: EnvSlot, error: Exception) -> bool:
        """Makes a sub-env anew; whether its episode goes on. If not, its steps are not counted."""
        is_back = self.repair.mend(slot, error)
        if not is_back:
            self.num_env_steps -= slot.give_up()
        self.whereabouts.doing(STEPPING)
        return is_back

    def tick(self) -> None:
        """Shows that the runner makes progress."""
        if self._signals is not None:
            self._signals.num_signs += 1

    def _reset(self, slot: EnvSlot) -> Any:
        """What the env answers to the reset of the slot's episode, which may be given up."""
        while slot.episode is not None:
            begun = time.perf_counter()
            try:
                return slot.reset()
            except Exception as error:  # noqa: BLE001 - raised again unless it is mended
                failure = error
            finally:
                self.resetting_s += time.perf_counter() - begun
            self._mend(slot, failure)
        return None

    def _check_step(self, answer: Any) -> None:
        """Checks the first answer."""
        if self._spec.checks_env:
            space = self._runner.env.single_observation_space
            check_step(answer, space, name=self._spec.env_factory.name)

    def failure_context(self) -> dict[str, Any]:
        """Where an error happened: what a user needs to play that episode again."""
        context = {} if self._slot_at_work is None else self._slot_at_work.failure_context()
        return {**context, "during": self.whereabouts.last} if self.whereabouts.last else context

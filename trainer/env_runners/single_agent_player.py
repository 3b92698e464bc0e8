"""Plays envs of one agent: the loop that makes every env step of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from trainer.env_runners.acting import Policy, Seat, act, policy_in_runner
from trainer.env_runners.env_slot import EnvSlot, blame_step, parts_of_reset
from trainer.env_runners.episode_player import EpisodePlayer
from trainer.env_runners.messages import RunnerParts
from trainer.env_runners.trajectories import TrajectoryEvent
from trainer.envs.env_checks import check_reset, check_rewards, check_step
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.conversion import to_numpy_together
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS
from trainer.episodes.episode_state import is_bare, weak_player
from trainer.episodes.nested import copied, copied_info
from trainer.episodes.single_agent_episode import ActingRequest, episode_to_play
from trainer.metrics import EpisodeRecord
from trainer.metrics.statistic import rounded_sum
from trainer.modules import ByModule
from trainer.runtime.engine import Signals
from trainer.types import DEFAULT_AGENT_ID


class SingleAgentPlayer(EpisodePlayer):
    """Steps sub-envs of one agent each side by side; see `EpisodePlayer`.

    Attributes:
        policy: what acts.
    """

    policy: Policy
    _trajectories: TrajectoryEvent | None

    def __init__(self, runner: RunnerParts, *, signals: Signals | None) -> None:
        super().__init__(runner, signals=signals)
        # Usually all act: to list them anew at every step took 1 µs.
        self._seats = [slot.seat for slot in self.slots]
        self._indices = list(range(len(self.slots)))
        self._as_player = weak_player(runner)
        self._must_check_reset = runner.spec.checks_env

    def _make_policies(self) -> ByModule[Policy]:
        spec = self._spec
        self.policy = policy_in_runner(self._runner.module, spec, where=self._place_of)
        return ByModule({spec.module_specs.only_id: self.policy})

    def _make_slot(self, index: int, env: gymnasium.Env[Any, Any]) -> EnvSlot:
        seat = Seat(index, root_seed=self._spec.root_seed, role=self._spec.role)
        seat.take(self.policy)
        return EnvSlot(
            index,
            env,
            seat,
            runner=self._spec.title,
            keeps_actions=self._spec.sub_env_tolerance is not None,
        )

    def _make_trajectories(self) -> TrajectoryEvent | None:
        return TrajectoryEvent.of(self._runner, logp=self.policy.logp_in)

    @property
    def to_env(self) -> Callable[[Any], Any]:
        """Turns an action of the module into one of the env."""
        return self.policy.to_env

    def steps_by_id(self) -> dict[str, Any]:
        """Every env step is one of the agent and of its module."""
        return {
            "num_agent_steps": {DEFAULT_AGENT_ID: self.num_env_steps},
            "num_module_steps": {self._spec.module_specs.only_id: self.num_env_steps},
        }

    # ---- episodes

    def _make_episode(self, slot: EnvSlot, id_: str, index: int) -> SingleAgentEpisode:
        del index
        env = self._runner.env
        return episode_to_play(
            id_,
            observation_space=env.single_observation_space,
            action_space=env.single_action_space,
            player=self._as_player,
            env_id=slot.index,
        )

    def _take_reset(self, slot: EnvSlot, episode: SingleAgentEpisode, answer: Any) -> None:
        name = self._spec.env_factory.name
        if self._must_check_reset:
            check_reset(answer, self._runner.env.single_observation_space, name=name)
            self._must_check_reset = False
        observation, infos = parts_of_reset(answer, slot, name=name)
        if not self._events.listens_to_begins:
            slot.observation = copied(observation)
            infos = copied_info(infos) if infos else {}
            slot.record = episode.begun(slot.observation, infos, self.policy.outputs)
            return
        slot.observation = copied(observation)
        # Another copy: listeners may write into what is recorded.
        episode.add_env_reset(copied(observation), copied_info(infos))
        slot.record = episode.step_recorder(*self.policy.outputs)

    def _go_on(self, slot: EnvSlot, episode: SingleAgentEpisode) -> None:
        if episode.player is not self._runner:  # another one after a restore
            episode.note_player(self._runner, slot.index)
        slot.record = episode.step_recorder(*self.policy.outputs)

    def _finish_columns(self, episodes: Sequence[SingleAgentEpisode]) -> None:
        check_rewards(episodes, name=self._spec.env_factory.name)
        to_numpy_together(episodes)

    def _record_of(self, episode: SingleAgentEpisode) -> EpisodeRecord:
        if is_bare(episode):
            return EpisodeRecord.of_plain(
                episode.id_,
                episode_return=rounded_sum([*episode.earlier_return, *episode.rewards_list()]),
                length=episode.t,
                duration_s=episode.stopwatch.elapsed_s,
                module_id=self._spec.module_specs.only_id,
            )
        return EpisodeRecord.from_episode(episode, module_id=self._spec.module_specs.only_id)

    # ---- the loop over env steps

    def _place_of(self, index: int) -> str:
        """Which observation the newest of a slot is, for an error text."""
        slot = self._slot_at_work = self.slots[index]
        episode = "none" if slot.episode is None else slot.episode.id_
        return f"the observation at step {slot.num_steps_played} of episode {episode}"

    def _act(self, active: list[EnvSlot], request: ActingRequest) -> tuple[list[Any], list[Any]]:
        policy, seats, indices, count = self.policy, self._seats, self._indices, len(active)
        if count < len(seats):
            seats, indices = [slot.seat for slot in active], [slot.index for slot in active]
        choice = act(
            policy,
            seats,
            [slot.observation for slot in active],
            request,
            slots=indices,
            episodes=[slot.episode for slot in active] if policy.previous_steps.names else (),
        )
        given = choice.outputs
        if len(given) == 1:
            outputs = nested.unstack(given[ACTION_DIST_INPUTS], count)
        else:
            columns = [nested.unstack(column, count) for column in given.values()]
            outputs = list(zip(*columns, strict=True))
        return nested.unstack(choice.actions, count), outputs

    def _draw_uniformly(self, active: list[EnvSlot]) -> tuple[list[Any], None]:
        policy, actions = self.policy, []
        for slot in active:
            seat, assignment = slot.seat, slot.assignment
            rng = seat.uniform_rng(assignment.stream, slot.episode_number, slot.num_steps_played)
            actions.append(policy.draw_uniformly(slot.observation, rng, slot=seat.index))
            policy.pass_over(seat.index, seat.noise.next_row())  # in step with the episode
        return actions, None

    def _add_logp(self, episodes: Sequence[SingleAgentEpisode]) -> None:
        self.policy.add_logp(episodes)

    def _step(self, active: list[EnvSlot], actions: list[Any], outputs: list[Any] | None) -> bool:
        """One step of every active sub-env; whether some episode or assignment came to its end.

        The hot loop: at 70,000 steps/s everything here costs 14 µs per step, half of it the env's.
        """
        needs_attention = False
        to_env = self.policy.to_env if self.policy.needs_decoding else None
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

    def _check_step(self, answer: Any) -> None:
        """Checks the first answer."""
        if self._spec.checks_env:
            space = self._runner.env.single_observation_space
            check_step(answer, space, name=self._spec.env_factory.name)

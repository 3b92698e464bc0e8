"""One sub-env of a runner and the episode that runs in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from trainer.connectors import ConnectedEnv
from trainer.env_runners.messages import Assignment, SlotPosition
from trainer.env_runners.slot_env_state import Replay, SlotEnvState, SlotTasks, copied
from trainer.envs.env_checks import check_reset_form, check_step_form
from trainer.envs.tasks import TaskInForce
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import ACTIONS
from trainer.errors import EnvContractError
from trainer.seeding import NoiseStream, Role, position_rng
from trainer.types import State

# ---- env slot


class EnvSlot:
    """A sub-env, its running episode and what it still has to play.

    Life of an episode: `begin` (a number and a seed), then steps made by the runner, then `finish`;
    in between, at the end of each request, `cut`.

    Attributes:
        index: number of the sub-env in its runner.
        env: the sub-env.
        noise: the random numbers of its actions.
        episode: the running chunk; None between two episodes.
        record: appends a step to it (`SingleAgentEpisode.step_recorder`).
        observation: the newest observation, as the env gave it; its memory belongs to the slot.
        episode_number: of the running episode, or else of the next one.
        env_seed: seed of the running episode; None if none runs.
        steps_left: env steps that the assignment still asks for; infinite if it counts episodes.
        episodes_left: episodes that it still asks for; infinite if it counts steps.
        connected: the sub-env if it has connector pieces beside it, else None.
        earlier_chunks: finished chunks of the running episode, for `on_episode_end`.
        tasks: of the sub-env; None if it has none.
        agent_position: of the one who acts; see `agent_position`.
        memory: of a network with memory: its state after the last action of the running episode;
            None before the first one.
    """

    agent_position: tuple[int, ...] = ()

    def __init__(
        self,
        index: int,
        env: gymnasium.Env[Any, Any],
        noise: NoiseStream,
        *,
        runner: str = "a runner",
        keeps_actions: bool = False,
    ) -> None:
        self.index = index
        self.env = env
        self._where = f"sub-env {index} of {runner}"
        self.tasks = SlotTasks.of(env, where=self._where)
        self._env_state = SlotEnvState(env)
        self.connected = env if isinstance(env, ConnectedEnv) else None
        self.noise = noise
        self.episode: SingleAgentEpisode | None = None
        self.record: Callable[..., None] = _no_episode
        self.observation: Any = None
        self.episode_number = 0
        self.env_seed: int | None = None
        self.memory: Any = None
        self.assignment = Assignment(stream=0, num_env_steps=0)
        self.steps_left: float = 0
        self.episodes_left: float = 0
        self.earlier_chunks: list[SingleAgentEpisode] = []
        self._actions_apart: list[Any] = []
        self._new_actions: list[Any] = []
        self._new_chunks: list[SingleAgentEpisode] = []
        # Of the running episode's finished chunks, if it may have to be played again in here.
        self._old_actions: list[Any] | None = [] if keeps_actions else None
        self._continues = False

    @property
    def num_steps_played(self) -> int:
        """Steps of the running episode, over all its chunks."""
        return self.episode.t if self.episode is not None else 0

    def failure_context(self) -> dict[str, Any]:
        """What a user needs to play the running episode again, for messages."""
        context: dict[str, Any] = {"sub-env": self.index}
        if self.episode is not None:
            context["episode"] = self.episode.id_
            context["step"] = self.num_steps_played
            context["seed"] = self.env_seed
        if self.tasks is not None:
            context["task"] = self.tasks.now
        return context

    def exploration_rng(self, root_seed: int) -> np.random.Generator:
        """Random numbers for an action that no module chooses: they follow from the position."""
        return position_rng(
            root_seed,
            Role.EXPLORATION,
            self.assignment.stream,
            self.episode_number,
            self.num_steps_played,
        )

    def assign(self, assignment: Assignment) -> None:
        """Takes up what to play next; a running episode goes on."""
        self.assignment = assignment
        self.steps_left = math.inf if assignment.num_env_steps is None else assignment.num_env_steps
        self.episodes_left = (
            math.inf if assignment.num_episodes is None else assignment.num_episodes
        )
        if assignment.ticket is not None:
            self.episode_number = assignment.ticket

    @property
    def has_finished(self) -> bool:
        """Whether the assignment is fulfilled; a running episode may have to end first."""
        if self.episodes_left <= 0:
            return True
        return self.steps_left <= 0 and not (
            self.assignment.whole_episodes and self.episode is not None
        )

    def begin(self, episode: SingleAgentEpisode, env_seed: int) -> None:
        """Gives the slot a new episode; the env is not reset yet."""
        self.episode = episode
        self.env_seed = env_seed
        self.memory = None
        self.noise.start(self.assignment.stream, self.episode_number)
        self._continues = False

    def record_random_step(
        self, observation: Any, action: Any, reward: Any, info: dict[str, Any]
    ) -> None:
        """Records a step that no module chose: it has no outputs, so there may be no column."""
        if self.episode is None:
            _no_episode()
            return
        self.episode.extra_model_outputs.clear()
        self.episode.append_step(observation, action, reward, info, False, False, None)

    def keep_apart(self, observation: Any, action: Any) -> None:
        """Keeps copies of what was seen and done, for callbacks may write into what is recorded."""
        self.observation = copied(observation)
        self._actions_apart.append(copied(action))

    def _played_in(self, chunk: SingleAgentEpisode) -> Any:
        """The actions of the running chunk as they were played: callbacks may rewrite its own."""
        return nested.batch_copy(self._actions_apart or chunk.get_actions(), name=ACTIONS)

    def finish(self) -> None:
        """Closes the running episode; the next one gets the next number."""
        self.drop()
        self.episode_number += self.assignment.stride
        self.episodes_left -= 1

    def drop(self) -> None:
        """Forgets the running episode."""
        self.episode = None
        self.env_seed = None
        self.memory = None
        self.earlier_chunks = []
        self._actions_apart = []
        self._new_actions = []
        self._new_chunks = []
        if self._old_actions:
            self._old_actions = []
        self._continues = False
        if self.tasks is not None:
            self.tasks.end_episode()

    def give_up(self) -> int:
        """Abandons the running episode; the next one gets the next number.

        Returns:
            how many of its steps were made for the assignment, which therefore asks for them again.
        """
        num_steps = 0 if self.episode is None else len(self.episode)
        self.steps_left += num_steps
        self.drop()
        self.episode_number += self.assignment.stride
        return num_steps

    def reset(self) -> Any:
        """Resets the env with the episode's seed; gives what it answers."""
        self._env_state.before_reset(keeps_state=self._old_actions is not None)
        self._env_state.episode_begins()
        if self.tasks is not None:
            self.tasks.begin_episode()
        return self.env.reset(seed=self.env_seed)

    def notice_task(self) -> None:
        """Notes the task of the sub-env if somebody changed it."""
        if self.tasks is not None:
            self.tasks.notice(self.num_steps_played)
            self._note_task(self.tasks)

    def set_task(self, task: Any) -> None:
        """Sets the task of the sub-env, where it stands."""
        if self.tasks is not None:
            self.tasks.set(task, self.num_steps_played)
            self._note_task(self.tasks)

    def _note_task(self, tasks: SlotTasks) -> None:
        if self.episode is None:
            tasks.end_episode()
        elif self.num_steps_played == 0:  # its first step will be made under this task
            self.episode.task = tasks.now

    def cut(self, lookback: int) -> SingleAgentEpisode | None:
        """Ends the running chunk and goes on with a successor.

        Args:
            lookback: steps that the successor keeps in front.

        Returns:
            the chunk; None if there is none or it has no step.
        """
        chunk = self.episode
        if chunk is None or len(chunk) == 0:
            return None
        self.episode = chunk.cut(len_lookback_buffer=lookback)
        return chunk

    def remember(self, chunk: SingleAgentEpisode, *, keep_chunk: bool) -> None:
        """Keeps what a replay needs of a chunk that was cut, and the chunk itself if wanted.

        Args:
            chunk: as it will be handed out.
            keep_chunk: `on_episode_end` will want to see it.
        """
        actions = self._played_in(chunk)
        self._actions_apart = []
        self._new_actions.append(actions)
        if self._old_actions is not None:
            self._old_actions.append(actions)
        if keep_chunk:
            self.earlier_chunks.append(chunk)
            self._new_chunks.append(chunk)

    def follow(self, chunk: SingleAgentEpisode) -> None:
        """Takes over that rewards of the chunk before the running one were rewritten."""
        if self.episode is not None:
            self.episode.earlier_change = chunk.change_partials()

    def take_position(self) -> SlotPosition:
        """Where the slot stands now, in relation to the last position taken.

        See `SlotPosition.continues`.
        """
        self.notice_task()
        env_state = self._env_state.take(is_of_episode=self.episode is not None)
        carried_state = self._env_state.take_carried(is_of_episode=self.episode is not None)
        position = SlotPosition(
            self.episode_number,
            tasks=() if self.tasks is None else self.tasks.in_force,
            env_state=env_state,
            carried_state=carried_state,
            env_state_trouble=self._env_state.take_trouble(),
            connectors=self._carried_by_connectors(),
        )
        if self.episode is None:
            return position
        position = replace(
            position,
            env_seed=self.env_seed,
            actions=tuple(self._new_actions),
            observation=self.observation,
            episode=self.episode.get_state(),
            memory=self.memory,
            earlier_chunks=tuple(chunk.get_state() for chunk in self._new_chunks),
            continues=self._continues,
        )
        self._new_actions = []
        self._new_chunks = []
        self._continues = True
        return position

    def _carried_by_connectors(self) -> State | None:
        if self.connected is None:
            return None
        return self.connected.carried(is_running=self.episode is not None)

    def put_back(
        self,
        position: SlotPosition,
        stream: int,
        to_env: Callable[[Any], Any],
        *,
        on_step: Callable[[], None] = lambda: None,
    ) -> bool:
        """Brings the env into the middle of an episode, without any event: see `SlotEnvState`.

        Args:
            position: where to go.
            stream: the slot's number, for its random numbers.
            to_env: turns an action of the module into one of the env.
            on_step: called after every step that is played again.

        Returns:
            whether the env stands there; if not, no episode runs and the next has a fresh number.
        """
        self.drop()
        self.episode_number = position.episode_number
        if self.connected is not None:
            self.connected.go_on_from(position.connectors)
        if position.env_seed is None or position.episode is None:
            self._env_state.bring_back(position.env_state, position.carried_state)
            self._put_tasks_back(position.task_now)
            return True
        is_back = self._env_state.put_back(self._replay(to_env, on_step), position)
        self._put_tasks_back(position.tasks, position.num_steps)
        if not is_back:
            self.episode_number += 1
            self._put_tasks_back(position.task_now)
            return False
        self.episode = self._episode_from(position.episode)
        self.env_seed = position.env_seed
        self.observation = position.observation
        self.memory = position.memory
        self.earlier_chunks = [self._episode_from(state) for state in position.earlier_chunks]
        self.noise.start(stream, position.episode_number)
        self.noise.skip(position.num_steps)
        if self._old_actions is not None:
            self._old_actions = list(position.actions)
        self._continues = True
        return True

    def _replay(self, to_env: Callable[[Any], Any], on_step: Callable[[], None]) -> Replay:
        """What plays the episode of a position again in the sub-env."""
        return Replay(self.env, self.tasks, to_env, on_step)

    def take_env(self, env: gymnasium.Env[Any, Any]) -> None:
        """Gets another env in place of one that failed; it has the task of that one."""
        before, self.env = self.tasks, env
        if self.connected is not None and isinstance(env, ConnectedEnv):
            env.go_on_from(self._carried_by_connectors())
            env.starts_from = self.connected.starts_from
            self.connected = env
        self._env_state.take_env(env)
        self.tasks = SlotTasks.of(env, where=self._where)
        if before is not None:
            self._put_tasks_back(before.in_force, self.num_steps_played)

    def replay_running(
        self, to_env: Callable[[Any], Any], *, on_step: Callable[[], None] = lambda: None
    ) -> bool:
        """Brings another env to where the running episode stands; whether it came there."""
        episode, old = self.episode, self._old_actions
        if episode is None or old is None:
            raise RuntimeError("There is no episode to play again, or its actions were not kept.")
        new = [self._played_in(episode)] if len(episode) else []
        position = SlotPosition(
            env_seed=self.env_seed,
            actions=(*old, *new),
            observation=self.observation,
            tasks=() if self.tasks is None else self.tasks.in_force,
        )
        replay = self._replay(to_env, on_step)
        since = (*self._new_actions, *new)
        is_back = self._env_state.put_back_running(replay, position, since=since)
        self._put_tasks_back(position.tasks, self.num_steps_played)
        return is_back

    def _episode_from(self, state: State) -> SingleAgentEpisode:
        return SingleAgentEpisode.from_state(
            state,
            observation_space=self.env.observation_space,
            action_space=self.env.action_space,
        )

    def _put_tasks_back(self, tasks: tuple[TaskInForce, ...], num_steps: int = 0) -> None:
        if self.tasks is not None:
            self.tasks.put_back(tasks, num_steps)


def _no_episode(*_: Any) -> None:
    raise RuntimeError("A step was recorded in a slot without a running episode.")


# ---- misshapen answers
#
# Answers of an env that have another form than its first ones: found where they are taken apart.
# Only the first answers are checked, so that steps cost nothing more. A later one that is not the
# tuple it should be cannot be taken apart; that error says nothing to the user, and these do.


def blame_step(error: BaseException, answer: Any, slot: EnvSlot, *, name: str) -> None:
    """Raises what is behind an error that came up while the answer to a step was taken apart.

    Args:
        error: caught where it was raised or came through; not from deeper code, such as the env's.
        answer: what `step` returned last.
        slot: whose step it was.
        name: of the env, for the message.

    Raises:
        EnvContractError: the answer is not what it should be, with the error as cause.
    """
    traceback = error.__traceback__
    if traceback is None or traceback.tb_next is not None:
        return  # raised within the env, or by what became of an answer in order
    is_recorded = isinstance(answer, tuple) and len(answer) == 5
    step = slot.num_steps_played + (0 if is_recorded else 1)
    try:
        check_step_form(answer, name=name, when=_when(slot, step=step))
    except EnvContractError as breach:
        raise breach from error


def parts_of_reset(answer: Any, slot: EnvSlot, *, name: str) -> tuple[Any, Any]:
    """The observation and the info that `reset` returned.

    Raises:
        EnvContractError: these are not the two parts of what it returned.
    """
    # By type: an observation of two numbers could be taken apart as well.
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
        check_reset_form(answer, name=name, when=_when(slot, step=0))
    observation, infos = answer
    return observation, infos


def _when(slot: EnvSlot, *, step: int) -> str:
    episode = "none" if slot.episode is None else slot.episode.id_
    return f" at step {step} of episode {episode!r} in sub-env {slot.index}"

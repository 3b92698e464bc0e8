"""One sub-env of a runner, the episode that runs in it, and the ways back to where it stood.

The ways back, by the state of the env or else by replay:

    state of the running episode   reset with its seed, set_state, whatever was played since
    state of an earlier moment     reset, set_state: what the env carries over; then the whole
                                   episode
    no state, or it fails          what known wrappers carried into the episode, and the whole
                                   episode; the newest observation must be the recorded one
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium

from trainer.connectors import ConnectedLayer
from trainer.env_runners.acting import Seat
from trainer.env_runners.messages import Assignment, SlotPosition
from trainer.envs import EnvState
from trainer.envs.env_checks import check_reset, check_step
from trainer.envs.tasks import TaskInForce, followed_by, task_layer
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import ACTIONS
from trainer.episodes.nested import copied
from trainer.errors import EnvContractError, TaskError
from trainer.types import State
from trainer_toolkit.trees import copied_if_possible, same

# ---- slot tasks
#
# The tasks of one sub-env: which are in force since when, and how they are set. A running episode
# is its seed, its actions, and the tasks that were set in between. Tasks may be set by anybody
# who gets hold of the env: so after every event and every function of users the env is asked for
# its task, and a difference is noted with the step at which the episode stands.


class SlotTasks:
    """Asks, notes and sets the tasks of one sub-env that can be given tasks.

    Attributes:
        in_force: as in `SlotPosition.tasks`; never empty.
    """

    def __init__(self, layer: Any, *, where: str) -> None:
        """Asks for the first task; a TaskError if `get_task` raised."""
        self._layer = layer
        self._where = where
        self.in_force: tuple[TaskInForce, ...] = (TaskInForce(0, self._ask()),)

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], *, where: str) -> SlotTasks | None:
        """The tasks of a sub-env; None if it has none."""
        layer = task_layer(env)
        return None if layer is None else cls(layer, where=where)

    @property
    def now(self) -> Any:
        """The task that was in force when last looked."""
        return self.in_force[-1].task

    def begin_episode(self) -> None:
        """Notes what is in force when the env is about to be reset."""
        self.in_force = (TaskInForce(0, self._ask()),)

    def put_back(self, tasks: tuple[TaskInForce, ...], step: int) -> None:
        """Lets these be the tasks in force; none leaves the task as it is. Errors as of `set`."""
        if not tasks:
            self.begin_episode()
            return
        self.enter(tasks[-1].task)
        self.in_force = tasks
        self.notice(step)

    def end_episode(self) -> None:
        """Keeps what is in force, for an episode to come."""
        self.in_force = (TaskInForce(0, self.now),)

    def notice(self, step: int) -> None:
        """Notes the env's task if it is another one than when last looked.

        The env may have changed it itself, in `step` or `reset`. That is noted, too, but does no
        harm: when the episode is played again it changes there by itself, and is left alone.
        """
        task = self._ask()
        if not same(task, self.now):
            self.in_force = followed_by(self.in_force, task, step=step)

    def set(self, task: Any, step: int) -> None:
        """Sets a copy of a task and notes it; a TaskError if `set_task` raised."""
        self.enter(task)
        self.in_force = followed_by(self.in_force, task, step=step)
        self.notice(step)  # an env may make something else of what it is given, such as a bound

    def enter(self, task: Any) -> None:
        """Sets a task that is noted already, unless it is in force. Errors as of `set`."""
        if same(task, self._ask()):
            return
        try:
            self._layer.set_task(copied_if_possible(task))
        except Exception as error:
            raise TaskError(
                f"set_task({task!r:.80}) raised {type(error).__name__}: {error}, for "
                f"{self._where}. Every env must take every task that it is given, at any moment. "
                "Correct set_task, or give tasks that it takes."
            ) from error

    def _ask(self) -> Any:
        try:
            # An env may change its task in place, which must show as a difference. What cannot be
            # copied cannot be saved either, and that error names it.
            return copied_if_possible(self._layer.get_task())
        except Exception as error:
            raise TaskError(
                f"get_task() raised {type(error).__name__}: {error}, for {self._where}. An env "
                "that can be given tasks has one from the start, and can tell it at any moment. "
                "Give it a first task in __init__."
            ) from error


# ---- replay
#
# Playing an episode again from its seed, its actions and its tasks, without any event. If the
# env's state is known as of some moment, it is enough to play what came after that.


@dataclass(frozen=True)
class Replay:
    """What is needed to play an episode in one env again.

    Attributes:
        env: where to play.
        tasks: of that env; None if it has none.
        to_env: turns an action of the module into one of the env.
        on_step: called after every step.
    """

    env: gymnasium.Env[Any, Any]
    tasks: SlotTasks | None
    to_env: Callable[[Any], Any]
    on_step: Callable[[], None]

    def from_reset(self, position: SlotPosition) -> Any:
        """Plays all of the episode of a position.

        Returns:
            its newest observation; None if the episode ended too early.
        """
        observation = self.reset(position)
        due = self._enter_due(position.tasks[1:], 0)
        return self._played(position.actions, due, 0, observation)

    def reset(self, position: SlotPosition) -> Any:
        """Begins the episode of a position; its first observation."""
        self._enter_due(position.tasks[:1], 0)
        observation, _ = self.env.reset(seed=position.env_seed)
        return observation

    def enter_tasks_before(self, position: SlotPosition, num_steps: int) -> None:
        """Sets what was in force last when an episode had made so many steps."""
        before = tuple(entry for entry in position.tasks if entry.step < num_steps)
        self._enter_due(before[-1:], num_steps)

    def from_state(self, position: SlotPosition, num_steps: int) -> Any:
        """Plays the rest of the episode of a position; the env stands in it already.

        The actions of the position are those of the rest, its tasks those of the whole episode; the
        env stands behind `num_steps` env steps.

        Returns:
            its newest observation; None if the episode ended too early, or nothing was played.
        """
        # Tasks set at this very step may be newer than the state: it must not undo them.
        due = tuple(entry for entry in position.tasks[1:] if entry.step >= num_steps)
        due = self._enter_due(due, num_steps)
        return self._played(position.actions, due, num_steps, None)

    def _played(
        self,
        chunks: tuple[Any, ...],
        due: tuple[TaskInForce, ...],
        num_steps: int,
        observation: Any,
    ) -> Any:
        is_done = False
        for chunk in chunks:
            for action in nested.unstack(chunk, nested.batch_length(chunk)):
                if is_done:
                    return None
                answer = self.env.step(self.to_env(action))
                observation, _, terminated, truncated, _ = answer
                is_done = bool(terminated or truncated)
                num_steps += 1
                if due:
                    due = self._enter_due(due, num_steps)
                self.on_step()
        return None if is_done else observation

    def _enter_due(
        self, changes: tuple[TaskInForce, ...], num_steps: int
    ) -> tuple[TaskInForce, ...]:
        """Sets the tasks that were set after so many steps; returns those to come."""
        while changes and changes[0].step <= num_steps:
            if self.tasks is not None:
                self.tasks.enter(changes[0].task)
            changes = changes[1:]
        return changes


# ---- slot env state

_ANY_SEED = 0


class SlotEnvState:
    """Takes the state of a sub-env when it is asked to, and brings the sub-env back to it.

    A state that cannot be taken or given back is not tried again: the sub-env is replayed then.

    Attributes:
        was_reset: the sub-env was reset since it was made.
        as_made: its state before any reset; None if it has none then.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._is_given_up = False
        self._carried_over: bytes | None = None
        self._trouble = ""
        self._is_of_episode = False
        self.take_env(env)
        self._latest = self.as_made

    def take_env(self, env: gymnasium.Env[Any, Any]) -> None:
        """Gets a new env in place of one that failed, which stood where the latest state is."""
        self._env = env
        self._state = None if self._is_given_up else EnvState.of(env)
        # Attributes that only `reset` sets may be missing: that says nothing against its state.
        self.as_made = None if self._state is None else self._state.take_as_made()
        is_unknown = self._state is None and not self._is_given_up
        self._carried = EnvState.carried(env) if is_unknown else None
        # For going back to before the first episode of all.
        self._carried_first = None if self._carried is None else self._carried.take()
        self.was_reset = False

    # ---- taking

    def take(self, *, is_of_episode: bool) -> bytes | None:
        """The state now; None if it cannot be had."""
        if self._state is None:
            return None
        if not (is_of_episode or self.was_reset):
            return self._latest
        self._latest, self._is_of_episode = self._state.take(), is_of_episode
        if self._latest is None:
            self._give_up(f"it could not be taken: {self._state.trouble}")
        return self._latest

    def take_carried(self, *, is_of_episode: bool) -> bytes | None:
        """What wrappers carried into the running episode, or carry now if there is none.

        None if the state as a whole is known, if they carry nothing, and in the first episode.
        """
        if self._carried is not None and self.was_reset and not is_of_episode:
            self._carried_over = self._carried.take()
            if self._carried_over is None:
                self._give_up_carried(f"could not be taken: {self._carried.trouble}")
        return self._carried_over

    def before_reset(self, *, keeps_state: bool) -> None:
        """Notes what the env carries over into its next episode, or gives it to a new env.

        Args:
            keeps_state: also where the state is taken between requests anyway.
        """
        if self._carried is not None:
            if self.was_reset:
                self.take_carried(is_of_episode=False)
            elif self._carried_over is not None:
                self._carry_over()
        if not keeps_state:
            return
        if self.was_reset:
            self.take(is_of_episode=False)
        elif self._latest is not None:
            self._bring_back(self._latest)

    def episode_begins(self) -> None:
        """Notes that the latest state is of a time before the running episode."""
        self.was_reset, self._is_of_episode = True, False

    def take_trouble(self) -> str:
        """Why the state is used no longer, since last asked; empty if nothing happened."""
        trouble, self._trouble = self._trouble, ""
        return trouble

    def _give_up(self, why: str) -> None:
        self._trouble = self._trouble or why
        self._state, self._latest, self._is_given_up = None, None, True

    # ---- going back

    def cannot_go_back(self, position: SlotPosition) -> bool:
        """Whether env or wrappers are to remember what they did when made, and only new ones can.

        Where an episode runs, its reset and its actions lead to where the env stands.
        """
        if not self.was_reset:
            return False
        if self._carried is not None:
            return position.carried_state is None and self._carried_first is None
        state = position.env_state
        if self._state is None or position.env_seed is not None:
            return False
        if state is not None and state != self.as_made:
            return False
        return state is None or not self._state.give_back(state)

    def bring_back(self, state: bytes | None, carried: bytes | None) -> None:
        """Brings the env to a state between two episodes, of the whole env or of its wrappers."""
        self._latest, self._is_of_episode = state, False
        self._bring_back(state)
        self._carried_over = carried
        self._carry_over()

    def _carry_over(self) -> None:
        """Gives wrappers what they carried into the episode that is to be played next."""
        saved = self._carried_first if self._carried_over is None else self._carried_over
        if self._carried is None:
            if saved is not None:
                self._give_up_carried("was saved, but this env has no such wrappers")
            return
        if saved is None or (self._carried_over is None and not self.was_reset):
            return
        if self._carried.needs_reset:
            self._env.reset(seed=_ANY_SEED)
            self.was_reset = True
        if not self._carried.give_back(saved):
            self._give_up_carried(f"could not be given back: {self._carried.trouble}")

    def _give_up_carried(self, why: str) -> None:
        self._trouble = self._trouble or f"what wrappers carry from episode to episode {why}"
        self._carried, self._carried_over, self._carried_first = None, None, None

    def _bring_back(self, state: bytes | None) -> None:
        if state is None or not self._expects_state():
            return
        if not self.was_reset and state == self.as_made:
            return
        self._env.reset(seed=_ANY_SEED)
        self.was_reset = True
        self._is_given_back(state)

    def put_back(self, replay: Replay, position: SlotPosition) -> bool:
        """Brings the env to a position in the middle of an episode; whether it stands there."""
        self._latest = position.env_state
        self._is_of_episode = position.env_state is not None
        self._carried_over = position.carried_state
        return self.put_back_running(replay, position, since=())

    def put_back_running(
        self, replay: Replay, position: SlotPosition, *, since: tuple[Any, ...]
    ) -> bool:
        """Brings a new env to where the running episode stands; whether it stands there.

        `since` are actions since the latest state was taken, if that was in this episode.
        """
        if self._latest is not None and not self._is_of_episode:
            self._bring_back(self._latest)
        elif self._latest is not None and self._expects_state():
            rest = replace(position, actions=since)
            if self._went_on(replay, rest, position.num_steps - rest.num_steps, self._latest):
                return True
        self._carry_over()
        self.was_reset = True
        return same(replay.from_reset(position), position.observation)

    def _went_on(self, replay: Replay, rest: SlotPosition, num_steps: int, state: bytes) -> bool:
        """Goes on from a state within the episode; whether that leads to the right place."""
        replay.reset(rest)
        self.was_reset = True
        replay.on_step()
        replay.enter_tasks_before(rest, num_steps)
        if not self._is_given_back(state):
            return False
        observation = replay.from_state(rest, num_steps)
        if not rest.num_steps:
            return True
        if same(observation, rest.observation):
            return True
        self._give_up("the same actions led from it to another observation")
        return False

    def _expects_state(self) -> bool:
        """Whether there is an env to give a state to."""
        if self._state is None and not self._is_given_up:
            self._trouble = self._trouble or "there is one, but the env has no set_state now"
        return self._state is not None

    def _is_given_back(self, saved: bytes) -> bool:
        state = self._state
        if state is None:
            return False
        if state.give_back(saved):
            return True
        why = f"it could not be given back: {state.trouble}"
        if state.fits:
            self._give_up(why)
        else:  # of another env: those of this one may well be of use
            self._trouble, self._latest = self._trouble or why, None
        return False


# ---- env slot


class EnvSlot:
    """A sub-env, its running episode and what it still has to play.

    Life of an episode: `begin` (a number and a seed), then steps made by the runner, then `finish`;
    in between, at the end of each request, `cut`.

    Attributes:
        index: number of the sub-env in its runner.
        env: the sub-env.
        seats: who acts in it: one, or one for each possible agent.
        seat: the first, which is the only one of an env of one agent.
        episode: the running chunk; None between two episodes.
        record: appends a step to it (`SingleAgentEpisode.step_recorder`).
        observation: the newest observation, as the env gave it; its memory belongs to the slot.
        episode_number: of the running episode, or else of the next one.
        env_seed: seed of the running episode; None if none runs.
        steps_left: steps that the assignment still asks for; infinite if it counts episodes.
        episodes_left: episodes that it still asks for; infinite if it counts steps.
        steps_ahead: see `SlotPosition`.
        connected: the sub-env if it has connector pieces beside it, else None.
        earlier_chunks: finished chunks of the running episode, for `on_episode_end`.
        tasks: of the sub-env; None if it has none.
    """

    def __init__(
        self,
        index: int,
        env: gymnasium.Env[Any, Any],
        *seats: Seat,
        runner: str = "a runner",
        keeps_actions: bool = False,
    ) -> None:
        self.index = index
        self.env = env
        self._where = f"sub-env {index} of {runner}"
        self.tasks = SlotTasks.of(env, where=self._where)
        self._env_state = SlotEnvState(env)
        self.connected = env if isinstance(env, ConnectedLayer) else None
        self.seats, self.seat = seats, seats[0]
        self.episode: SingleAgentEpisode | None = None
        self.record: Callable[..., None] = _no_episode
        self.observation: Any = None
        self.episode_number = 0
        self.env_seed: int | None = None
        self.assignment = Assignment(stream=0, num_env_steps=0)
        self.steps_left: float = 0
        self.episodes_left: float = 0
        self.steps_ahead = 0
        self.earlier_chunks: list[SingleAgentEpisode] = []
        self._actions_apart: list[Any] = []
        self._new_actions: list[Any] = []
        self._new_chunks: list[SingleAgentEpisode] = []
        # Of the running episode's finished chunks, if it may have to be played again in here.
        self._old_actions: list[Any] | None = [] if keeps_actions else None
        self._continues = False

    @property
    def memory(self) -> Any:
        """What a network with memory remembers of the running episode, as a position has it."""
        return self.seat.memory

    @memory.setter
    def memory(self, memory: Any) -> None:
        self.seat.memory = memory

    def _begin_acting(self, stream: int, *, played: int = 0) -> None:
        """Brings who acts to the running episode, behind so many steps of it."""
        self.seat.begin(stream, self.episode_number, played=played)

    @property
    def num_steps_played(self) -> int:
        """Steps of the running episode, over all its chunks."""
        return self.episode.t if self.episode is not None else 0

    @property
    def num_steps_counted(self) -> int:
        """Steps of the running chunk, as its assignment counts them."""
        return 0 if self.episode is None else len(self.episode)

    def note_steps_ahead(self) -> None:
        """Notes how much more was played than asked for, where that is settled later."""
        if self.assignment.settles_steps:
            self.steps_ahead = -int(self.steps_left)

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

    def assign(self, assignment: Assignment) -> None:
        """Takes up what to play next; a running episode goes on."""
        self.assignment = assignment
        self.steps_left = math.inf if assignment.num_steps is None else assignment.num_steps
        if assignment.settles_steps:
            self.steps_left -= self.steps_ahead
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
        self._begin_acting(self.assignment.stream)
        self._continues = False

    def begin_unseen(self) -> None:
        """Begins an episode, in a sub-env that was reset already, that is no object yet."""
        self.memory = None
        self._begin_acting(self.assignment.stream)
        self._continues = False
        self._env_state.episode_begins()

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
        self.steps_left += self.num_steps_counted
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
        """Notes the task of the sub-env if it was changed."""
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

        Returns:
            the chunk; None if there is none or it has no step.
        """
        chunk = self.episode
        if chunk is None or len(chunk) == 0:
            return None
        self.episode = self._successor(chunk, lookback)
        return chunk

    def _successor(self, chunk: Any, lookback: int) -> Any:
        return chunk.cut(len_lookback_buffer=lookback)

    def remember(self, chunk: SingleAgentEpisode, *, keep_chunk: bool) -> None:
        """Keeps what a replay needs of a chunk that was cut, and the chunk itself if wanted.

        `keep_chunk`: `on_episode_end` will want to see it.
        """
        self.remember_actions(self._played_in(chunk))
        self._actions_apart = []
        if keep_chunk:
            self.earlier_chunks.append(chunk)
            self._new_chunks.append(chunk)

    def remember_actions(self, actions: Any) -> None:
        """Keeps the actions of a chunk that was cut, a batch in memory of its own."""
        self._new_actions.append(actions)
        if self._old_actions is not None:
            self._old_actions.append(actions)

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
        of_slot: dict[str, Any] = {
            "episode_number": self.episode_number,
            "tasks": () if self.tasks is None else self.tasks.in_force,
            "env_state": env_state,
            "carried_state": carried_state,
            "env_state_trouble": self._env_state.take_trouble(),
            "connectors": self._carried_by_connectors(),
            "steps_ahead": self.steps_ahead,
        }
        if self.episode is None:
            return SlotPosition(**of_slot)
        position = SlotPosition(
            **of_slot,
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
        self.steps_ahead = position.steps_ahead
        if position.env_seed is None or position.episode is None:
            self._env_state.bring_back(position.env_state, position.carried_state)
            self._put_connectors_back(position)  # that of an episode given up is in the env's state
            self._put_tasks_back(position.task_now)
            return True
        self._put_connectors_back(position)
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
        self._begin_acting(stream, played=position.num_steps)
        if self._old_actions is not None:
            self._old_actions = list(position.actions)
        self._continues = True
        return True

    @property
    def env_state_as_made(self) -> bytes | None:
        """The state of the sub-env before any reset; None if it has none then."""
        return self._env_state.as_made

    def needs_other_env(self, position: SlotPosition) -> bool:
        """Whether a position is that of an env as it was made, where this one cannot go back."""
        return self._env_state.cannot_go_back(position)

    def _replay(self, to_env: Callable[[Any], Any], on_step: Callable[[], None]) -> Replay:
        """What plays the episode of a position again in the sub-env."""
        return Replay(self.env, self.tasks, to_env, on_step)

    def take_env(self, env: gymnasium.Env[Any, Any]) -> None:
        """Gets another env in place of one that failed; it has the task of that one."""
        before, self.env = self.tasks, env
        if self.connected is not None and isinstance(env, ConnectedLayer):
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

    def _put_connectors_back(self, position: SlotPosition) -> None:
        if self.connected is not None:
            self.connected.go_on_from(position.connectors)

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


# ---- malformed answers
#
# Answers of an env that have another form than its first ones: found where they are taken apart.
# Only the first answers are checked, so that steps cost nothing more. A later one that is not the
# tuple it should be cannot be taken apart; that error says nothing to the user, and these do.


def blame_step(error: BaseException, answer: Any, slot: EnvSlot, *, name: str) -> None:
    """Raises what is behind an error that came up while the answer to a step was taken apart.

    It is caught where it was raised or came through; it is not from deeper code, such as the env's.
    `answer` is what `step` returned last.

    Raises:
        EnvContractError: the answer is not what it should be, with the error as cause.
    """
    traceback = error.__traceback__
    if traceback is None or traceback.tb_next is not None:
        return  # raised within the env, or by what became of an answer in order
    is_recorded = isinstance(answer, tuple) and len(answer) == 5
    step = slot.num_steps_played + (0 if is_recorded else 1)
    try:
        check_step(answer, name=name, when=_when(slot, step=step))
    except EnvContractError as breach:
        raise breach from error


def parts_of_reset(answer: Any, slot: EnvSlot, *, name: str) -> tuple[Any, Any]:
    """The observation and the info that `reset` returned; an EnvContractError for anything else."""
    # By type: an observation of two numbers could be taken apart as well.
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
        check_reset(answer, name=name, when=_when(slot, step=0))
    observation, infos = answer
    return observation, infos


def _when(slot: EnvSlot, *, step: int) -> str:
    episode = "none" if slot.episode is None else slot.episode.id_
    return f" at step {step} of episode {episode!r} in sub-env {slot.index}"

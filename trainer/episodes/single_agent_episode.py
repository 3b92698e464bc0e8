"""`SingleAgentEpisode`: grows step by step until it is done, is cut, sliced, joined and saved.

Growing is on the hot path of sampling. The columns and their getters are in `episode_columns.py`.
"""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, NoReturn

from trainer.episodes.episode_columns import (
    ACTIONS,
    INFOS,
    OBS,
    REWARDS,
    EpisodeColumns,
    given_columns,
)
from trainer.episodes.episode_state import (
    Episode,
    append_columns,
    copied_parts,
    copied_state,
    data_rows,
    shared_state,
    tail,
    take_state,
    why_not_following,
    window,
)
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError
from trainer.types import State

# ---- stopwatch
#
# The one place where episodes read a clock.


class Stopwatch:
    """Adds up the seconds between `start()` and `stop()`; both may be called again without effect.

    An episode's time runs from its reset to its end and rests while its chunk waits for the next
    call of `sample()`, so that training does not count as playing. The clock is read at starts and
    stops only, never per step.
    """

    __slots__ = ("_clock", "_elapsed_s", "_started_at_s")

    def __init__(
        self, elapsed_s: float = 0.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._elapsed_s = elapsed_s
        self._started_at_s: float | None = None

    def start(self) -> None:
        """Lets the time run."""
        if self._started_at_s is None:
            self._started_at_s = self._clock()

    def stop(self) -> None:
        """Lets the time rest."""
        if self._started_at_s is not None:
            self._elapsed_s += self._clock() - self._started_at_s
            self._started_at_s = None

    def successor(self) -> Stopwatch:
        """A resting stopwatch with the same clock that goes on from here."""
        return Stopwatch(self.elapsed_s, clock=self._clock)

    @property
    def elapsed_s(self) -> float:
        """Seconds so far, also while the time runs."""
        if self._started_at_s is None:
            return self._elapsed_s
        return self._elapsed_s + self._clock() - self._started_at_s


# ---- growing episode


def _spread(adders: list[Callable[[Any], None]]) -> Callable[[Any], None]:
    """A function that hands each item of a tuple to its own function."""

    def add(values: Any) -> None:
        for add_one, value in zip(adders, values, strict=True):
            add_one(value)

    return add


class ActingRequest(NamedTuple):
    """What a request to act says that the log-likelihoods of its actions follow from.

    Attributes:
        timestep: where schedules of exploration stood, env steps.
        explore: whether actions were explored.
    """

    timestep: int
    explore: bool


# ---- single agent episode
#
# The record of one agent's episode, or of one chunk of it. Reading and overwriting data is in
# `episode_columns.py`.


class SingleAgentEpisode(EpisodeColumns, Episode):
    """What one agent saw, did and got in one episode, or in one chunk of it.

    Life: `add_env_reset()` once, `add_env_step()` per step until it is done; a running episode may
    be `cut()`, which ends this chunk and returns the chunk that goes on; `to_numpy()` when nothing
    more is added.

    Of the whole episode, earlier chunks included, are: `get_return()`, `get_rewritten_return()`,
    `get_duration_s()`, `t`, and all data of users. Of this chunk only are: the columns, `len()`
    (which is `t - t_started`), `chunk_return()`.

    Attributes, besides those of `Episode` (data of users, `stopwatch`, `task`, `env_id`):
        t_started: the number of env steps before this chunk.
        t: the number of env steps up to now, earlier chunks included.
        is_terminated: the env reached a final state.
        is_truncated: the env was stopped by a limit.
        agent_id: who plays; None means the single agent.
        module_id: who acts for the agent; None means the only module.
        multi_agent_episode_id: the episode of all agents that this one is part of, or None.
        carried_request: the request in which the chunk's first action was chosen, if that waited
            for an observation while the chunk before was cut; for the runner, no part of the state.
    """

    carried_request: ActingRequest | None = None

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: Any = None,
        observation_space: Any = None,
        infos: list[Any] | None = None,
        actions: Any = None,
        action_space: Any = None,
        rewards: Any = None,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: Mapping[str, Any] | None = None,
        t_started: int | None = None,
        len_lookback_buffer: int | Literal["auto"] = "auto",
        agent_id: Any = None,
        module_id: Any = None,
        multi_agent_episode_id: Any = None,
    ) -> None:
        """An empty episode, or one with data.

        Args:
            id_: None draws a random one.
            observations: look-back and steps, one more than actions; a list, or a batch of arrays.
            observation_space: enables `fill` and one-hot codes.
            infos: one dict per observation; None means empty dicts.
            actions: look-back and steps.
            action_space: enables `fill` and one-hot codes.
            rewards: look-back and steps.
            terminated: whether the last step reached a final state.
            truncated: whether the last step was stopped by a limit.
            extra_model_outputs: {name: look-back and steps}.
            t_started: the number of env steps before the first one that is not look-back; None
                means 0.
            len_lookback_buffer: how many of the given steps are look-back, at most all; "auto"
                means all.
            agent_id: see the class.
            module_id: see the class.
            multi_agent_episode_id: see the class.

        Raises:
            EpisodeError: the columns do not fit together.
        """
        self.id_ = uuid.uuid4().hex if id_ is None else id_
        self.agent_id = agent_id
        self.module_id = module_id
        self.multi_agent_episode_id = multi_agent_episode_id
        self.is_terminated = bool(terminated)
        self.is_truncated = bool(truncated)
        self._start_empty_user_data()
        self.stopwatch = Stopwatch()
        self.task: Any = None
        self.t = self.t_started = 0 if t_started is None else t_started
        is_empty = observations is None and infos is None and actions is None and rewards is None
        if is_empty and not extra_model_outputs:
            self.start_columns(observation_space, action_space)
            return
        self.fill_columns(
            **given_columns(
                {OBS: observations, INFOS: infos, ACTIONS: actions, REWARDS: rewards},
                extra_model_outputs or {},
                lookback=len_lookback_buffer,
            ),
            observation_space=observation_space,
            action_space=action_space,
        )
        self.to_numpy() if self.is_numpy else self.to_lists()
        self.t += self.rewards.total - self.lookback
        self.validate()

    def __repr__(self) -> str:
        return (
            f"SingleAgentEpisode(id_={self.id_!r}, t={self.t_started}..{self.t}, "
            f"is_done={self.is_done}, get_return()={self.get_return():g})"
        )

    # Chunks and parts.

    def cut(self, len_lookback_buffer: int = 0) -> SingleAgentEpisode:
        """Ends this chunk of a running episode and returns the chunk that goes on.

        The successor begins with the newest observation and takes over what belongs to the whole
        episode: return, duration, `t`, ids, and all data of users. `custom_data` stays here as a
        deep copy; `user_data`, `custom_metrics`, `hist_data`, `media` and temporary data move on
        and are empty here.

        Args:
            len_lookback_buffer: how many steps of this chunk the successor sees as look-back, at
                most all.

        Raises:
            EpisodeError: the episode is done or not reset, or `custom_data` cannot be copied.
        """
        snapshot = self._data_that_stays()
        self.stopwatch.stop()
        self.stop_growing()
        successor = self._empty_part(t_started=self.t)
        successor.fill_columns(**tail(self, min(len_lookback_buffer, self.rewards.total)))
        successor.earlier_return = self.return_partials()
        successor.earlier_change = self.change_partials()
        successor.t = self.t
        successor.stopwatch = self.stopwatch.successor()
        self._hand_over_user_data(successor, snapshot)
        return successor

    def _empty_part(self, *, t_started: int) -> SingleAgentEpisode:
        # Not by way of `__init__`, which takes as long as all the rest of a cut.
        part = object.__new__(SingleAgentEpisode)
        part.id_ = self.id_
        part.agent_id, part.module_id = self.agent_id, self.module_id
        part.multi_agent_episode_id = self.multi_agent_episode_id
        part.is_terminated = part.is_truncated = False
        part._start_empty_user_data()
        part.stopwatch = Stopwatch()
        part.t = part.t_started = t_started
        part.task = self.task
        part._player, part.env_id = self._player, self.env_id
        return part

    def slice(self, slice_: slice, *, len_lookback_buffer: int | None = None) -> SingleAgentEpisode:
        """A part of this chunk as an episode of its own; its arrays share memory with this one.

        It has the same ids. It is done only if it reaches the end. Its return is that of its own
        rewards, and it has no data of users and no duration.

        Args:
            slice_: steps of this chunk, counted from its first one; negative numbers count from the
                end.
            len_lookback_buffer: steps before the part to include as look-back, as far as there are
                any; None means as many as this chunk has.

        Raises:
            EpisodeError: the slice has a step other than 1.
        """
        start, stop = self._steps_of(slice_)
        wanted = self.lookback if len_lookback_buffer is None else len_lookback_buffer
        first = self.lookback + start
        lookback = min(wanted, first)
        part = self._empty_part(t_started=self.t_started + start)
        part.fill_columns(**window(self, first - lookback, self.lookback + stop, lookback=lookback))
        part.t = self.t_started + stop
        if stop == len(self):
            part.is_terminated, part.is_truncated = self.is_terminated, self.is_truncated
        return part

    def concat_episode(self, other: SingleAgentEpisode) -> None:
        """Appends the chunk that follows this one, in place.

        Args:
            other: a chunk of the same episode that begins where this one ends; its look-back is
                left out.

        Raises:
            EpisodeError: it is not the following chunk, or its columns differ.
        """
        problem = "their ids differ" if other.id_ != self.id_ else why_not_following(self, other)
        if problem is not None:
            self._refuse_next(other, problem)
        was_numpy = self.is_numpy
        append_columns(self, other)
        self.to_numpy() if was_numpy else self.to_lists()
        self.t = other.t
        self.is_terminated, self.is_truncated = other.is_terminated, other.is_truncated
        self.stop_growing()
        self.stopwatch = other.stopwatch
        self._join_user_data(other)

    # Data out.

    def get_data_dict(self) -> dict[str, Any]:
        """All columns of this chunk without look-back and without the last observation and info.

        Returns:
            {column: T rows}: lists before `to_numpy()`, arrays afterwards; the names are in
                `trainer.episodes.episode_columns`.
        """
        return data_rows(self, self.id_)

    def get_sample_batch(self) -> dict[str, Any]:
        """Old name of `get_data_dict()`; a plain dict."""
        return self.get_data_dict()

    def get_state(self) -> State:
        """A snapshot of everything but the spaces, the time and who plays.

        It is plain data if users put plain data in.
        """
        return copied_parts(shared_state(self))

    @classmethod
    def from_state(
        cls, state: State, *, observation_space: Any = None, action_space: Any = None
    ) -> SingleAgentEpisode:
        """The episode that `get_state()` described.

        Args:
            state: what `get_state()` returned.
            observation_space: the state holds no spaces; give them back here.
            action_space: of the actions; not in the state, either.

        Raises:
            EpisodeError: the state is incomplete or its columns do not fit together.
        """
        episode = cls.__new__(cls)
        episode.stopwatch = Stopwatch()
        take_state(
            episode,
            copied_state(state),
            observation_space=observation_space,
            action_space=action_space,
        )
        episode.validate()
        return episode

    def __getstate__(self) -> tuple[Any, ...]:
        played = (self.get_duration_s(), self.env_id)
        return shared_state(self), self.observation_space, self.action_space, *played

    def __setstate__(self, pickled: tuple[Any, ...]) -> None:
        state, observation_space, action_space, elapsed_s, self.env_id = pickled
        take_state(self, state, observation_space=observation_space, action_space=action_space)
        self.stopwatch = Stopwatch(elapsed_s)

    # ---- how it grows

    t_started: int
    t: int
    is_terminated: bool
    is_truncated: bool
    stopwatch: Stopwatch
    task: Any

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended (terminated or truncated)."""
        return self.is_terminated or self.is_truncated

    @property
    def is_reset(self) -> bool:
        """Whether there is a first observation."""
        return bool(self.observations.total)

    def __len__(self) -> int:
        return self.t - self.t_started

    def agent_steps(self) -> int:
        """The number of agent steps of this chunk: the same, as there is one agent."""
        return len(self)

    def validate(self) -> None:
        """Checks that all columns fit together and that as many steps are counted as they hold.

        Raises:
            EpisodeError: they do not; says what was found.
        """
        super().validate()
        if self.t - self.t_started != len(self.rewards) or self.t_started < 0:
            raise EpisodeError(
                f"{self!r} holds {len(self.rewards)} steps, but counts from t_started="
                f"{self.t_started} to t={self.t}. `t` grows by one with each step. Add steps with "
                "`add_env_step()` only."
            )

    def get_duration_s(self) -> float:
        """Seconds played so far, earlier chunks included; 0 before the first step."""
        return self.stopwatch.elapsed_s if self.t else 0.0

    def add_env_reset(self, observation: Any, infos: dict[str, Any] | None = None) -> None:
        """Adds what `env.reset()` returned.

        Raises:
            EpisodeError: the episode has begun already.
        """
        if self.is_reset or self.is_done or self.t or self.t_started:
            raise EpisodeError(
                f"{self!r} was reset already. An episode is reset once, before its first step. "
                "Make a new SingleAgentEpisode for the next episode."
            )
        self.observations.append(observation)
        self.infos.append({} if infos is None else infos)
        self.stopwatch.start()

    def add_env_step(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        infos: dict[str, Any] | None = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds one step: the action, and what `env.step(action)` returned.

        Args:
            observation: what was seen after the action.
            action: the action as the module emitted it.
            reward: a number.
            infos: the info dict of the step.
            terminated: whether the env reached a final state.
            truncated: whether the env was stopped by a limit.
            extra_model_outputs: {name: item}; the same names in every step.

        Raises:
            EpisodeError: the episode is done or not reset, or the extra outputs differ from the
                earlier steps'.
        """
        if self._growth is None or self.is_terminated or self.is_truncated:
            self._prepare_to_grow()
        if (extra_model_outputs or {}).keys() != self.extra_model_outputs.keys():
            self._open_columns(extra_model_outputs or {})
        if self._growth is None:
            self._append_to_arrays(observation, action, reward, infos, extra_model_outputs or {})
            if terminated or truncated:
                self._end(terminated, truncated)
            return
        self.append_step(
            observation, action, reward, infos, terminated, truncated, extra_model_outputs
        )

    @property
    def is_growing(self) -> bool:
        """Whether `append_step` may add the next step."""
        return self._growth is not None and not (self.is_terminated or self.is_truncated)

    def append_step(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        infos: dict[str, Any] | None,
        terminated: bool,
        truncated: bool,
        extra_model_outputs: Mapping[str, Any] | None,
    ) -> None:
        """`add_env_step` without checks, for the sampling loop, which runs it once per env step.

        The caller guarantees that the episode is reset, not done and not numpy, and that every step
        brings the same extra outputs. It starts the stopwatch itself after a cut (`resume`).
        `validate()` finds broken promises.
        """
        self.observations.data.append(observation)
        self.infos.data.append({} if infos is None else infos)
        self.actions.data.append(action)
        self.rewards.data.append(reward)
        if extra_model_outputs:
            columns = self.extra_model_outputs
            try:
                for key, value in extra_model_outputs.items():
                    columns[key].data.append(value)
            except KeyError:  # the first step with outputs: costs nothing in all others
                self._open_columns(extra_model_outputs, counted=1)
                for key, value in extra_model_outputs.items():
                    columns[key].data.append(value)
        self.t += 1
        if terminated or truncated:
            self._end(terminated, truncated)

    def step_recorder(
        self, output: str, *more: str
    ) -> Callable[[Any, Any, Any, dict[str, Any], Any], None]:
        """A function that appends a step, for the sampling loop, which calls it once per env step.

        It takes (observation, action, reward, infos, output) and checks nothing; the caller calls
        `end` after the last step. Measured: 0.2 µs per step, a third of `add_env_step`. Once the
        columns are no longer the lists that they are now, after `to_numpy()` for one, each step
        goes through `add_env_step`. Other extra outputs are removed from the look-back.

        Args:
            output: name of the extra output that every step brings.
            more: names of further ones; the function then takes a tuple of all of them.
        """
        self.resume()
        columns = self.extra_model_outputs
        outputs = (output, *more)
        if any(name not in columns for name in outputs):
            self._open_columns(outputs)
        if len(columns) > len(outputs):
            for name in columns.keys() - set(outputs):
                del columns[name]
        if self.is_numpy or self.is_done or not self.is_reset:
            return self._checked_recorder(outputs)
        return self._recorder(outputs)

    def _recorder(self, outputs: tuple[str, ...]) -> Callable[..., None]:
        """A function that appends to the lists as they are now; see `step_recorder`."""
        columns = self.extra_model_outputs
        self._growth = growth = object()
        add_observation = self.observations.data.append
        add_infos = self.infos.data.append
        add_action = self.actions.data.append
        add_reward = self.rewards.data.append
        add_output = columns[outputs[0]].data.append
        if len(outputs) > 1:
            add_output = _spread([columns[name].data.append for name in outputs])

        def record(
            observation: Any, action: Any, reward: Any, infos: dict[str, Any], value: Any
        ) -> None:
            if self._growth is not growth:
                self._checked_recorder(outputs)(observation, action, reward, infos, value)
                return
            add_observation(observation)
            add_infos(infos)
            add_action(action)
            add_reward(reward)
            add_output(value)
            self.t += 1

        return record

    def begun(
        self, observation: Any, infos: dict[str, Any], outputs: tuple[str, ...]
    ) -> Callable[..., None]:
        """Takes what `env.reset()` returned, and gives what `step_recorder` gives.

        For the sampling loop, which has just made the episode (`episode_to_play`): nothing is
        checked. Measured: 3 µs instead of 10, once per episode. The observation is not copied.
        """
        self.observations.data.append(observation)
        self.infos.data.append(infos)
        self.stopwatch.start()
        for name in outputs:
            self.extra_model_outputs[name] = LookbackBuffer()
        return self._recorder(outputs)

    def _checked_recorder(self, outputs: tuple[str, ...]) -> Callable[..., None]:
        """A function like that of `step_recorder`, which adds each step with `add_env_step`."""

        def record(observation: Any, action: Any, reward: Any, infos: Any, value: Any) -> None:
            values = value if len(outputs) > 1 else (value,)
            brought = dict(zip(outputs, values, strict=True))
            self.add_env_step(observation, action, reward, infos, extra_model_outputs=brought)

        return record

    def end(self, *, terminated: bool, truncated: bool) -> None:
        """Notes that the newest step was the last one."""
        self._end(terminated, truncated)

    def resume(self) -> None:
        """Lets the time run again, before the first step of a chunk that goes on after a cut."""
        if not self.is_done:
            self.stopwatch.start()

    def _prepare_to_grow(self) -> None:
        if self.is_done or not self.is_reset:
            self._refuse_step()
        self.stopwatch.start()
        self._growth = None if self.is_numpy else object()

    def _refuse_step(self) -> NoReturn:
        state = "is done" if self.is_done else "was not reset"
        raise EpisodeError(
            f"{self!r} {state}, so no step can be added. An episode begins with `add_env_reset()` "
            "and takes steps until one is terminated or truncated. Make a new SingleAgentEpisode "
            "for the next episode."
        )

    def _open_columns(self, outputs: Iterable[str], *, counted: int = 0) -> None:
        """Opens the columns for the extra outputs of the first step.

        Look-back from before a change of outputs cannot be kept aligned with the new columns; it is
        dropped. `counted` is 1 if the step's other columns are appended already.
        """
        if len(self.rewards) > counted:
            raise EpisodeError(
                f"This step has the extra outputs {sorted(outputs)}, earlier ones had "
                f"{sorted(self.extra_model_outputs)}. Columns have one item per step. Give the "
                "same outputs in every step, or add a column for all steps with "
                "`set_extra_model_outputs`."
            )
        was_growing = self._growth is not None
        if self.lookback:
            self.drop_lookback()
        self._growth = object() if was_growing else None
        columns = self.extra_model_outputs
        columns.clear()
        for key in outputs:
            columns[key] = LookbackBuffer()

    def _append_to_arrays(
        self, observation: Any, action: Any, reward: Any, infos: Any, outputs: Mapping[str, Any]
    ) -> None:
        """Adds a step to an episode that is numpy already: copies all its arrays."""
        self.observations.append(observation)
        self.infos.append({} if infos is None else infos)
        self.actions.append(action)
        self.rewards.append(reward)
        for key, value in outputs.items():
            self.extra_model_outputs[key].append(value)
        self.to_numpy()
        self.t += 1

    def _end(self, terminated: bool, truncated: bool) -> None:
        self.is_terminated = bool(terminated)
        self.is_truncated = bool(truncated)
        self.stop_growing()
        self.stopwatch.stop()


def episode_to_play(
    id_: str,
    *,
    observation_space: Any,
    action_space: Any,
    player: weakref.ref[Any],
    env_id: int,
) -> SingleAgentEpisode:
    """An empty episode for the sampling loop, which makes thousands a second.

    It is what `SingleAgentEpisode(id_, …)` and `note_player` make, in a third of the time.
    """
    episode = object.__new__(SingleAgentEpisode)
    episode.__dict__ = {
        "id_": id_,
        "agent_id": None,
        "module_id": None,
        "multi_agent_episode_id": None,
        "is_terminated": False,
        "is_truncated": False,
        "custom_data": {},
        "user_data": {},
        "custom_metrics": {},
        "hist_data": {},
        "media": {},
        "temporary_data": {},
        "stopwatch": Stopwatch(),
        "task": None,
        "t": 0,
        "t_started": 0,
        "_player": player,
        "env_id": env_id,
    }
    episode.start_columns(observation_space, action_space)
    return episode

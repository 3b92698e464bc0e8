"""How an episode grows, step by step, until it is done; the hot path of sampling.

What becomes of a chunk afterwards (cutting, slicing, joining, state) is in
`single_agent_episode.py`.

The one place where episodes read a clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from trainer.episodes.episode_columns import EpisodeColumns
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError

# ---- stopwatch


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


class GrowingEpisode(EpisodeColumns):
    """Columns that a runner adds steps to; not used on its own.

    Attributes:
        t_started: the number of env steps before this chunk.
        t: the number of env steps up to now, earlier chunks included.
        is_terminated: the env reached a final state.
        is_truncated: the env was stopped by a limit.
        stopwatch: the time played.
        task: see `SingleAgentEpisode`.
    """

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

    def __bool__(self) -> bool:
        # An episode that has no step yet is still an episode; `if episode:` must not depend on its
        # length.
        return True

    def env_steps(self) -> int:
        """The number of env steps of this chunk."""
        return len(self)

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
        if not self._is_growing or self.is_terminated or self.is_truncated:
            self._prepare_to_grow()
        if (extra_model_outputs or {}).keys() != self.extra_model_outputs.keys():
            self._open_columns(extra_model_outputs or {})
        if not self._is_growing:
            self._append_to_arrays(observation, action, reward, infos, extra_model_outputs or {})
            if terminated or truncated:
                self._end(terminated, truncated)
            return
        self.append_step(
            observation, action, reward, infos, terminated, truncated, extra_model_outputs
        )

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
        `end` after the last step. Measured: 0.2 µs per step, a third of `add_env_step`. It is valid
        until the chunk ends. Other extra outputs are removed from the look-back.

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
        add_observation = self.observations.data.append
        add_infos = self.infos.data.append
        add_action = self.actions.data.append
        add_reward = self.rewards.data.append
        add_output = columns[output].data.append
        if more:
            add_output = _spread([columns[name].data.append for name in outputs])

        def record(
            observation: Any, action: Any, reward: Any, infos: dict[str, Any], value: Any
        ) -> None:
            add_observation(observation)
            add_infos(infos)
            add_action(action)
            add_reward(reward)
            add_output(value)
            self.t += 1

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
        self._is_growing = not self.is_numpy

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
        dropped.

        Args:
            outputs: the names that the step brings.
            counted: 1 if the step's other columns are appended already, else 0.
        """
        if len(self.rewards) > counted:
            raise EpisodeError(
                f"This step has the extra outputs {sorted(outputs)}, earlier ones had "
                f"{sorted(self.extra_model_outputs)}. Columns have one item per step. Give the "
                "same outputs in every step, or add a column for all steps with "
                "`set_extra_model_outputs`."
            )
        if self.lookback:
            self.drop_lookback()
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
        self._is_growing = False
        self.stopwatch.stop()


def _spread(adders: list[Callable[[Any], None]]) -> Callable[[Any], None]:
    """A function that hands each item of a tuple to its own function."""

    def add(values: Any) -> None:
        for add_one, value in zip(adders, values, strict=True):
            add_one(value)

    return add

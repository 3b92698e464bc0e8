"""The ready-made strategies: they draw actions or add noise; made from an `exploration_config`."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape
from trainer.errors import ConfigError, TrainerError, UnknownSettingError, UnsupportedSpaceError
from trainer.exploration.exploration import (
    ActionChoice,
    ConstantSchedule,
    Exploration,
    ExplorationSchedule,
    ExploredSample,
    WithSubExploration,
    checked_count,
    checked_number,
    normal_numbers,
    numbers_for,
    schedule_or_ramp,
    uniforms_per_row,
    valid_parts,
)
from trainer.exploration.intrinsic_rewards import RE3, Curiosity
from trainer.name_resolution import PROGRAM, Source, imported
from trainer.nn import ActionDistribution, Categorical, DiagGaussian
from trainer.old_names import OLD_NAMES
from trainer.types import Array, State
from trainer_toolkit.checks import ANY_NUMBER, fields, integer, of_type
from trainer_toolkit.nearest_names import did_you_mean

# ---- uniform actions

_LOG_2_PI = math.log(2.0 * math.pi)


class UniformActions:
    """Draws from Discrete, MultiDiscrete and Box.

    A dimension of a Box without bounds is drawn from a standard normal distribution, one with a
    single bound from an exponential distribution that begins there, as gymnasium's `Box.sample`
    does.

    Attributes:
        width: the uniform numbers that one action takes.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        """Plans the drawing; an UnsupportedSpaceError if no uniform actions can be drawn."""
        self._box: _BoxActions | None = None
        self._sizes: list[int] = []
        if isinstance(space, spaces.Discrete):
            self._is_single = True
            self._sizes = [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
            self._is_single = False
            self._sizes = [int(size) for size in space.nvec]
        elif isinstance(space, spaces.Box):
            self._box = _BoxActions(space)
        else:
            raise UnsupportedSpaceError(
                f"Actions of the space {space} cannot be drawn uniformly here; possible are "
                "Discrete, MultiDiscrete with one dimension, and Box. Explore with "
                "StochasticSampling, which draws from the policy, and without random_timesteps; or "
                "change the action space with a wrapper around the env."
            )
        borders = np.cumsum([0, *self._sizes]).tolist()
        self._parts = [slice(start, stop) for start, stop in pairwise(borders)]
        self.width = len(self._sizes) if self._box is None else self._box.width
        self._counts: Array = np.array(self._sizes, np.int64)

    def draw(self, uniforms: Array, valid: Array | None = None) -> Array:
        """Actions as a module gives them, [B, …].

        Args:
            uniforms: on [0, 1), float64 [B, ≥ width].
            valid: which alternatives are allowed, bool [B, K]; None allows all.
        """
        if self._box is not None:
            return self._box.draw(np.ascontiguousarray(uniforms[:, : self.width]))
        if valid is None:
            actions = _floors(uniforms[:, : self.width], self._counts)
        else:
            drawn = [
                _ranked(uniforms[:, index], valid[:, part])
                for index, part in enumerate(self._parts)
            ]
            actions = np.stack(drawn, axis=1)
        return actions[:, 0] if self._is_single else actions

    def logp(self, actions: Array, valid: Array | None = None) -> Array:
        """The log-likelihoods, float32 [B], of actions as `draw` gives them; `valid` as there."""
        if self._box is not None:
            return self._box.logp(actions)
        if valid is None:  # the same operations, so that the bits of a row depend on itself alone
            counts = np.tile(self._sizes, (len(actions), 1))
        else:
            counts = np.stack([valid[:, part].sum(axis=1) for part in self._parts], axis=1)
        logp: Array = -np.log(np.maximum(counts, 1)).sum(axis=1)
        return logp.astype(np.float32)


def _floors(uniforms: Array, sizes: Array) -> Array:
    """⌊u·n⌋ for every alternative; rounding never leads to n."""
    floors: Array = (uniforms * sizes).astype(np.int64)
    np.minimum(floors, sizes - 1, out=floors)
    return floors


def _ranked(uniforms: Array, valid: Array) -> Array:
    """One of the valid alternatives per row; 0 where none is."""
    counts = valid.sum(axis=1)
    ranks = np.minimum((uniforms * counts).astype(np.int64), np.maximum(counts - 1, 0))
    chosen: Array = (valid.cumsum(axis=1) > ranks[:, None]).argmax(axis=1)
    return chosen


class _BoxActions:
    """Draws from a Box, dimension by dimension."""

    def __init__(self, space: spaces.Box) -> None:
        self._shape = space.shape
        self._dtype: Any = space.dtype
        self._is_integer = np.issubdtype(space.dtype, np.integer)
        low, high = (np.asarray(end, np.float64).ravel() for end in (space.low, space.high))
        below = np.asarray(space.bounded_below).ravel()
        above = np.asarray(space.bounded_above).ravel()
        self._is_bounded: Array = below & above
        self._start: Array = np.where(below, low, np.where(above, high, 0.0))
        self._sign = np.where(below, 1.0, -1.0)
        self._is_free: Array = ~below & ~above
        self._range: Array = np.where(self._is_bounded, high - low, 1.0)
        self._all_bounded = bool(self._is_bounded.all())
        self.width = len(low) if self._all_bounded else 2 * len(low)

    def draw(self, uniforms: Array) -> Array:
        size = len(self._range)
        first = uniforms[:, :size]
        if self._is_integer:
            drawn = self._start + np.floor(first * (self._range + 1.0))
            values = np.minimum(drawn, self._start + self._range)
        else:
            values = self._start + first * self._range
        if not self._all_bounded:
            exponential = -np.log(1.0 - np.ascontiguousarray(first))
            half_bounded = self._start + self._sign * exponential
            unbounded = np.where(self._is_free, normal_numbers(uniforms), half_bounded)
            values = np.where(self._is_bounded, values, unbounded)
        actions: Array = values.astype(self._dtype).reshape(-1, *self._shape)
        return actions

    def logp(self, actions: Array) -> Array:
        values = actions.reshape(len(actions), -1).astype(np.float64)
        # A dimension with a single value has probability 1, not a density.
        widths = np.where(self._range > 0.0, self._range, 1.0)
        bounded = -np.log(self._range + 1.0 if self._is_integer else widths)
        free = -0.5 * values * values - 0.5 * _LOG_2_PI
        half_bounded = self._sign * (self._start - values)
        unbounded = np.where(self._is_free, free, half_bounded)
        logp: Array = np.where(self._is_bounded, bounded, unbounded).sum(axis=1)
        return logp.astype(np.float32)


# ---- epsilon greedy
#
# Mostly the best action, sometimes any: what DQN does (Mnih et al. 2015, algorithm 1).

_BASE: Final = 0.4
_EXPONENT: Final = 7.0
_SMALLEST: Final = float(np.finfo(np.float32).tiny)


# A strategy that users name and subclass; PerWorkerEpsilonGreedy is another one.
class EpsilonGreedy(Exploration):
    """With probability ε a uniformly random allowed action, otherwise the best one.

    An action is allowed unless its value is `MASKED`, or the mask of the choice says
    so. A value of 0 is a value like any other.

    Attributes:
        epsilon_schedule: ε as a function of the timestep.
    """

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (
        spaces.Discrete,
        spaces.MultiDiscrete,
    )
    state_follows: ClassVar[bool] = True

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        initial_epsilon: float = 1.0,
        final_epsilon: float = 0.05,
        warmup_timesteps: int = 0,
        epsilon_timesteps: int = 100_000,
        epsilon_schedule: Any = None,
        **context: Any,
    ) -> None:
        """Reads the schedule of ε.

        Args:
            action_space: of actions as modules give them.
            initial_epsilon: ε until `warmup_timesteps`, in [0, 1].
            final_epsilon: ε from `warmup_timesteps + epsilon_timesteps` on.
            warmup_timesteps: env steps before ε begins to change.
            epsilon_timesteps: env steps in which it changes, linearly.
            epsilon_schedule: replaces all of these: a number, a list of (timestep, ε), or one of
                `SCHEDULES` as object or dict.
            context: see `Exploration`.

        Raises:
            ConfigError: an argument is wrong.
            UnsupportedSpaceError: the action space is not Discrete or MultiDiscrete.
        """
        super().__init__(action_space, **context)
        self.epsilon_schedule: ExplorationSchedule = schedule_or_ramp(
            epsilon_schedule,
            checked_number(initial_epsilon, name="initial_epsilon", maximum=1.0),
            checked_number(final_epsilon, name="final_epsilon", maximum=1.0),
            start=checked_count(warmup_timesteps, name="warmup_timesteps"),
            length=checked_count(epsilon_timesteps, name="epsilon_timesteps"),
            name="epsilon_schedule",
            maximum=1.0,
        )
        self._uniform = UniformActions(action_space)
        self.noise_width = 1 + self._uniform.width
        nothing: Array = np.zeros((1, *action_space.shape), np.int64)  # type: ignore[misc]
        # Where nothing is masked, every action has the same: [1], for any number of rows.
        self._likelihood: Array = np.exp(self._uniform.logp(nothing))
        self._newest: tuple[int, Any, float] = (-1, None, 0.0)

    def epsilon(self, timestep: int) -> float:
        """ε at a timestep, in [0, 1]."""
        return min(1.0, max(0.0, self.epsilon_schedule.value(timestep)))

    def _epsilon_at(self, timestep: int) -> float:
        """The same; asked once for all steps of a request, if it is a function of the timestep."""
        if type(self).epsilon is not EpsilonGreedy.epsilon:
            return self.epsilon(timestep)  # a subclass may look at more
        known, schedule, epsilon = self._newest
        if known != timestep or schedule is not self.epsilon_schedule:
            epsilon = self.epsilon(timestep)
            self._newest = timestep, self.epsilon_schedule, epsilon
        return epsilon

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        self.last_timestep = timestep
        best = action_distribution.deterministic_sample()
        noise, epsilon = action_distribution.noise, self._epsilon_at(timestep)
        if len(noise) == 1 and noise[0, 0] >= epsilon:  # the usual case of a single env
            return best, None
        is_random = noise[:, 0] < epsilon
        if not explore or not np.count_nonzero(is_random):
            return best, None
        drawn = self._uniform.draw(noise[:, 1:], action_distribution.valid_parts())
        actions: Array = np.where(is_random if best.ndim == 1 else is_random[:, None], drawn, best)
        return actions, None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """The log of ε/n, plus 1 - ε for the best action; see `Exploration.logp`."""
        epsilon = self._epsilon_at(timestep)
        is_best = actions == self.distribution.deterministic(inputs)
        if is_best.ndim > 1:
            is_best = np.logical_and.reduce(is_best, axis=1)
        valid = valid_parts(inputs)
        uniform = self._likelihood if valid is None else np.exp(self._uniform.logp(actions, valid))
        share: Array = epsilon * uniform + (1.0 - epsilon) * is_best
        return np.log(np.maximum(share, _SMALLEST)).astype(np.float32, copy=False)

    def get_state(self) -> State:
        """ε as it was last used, and when that was; ε follows from the timestep."""
        return {
            "cur_epsilon": self.epsilon(self.last_timestep),
            "last_timestep": self.last_timestep,
        }


class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """A constant ε of its own for each env runner (Horgan et al. 2018, section 4).

    Runner i of n has ε = 0.4^(1 + 7·(i - 1)/max(1, n - 1)); the main process beside runners has 0,
    and without runners it follows the schedule. By its nature, what is sampled depends on how many
    runners there are.
    """

    def __init__(self, action_space: spaces.Space[Any], **settings: Any) -> None:
        """See `EpsilonGreedy`, whose schedule counts only without env runners."""
        super().__init__(action_space, **settings)
        constant = constant_per_worker(self, number=self.worker_index - 1)
        self.epsilon_schedule = constant or self.epsilon_schedule


def constant_per_worker(strategy: Exploration, *, number: int) -> ExplorationSchedule | None:
    """0.4^(1 + 7·number/max(1, num_workers - 1)), Horgan et al. 2018, section 4.

    0 in the main process beside runners; None if it samples alone.
    """
    if strategy.num_workers == 0:
        return None
    if strategy.worker_index == 0:
        return ConstantSchedule(0.0)
    exponent = 1.0 + _EXPONENT * number / max(1, strategy.num_workers - 1)
    return ConstantSchedule(float(_BASE**exponent))


# ---- soft q
#
# Better actions more often: the Boltzmann distribution of Q values or logits.

_LARGEST_GAP: Final = 1e20


class SoftQ(Exploration):
    """Draws from softmax(q / temperature) (Sutton and Barto 2018, section 2.8)."""

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (
        spaces.Discrete,
        spaces.MultiDiscrete,
    )

    def __init__(
        self, action_space: spaces.Space[Any], *, temperature: float = 1.0, **context: Any
    ) -> None:
        """Takes the temperature.

        Args:
            action_space: of actions as modules give them.
            temperature: > 0; towards 0 the best action remains.
            context: see `Exploration`.

        Raises:
            ConfigError: the temperature is not above 0.
            UnsupportedSpaceError: the action space is not Discrete or MultiDiscrete.
        """
        super().__init__(action_space, **context)
        self.temperature = checked_number(temperature, name="temperature", above=True)
        self.noise_kind = "gumbel" if self.distribution.noise_kind == "gumbel" else "uniform"
        self.noise_width = (
            self.distribution.noise_width
            if self.noise_kind == "gumbel"
            else uniforms_per_row(self.distribution)
        )

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        del timestep
        if not explore:
            return action_distribution.deterministic_sample(), None
        choice = action_distribution
        noise = numbers_for(choice.distribution, choice.noise, kind=choice.noise_kind)
        # The largest of q/T + Gumbel noise is the largest of q + T · Gumbel noise.
        return choice.distribution.sample(choice.allowed_inputs(), self.temperature * noise), None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        del timestep
        gaps = np.maximum(inputs - np.maximum.reduce(inputs, axis=1, keepdims=True), -_LARGEST_GAP)
        return self.distribution.logp((gaps / self.temperature).astype(np.float32), actions)


# ---- stochastic sampling
#
# Actions drawn from the policy's own distribution: what policy-gradient algorithms do.


class StochasticSampling(Exploration):
    """Draws from the module's distribution, after an optional phase of uniform actions.

    In the uniform phase the log-likelihoods are those of the uniform distribution, so that
    importance ratios of PPO are right. RLlib gives 0 there, which makes them wrong.
    """

    def __init__(
        self, action_space: spaces.Space[Any], *, random_timesteps: int = 0, **context: Any
    ) -> None:
        """Chooses the noise: the distribution's own kind, if no other is needed.

        Args:
            action_space: of actions as modules give them.
            random_timesteps: so many env steps of the run are uniformly random.
            context: see `Exploration`.

        Raises:
            ConfigError: `random_timesteps` is no count.
            UnsupportedSpaceError: there are no uniform actions of this space.
        """
        super().__init__(action_space, **context)
        self.random_timesteps = checked_count(random_timesteps, name="random_timesteps")
        self._uniform: UniformActions | None = None
        self.noise_kind = self.distribution.noise_kind
        self.noise_width = self.distribution.noise_width
        if self.random_timesteps > 0:
            self._uniform = UniformActions(action_space)
            self.noise_kind = "uniform"
            self.noise_width = max(self._uniform.width, uniforms_per_row(self.distribution))

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        if not explore:
            return action_distribution.deterministic_sample(), None
        if self._uniform is not None and timestep < self.random_timesteps:
            valid = action_distribution.valid_parts()
            return self._uniform.draw(action_distribution.noise, valid), None
        return action_distribution.sample(), None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        if self._uniform is not None and timestep < self.random_timesteps:
            return self._uniform.logp(actions, valid_parts(inputs))
        return self.distribution.logp(inputs, actions)


# ---- random actions
#
# Actions drawn uniformly from the action space, whatever the module says.


class Random(Exploration):
    """Uniform over the (allowed) actions; without exploration the most likely one."""

    def __init__(self, action_space: spaces.Space[Any], **context: Any) -> None:
        """Plans the drawing.

        Raises:
            UnsupportedSpaceError: there are no uniform actions of this space.
        """
        super().__init__(action_space, **context)
        self._uniform = UniformActions(action_space)
        self.noise_width = self._uniform.width

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        del timestep
        if not explore:
            return action_distribution.deterministic_sample(), None
        valid = action_distribution.valid_parts()
        return self._uniform.draw(action_distribution.noise, valid), None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        del timestep
        return self._uniform.logp(actions, valid_parts(inputs))


# ---- gaussian noise
#
# Continuous actions with independent normal noise (Fujimoto et al. 2018, TD3, section 5.2).


class GaussianNoise(Exploration):
    """Uniform actions at first, then the best action plus scale(t) · N(0, stddev), clipped.

    Attributes:
        scale_schedule: the scale as a function of the timestep.
    """

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (spaces.Box,)
    state_follows: ClassVar[bool] = True

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        random_timesteps: int = 1000,
        stddev: float = 0.1,
        initial_scale: float = 1.0,
        final_scale: float = 0.02,
        scale_timesteps: int = 10_000,
        scale_schedule: Any = None,
        **context: Any,
    ) -> None:
        """Reads the schedule of the scale.

        Args:
            action_space: of actions as modules give them.
            random_timesteps: so many env steps of the run are uniformly random.
            stddev: standard deviation of the noise at scale 1, in units of actions as modules give
                them.
            initial_scale: the scale when the random phase ends.
            final_scale: the scale `scale_timesteps` later, and from then on.
            scale_timesteps: env steps in which it changes, linearly.
            scale_schedule: replaces the three: a number, a list of (timestep, scale), or one of
                `SCHEDULES` as object or dict.
            context: see `Exploration`.

        Raises:
            ConfigError: an argument is wrong.
            UnsupportedSpaceError: the action space is not a Box of floats.
        """
        super().__init__(action_space, **context)
        self.random_timesteps = checked_count(random_timesteps, name="random_timesteps")
        self.stddev = checked_number(stddev, name="stddev")
        self.scale_schedule: ExplorationSchedule = schedule_or_ramp(
            scale_schedule,
            checked_number(initial_scale, name="initial_scale"),
            checked_number(final_scale, name="final_scale"),
            start=self.random_timesteps,
            length=checked_count(scale_timesteps, name="scale_timesteps"),
            name="scale_schedule",
        )
        self._uniform = UniformActions(action_space)
        low, high = action_space.low, action_space.high  # type: ignore[attr-defined]
        self._low, self._high = low.astype(np.float32), high.astype(np.float32)
        self.noise_width = 2 * self._low.size

    def scale(self, timestep: int) -> float:
        """The scale of the noise at a timestep."""
        return self.scale_schedule.value(timestep)

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        self.last_timestep = timestep
        choice = action_distribution
        self.advance(choice.slots, choice.noise)
        if explore and timestep < self.random_timesteps:
            return self._uniform.draw(choice.noise), None
        best = choice.deterministic_sample()
        if not explore:
            return best, None
        added = self.scale(timestep) * self.unscaled_noise(choice.slots, choice.noise)
        noisy = best + added.reshape(best.shape).astype(best.dtype)
        actions: Array = np.minimum(np.maximum(noisy, self._low), self._high)
        return actions, None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """Of uniform actions their own, later those of the module's distribution."""
        if timestep < self.random_timesteps:
            return self._uniform.logp(actions)
        return self.distribution.logp(inputs, actions)

    def unscaled_noise(self, slots: Sequence[int], noise: Array) -> Array:
        """What is added at scale 1, float64 [B, A].

        Args:
            slots: the slots of the rows.
            noise: uniform numbers, [B, 2A].
        """
        del slots
        return self.stddev * normal_numbers(np.ascontiguousarray(noise))

    def get_state(self) -> State:
        """The scale as it was last used, and when that was; it follows from the timestep."""
        return {"cur_scale": self.scale(self.last_timestep), "last_timestep": self.last_timestep}


class PerWorkerGaussianNoise(GaussianNoise):
    """A constant scale of its own for each env runner (after Horgan et al. 2018, section 4).

    Runner i of n has scale 0.4^(1 + 7·i/max(1, n - 1)); the main process beside runners has 0, and
    without runners it follows the schedule. By its nature, what is sampled depends on how many
    runners there are.
    """

    def __init__(self, action_space: spaces.Space[Any], **settings: Any) -> None:
        """See `GaussianNoise`, whose schedule counts only without env runners."""
        super().__init__(action_space, **settings)
        constant = constant_per_worker(self, number=self.worker_index)
        self.scale_schedule = constant or self.scale_schedule


# ---- ornstein uhlenbeck noise
#
# Continuous actions with noise that is correlated in time (Lillicrap et al. 2016, DDPG).


# A strategy that users name and subclass; the one per worker is another one.
class OrnsteinUhlenbeckNoise(GaussianNoise):
    """Uniform actions at first, then the best action plus an Ornstein-Uhlenbeck process, clipped.

    The process (Uhlenbeck and Ornstein 1930; Lillicrap et al. 2016, section 7): x ← x - θx +
    σ·N(0, 1), from 0 at the start of each episode, and moved on by every step of it. The noise is
    scale(t) · base_scale · x · (high - low), with the factor 1 for dimensions without bounds.

    Every env slot has its own x. It is a function of the episode's random numbers alone, so a
    slot that is put back into the middle of an episode finds it again.
    """

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        ou_theta: float = 0.15,
        ou_sigma: float = 0.2,
        ou_base_scale: float = 0.1,
        **settings: Any,
    ) -> None:
        """Takes the constants of the process.

        Args:
            action_space: of actions as modules give them.
            ou_theta: θ, how fast the noise falls back to 0, in [0, 1].
            ou_sigma: σ, its growth per step.
            ou_base_scale: factor of the noise.
            settings: arguments of `GaussianNoise` but for `stddev`, and its context.

        Raises:
            ConfigError: an argument is wrong.
            UnsupportedSpaceError: the action space is not a Box of floats.
        """
        super().__init__(action_space, **settings)
        self.ou_theta = checked_number(ou_theta, name="ou_theta", maximum=1.0)
        self.ou_sigma = checked_number(ou_sigma, name="ou_sigma")
        self.ou_base_scale = checked_number(ou_base_scale, name="ou_base_scale")
        with np.errstate(over="ignore"):
            span = (self._high.astype(np.float64) - self._low).ravel()
        self._span: Array = np.where(np.isfinite(span), span, 1.0)
        self._states: dict[int, Array] = {}

    def begin_episode(self, slot: int) -> None:
        """Puts the slot's process to 0."""
        self._states[slot] = np.zeros(len(self._span))

    def advance(self, slots: Sequence[int], noise: Array) -> None:
        """Makes one step of every slot's process."""
        numbers = normal_numbers(np.ascontiguousarray(noise))
        for slot, row in zip(slots, numbers, strict=True):
            state = self._states.get(slot, 0.0)
            self._states[slot] = state - self.ou_theta * state + self.ou_sigma * row

    def unscaled_noise(self, slots: Sequence[int], noise: Array) -> Array:
        """The processes as they stand, see the class; float64 [B, A]."""
        del noise
        states = np.stack([self._states[slot] for slot in slots])
        added: Array = self.ou_base_scale * states * self._span
        return added


class PerWorkerOrnsteinUhlenbeckNoise(OrnsteinUhlenbeckNoise):
    """A constant scale of its own for each env runner; see `PerWorkerGaussianNoise`."""

    def __init__(self, action_space: spaces.Space[Any], **settings: Any) -> None:
        """See `OrnsteinUhlenbeckNoise`, whose schedule counts only without env runners."""
        super().__init__(action_space, **settings)
        constant = constant_per_worker(self, number=self.worker_index)
        self.scale_schedule = constant or self.scale_schedule


# ---- state dependent noise
#
# gSDE: noise that is a function of the policy's features, which stays the same for a stretch.

_SEEDS: Final = 2.0**53
"""Uniform numbers are multiples of 2⁻⁵³; times this they are whole."""


class StateDependentNoise(Exploration):
    """Smooth noise that follows from what the policy sees: gSDE (Raffin, Kober and Stulp 2022).

    a = mean(s) + φ(s)ᵀ(σ ∘ ε) (ibid., equation 5), with features φ [F] of the policy's last hidden
    layer, learnt deviations σ [F, A], and ε ~ N(0, 1) [F, A], which stays the same for
    `sample_freq` steps: the same state gives the same action, and noise does not tremble. Over all
    ε, actions are of the module's distribution, from which log-likelihoods come.

    The network needs `model_config={"free_log_std": True, "log_std_by_feature": True}`.

    An env slot's ε is drawn by a generator whose seed is a random number of the step where the
    stretch began, so a slot that is put back into the middle of an episode finds it again.
    """

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (spaces.Box,)
    needs_loadings = True

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        sample_freq: int | None = None,
        **context: Any,
    ) -> None:
        """Takes the length of a stretch.

        Args:
            action_space: of actions as modules give them.
            sample_freq: steps of an episode, ≥ 1, after which ε is drawn anew; None for whole
                episodes.
            context: see `Exploration`.

        Raises:
            ConfigError: the argument is wrong.
            UnsupportedSpaceError: the action space is not a Box of floats.
        """
        super().__init__(action_space, **context)
        if sample_freq is not None and not integer(1).accepts(sample_freq):
            raise ConfigError(
                f"`sample_freq={sample_freq!r}`: expected a number of steps ≥ 1, or None for whole "
                "episodes."
            )
        self.sample_freq = sample_freq
        self._steps: dict[int, int] = {}
        self._seeds: dict[int, float] = {}
        self._drawn: dict[int, Array] = {}

    def begin_episode(self, slot: int) -> None:
        """A stretch ends with its episode."""
        self._steps[slot] = 0

    def advance(self, slots: Sequence[int], noise: Array) -> None:
        """Counts the steps, and takes the number of one where a stretch begins."""
        for slot, number in zip(slots, noise[:, 0].tolist(), strict=True):
            step = self._steps.get(slot, 0)
            if step % (self.sample_freq or math.inf) == 0:
                self._seeds[slot] = number
                self._drawn.pop(slot, None)
            self._steps[slot] = step + 1

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        del timestep
        choice = action_distribution
        self.advance(choice.slots, choice.noise)
        if not explore:
            return choice.deterministic_sample(), None
        loadings: Any = choice.loadings  # None is refused where the policy is put together
        noise = np.stack([self._noise_of(slot, loadings.shape[1:]) for slot in choice.slots])
        normal = np.add.reduce(loadings * noise, axis=-1)
        return self.distribution.sample(choice.inputs, normal), None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """Those of the module's distribution; said here, they are computed once per request."""
        return super().logp(inputs, actions, timestep=timestep)

    def _noise_of(self, slot: int, shape: tuple[int, ...]) -> Array:
        """ε of the stretch in a slot, float32 [A, F]."""
        if slot not in self._drawn:
            rng = np.random.default_rng(int(self._seeds[slot] * _SEEDS))
            self._drawn[slot] = rng.standard_normal(shape, dtype=np.float32)
        return self._drawn[slot]


# ---- parameter noise
#
# Noise on the weights instead of the actions (Plappert et al. 2018, "Parameter Space Noise"). A
# run of consistent behaviour per episode, where noise on actions trembles in every step.

_ADAPTATION: Final = 1.01
_SIGMA_OF_OTHERS: Final = 0.2
_SMALLEST_SHARE: Final = 1e-10


class ParameterNoise(WithSubExploration):
    """Acts with weights to which normal noise was added, once per episode.

    θ̃ = θ + stddev · ε, with ε ~ N(0, 1) a function of the episode's position. The standard
    deviation adapts (ibid., section 3 and appendix C): after each chunk that was sampled, in order
    of slots and time, it is multiplied by 1.01 if perturbed and clean policy were closer than δ,
    else divided by it. For counted actions the distance is the mean KL(clean ‖ perturbed) of the
    softmaxes, and δ = -log(1 - ε + ε/n), with the ε of the sub-exploration. For continuous actions
    it is the root mean square of the difference of the most likely actions, and δ = σ · scale of
    the sub-exploration's noise. There are no layer-norm parameters here that would be left out.

    The standard deviation lives in the main process and is sent to the runners with the weights.

    Attributes:
        current_stddev: the standard deviation now.
    """

    possible_spaces: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (
        spaces.Discrete,
        spaces.MultiDiscrete,
        spaces.Box,
    )
    perturbs_weights: ClassVar[bool] = True

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        initial_stddev: float = 1.0,
        random_timesteps: int = 10_000,
        **context: Any,
    ) -> None:
        """Starts with the initial standard deviation.

        Args:
            action_space: of actions as modules give them.
            initial_stddev: the first standard deviation, > 0.
            random_timesteps: the uniform phase of the default sub-exploration, env steps.
            context: `sub_exploration` and the context of `Exploration`.

        Raises:
            ConfigError: an argument is wrong, or the sub-exploration gives no δ.
            UnsupportedSpaceError: there is no strategy for the action space.
        """
        super().__init__(action_space, **context)
        stddev = checked_number(initial_stddev, name="initial_stddev", above=True)
        self.current_stddev = stddev
        self.random_timesteps = checked_count(random_timesteps, name="random_timesteps")
        wanted = GaussianNoise if isinstance(action_space, spaces.Box) else EpsilonGreedy
        if not isinstance(self.sub_exploration, wanted):
            raise ConfigError(
                "ParameterNoise adapts its standard deviation to the noise of its "
                f"`sub_exploration`, which {type(self.sub_exploration).__name__} does not say. "
                "Leave it out, or give EpsilonGreedy for actions that are counted, GaussianNoise "
                "or OrnsteinUhlenbeckNoise for continuous ones, or a subclass of these."
            )

    def perturbation(
        self, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator
    ) -> Array:
        """Standard normal numbers, float32 [number of parameters]."""
        return rng.standard_normal(sum(map(math.prod, shapes.values())), dtype=np.float32)

    def observe_sample(self, sample: ExploredSample) -> Sequence[Array] | None:
        """Adapts the standard deviation; the rewards stay."""
        delta = self._threshold(sample.timestep)
        for chunk in sample.chunks:
            if chunk.inputs is None or len(chunk.inputs) == 0:
                continue
            clean = sample.clean_inputs(chunk.obs[:-1])
            if self.distance(clean, chunk.inputs) <= delta:
                self.current_stddev *= _ADAPTATION
            else:
                self.current_stddev /= _ADAPTATION
        return None

    def distance(self, clean: Array, noisy: Array) -> float:
        """How far two policies are apart, ≥ 0.

        Args:
            clean: distribution inputs of the module, [T, K].
            noisy: those of the perturbed module, [T, K].
        """
        clean, noisy = clean.astype(np.float64), noisy.astype(np.float64)
        if isinstance(self.action_space, spaces.Box):
            best = self.distribution.deterministic
            difference = best(clean) - best(noisy)
            return float(np.sqrt(np.mean(difference * difference)))
        return max(0.0, float(np.mean(self.distribution.kl(clean, noisy))))

    def _threshold(self, timestep: int) -> float:
        """The δ of the class at a timestep."""
        sub = self.sub_exploration
        if isinstance(sub, EpsilonGreedy):
            space = self.action_space
            sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec  # type: ignore[attr-defined]
            epsilon = sub.epsilon(timestep)
            share = 1.0 - epsilon + epsilon / math.prod(int(size) for size in sizes)
            return -math.log(max(share, _SMALLEST_SHARE))
        if isinstance(sub, OrnsteinUhlenbeckNoise):
            return sub.ou_sigma * sub.scale(timestep)
        return _SIGMA_OF_OTHERS * sub.scale(timestep) if isinstance(sub, GaussianNoise) else 0.0

    def runner_state(self) -> State:
        """The standard deviation."""
        return {"cur_stddev": self.current_stddev}

    def get_state(self) -> State:
        """The standard deviation, and the sub-exploration's state."""
        return {"cur_stddev": self.current_stddev, **super().get_state()}

    def check_state(self, state: State) -> None:
        check_shape(state, fields({"cur_stddev": ANY_NUMBER, "sub_exploration": of_type(dict)}))
        super().check_state(state)

    def set_state(self, state: State) -> None:
        super().set_state(state)
        if "cur_stddev" in state:
            self.current_stddev = float(state["cur_stddev"])


# ---- making
#
# From `exploration_config` to a strategy: what `type` may be, and which arguments fit.
#
#     spec = ExplorationSpec.from_config({"type": "EpsilonGreedy", "final_epsilon": 0.02})
#     strategy = spec.make(action_space, distribution=distribution)
#
# The spec is a small frozen value that travels to the runners; each makes a strategy of its own.

EXPLORATIONS: Final[Mapping[str, type[Exploration]]] = MappingProxyType(
    {
        strategy.__name__: strategy
        for strategy in (
            StochasticSampling,
            Random,
            EpsilonGreedy,
            PerWorkerEpsilonGreedy,
            SoftQ,
            GaussianNoise,
            PerWorkerGaussianNoise,
            OrnsteinUhlenbeckNoise,
            PerWorkerOrnsteinUhlenbeckNoise,
            StateDependentNoise,
            ParameterNoise,
            Curiosity,
            RE3,
        )
    }
)
"""Every ready-made strategy by its name."""

_RLLIB: Final = "ray.rllib."
_CONTEXT: Final = frozenset(
    {"action_space", "distribution", "num_workers", "worker_index", "framework", "policy_config"}
) | {"model"}
"""Arguments that constructors get besides the user's; the last three are those of RLlib."""


@dataclass(frozen=True)
class ExplorationSpec:
    """Which strategy to make, with which arguments.

    Attributes:
        kind: a class, a callable that gives a strategy, or a strategy, of which each place gets a
            copy.
        settings: the user's arguments.
        sub: of the strategy that chooses actions for this one; None if there is none, or it follows
            from the action space.
    """

    kind: Any = StochasticSampling
    settings: Mapping[str, Any] = field(default_factory=dict)
    sub: ExplorationSpec | None = None

    @classmethod
    def from_config(cls, config: Any, *, source: Source) -> ExplorationSpec:
        """Reads what a user wrote.

        Args:
            config: `{"type": name | dotted path | class | callable | strategy, arguments}`, or any
                of these alone. Without a type it is `StochasticSampling`.
            source: where it was written.

        Raises:
            CodeNotAllowedError: it names what its source may not have imported.
            UnknownSettingError: the type or an argument does not exist; names the nearest one.
            ConfigError: the type is not offered, is no strategy, or an argument is wrong.
        """
        given = dict(config) if isinstance(config, Mapping) else {"type": config}
        kind = _resolved(given.pop("type", StochasticSampling), source)
        sub = None
        if _takes_sub_exploration(kind):
            sub = _sub_spec(kind, given.pop("sub_exploration", None), source)
        _refuse_unknown(kind, given)
        spec = cls(kind, given, sub)
        spec._try_out()
        return spec

    def to_config(self) -> dict[str, Any] | None:
        """What `from_config` reads to give this spec, by names alone; None if it is code."""
        names = [name for name, kind in EXPLORATIONS.items() if kind is self.kind]
        sub = None if self.sub is None else self.sub.to_config()
        if not names or (self.sub is not None and sub is None):
            return None
        return {
            "type": names[0],
            **self.settings,
            **({} if sub is None else {"sub_exploration": sub}),
        }

    @property
    def name(self) -> str:
        """What messages call the strategy."""
        return str(getattr(self.kind, "__name__", type(self.kind).__name__))

    @property
    def is_plain_sampling(self) -> bool:
        """Whether it only draws from the distribution, which runners do without a strategy."""
        return self.kind is StochasticSampling and not self.settings.get("random_timesteps")

    def make(
        self,
        action_space: spaces.Space[Any],
        *,
        distribution: ActionDistribution,
        num_workers: int = 0,
        worker_index: int = 0,
    ) -> Exploration:
        """A new strategy.

        Args:
            action_space: of actions as modules give them.
            distribution: the module's.
            num_workers: env runner processes.
            worker_index: whose strategy it is.

        Raises:
            UnsupportedSpaceError: the strategy cannot serve the action space.
            ConfigError: an argument is wrong.
        """
        if isinstance(self.kind, Exploration):
            return copy.deepcopy(self.kind)
        context: dict[str, Any] = {
            "distribution": distribution,
            "num_workers": num_workers,
            "worker_index": worker_index,
        }
        settings = copy.deepcopy(dict(self.settings))
        if _takes_sub_exploration(self.kind):
            self.kind.check_space(action_space)  # first, so that the sub-exploration is not blamed
            sub = self.sub or self._default_sub(action_space)
            try:
                settings["sub_exploration"] = sub.make(action_space, **context)
            except UnsupportedSpaceError as error:
                error.args = (f"sub_exploration of {self.name}: {error}",)
                raise
        old_context: dict[str, Any] = {"framework": "numpy", "policy_config": {}, "model": None}
        wanted = _parameters(self.kind)
        context |= {name: value for name, value in old_context.items() if name in wanted}
        if not _takes_any(self.kind):
            context = {name: value for name, value in context.items() if name in wanted}
        strategy = self._called(action_space, {**context, **settings})
        if not isinstance(strategy, Exploration):
            raise ConfigError(
                f"exploration_config: {self.name} gave {strategy!r}; expected an Exploration. "
                "Derive your strategy from `trainer.Exploration`."
            )
        if not hasattr(strategy, "last_timestep"):
            raise ConfigError(
                f"exploration_config: {self.name} has no `distribution` and no `action_space`: its "
                "`__init__` did not call that of its base class. Begin it with "
                "`super().__init__(action_space, **context)`."
            )
        return strategy

    def _called(self, action_space: spaces.Space[Any], arguments: dict[str, Any]) -> Any:
        """What the kind gives; a ConfigError if it cannot be called as strategies are."""
        if inspect.isabstract(self.kind):
            raise ConfigError(
                f"exploration_config: {self.name} lacks {', '.join(self.kind.__abstractmethods__)}"
                "(), by which a strategy chooses actions. Write it; `trainer.Exploration` has an "
                "example."
            )
        try:
            inspect.signature(self.kind).bind(action_space, **arguments)
        except TypeError as cause:
            raise ConfigError(
                f"exploration_config: {self.name} cannot be made: {cause}. It is called with the "
                f"action space, and by name with {', '.join(arguments) or 'nothing'}. Write "
                "`def __init__(self, action_space, **context)`, and give arguments without a "
                "default beside `type`."
            ) from cause
        return self.kind(action_space, **arguments)

    def _default_sub(self, action_space: spaces.Space[Any]) -> ExplorationSpec:
        config = self.kind.default_sub_exploration(action_space, self.settings)
        return ExplorationSpec.from_config(config, source=PROGRAM)

    def _try_out(self) -> None:
        """Makes a ready-made strategy for some space that it serves, so that mistakes show now."""
        if self.kind not in EXPLORATIONS.values():
            return
        try:
            self.make(spaces.Discrete(2), distribution=Categorical(2))
        except UnsupportedSpaceError:
            self.make(spaces.Box(-1.0, 1.0, (1,)), distribution=DiagGaussian((1,)))


def _resolved(kind: Any, source: Source) -> Any:
    """The class, callable or strategy that `type` names."""
    if not isinstance(kind, str):
        if isinstance(kind, type) and not issubclass(kind, Exploration):
            raise ConfigError(
                f"exploration_config: type={kind.__name__} is no exploration strategy. Derive it "
                "from `trainer.Exploration`."
            )
        if isinstance(kind, Exploration) or callable(kind):
            return kind
        raise ConfigError(
            f"exploration_config: type={kind!r} is no exploration strategy. Give a name "
            f"({', '.join(EXPLORATIONS)}), a dotted path, a subclass of `trainer.Exploration`, a "
            "callable that gives one, or one itself."
        )
    module, _, name = kind.rpartition(".")
    why_not = OLD_NAMES.refused_explorations.get(name)
    if why_not is not None:
        raise ConfigError(
            f"exploration_config: type={kind!r} is not offered: {why_not}. "
            f"There are {', '.join(EXPLORATIONS)}."
        )
    if name in EXPLORATIONS and (not module or module.startswith(_RLLIB)):
        return EXPLORATIONS[name]
    if module and not module.startswith(_RLLIB):
        try:
            found = imported(kind, source=source, place="`exploration_config`")
        except ImportError as cause:
            raise UnknownSettingError(
                f"exploration_config: type={kind!r} cannot be imported ({cause}). Check the path, "
                "or give the class itself."
            ) from cause
        return _resolved(found, source)
    raise UnknownSettingError(
        f"exploration_config: there is no type {kind!r}.{did_you_mean(name, EXPLORATIONS)}"
        " Give one of "
        f"{', '.join(EXPLORATIONS)}, a dotted path to a class, or the class itself."
    )


def _takes_sub_exploration(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, WithSubExploration)


def _sub_spec(
    kind: type[WithSubExploration], config: Any, source: Source
) -> ExplorationSpec | None:
    """The spec of the sub-exploration; None if it follows from the action space."""
    if config is not None:
        try:
            return ExplorationSpec.from_config(config, source=source)
        except TrainerError as error:
            error.args = (f"sub_exploration of {kind.__name__}: {error}",)
            raise
    if kind.default_sub_exploration(spaces.Discrete(2), {}) is None:
        raise ConfigError(
            f"exploration_config: {kind.__name__} needs `sub_exploration`, which chooses the "
            'actions: e.g. {"type": "StochasticSampling"}, or {"type": "EpsilonGreedy"} for DQN.'
        )
    return None


def _refuse_unknown(kind: Any, settings: Mapping[str, Any]) -> None:
    """Refuses arguments that the constructor does not know, and any for a ready strategy."""
    name = getattr(kind, "__name__", type(kind).__name__)
    if isinstance(kind, Exploration):
        if settings:
            raise ConfigError(
                f"exploration_config: type={name}(…) is a strategy already, so the arguments "
                f"{sorted(settings)} come too late. Give them where it is made, or give the class."
            )
        return
    known = _known_settings(kind)
    unknown = [key for key in settings if known is not None and key not in known]
    if unknown:
        offered = sorted(set(known or ()) - _CONTEXT)
        raise UnknownSettingError(
            f"exploration_config: {name} has no argument {unknown[0]!r}."
            f"{did_you_mean(unknown[0], offered)} It takes {', '.join(offered) or 'none'}."
        )


def _known_settings(kind: Callable[..., Any]) -> set[str] | None:
    """The arguments of a constructor, those of base classes included; None if any will do."""
    if not isinstance(kind, type):
        return None if _takes_any(kind) else set(_parameters(kind))
    known = set(_CONTEXT)
    if _takes_sub_exploration(kind):
        known.add("sub_exploration")
    for ancestor in kind.__mro__:
        if "__init__" not in ancestor.__dict__:
            continue
        known |= set(_parameters(ancestor))
        # Arguments that a constructor does not name go on to the next one.
        if ancestor is Exploration or not _takes_any(ancestor):
            break
    return known


def _parameters(kind: Callable[..., Any]) -> list[str]:
    """The names of the arguments of a callable that can be given by name."""
    return [
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]


def _takes_any(kind: Callable[..., Any]) -> bool:
    parameters = inspect.signature(kind).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

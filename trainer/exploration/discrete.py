"""Strategies that draw actions: from the policy, uniformly, or the better ones more often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.errors import UnsupportedSpaceError
from trainer.exploration.exploration import (
    ActionChoice,
    Exploration,
    normal_numbers,
    numbers_for,
    uniforms_per_row,
    valid_parts,
)
from trainer.exploration.schedules import (
    ConstantSchedule,
    ExplorationSchedule,
    checked_count,
    checked_number,
    schedule_or_ramp,
)
from trainer.types import Array, State

# ---- uniform actions
#
# Actions drawn uniformly from a space, as functions of uniform numbers.

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
        """Plans the drawing.

        Raises:
            UnsupportedSpaceError: it is another space.
        """
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

    def draw(self, uniforms: Array, valid: Array | None = None) -> Array:
        """Actions as a module gives them, [B, …].

        Args:
            uniforms: on [0, 1), float64 [B, ≥ width].
            valid: which alternatives are allowed, bool [B, K]; None allows all.
        """
        if self._box is not None:
            return self._box.draw(np.ascontiguousarray(uniforms[:, : self.width]))
        if valid is None:
            actions = _floors(uniforms[:, : self.width], self._sizes)
        else:
            drawn = [
                _ranked(uniforms[:, index], valid[:, part])
                for index, part in enumerate(self._parts)
            ]
            actions = np.stack(drawn, axis=1)
        return actions[:, 0] if self._is_single else actions

    def logp(self, actions: Array, valid: Array | None = None) -> Array:
        """The log-likelihoods of drawn actions, float32 [B].

        Args:
            actions: as `draw` gives them.
            valid: see `draw`.
        """
        if self._box is not None:
            return self._box.logp(actions)
        if valid is None:  # the same operations, so that the bits of a row depend on itself alone
            counts = np.tile(self._sizes, (len(actions), 1))
        else:
            counts = np.stack([valid[:, part].sum(axis=1) for part in self._parts], axis=1)
        logp: Array = -np.log(np.maximum(counts, 1)).sum(axis=1)
        return logp.astype(np.float32)


def _floors(uniforms: Array, sizes: Sequence[int]) -> Array:
    """⌊u·n⌋ for every alternative; rounding never leads to n."""
    floors: Array = (uniforms * sizes).astype(np.int64)
    largest: Array = np.array(sizes) - 1
    return np.minimum(floors, largest, out=floors)


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
        """See `UniformActions.draw`."""
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
        """See `UniformActions.logp`."""
        values = actions.reshape(len(actions), -1).astype(np.float64)
        bounded = -np.log(self._range + 1.0 if self._is_integer else self._range)
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
@checked_methods(but=("__init__", "get_exploration_action"))
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
        )
        self._uniform = UniformActions(action_space)
        self.noise_width = 1 + self._uniform.width

    def epsilon(self, timestep: int) -> float:
        """ε at a timestep, in [0, 1]."""
        return min(1.0, max(0.0, self.epsilon_schedule.value(timestep)))

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        """See `Exploration.get_exploration_action`."""
        self.last_timestep = timestep
        best = action_distribution.deterministic_sample()
        noise = action_distribution.noise
        is_random = noise[:, 0] < self.epsilon(timestep)
        if not explore or not is_random.any():
            return best, None
        drawn = self._uniform.draw(noise[:, 1:], action_distribution.valid_parts())
        actions: Array = np.where(is_random if best.ndim == 1 else is_random[:, None], drawn, best)
        return actions, None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """The log of ε/n, plus 1 - ε for the best action; see `Exploration.logp`."""
        epsilon = self.epsilon(timestep)
        is_best = actions == self.distribution.deterministic(inputs)
        if is_best.ndim > 1:
            is_best = np.logical_and.reduce(is_best, axis=1)
        uniform = np.exp(self._uniform.logp(actions, valid_parts(inputs)))
        share: Array = epsilon * uniform + (1.0 - epsilon) * is_best
        return np.log(np.maximum(share, _SMALLEST)).astype(np.float32, copy=False)

    def get_state(self) -> State:
        """ε as it was last used, and when that was; ε follows from the timestep."""
        return {
            "cur_epsilon": self.epsilon(self.last_timestep),
            "last_timestep": self.last_timestep,
        }


@checked_methods(but=("__init__", "get_exploration_action"))
class PerWorkerEpsilonGreedy(EpsilonGreedy):
    """A constant ε of its own for each env runner (Horgan et al. 2018, section 4).

    Runner i of n has ε = 0.4^(1 + 7·(i - 1)/max(1, n - 1)); the main process beside runners has 0,
    and without runners it follows the schedule. By its nature, what is sampled depends on how many
    runners there are.
    """

    def __init__(self, action_space: spaces.Space[Any], **settings: Any) -> None:
        """See `EpsilonGreedy`, whose schedule counts only without env runners."""
        super().__init__(action_space, **settings)
        if self.num_workers > 0:
            self.epsilon_schedule = ConstantSchedule(
                constant_per_worker(self.worker_index - 1, self.num_workers)
                if self.worker_index > 0
                else 0.0
            )


def constant_per_worker(number: int, num_workers: int) -> float:
    """0.4^(1 + 7·number/max(1, num_workers - 1)), Horgan et al. 2018, section 4."""
    return float(_BASE ** (1.0 + _EXPONENT * number / max(1, num_workers - 1)))


# ---- soft q
#
# Better actions more often: the Boltzmann distribution of Q values or logits.

_LARGEST_GAP: Final = 1e20


@checked_methods(but=("__init__", "get_exploration_action"))
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
        """See `Exploration.get_exploration_action`."""
        del timestep
        if not explore:
            return action_distribution.deterministic_sample(), None
        choice = action_distribution
        noise = numbers_for(choice.distribution, choice.noise, kind=choice.noise_kind)
        # The largest of q/T + Gumbel noise is the largest of q + T · Gumbel noise.
        return choice.distribution.sample(choice.allowed_inputs(), self.temperature * noise), None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """See `Exploration.logp`."""
        del timestep
        gaps = np.maximum(inputs - np.maximum.reduce(inputs, axis=1, keepdims=True), -_LARGEST_GAP)
        return self.distribution.logp((gaps / self.temperature).astype(np.float32), actions)


# ---- stochastic sampling
#
# Actions drawn from the policy's own distribution: what policy-gradient algorithms do.


@checked_methods(but=("__init__", "get_exploration_action"))
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
        """See `Exploration.get_exploration_action`."""
        if not explore:
            return action_distribution.deterministic_sample(), None
        if self._uniform is not None and timestep < self.random_timesteps:
            valid = action_distribution.valid_parts()
            return self._uniform.draw(action_distribution.noise, valid), None
        return action_distribution.sample(), None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """See `Exploration.logp`."""
        if self._uniform is not None and timestep < self.random_timesteps:
            return self._uniform.logp(actions, valid_parts(inputs))
        return self.distribution.logp(inputs, actions)


# ---- random actions
#
# Actions drawn uniformly from the action space, whatever the module says.


@checked_methods(but=("__init__", "get_exploration_action"))
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
        """See `Exploration.get_exploration_action`."""
        del timestep
        if not explore:
            return action_distribution.deterministic_sample(), None
        valid = action_distribution.valid_parts()
        return self._uniform.draw(action_distribution.noise, valid), None

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """See `Exploration.logp`."""
        del timestep
        return self._uniform.logp(actions, valid_parts(inputs))

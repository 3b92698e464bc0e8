"""Strategies that add noise: to actions, independent or correlated in time, and to weights.

Continuous actions with independent normal noise (Fujimoto et al. 2018, TD3, section 5.2).

Continuous actions with noise that is correlated in time (Lillicrap et al. 2016, DDPG).

Noise on the weights instead of the actions (Plappert et al. 2018, "Parameter Space Noise").
A run of consistent behaviour per episode, where noise on actions trembles in every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints import check_shape
from checkpoints.arguments import checked_methods
from checkpoints.state_shapes import anything, fields, number
from trainer.errors import ConfigError
from trainer.exploration.discrete import EpsilonGreedy, UniformActions, constant_per_worker
from trainer.exploration.exploration import (
    ActionChoice,
    Exploration,
    ExploredSample,
    WithSubExploration,
    normal_numbers,
)
from trainer.exploration.schedules import (
    ConstantSchedule,
    ExplorationSchedule,
    checked_count,
    checked_number,
    schedule_or_ramp,
)
from trainer.types import Array, State

# ---- gaussian noise


@checked_methods(but=("__init__", "get_exploration_action"))
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
        """See `Exploration.get_exploration_action`."""
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


@checked_methods(but=("__init__", "get_exploration_action"))
class PerWorkerGaussianNoise(GaussianNoise):
    """A constant scale of its own for each env runner (after Horgan et al. 2018, section 4).

    Runner i of n has scale 0.4^(1 + 7·i/max(1, n - 1)); the main process beside runners has 0, and
    without runners it follows the schedule. By its nature, what is sampled depends on how many
    runners there are.
    """

    def __init__(self, action_space: spaces.Space[Any], **settings: Any) -> None:
        """See `GaussianNoise`, whose schedule counts only without env runners."""
        super().__init__(action_space, **settings)
        self.scale_schedule = scale_per_worker(self) or self.scale_schedule


def scale_per_worker(strategy: Exploration) -> ExplorationSchedule | None:
    """The constant scale of a strategy's runner; None if the main process samples alone."""
    if strategy.num_workers == 0:
        return None
    index = strategy.worker_index
    return ConstantSchedule(constant_per_worker(index, strategy.num_workers) if index else 0.0)


# ---- ornstein uhlenbeck noise


# A strategy that users name and subclass; the one per worker is another one.
@checked_methods(but=("__init__", "get_exploration_action"))
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


@checked_methods(but=("__init__", "get_exploration_action"))
class PerWorkerOrnsteinUhlenbeckNoise(OrnsteinUhlenbeckNoise):
    """A constant scale of its own for each env runner; see `PerWorkerGaussianNoise`."""

    def __init__(self, action_space: spaces.Space[Any], **settings: Any) -> None:
        """See `OrnsteinUhlenbeckNoise`, whose schedule counts only without env runners."""
        super().__init__(action_space, **settings)
        self.scale_schedule = scale_per_worker(self) or self.scale_schedule


# ---- parameter noise

_ADAPTATION: Final = 1.01
_SIGMA_OF_OTHERS: Final = 0.2
_SMALLEST: Final = 1e-10


@checked_methods(but=("__init__", "get_exploration_action"))
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
            return -math.log(max(share, _SMALLEST))
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
        """See `Exploration.check_state`."""
        check_shape(state, fields({"cur_stddev": number, "sub_exploration": anything}))
        super().check_state(state)

    def set_state(self, state: State) -> None:
        """See `Exploration.set_state`."""
        super().set_state(state)
        if "cur_stddev" in state:
            self.current_stddev = float(state["cur_stddev"])

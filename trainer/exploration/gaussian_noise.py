"""Continuous actions with independent normal noise (Fujimoto et al. 2018, TD3, section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.exploration.action_choice import ActionChoice
from trainer.exploration.epsilon_greedy import constant_per_worker
from trainer.exploration.exploration import Exploration
from trainer.exploration.noise_numbers import normal_numbers
from trainer.exploration.schedules import ConstantSchedule, ExplorationSchedule
from trainer.exploration.settings import checked_count, checked_number, schedule_or_ramp
from trainer.exploration.uniform_actions import UniformActions
from trainer.types import Array, State


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

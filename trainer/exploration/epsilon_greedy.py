"""Mostly the best action, sometimes any: what DQN does (Mnih et al. 2015, algorithm 1)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.exploration.action_choice import ActionChoice, valid_parts
from trainer.exploration.exploration import Exploration
from trainer.exploration.schedules import ConstantSchedule, ExplorationSchedule
from trainer.exploration.settings import checked_count, checked_number, schedule_or_ramp
from trainer.exploration.uniform_actions import UniformActions
from trainer.types import Array, State

_BASE: Final = 0.4
_EXPONENT: Final = 7.0
_SMALLEST: Final = float(np.finfo(np.float32).tiny)


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

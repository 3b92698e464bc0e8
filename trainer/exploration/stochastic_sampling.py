"""Actions drawn from the policy's own distribution: what policy-gradient algorithms do."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.exploration.action_choice import ActionChoice, valid_parts
from trainer.exploration.exploration import Exploration
from trainer.exploration.noise_numbers import uniforms_per_row
from trainer.exploration.settings import checked_count
from trainer.exploration.uniform_actions import UniformActions
from trainer.types import Array


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

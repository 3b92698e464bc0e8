"""Better actions more often: the Boltzmann distribution of Q values or logits."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.exploration.action_choice import ActionChoice
from trainer.exploration.exploration import Exploration
from trainer.exploration.noise_numbers import numbers_for, uniforms_per_row
from trainer.exploration.settings import checked_number
from trainer.types import Array

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

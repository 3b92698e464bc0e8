"""Actions drawn uniformly from the action space, whatever the module says."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.exploration.action_choice import ActionChoice, valid_parts
from trainer.exploration.exploration import Exploration
from trainer.exploration.uniform_actions import UniformActions
from trainer.types import Array


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

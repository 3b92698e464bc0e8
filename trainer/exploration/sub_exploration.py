"""Strategies that leave the choice of actions to another one, their sub-exploration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces

from checkpoints import check_shape
from checkpoints.state_shapes import of_type
from trainer.errors import ConfigError
from trainer.exploration.action_choice import ActionChoice
from trainer.exploration.exploration import Exploration
from trainer.exploration.settings import checked_count
from trainer.types import Array, State


class WithSubExploration(Exploration):
    """Acts as its sub-exploration does.

    In an `exploration_config`, `sub_exploration` is a config of its own; objects made by hand get
    the object.

    Attributes:
        sub_exploration: what chooses the actions.
    """

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        sub_exploration: Exploration | None = None,
        **context: Any,
    ) -> None:
        """Takes over the noise that the sub-exploration wants.

        Raises:
            ConfigError: the sub-exploration does more than to choose actions.
        """
        super().__init__(action_space, **context)
        if sub_exploration is None:
            raise ConfigError(
                f"{type(self).__name__}() got no `sub_exploration`, which chooses actions. Name "
                'both in the config: exploration_config={..., "sub_exploration": {...}}.'
            )
        observes = type(sub_exploration).observe_sample is not Exploration.observe_sample
        if observes or sub_exploration.perturbs_weights:
            raise ConfigError(
                f"sub_exploration: {type(sub_exploration).__name__} does more than to choose "
                f"actions, so it cannot work inside {type(self).__name__}. Give e.g. "
                "StochasticSampling, EpsilonGreedy or GaussianNoise."
            )
        self.sub_exploration = sub_exploration
        self.noise_kind = sub_exploration.noise_kind
        self.noise_width = sub_exploration.noise_width

    @classmethod
    def default_sub_exploration(
        cls, action_space: spaces.Space[Any], settings: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """The config of the sub-exploration if the user gives none; None if one must be given.

        Here: uniform actions for `random_timesteps`, then little noise: ε-greedy with ε = 0.01 for
        actions that are counted, Ornstein-Uhlenbeck noise for others.

        Args:
            action_space: of actions as modules give them.
            settings: what the user gives besides.

        Raises:
            ConfigError: `random_timesteps` is no number of env steps.
        """
        given = settings.get("random_timesteps", 10_000)
        random_timesteps = checked_count(given, name="random_timesteps")
        if isinstance(action_space, spaces.Box):
            return {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": random_timesteps}
        return {
            "type": "EpsilonGreedy",
            "epsilon_schedule": {
                "type": "PiecewiseSchedule",
                "endpoints": [
                    (0, 1.0),
                    (random_timesteps + 1, 1.0),
                    (random_timesteps + 2, 0.01),
                ],
                "outside_value": 0.01,
            },
        }

    def get_exploration_action(
        self, *, action_distribution: ActionChoice, timestep: int, explore: bool = True
    ) -> tuple[Array, Array | None]:
        """What the sub-exploration chooses."""
        self.last_timestep = timestep
        return self.sub_exploration.get_exploration_action(
            action_distribution=action_distribution, timestep=timestep, explore=explore
        )

    def logp(self, inputs: Array, actions: Array, *, timestep: int) -> Array:
        """That of the sub-exploration."""
        return self.sub_exploration.logp(inputs, actions, timestep=timestep)

    @property
    def gives_logp(self) -> bool:
        """What the sub-exploration says, unless a subclass chooses actions itself."""
        return super().gives_logp or self.sub_exploration.gives_logp

    def begin_episode(self, slot: int) -> None:
        """See `Exploration.begin_episode`."""
        self.sub_exploration.begin_episode(slot)

    def advance(self, slots: Sequence[int], noise: Array) -> None:
        """See `Exploration.advance`."""
        self.sub_exploration.advance(slots, noise)

    def get_state(self) -> State:
        """The state of the sub-exploration."""
        return {"sub_exploration": self.sub_exploration.get_state()}

    def check_state(self, state: State) -> None:
        """See `Exploration.check_state`."""
        check_shape(state, of_type(dict))
        if "sub_exploration" in state:
            self.sub_exploration.check_state(state["sub_exploration"])

    def set_state(self, state: State) -> None:
        """See `Exploration.set_state`."""
        super().set_state(state)
        if "sub_exploration" in state:
            self.sub_exploration.set_state(state["sub_exploration"])

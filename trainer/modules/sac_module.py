"""The ready-made networks of SAC: a policy, one or two critics, and the temperature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.modules.policy_and_critics import (
    PolicyAndCritics,
    PolicyAndCriticsModelConfig,
    is_bounded_box,
)
from trainer.nn import ActionDistribution, Categorical, SquashedGaussian

LOG_ALPHA = "log_alpha"
"""The tensor [1] of the logarithm of the temperature."""


@dataclass(frozen=True)
class SACModelConfig(PolicyAndCriticsModelConfig):
    """The shape of a `SACModule`.

    Attributes:
        initial_alpha: the first temperature, > 0.
    """

    initial_alpha: float = 1.0


def sac_distribution(space: gym.Space[Any], *, log_std_clip: float) -> ActionDistribution:
    """The distribution over actions that SAC can learn.

    Args:
        space: Discrete, or a Box of floats with bounds.
        log_std_clip: for Box: the log standard deviation stays within ± this, > 0.

    Raises:
        UnsupportedSpaceError: it is another space.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if is_bounded_box(space):
        return SquashedGaussian(space.shape, log_std_clip=log_std_clip)
    raise UnsupportedSpaceError(
        f"SAC chooses in Discrete and in Box of floats with bounds on both sides, at least one "
        f"number; this env has {space}. Bound a Box with a wrapper "
        "(gymnasium.wrappers.TransformAction and a bounded Box), or use PPO."
    )


class SACModule(PolicyAndCritics):
    """Policy, critics and the temperature "log_alpha".

    For bounded Box actions the policy is a squashed Gaussian, for Discrete ones a choice.
    """

    config_class: ClassVar[type[PolicyAndCriticsModelConfig]] = SACModelConfig

    _config: SACModelConfig

    def distribution_of_policy(self) -> ActionDistribution:
        """Squashed Gaussian or categorical."""
        return sac_distribution(self.action_space, log_std_clip=self._config.log_std_clip_param)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensors of "pi", "qf", "qf_twin", and "log_alpha" [1]."""
        return {**super().parameter_shapes(), LOG_ALPHA: (1,)}

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws policy and critics, in this order; log α is given."""
        super().initialize(rng)
        if self.critics is not None:
            self.parameters.views[LOG_ALPHA][:] = np.log(self._config.initial_alpha)

"""Which network inputs and outputs a space needs."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.nn import ActionDistribution, Categorical, DiagGaussian, MultiCategorical
from trainer.types import Array


def observation_size(space: gym.Space[object]) -> int:
    """The numbers that make up one encoded observation (see `trainer.connectors`).

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these.

    Raises:
        UnsupportedSpaceError: it is, or holds, another space.
    """
    try:
        return int(spaces.flatdim(space))
    except (NotImplementedError, ValueError) as cause:
        raise UnsupportedSpaceError(
            f"There is no network for the observation space {space}: its observations have no "
            "fixed number of values. Networks here read Box, Discrete, MultiDiscrete, "
            "MultiBinary, and Dict or Tuple of these. Change it with an observation wrapper "
            "around the env."
        ) from cause


def distribution_for(space: gym.Space[object], *, log_std_clip: float = 20.0) -> ActionDistribution:
    """The distribution over the actions of a space.

    Args:
        space: Discrete, MultiDiscrete with one dimension, or Box of floats.
        log_std_clip: for Box: the log standard deviation stays within ± this, > 0.

    Raises:
        UnsupportedSpaceError: it is another space.
    """
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        sizes: Array = space.nvec
        return MultiCategorical(sizes.tolist())
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return DiagGaussian(space.shape, log_std_clip=log_std_clip)
    raise UnsupportedSpaceError(
        f"There is no action distribution for the action space {space}: a policy here chooses in "
        "Discrete, in MultiDiscrete with one dimension, or in Box of floats. Change it with an "
        "action wrapper around the env, or let your own `RLModule` override "
        "`make_action_distribution`."
    )

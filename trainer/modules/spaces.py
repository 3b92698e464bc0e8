"""Which network inputs and outputs a space needs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.nn import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    DiagGaussian,
    MultiCategorical,
    ProductDistribution,
)
from trainer.spaces import (
    ACTION_SPACES,
    OBSERVATION_SPACES,
    alternatives_of_integer_box,
    is_float_box,
    is_integer_box,
)
from trainer.types import Array


def observation_size(space: gym.Space[Any]) -> int:
    """The numbers that make up one encoded observation (see `trainer.connectors`).

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these.

    Raises:
        UnsupportedSpaceError: it is, or holds, another space, or there is nothing in it.
    """
    try:
        size = int(spaces.flatdim(space))
    except (NotImplementedError, ValueError) as cause:
        raise UnsupportedSpaceError(
            f"There is no network for the observation space {space}: its observations have no "
            f"fixed number of values. Networks here read {OBSERVATION_SPACES}. Change it with an "
            "observation wrapper around the env."
        ) from cause
    if size == 0:
        raise UnsupportedSpaceError(
            f"The observation space {space} holds no number, so a network would have nothing to "
            "read. Let the env show at least one, if only a constant: Box(0.0, 1.0, (1,))."
        )
    return size


def distribution_for(space: gym.Space[Any], *, log_std_clip: float = 20.0) -> ActionDistribution:
    """The distribution over the actions of a space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box of floats, Box of integers with few values,
            or Dict and Tuple of these.
        log_std_clip: for Box: the log standard deviation stays within ± this, > 0.

    Raises:
        UnsupportedSpaceError: it is another space, or there is nothing in it.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return ProductDistribution(_parts(space, log_std_clip=log_std_clip))
    distribution = _distribution(space, log_std_clip=log_std_clip)
    if distribution is None or distribution.num_inputs == 0:
        raise UnsupportedSpaceError(
            f"There is no action distribution for the action space {space}: a policy here chooses "
            f"in {ACTION_SPACES}. Change it with an action wrapper around the env, or let your own "
            "`RLModule` override `make_action_distribution`."
        )
    return distribution


def _distribution(space: gym.Space[Any], *, log_std_clip: float) -> ActionDistribution | None:
    """Of a space that is not nested; None if there is none."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes: Array = space.nvec
        return MultiCategorical(sizes.ravel().tolist(), shape=sizes.shape)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space.shape)
    if isinstance(space, spaces.Box) and is_integer_box(space):
        sizes = alternatives_of_integer_box(space)
        return MultiCategorical(sizes.ravel().tolist(), shape=sizes.shape)
    if is_float_box(space) and space.shape is not None:
        return DiagGaussian(space.shape, log_std_clip=log_std_clip)
    return None


def _parts(space: spaces.Dict | spaces.Tuple[Any], *, log_std_clip: float) -> Any:
    """The distributions of a nested space, nested as the space is."""
    if not space.spaces:
        raise UnsupportedSpaceError(
            f"The action space holds {space}, in which there is nothing to choose. Leave it out."
        )
    pairs: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    parts = {
        key: _parts(part, log_std_clip=log_std_clip)
        if isinstance(part, spaces.Dict | spaces.Tuple)
        else distribution_for(part, log_std_clip=log_std_clip)
        for key, part in pairs
    }
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def sizes_of_choices(space: gym.Space[Any]) -> list[int] | None:
    """The number of alternatives of each choice of a space; None if it is not made of choices."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(size) for size in np.ravel(space.nvec)]
    return None

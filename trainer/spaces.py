"""What the rooms agree on about gymnasium's spaces: where action masks stand, what an image is.

Encoders lay observations out, networks read them, envs take what decoders give: all three follow
the rules that are written here once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.types import Array

ACTION_MASK_KEY: Final = "action_mask"
"""Where a Dict observation holds the action mask, unless `action_mask_key` says otherwise."""

LARGEST_INTEGER_BOX: Final = 4096
"""So many alternatives, over all dimensions, may a Box of integers have as action space."""

OBSERVATION_SPACES: Final = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
"""What can be observed, for error texts."""

ACTION_SPACES: Final = (
    "Discrete, MultiDiscrete, MultiBinary, Box of floats, Box of integers with few values, and "
    "Dict or Tuple of these"
)
"""What can be acted in, for error texts."""


@dataclass(frozen=True)
class SplitObservation:
    """An observation space, taken apart.

    Attributes:
        seen: what the network reads.
        mask: the space of the action mask; None if there is none.
    """

    seen: gym.Space[Any]
    mask: gym.Space[Any] | None


def split_observation(space: gym.Space[Any], *, action_mask_key: str) -> SplitObservation:
    """Tells the action mask from what the network reads.

    Args:
        space: of observations.
        action_mask_key: a Dict with this key has a mask.

    Raises:
        UnsupportedSpaceError: there is a mask and nothing else, or it is no Box or MultiBinary.
    """
    if not isinstance(space, spaces.Dict) or action_mask_key not in space.spaces:
        return SplitObservation(space, None)
    mask = space.spaces[action_mask_key]
    seen = {key: part for key, part in space.spaces.items() if key != action_mask_key}
    if not isinstance(mask, spaces.Box | spaces.MultiBinary):
        raise UnsupportedSpaceError(
            f"The observation's {action_mask_key!r} is {mask}, but an action mask is a Box or "
            "MultiBinary with a 0 or 1 for every action. Change it, or name another key with "
            "`environment(action_mask_key=...)` if this is an ordinary part of the observation."
        )
    if not seen:
        raise UnsupportedSpaceError(
            f"The observation space {space} holds the action mask alone, so a network would have "
            'nothing to read. Put the rest beside it: Dict({"observations": ..., '
            f'"{action_mask_key}": ...}}).'
        )
    return SplitObservation(spaces.Dict(seen), mask)


@dataclass(frozen=True)
class ShownImage:
    """The image that an observation is.

    Attributes:
        shape: height, width, channels.
        is_bytes: numbers are 0 to 255 (uint8).
        has_channels: the space has three dimensions, so that nobody takes it for anything else.
    """

    shape: tuple[int, int, int]
    is_bytes: bool
    has_channels: bool


def shown_image(space: gym.Space[Any]) -> ShownImage | None:
    """The image that a space shows; None if it shows something else.

    A Box with two dimensions can be an image with one channel; a Dict with one entry is what that
    entry is.
    """
    while isinstance(space, spaces.Dict) and len(space.spaces) == 1:
        space = next(iter(space.spaces.values()))
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
        return None
    height, width, *channels = space.shape
    return ShownImage(
        shape=(height, width, channels[0] if channels else 1),
        is_bytes=space.dtype == np.uint8,
        has_channels=bool(channels),
    )


def alternatives_of_integer_box(space: spaces.Box) -> Array:
    """How many values each number of a Box of integers can take, int64 of the Box's shape.

    Raises:
        UnsupportedSpaceError: they are too many to choose among.
    """
    low, high = space.low.astype(object), space.high.astype(object)
    sizes = high - low + 1
    total = int(np.sum(sizes))
    if total > LARGEST_INTEGER_BOX:
        raise UnsupportedSpaceError(
            f"The action space {space} has {total} integers to choose among, one network output "
            f"each; at most {LARGEST_INTEGER_BOX} are offered. Let the env take a Box of floats "
            "and round it, or a MultiDiscrete with fewer steps."
        )
    return np.asarray(sizes).astype(np.int64)


def is_integer_box(space: gym.Space[Any]) -> bool:
    """Whether a space is a Box of integers or booleans."""
    return isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "iub"


def is_float_box(space: gym.Space[Any]) -> bool:
    """Whether a space is a Box of floats."""
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)

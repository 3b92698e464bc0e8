"""What the rooms agree on about gymnasium's spaces: where action masks stand, what an image is.

Encoders lay observations out, networks read them, envs take what decoders give: all three follow
the rules that are written here once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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

_MOST_CHANNELS_FIRST: Final = 16
_MOST_CHANNELS_LAST: Final = 32
"""Where channels stand is told from the shape of an image: more of them are not taken for such."""

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
        has_channels: the space has three dimensions, so that it is not taken for anything else.
        channels_first: the space is [channels, height, width].
        start: where its numbers begin in a row of all that is encoded.
    """

    shape: tuple[int, int, int]
    is_bytes: bool
    has_channels: bool
    channels_first: bool
    start: int

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def shown_images(
    space: gym.Space[Any], *, channels_first: bool | None = None
) -> tuple[ShownImage, ...]:
    """The images that a space shows: itself, or those of its parts with three dimensions.

    A Box with two dimensions can be an image with one channel, if there is nothing else.

    Args:
        space: what a network reads, without an action mask.
        channels_first: where channels stand in images with three dimensions; None: as it looks.
    """
    parts, start, found = list(leaf_spaces(space)), 0, []
    for part in parts:
        num_dimensions = len(part.shape or ()) if isinstance(part, spaces.Box) else 0
        if num_dimensions == 3 or (num_dimensions == 2 and len(parts) == 1):
            found.append(_image(part, start, channels_first))
        start += spaces.flatdim(part)
    return tuple(found)


def leaf_spaces(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    """The parts of a space that are neither Dict nor Tuple, in the order of encoding."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: Any = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        for part in parts:
            yield from leaf_spaces(part)
    else:
        yield space


def _image(space: gym.Space[Any], start: int, channels_first: bool | None) -> ShownImage:
    shape = space.shape or ()
    has_channels = len(shape) == 3
    if channels_first is None:
        channels_first = has_channels and _looks_channels_first(shape)
    height, width, channels = shape if has_channels else (*shape, 1)
    if has_channels and channels_first:
        channels, height, width = shape
    return ShownImage(
        shape=(height, width, channels),
        is_bytes=space.dtype == np.uint8,
        has_channels=has_channels,
        channels_first=has_channels and channels_first,
        start=start,
    )


def _looks_channels_first(shape: tuple[int, ...]) -> bool:
    """Whether [channels, height, width] is meant, as frame stacks and Torch have it.

    A few channels stand before two longer sides, which are equal or both too long for channels.
    """
    first, second, third = shape
    has_long_sides = min(second, third) > _MOST_CHANNELS_LAST or second == third
    return first <= _MOST_CHANNELS_FIRST and first < min(second, third) and has_long_sides


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

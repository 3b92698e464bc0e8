"""From what policies choose to what `env.step` gets.

Episodes keep actions as the policy emitted them, because that is what log-probabilities belong to;
the env gets them shifted, scaled or clipped to its action space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.spaces import ACTION_SPACES, alternatives_of_integer_box, is_float_box, is_integer_box
from trainer.types import Array

_Decode = Callable[[Any], Any]


class ActionDecoder:
    """Turns actions of a policy into actions of an env's space.

    Discrete and MultiDiscrete: the policy counts alternatives from 0; the space's `start` is added.
    Box of integers: likewise, from the lower bound. MultiBinary: unchanged.
    Box of floats: with `normalize_actions`, a dimension with both bounds is scaled from [-1, 1] to
    them, and everything is clipped to the bounds; otherwise, with `clip_actions`, it is only
    clipped. Dimensions without bounds stay unchanged.
    Dict and Tuple: part by part.

    What the env gets is in memory of its own: an env that writes into its action changes nothing
    else.

    Attributes:
        is_identity: actions are single integers that `to_env` returns unchanged, so that callers
            may skip it.
    """

    def __init__(
        self, space: gym.Space[Any], *, normalize_actions: bool = True, clip_actions: bool = False
    ) -> None:
        """Plans the decoding.

        Raises:
            UnsupportedSpaceError: it is, or holds, a space that nothing can be chosen in.
        """
        self._decode = _decoder(space, normalize_actions, clip_actions)
        self.is_identity = self._decode is None

    def to_env(self, action: Any) -> Any:
        """What the env gets for an action of the policy.

        Args:
            action: one action, or a batch of them with a leading dimension; every row is decoded by
                itself. Nested actions are dicts and tuples of such.
        """
        return action if self._decode is None else self._decode(action)


def before_decoding(space: gym.Space[Any], *, normalize_actions: bool) -> gym.Space[Any]:
    """The space whose uniform draws become uniform draws of `space` by `ActionDecoder.to_env`."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict(
            {
                key: before_decoding(part, normalize_actions=normalize_actions)
                for key, part in space.spaces.items()
            }
        )
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple(
            [before_decoding(part, normalize_actions=normalize_actions) for part in space.spaces]
        )
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    if isinstance(space, spaces.Box) and is_integer_box(space):
        return spaces.MultiDiscrete(alternatives_of_integer_box(space))
    if not (normalize_actions and isinstance(space, spaces.Box)):
        return space
    is_bounded = space.bounded_below & space.bounded_above
    return spaces.Box(
        np.where(is_bounded, -1.0, space.low).astype(space.dtype),
        np.where(is_bounded, 1.0, space.high).astype(space.dtype),
        dtype=space.dtype,
    )


def _decoder(space: gym.Space[Any], normalize_actions: bool, clip_actions: bool) -> _Decode | None:
    """The function that decodes actions of a space; None if they stay as they are: integers."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _nested_decoder(space, normalize_actions, clip_actions)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and np.any(space.start):
        return _shift(space.start)
    if isinstance(space, spaces.Discrete):
        return None
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return np.array
    if isinstance(space, spaces.Box) and is_integer_box(space):
        return _integers_from(space)
    if isinstance(space, spaces.Box) and is_float_box(space):
        decoder = _FloatDecoder(space, normalize_actions=normalize_actions)
        has_bounds = bool(np.isfinite(space.low).any() or np.isfinite(space.high).any())
        if has_bounds and (normalize_actions or clip_actions):
            return decoder
        return np.array  # a single number is an array for the env, too
    raise UnsupportedSpaceError(
        f"Actions for the space {space} cannot be chosen: possible are {ACTION_SPACES}. Change the "
        "action space with a wrapper around the env."
    )


def _nested_decoder(
    space: spaces.Dict | spaces.Tuple[Any], normalize_actions: bool, clip_actions: bool
) -> _Decode | None:
    """Decodes part by part."""
    pairs: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    decoders = {key: _decoder(part, normalize_actions, clip_actions) for key, part in pairs}
    if isinstance(space, spaces.Tuple) and all(decode is None for decode in decoders.values()):
        return None  # a tuple of integers cannot be written into

    def decode_parts(action: Any) -> Any:
        decoded = {
            key: action[key] if decode is None else decode(action[key])
            for key, decode in decoders.items()
        }
        return decoded if isinstance(action, dict) else tuple(decoded.values())

    return decode_parts


def _shift(start: Any) -> _Decode:
    return lambda action: action + start


def _integers_from(space: spaces.Box) -> _Decode:
    """Counts from the lower bound, in 64 bits."""
    alternatives_of_integer_box(space)  # refuses too many
    low = space.low if space.dtype == np.uint64 else space.low.astype(np.int64)
    return lambda action: np.asarray(low + action.astype(low.dtype)).astype(space.dtype)


class _FloatDecoder:
    """Scales and clips actions of a Box of floats."""

    def __init__(self, space: spaces.Box, *, normalize_actions: bool) -> None:
        self._low, self._high = space.low, space.high
        half_range = 0.5 * space.high.astype(np.float64) - 0.5 * space.low.astype(np.float64)
        self._is_bounded = np.isfinite(half_range)
        # Unbounded dimensions get harmless numbers here; their result is not used.
        self._half_range = np.where(self._is_bounded, half_range, 0.0).astype(space.low.dtype)
        self._scaled_low = np.where(self._is_bounded, space.low, 0.0).astype(space.low.dtype)
        self._is_scaled = normalize_actions and bool(self._is_bounded.any())

    def __call__(self, action: Any) -> Array:
        if self._is_scaled:
            scaled = self._scaled_low + (action + 1.0) * self._half_range
            action = np.where(self._is_bounded, scaled, action)
        decoded: Array = np.minimum(np.maximum(action, self._low), self._high)
        return np.asarray(decoded).astype(self._low.dtype, copy=False)

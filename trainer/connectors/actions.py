"""From what policies choose to what `env.step` gets.

Episodes keep actions as the policy emitted them, because that is what log-probabilities belong to;
the env gets them shifted, scaled or clipped to its action space.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.types import Array


class ActionDecoder:
    """Turns actions of a policy into actions of an env's space.

    Discrete and MultiDiscrete: the policy counts alternatives from 0; the space's `start` is added.
    Box of floats: with `normalize_actions`, a dimension with both bounds is scaled from [-1, 1] to
    them, and everything is clipped to the bounds; otherwise, with `clip_actions`, it is only
    clipped. Dimensions without bounds stay unchanged.

    Attributes:
        is_identity: `to_env` returns every action unchanged, so that callers may skip it.
    """

    def __init__(
        self, space: gym.Space[Any], *, normalize_actions: bool = True, clip_actions: bool = False
    ) -> None:
        """Plans the decoding.

        Raises:
            UnsupportedSpaceError: the space is not Discrete, MultiDiscrete or Box of floats.
        """
        self._is_box = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            self.is_identity = self._plan_box(space, normalize_actions, clip_actions)
        elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            self._start: Any = space.start
            self.is_identity = not np.any(space.start)
        else:
            raise UnsupportedSpaceError(
                f"Actions for the space {space} cannot be chosen: possible are Discrete, "
                "MultiDiscrete and Box of floats. Change the action space with a wrapper around "
                "the env."
            )

    def to_env(self, action: Any) -> Any:
        """What the env gets for an action of the policy.

        Args:
            action: one action, or a batch of them with a leading dimension; every row is decoded by
                itself.
        """
        if self.is_identity:
            return action
        if not self._is_box:
            return action + self._start
        if self._is_scaled:
            scaled = self._scaled_low + (action + 1.0) * self._half_range
            action = np.where(self._is_bounded, scaled, action)
        decoded: Array = np.minimum(np.maximum(action, self._low), self._high)
        return decoded.astype(self._low.dtype, copy=False)

    def _plan_box(self, space: spaces.Box, normalize_actions: bool, clip_actions: bool) -> bool:
        """Prepares bounds; returns whether decoding changes nothing."""
        self._low, self._high = space.low, space.high
        half_range = 0.5 * space.high.astype(np.float64) - 0.5 * space.low.astype(np.float64)
        self._is_bounded = np.isfinite(half_range)
        # Unbounded dimensions get harmless numbers here; their result is not used.
        self._half_range = np.where(self._is_bounded, half_range, 0.0).astype(space.low.dtype)
        self._scaled_low = np.where(self._is_bounded, space.low, 0.0).astype(space.low.dtype)
        self._is_scaled = normalize_actions and bool(self._is_bounded.any())
        has_bounds = bool(np.isfinite(space.low).any() or np.isfinite(space.high).any())
        return not (has_bounds and (normalize_actions or clip_actions))

"""Actions drawn uniformly from a space, as functions of uniform numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.errors import UnsupportedSpaceError
from trainer.exploration.noise_numbers import normal_numbers
from trainer.types import Array

_LOG_2_PI = math.log(2.0 * math.pi)


class UniformActions:
    """Draws from Discrete, MultiDiscrete and Box.

    A dimension of a Box without bounds is drawn from a standard normal distribution, one with a
    single bound from an exponential distribution that begins there, as gymnasium's `Box.sample`
    does.

    Attributes:
        width: the uniform numbers that one action takes.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        """Plans the drawing.

        Raises:
            UnsupportedSpaceError: it is another space.
        """
        self._box: _BoxActions | None = None
        self._sizes: list[int] = []
        if isinstance(space, spaces.Discrete):
            self._is_single = True
            self._sizes = [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
            self._is_single = False
            self._sizes = [int(size) for size in space.nvec]
        elif isinstance(space, spaces.Box):
            self._box = _BoxActions(space)
        else:
            raise UnsupportedSpaceError(
                f"Actions of the space {space} cannot be drawn uniformly here; possible are "
                "Discrete, MultiDiscrete with one dimension, and Box. Explore with "
                "StochasticSampling, which draws from the policy, and without random_timesteps; or "
                "change the action space with a wrapper around the env."
            )
        borders = np.cumsum([0, *self._sizes]).tolist()
        self._parts = [slice(start, stop) for start, stop in pairwise(borders)]
        self.width = len(self._sizes) if self._box is None else self._box.width

    def draw(self, uniforms: Array, valid: Array | None = None) -> Array:
        """Actions as a module gives them, [B, …].

        Args:
            uniforms: on [0, 1), float64 [B, ≥ width].
            valid: which alternatives are allowed, bool [B, K]; None allows all.
        """
        if self._box is not None:
            return self._box.draw(np.ascontiguousarray(uniforms[:, : self.width]))
        if valid is None:
            actions = _floors(uniforms[:, : self.width], self._sizes)
        else:
            drawn = [
                _ranked(uniforms[:, index], valid[:, part])
                for index, part in enumerate(self._parts)
            ]
            actions = np.stack(drawn, axis=1)
        return actions[:, 0] if self._is_single else actions

    def logp(self, actions: Array, valid: Array | None = None) -> Array:
        """The log-likelihoods of drawn actions, float32 [B].

        Args:
            actions: as `draw` gives them.
            valid: see `draw`.
        """
        if self._box is not None:
            return self._box.logp(actions)
        if valid is None:  # the same operations, so that the bits of a row depend on itself alone
            counts = np.tile(self._sizes, (len(actions), 1))
        else:
            counts = np.stack([valid[:, part].sum(axis=1) for part in self._parts], axis=1)
        logp: Array = -np.log(np.maximum(counts, 1)).sum(axis=1)
        return logp.astype(np.float32)


def _floors(uniforms: Array, sizes: Sequence[int]) -> Array:
    """⌊u·n⌋ for every alternative; rounding never leads to n."""
    floors: Array = (uniforms * sizes).astype(np.int64)
    largest: Array = np.array(sizes) - 1
    return np.minimum(floors, largest, out=floors)


def _ranked(uniforms: Array, valid: Array) -> Array:
    """One of the valid alternatives per row; 0 where none is."""
    counts = valid.sum(axis=1)
    ranks = np.minimum((uniforms * counts).astype(np.int64), np.maximum(counts - 1, 0))
    chosen: Array = (valid.cumsum(axis=1) > ranks[:, None]).argmax(axis=1)
    return chosen


class _BoxActions:
    """Draws from a Box, dimension by dimension."""

    def __init__(self, space: spaces.Box) -> None:
        self._shape = space.shape
        self._dtype: Any = space.dtype
        self._is_integer = np.issubdtype(space.dtype, np.integer)
        low, high = (np.asarray(end, np.float64).ravel() for end in (space.low, space.high))
        below = np.asarray(space.bounded_below).ravel()
        above = np.asarray(space.bounded_above).ravel()
        self._is_bounded: Array = below & above
        self._start: Array = np.where(below, low, np.where(above, high, 0.0))
        self._sign = np.where(below, 1.0, -1.0)
        self._is_free: Array = ~below & ~above
        self._range: Array = np.where(self._is_bounded, high - low, 1.0)
        self._all_bounded = bool(self._is_bounded.all())
        self.width = len(low) if self._all_bounded else 2 * len(low)

    def draw(self, uniforms: Array) -> Array:
        """See `UniformActions.draw`."""
        size = len(self._range)
        first = uniforms[:, :size]
        if self._is_integer:
            drawn = self._start + np.floor(first * (self._range + 1.0))
            values = np.minimum(drawn, self._start + self._range)
        else:
            values = self._start + first * self._range
        if not self._all_bounded:
            exponential = -np.log(1.0 - np.ascontiguousarray(first))
            half_bounded = self._start + self._sign * exponential
            unbounded = np.where(self._is_free, normal_numbers(uniforms), half_bounded)
            values = np.where(self._is_bounded, values, unbounded)
        actions: Array = values.astype(self._dtype).reshape(-1, *self._shape)
        return actions

    def logp(self, actions: Array) -> Array:
        """See `UniformActions.logp`."""
        values = actions.reshape(len(actions), -1).astype(np.float64)
        bounded = -np.log(self._range + 1.0 if self._is_integer else self._range)
        free = -0.5 * values * values - 0.5 * _LOG_2_PI
        half_bounded = self._sign * (self._start - values)
        unbounded = np.where(self._is_free, free, half_bounded)
        logp: Array = np.where(self._is_bounded, bounded, unbounded).sum(axis=1)
        return logp.astype(np.float32)

"""Uniform random numbers turned into other kinds, for those who need several kinds at once.

A stream of noise has one kind. Where a draw mixes kinds (a choice and a number), it takes uniform
noise and turns each part into what it needs. All is elementwise or within a row, so that a row
never depends on the others.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from trainer.seeding import NoiseKind
from trainer.types import Array

_SMALLEST: Final = 2.0**-54
"""Half the distance of two uniform numbers: what 0 counts as, so that logarithms are finite."""


def uniform_width(kind: NoiseKind, width: int) -> int:
    """How many uniform numbers `from_uniform` takes for `width` numbers of a kind."""
    return 2 * -(-width // 2) if kind == "normal" else width


def from_uniform(uniform: Array, *, kind: NoiseKind, width: int) -> Array:
    """Noise of another kind.

    Gumbel numbers by inversion, -log(-log u); normal ones by Box and Muller (1958), two from two.

    Args:
        uniform: on [0, 1), float64 [B, uniform_width(kind, width)].
        kind: what is wanted.
        width: how many numbers a row shall have.

    Returns:
        float64 [B, width].
    """
    # A copy: NumPy's loops over contiguous memory and over slices need not round alike.
    numbers = np.ascontiguousarray(uniform)
    if kind == "uniform":
        return numbers
    if kind == "gumbel":
        gumbel: Array = -np.log(-np.log(np.maximum(numbers, _SMALLEST)))
        return gumbel
    u = numbers.reshape(len(numbers), numbers.shape[1] // 2, 2)
    radius = np.sqrt(-2.0 * np.log(np.maximum(np.ascontiguousarray(u[:, :, 0]), _SMALLEST)))
    angle = np.ascontiguousarray(u[:, :, 1]) * (2.0 * math.pi)
    normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    return normal.reshape(numbers.shape)[:, :width]

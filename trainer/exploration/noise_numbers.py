"""Random numbers of one kind made from uniform ones, so that a strategy can mix several kinds.

An env slot gets one row of numbers per step, all of one kind. A strategy that tosses a coin and
adds normal noise takes uniform numbers and turns some of them into normal ones here. Inputs are
made contiguous first: what NumPy computes for a number must not depend on the rows around it.
"""

from __future__ import annotations

import math

import numpy as np

from trainer.nn import ActionDistribution
from trainer.seeding import NoiseKind
from trainer.types import Array

_UNIFORMS_PER_NUMBER: dict[NoiseKind, int] = {"uniform": 1, "gumbel": 1, "normal": 2}
_SMALLEST = float(np.finfo(np.float64).tiny)


def uniforms_per_row(distribution: ActionDistribution) -> int:
    """How many uniform numbers one draw from a distribution takes."""
    return distribution.noise_width * _UNIFORMS_PER_NUMBER[distribution.noise_kind]


def normal_numbers(uniforms: Array) -> Array:
    """Standard normal numbers (Box and Muller 1958): √(-2 log u) · cos 2πv.

    Args:
        uniforms: on [0, 1), float64 [B, 2A]: all u, then all v.

    Returns:
        float64 [B, A].
    """
    half = uniforms.shape[1] // 2
    # 1 - u lies in (0, 1], so that the logarithm is finite.
    radius = np.sqrt(-2.0 * np.log(1.0 - uniforms[:, :half]))
    angle = (2.0 * math.pi) * uniforms[:, half:]
    numbers: Array = radius * np.cos(angle)
    return numbers


def gumbel_numbers(uniforms: Array) -> Array:
    """Standard Gumbel numbers -log(-log u) (Gumbel 1954, ch. 4), float64 [B, A]."""
    numbers: Array = -np.log(-np.log(np.maximum(uniforms, _SMALLEST)))
    return numbers


def numbers_for(distribution: ActionDistribution, noise: Array, *, kind: NoiseKind) -> Array:
    """The noise that a distribution draws with.

    Args:
        distribution: what draws.
        noise: float64 [B, W]; what is left over is not used.
        kind: of `noise`; uniform numbers serve every distribution, others only their own kind.

    Raises:
        ValueError: the noise is of another kind, or too narrow.
    """
    width = distribution.noise_width
    if kind == distribution.noise_kind and noise.shape[1] >= width:
        return noise[:, :width]
    needed = uniforms_per_row(distribution)
    if kind != "uniform" or noise.shape[1] < needed:
        raise ValueError(
            f"{noise.shape[1]} {kind} number(s) per step cannot draw from "
            f"{type(distribution).__name__}, which takes {width} {distribution.noise_kind} or "
            f'{needed} uniform ones. Set noise_kind = "uniform" and noise_width >= {needed} in '
            "__init__ of your strategy (`uniforms_per_row(distribution)`)."
        )
    uniforms = np.ascontiguousarray(noise[:, :needed])
    if distribution.noise_kind == "normal":
        return normal_numbers(uniforms)
    return gumbel_numbers(uniforms) if distribution.noise_kind == "gumbel" else uniforms

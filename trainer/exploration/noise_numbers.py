"""Random numbers of one kind made from uniform ones, so that a strategy can mix several kinds.

An env slot gets one row of numbers per step, all of one kind. A strategy that tosses a coin and
adds normal noise takes uniform numbers and turns some of them into normal ones here.
"""

from __future__ import annotations

import numpy as np

from checkpoints.arguments import checked_arguments
from trainer.nn import ActionDistribution
from trainer.nn.noise import from_uniform, uniform_width
from trainer.seeding import NoiseKind
from trainer.types import Array


@checked_arguments
def uniforms_per_row(distribution: ActionDistribution) -> int:
    """How many uniform numbers one draw from a distribution takes."""
    return uniform_width(distribution.noise_kind, distribution.noise_width)


def normal_numbers(uniforms: Array) -> Array:
    """Standard normal numbers, of which each takes two uniform ones of its own.

    Args:
        uniforms: on [0, 1), float64 [B, 2A]; number k comes from k and A + k alone.

    Returns:
        float64 [B, A].
    """
    half = uniforms.shape[1] // 2
    pairs = np.stack([uniforms[:, :half], uniforms[:, half:]], axis=-1).reshape(len(uniforms), -1)
    return from_uniform(pairs, kind="normal", width=2 * half)[:, ::2]


def gumbel_numbers(uniforms: Array) -> Array:
    """Standard Gumbel numbers, float64 [B, A]."""
    return from_uniform(uniforms, kind="gumbel", width=uniforms.shape[1])


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
    return from_uniform(noise[:, :needed], kind=distribution.noise_kind, width=width)

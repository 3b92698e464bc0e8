"""Normal distributions squashed into (-1, 1) by tanh, and the gradients that flow through them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.nn.gaussian import DiagGaussian, DiagGaussianTerms
from trainer.types import Array

HIGHEST_LOG_STD: Final = 2.0
"""The highest log standard deviation in the code of Haarnoja et al. 2018 (the lowest is -20).

A wider normal distribution is almost all squashed onto the bounds."""

_LOG_2: Final = math.log(2.0)
_LOG_SQRT_2_PI: Final = 0.5 * math.log(2.0 * math.pi)
_LARGEST_ACTION: Final = 1.0 - 1e-6


@dataclass(frozen=True)
class SquashedSample:
    """Actions drawn by reparameterization, with what their gradients need.

    Attributes:
        actions: tanh(u), with u = mean + std · noise, [B, A].
        logp: log densities of the actions, [B].
        scaled_noise: std · noise, [B, A].
        is_unclipped: 1 where the log_std was not clipped, else 0, [B, A].
    """

    actions: Array
    logp: Array
    scaled_noise: Array
    is_unclipped: Array

    def backward(self, *, d_actions: Array, d_logp: Array | float) -> Array:
        """The gradient with respect to the inputs, with the noise held fixed.

        d tanh(u)/du = 1 - a², and d logp/du = 2a because logp contains -log(1 - tanh² u);
        d logp/d log_std has the -1 of the normal density besides.

        Args:
            d_actions: dL/da, [B, A].
            d_logp: dL/dlogp, [B] or one for all.

        Returns:
            A new array [B, 2A].
        """
        weight = d_logp if isinstance(d_logp, float | int) else d_logp[:, None]
        actions = self.actions
        d_mean = d_actions * (1.0 - actions * actions) + 2.0 * actions * weight
        d_log_std = (d_mean * self.scaled_noise - weight) * self.is_unclipped
        return np.concatenate([d_mean, d_log_std], axis=1)


class SquashedGaussian(DiagGaussian):
    """tanh of independent normal distributions (Haarnoja et al. 2018, appendix C).

    The inputs are those of `DiagGaussian`; actions lie in (-1, 1). Densities are corrected by
    Σ log(1 - tanh² u) = Σ 2 (log 2 - u - softplus(-2u)), which does not lose digits where tanh is
    close to ±1. KL is that of the normal distributions: tanh is a bijection, which divergences do
    not see. The entropy has no closed form; `entropy` is that before squashing.
    """

    def __init__(self, action_shape: tuple[int, ...], *, log_std_clip: float = 20.0) -> None:
        """Gives actions of a shape.

        Args:
            action_shape: of one action.
            log_std_clip: the log standard deviation stays within [-this, min(this, 2)], > 0.
        """
        super().__init__(action_shape, log_std_clip=log_std_clip)
        self._lowest, self._highest = -log_std_clip, min(log_std_clip, HIGHEST_LOG_STD)

    def sample(self, inputs: Array, noise: Array) -> Array:
        """Gives tanh(mean + std · noise)."""
        actions = super().sample(inputs, noise)
        return np.tanh(actions, actions)

    def deterministic(self, inputs: Array) -> Array:
        """The tanh of the mean."""
        actions = super().deterministic(inputs)
        return np.tanh(actions, actions)

    def reparameterized(self, inputs: Array, noise: Array) -> SquashedSample:
        """Actions as differentiable functions of the inputs.

        Args:
            inputs: [B, 2A].
            noise: standard normal, [B, A].
        """
        mean, log_std = self._split(inputs)
        noise = noise.astype(inputs.dtype, copy=False)
        scaled_noise = np.exp(log_std) * noise
        unsquashed = mean + scaled_noise
        logp = -0.5 * noise * noise - log_std - _LOG_SQRT_2_PI - _log_slope(unsquashed)
        return SquashedSample(
            actions=np.tanh(unsquashed),
            logp=np.add.reduce(logp, axis=1),
            scaled_noise=scaled_noise,
            is_unclipped=np.equal(log_std, inputs[:, self.noise_width :]).astype(inputs.dtype),
        )

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> DiagGaussianTerms:
        """See `ActionDistribution.evaluate`; the correction does not depend on the inputs."""
        unsquashed = _unsquashed(actions.reshape(len(inputs), -1))
        terms = super().evaluate(inputs, unsquashed, reference=reference)
        terms.logp[...] -= np.add.reduce(_log_slope(unsquashed), axis=1)
        return terms

    def logp(self, inputs: Array, actions: Array) -> Array:
        """The density of the normal distribution at artanh(a), minus Σ log(1 - a²)."""
        unsquashed = _unsquashed(actions.reshape(len(inputs), -1))
        density = super().logp(inputs, unsquashed)
        density -= np.add.reduce(_log_slope(unsquashed), axis=1)
        return density

    def _split(self, inputs: Array) -> tuple[Array, Array]:
        """Means and clipped log standard deviations, [B, A] each."""
        log_std = inputs[:, self.noise_width :]
        clipped = np.minimum(np.maximum(log_std, self._lowest), self._highest)
        return inputs[:, : self.noise_width], clipped


def _log_slope(unsquashed: Array) -> Array:
    """Elementwise log(1 - tanh² u)."""
    slope: Array = 2.0 * (_LOG_2 - unsquashed - np.logaddexp(0.0, -2.0 * unsquashed))
    return slope


def _unsquashed(actions: Array) -> Array:
    """Elementwise artanh; actions that rounding put on ±1 are moved inside."""
    unsquashed: Array = np.arctanh(np.clip(actions, -_LARGEST_ACTION, _LARGEST_ACTION))
    return unsquashed

"""The distribution over continuous actions: independent normal distributions, one per dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.nn.distributions import ActionDistribution, DistributionTerms, Weight, per_row
from trainer.types import Array

_LOG_2_PI: Final = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class DiagGaussianTerms(DistributionTerms):
    """See `DistributionTerms`; the other attributes are the cache of `backward`.

    Attributes:
        inverse_std: exp(-log_std), [B, A].
        scaled_error: (action - mean) / std, [B, A].
        scaled_shift: (mean - reference mean) / std, [B, A], or None.
        variance_ratio: (reference std / std)², [B, A], or None.
        is_unclipped: 1 where the log_std was not clipped, otherwise 0, [B, A].
    """

    logp: Array
    entropy: Array
    kl: Array | None
    inverse_std: Array
    scaled_error: Array
    scaled_shift: Array | None
    variance_ratio: Array | None
    is_unclipped: Array

    def backward(self, *, d_logp: Array, d_entropy: Weight = 0.0, d_kl: Weight = 0.0) -> Array:
        """The gradient with respect to means and log standard deviations.

        With z the scaled error, s the scaled shift and q the variance ratio:
        d logp / d mean = z / std,   d logp / d log_std = z² - 1,   d entropy / d log_std = 1,
        d kl / d mean = s / std,     d kl / d log_std = 1 - q - s².   A clipped log_std has no
        gradient.
        """
        d_mean = self.scaled_error * d_logp[:, None]
        d_log_std = self.scaled_error**2
        d_log_std -= 1.0
        d_log_std *= d_logp[:, None]
        d_log_std += per_row(d_entropy)
        if self.scaled_shift is not None and self.variance_ratio is not None:
            d_mean += self.scaled_shift * per_row(d_kl)
            d_log_std += (1.0 - self.variance_ratio - self.scaled_shift**2) * per_row(d_kl)
        d_mean *= self.inverse_std
        d_log_std *= self.is_unclipped
        return np.concatenate([d_mean, d_log_std], axis=1)


class DiagGaussian(ActionDistribution):
    """A independent normal distributions; inputs are A means, then A log standard deviations.

    The log standard deviation is clipped to ± a limit, because its exponential would otherwise
    overflow or vanish early in training (Haarnoja et al. 2018, appendix D; RLlib's
    `log_std_clip_param`). Actions have the dtype of the inputs and the shape [B, *action_shape].
    """

    noise_kind = "normal"

    def __init__(self, action_shape: tuple[int, ...], *, log_std_clip: float = 20.0) -> None:
        self._action_shape = action_shape
        self._log_std_clip = log_std_clip
        self.noise_width = math.prod(action_shape)
        self.num_inputs = 2 * self.noise_width

    def sample(self, inputs: Array, noise: Array) -> Array:
        """Gives mean + std · noise."""
        mean, log_std = self._split(inputs)
        actions: Array = mean + np.exp(log_std) * noise.astype(inputs.dtype)
        return actions.reshape(-1, *self._action_shape)

    def deterministic(self, inputs: Array) -> Array:
        """The mean."""
        mean: Array = inputs[:, : self.noise_width].copy()
        return mean.reshape(-1, *self._action_shape)

    def canonical(self, inputs: Array) -> Array:
        """The same means with clipped log standard deviations."""
        return np.concatenate(self._split(inputs), axis=1)

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> DiagGaussianTerms:
        """See `ActionDistribution.evaluate`."""
        mean, log_std = self._split(inputs)
        inverse_std = np.exp(-log_std)
        scaled_error = (actions.reshape(len(mean), -1) - mean) * inverse_std
        scaled_shift = variance_ratio = kl = None
        if reference is not None:
            reference_mean, reference_log_std = self._split(reference)
            scaled_shift = (mean - reference_mean) * inverse_std
            log_ratio = reference_log_std - log_std
            variance_ratio = np.exp(2.0 * log_ratio)
            kl = _divergence(scaled_shift, variance_ratio, log_ratio)
        return DiagGaussianTerms(
            logp=self._log_density(scaled_error, log_std),
            entropy=self._entropy(log_std),
            kl=kl,
            inverse_std=inverse_std,
            scaled_error=scaled_error,
            scaled_shift=scaled_shift,
            variance_ratio=variance_ratio,
            is_unclipped=np.equal(log_std, inputs[:, self.noise_width :]).astype(inputs.dtype),
        )

    def logp(self, inputs: Array, actions: Array) -> Array:
        """The density -½ Σ ((a - mean)/std)² - Σ log_std - A/2 log 2π."""
        mean, log_std = self._split(inputs)
        scaled_error = (actions.reshape(len(mean), -1) - mean) * np.exp(-log_std)
        return self._log_density(scaled_error, log_std)

    def entropy(self, inputs: Array) -> Array:
        """The sum Σ log_std + A/2 (1 + log 2π)."""
        return self._entropy(self._split(inputs)[1])

    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """The sum Σ log(std_q / std_p) + (std_p² + (mean_p - mean_q)²) / (2 std_q²) - ½."""
        p_mean, p_log_std = self._split(p_inputs)
        q_mean, q_log_std = self._split(q_inputs)
        log_ratio = p_log_std - q_log_std
        scaled_shift = (q_mean - p_mean) * np.exp(-q_log_std)
        return _divergence(scaled_shift, np.exp(2.0 * log_ratio), log_ratio)

    def _split(self, inputs: Array) -> tuple[Array, Array]:
        """Means and clipped log standard deviations, [B, A] each."""
        log_std = inputs[:, self.noise_width :]
        limit = self._log_std_clip
        return inputs[:, : self.noise_width], np.minimum(np.maximum(log_std, -limit), limit)

    def _log_density(self, scaled_error: Array, log_std: Array) -> Array:
        density: Array = np.add.reduce(scaled_error**2, axis=1)
        density *= -0.5
        density -= np.add.reduce(log_std, axis=1)
        density -= 0.5 * self.noise_width * _LOG_2_PI
        return density

    def _entropy(self, log_std: Array) -> Array:
        entropies: Array = np.add.reduce(log_std, axis=1)
        entropies += 0.5 * self.noise_width * (1.0 + _LOG_2_PI)
        return entropies


def _divergence(scaled_shift: Array, variance_ratio: Array, log_ratio: Array) -> Array:
    """KL of normal distributions, [B]; see `DiagGaussian.kl` (log_ratio = log(std_p / std_q))."""
    parts = 0.5 * (variance_ratio + scaled_shift**2 - 1.0) - log_ratio
    divergences: Array = np.add.reduce(parts, axis=1)
    return divergences

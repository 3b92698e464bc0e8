"""Standard deviations that follow from the policy's features: the network's part of gSDE.

Raffin, Kober and Stulp 2022, "Smooth Exploration for Robotic Reinforcement Learning", section 3:
noise on the weights of the last layer, W + σ ∘ ε with ε ~ N(0, 1) [F, A], moves the action of
features φ [F] by φᵀ(σ ∘ ε). Over ε that is normal with the variances Σ_f φ_f² σ_fa², which the
action distribution gets. What moves an action for one ε are the *loadings* [A, F]:

    loadings_af = φ_f σ_fa / std_a          action_a = mean_a + std_a · Σ_f loadings_af ε_fa

As in Stable-Baselines3's PPO, features do not learn from the deviations.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.nn import matmul_rows
from trainer.types import Array

NOISE_LOADINGS: Final = "noise_loadings"
"""What exploring gives beside "action_dist_inputs", if deviations follow from features."""

LEAST_VARIANCE: Final = 1e-6
"""Added to every variance, for features that are all 0; Stable-Baselines3's number."""


class FeatureNoise:
    """Log deviations log σ [F, A] of F features and A actions, and what follows from them.

    Every row stands for itself, bit for bit. `backward` belongs to the last `forward`.
    """

    def __init__(self, log_std: Array, gradient: Array) -> None:
        """Lays itself over the tensor and its gradient, [F, A] each."""
        self._log_std, self._gradient = log_std, gradient
        self._squares: Array = np.empty((0, 0))
        self._variance: Array = np.empty((0, 0))

    def log_std(self, features: Array) -> Array:
        """The log standard deviations of the actions, [B, A], of features [B, F]."""
        return self._deviations(features * features, np.exp(self._log_std))[0]

    def explored(self, features: Array) -> tuple[Array, Array]:
        """The same, and the loadings [B, A, F]."""
        std = np.exp(self._log_std)
        log_std, variance = self._deviations(features * features, std)
        loadings: Array = features[:, None, :] * np.ascontiguousarray(std.T)
        loadings /= np.sqrt(variance)[:, :, None]
        return log_std, loadings

    def forward(self, features: Array) -> Array:
        """What `log_std` gives, to learn from."""
        self._squares = features * features
        log_std, self._variance = self._deviations(self._squares, np.exp(self._log_std))
        return log_std

    def backward(self, d_log_std: Array) -> None:
        """Overwrites the gradient: d log std_a / d log σ_fa = φ_f² σ_fa² / variance_a.

        Args:
            d_log_std: the derivative of the loss for what `forward` gave, [B, A].
        """
        np.matmul(self._squares.T, d_log_std / self._variance, out=self._gradient)
        self._gradient *= np.exp(2.0 * self._log_std)

    @staticmethod
    def _deviations(squares: Array, std: Array) -> tuple[Array, Array]:
        variance = matmul_rows(squares, std * std)
        variance += LEAST_VARIANCE
        log_std: Array = 0.5 * np.log(variance)
        return log_std, variance

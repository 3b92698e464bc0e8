"""Standard deviations that follow from the policy's features: the network's part of gSDE.

Raffin, Kober and Stulp 2022, "Smooth Exploration for Robotic Reinforcement Learning", section 3:
noise on the last layer's weights, W + σ ∘ ε with ε ~ N(0, 1), moves the action of features φ by
φᵀ(σ ∘ ε). Over ε that is normal with the variance Σ_f φ_f² σ_fa², which the action distribution
gets, and φ_f σ_fa / std_a are the *loadings* by which the same ε moves every action of a stretch
(`trainer.exploration.StateDependentNoise`). As in Stable-Baselines3's PPO, deviations learn and
features do not learn from them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.nn import matmul_rows
from trainer.types import Array

NOISE_LOADINGS: Final = "noise_loadings"
"""What acting gives beside "action_dist_inputs", if deviations follow from features."""

LEAST_VARIANCE: Final = 1e-6
"""Where all features are 0; Stable-Baselines3's number."""


class FeatureNoise:
    """Log standard deviations log σ [F, A] of F features and A actions, and what follows from them.

    Life: the methods for acting stand alone; `backward` belongs to the last `forward`.
    """

    def __init__(self, log_std: Array, gradient: Array) -> None:
        """Lays itself over the tensor and its gradient, [F, A] each."""
        self._log_std, self._gradient = log_std, gradient
        self._squares: Array = np.empty((0, 0))
        self._variance: Array = np.empty((0, 0))

    def act(self, features: Array) -> Array:
        """The log standard deviations of the actions, [B, A], of features [B, F], row by row."""
        variance = matmul_rows(features * features, np.exp(2.0 * self._log_std))
        log_std: Array = 0.5 * np.log(variance + LEAST_VARIANCE)
        return log_std

    def loadings(self, features: Array, log_std: Array) -> Array:
        """What the noise of each feature moves each action by, in its deviations, [B, A, F].

        Args:
            features: [B, F].
            log_std: what `act` gave for them, [B, A].
        """
        spread: Array = features[:, None, :] * np.exp(self._log_std).T
        spread *= np.exp(-log_std)[:, :, None]
        return spread

    def forward(self, features: Array) -> Array:
        """The log standard deviations of the actions, [A, B], of features [F, B], to learn from."""
        self._squares = features * features
        self._variance = np.exp(2.0 * self._log_std).T @ self._squares + LEAST_VARIANCE
        log_std: Array = 0.5 * np.log(self._variance)
        return log_std

    def backward(self, d_log_std: Array) -> None:
        """Overwrites the gradient: d log std_a / d log σ_fa = φ_f² σ_fa² / variance_a.

        Args:
            d_log_std: the derivative of the loss for what `forward` gave, [A, B].
        """
        np.matmul(self._squares, (d_log_std / self._variance).T, out=self._gradient)
        self._gradient *= np.exp(2.0 * self._log_std)

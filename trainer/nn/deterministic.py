"""The distribution of a policy that is a function: every draw gives the same action."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainer.nn.distributions import ActionDistribution, DistributionTerms, Weight
from trainer.types import Array


@dataclass(frozen=True)
class NoTerms(DistributionTerms):
    """Log-probabilities, entropies and divergences that are 0, whatever the inputs are.

    Attributes:
        num_inputs: of each row.
    """

    num_inputs: int

    def backward(self, *, d_logp: Array, d_entropy: Weight = 0.0, d_kl: Weight = 0.0) -> Array:
        """Zeros, [B, num_inputs]."""
        del d_entropy, d_kl
        return np.zeros((len(d_logp), self.num_inputs), d_logp.dtype)


class Deterministic(ActionDistribution):
    """tanh of A inputs (Silver et al. 2014; Lillicrap et al. 2016, section 7); noise is not read.

    There is no density. Log-probabilities, entropies and divergences are 0, as those of RLlib's
    `Deterministic`, so that what records them can.
    """

    noise_kind = "normal"

    def __init__(self, action_shape: tuple[int, ...]) -> None:
        self._action_shape = action_shape
        self.num_inputs = self.noise_width = math.prod(action_shape)

    def sample(self, inputs: Array, noise: Array) -> Array:
        """The tanh of the inputs."""
        del noise
        return self.deterministic(inputs)

    def deterministic(self, inputs: Array) -> Array:
        """The tanh of the inputs."""
        actions: Array = np.tanh(inputs)
        return actions.reshape(-1, *self._action_shape)

    def canonical(self, inputs: Array) -> Array:
        """The inputs."""
        return inputs

    def evaluate(self, inputs: Array, actions: Array, *, reference: Array | None = None) -> NoTerms:
        nothing = self.logp(inputs, actions)
        kl = None if reference is None else nothing.copy()
        return NoTerms(nothing, nothing.copy(), kl, self.num_inputs)

    def logp(self, inputs: Array, actions: Array) -> Array:
        """Zeros, [B]."""
        del actions
        return self.entropy(inputs)

    def entropy(self, inputs: Array) -> Array:
        """Zeros, [B]."""
        return np.zeros(len(inputs), inputs.dtype)

    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """Zeros, [B]."""
        del q_inputs
        return self.entropy(p_inputs)

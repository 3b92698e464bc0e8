"""The distribution over bits: several independent yes-or-no choices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainer.nn.distributions import ActionDistribution, DistributionTerms, Weight, per_row
from trainer.types import Array


@dataclass(frozen=True)
class BernoulliTerms(DistributionTerms):
    """See `DistributionTerms`; the other attributes are the cache of `backward`.

    Attributes:
        logits: [B, A].
        probs: of a 1, [B, A].
        actions: 0 or 1, [B, A].
        reference_probs: [B, A], or None.
    """

    logp: Array
    entropy: Array
    kl: Array | None
    logits: Array
    probs: Array
    actions: Array
    reference_probs: Array | None

    def backward(self, *, d_logp: Array, d_entropy: Weight = 0.0, d_kl: Weight = 0.0) -> Array:
        """The gradient with respect to the logits z.

        With p = sigmoid(z), r the reference's and a the bit: d logp = a - p,
        d entropy = -z p (1 - p),   d KL(r ‖ p) = p - r.
        """
        gradient = (self.actions - self.probs) * d_logp[:, None]
        gradient -= self.logits * self.probs * (1.0 - self.probs) * per_row(d_entropy)
        if self.reference_probs is not None:
            gradient += (self.probs - self.reference_probs) * per_row(d_kl)
        return gradient


class Bernoulli(ActionDistribution):
    """A independent bits; the inputs are A logits, of which sigmoid gives the probability of a 1.

    Everything is computed from softplus(z) = log(1 + exp z), which `logaddexp` gives without
    overflow: log p = z - softplus(z), log(1 - p) = -softplus(z). Actions are int8 [B, *shape].
    """

    noise_kind = "uniform"

    def __init__(self, action_shape: tuple[int, ...]) -> None:
        self._action_shape = action_shape
        self.num_inputs = self.noise_width = math.prod(action_shape)

    def sample(self, inputs: Array, noise: Array) -> Array:
        """1 where the noise is below the probability of a 1."""
        return self._shaped(noise < _sigmoid(np.ascontiguousarray(inputs)))

    def deterministic(self, inputs: Array) -> Array:
        """1 where it is more probable than 0."""
        return self._shaped(inputs > 0.0)

    def canonical(self, inputs: Array) -> Array:
        """The logits themselves."""
        logits: Array = inputs.copy()
        return logits

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> BernoulliTerms:
        """See `ActionDistribution.evaluate`."""
        bits = actions.reshape(inputs.shape).astype(inputs.dtype)
        return BernoulliTerms(
            logp=self.logp(inputs, actions),
            entropy=self.entropy(inputs),
            kl=None if reference is None else self.kl(reference, inputs),
            logits=inputs,
            probs=_sigmoid(inputs),
            actions=bits,
            reference_probs=None if reference is None else _sigmoid(reference),
        )

    def logp(self, inputs: Array, actions: Array) -> Array:
        """The sum Σ a z - softplus(z)."""
        bits = actions.reshape(inputs.shape)
        parts = bits * inputs - np.logaddexp(0.0, inputs)
        density: Array = np.add.reduce(parts, axis=1)
        return density

    def entropy(self, inputs: Array) -> Array:
        """The sum Σ softplus(z) - z p."""
        parts = np.logaddexp(0.0, inputs) - inputs * _sigmoid(inputs)
        entropies: Array = np.add.reduce(parts, axis=1)
        return entropies

    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """The sum Σ p (z_p - z_q) - softplus(z_p) + softplus(z_q)."""
        parts = _sigmoid(p_inputs) * (p_inputs - q_inputs)
        parts += np.logaddexp(0.0, q_inputs) - np.logaddexp(0.0, p_inputs)
        divergences: Array = np.add.reduce(parts, axis=1)
        return divergences

    def _shaped(self, bits: Array) -> Array:
        shaped: Array = bits.astype(np.int8).reshape(-1, *self._action_shape)
        return shaped


def _sigmoid(logits: Array) -> Array:
    """1 / (1 + exp(-z)) as (1 + tanh(z/2)) / 2, which cannot overflow."""
    probs: Array = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return probs

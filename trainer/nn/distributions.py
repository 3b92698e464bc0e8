"""What every action distribution offers, to acting and to learning.

A network gives *inputs* (logits, or means and log standard deviations); a distribution turns them
into actions, log-probabilities, entropies and divergences, and gives the gradients of these with
respect to the inputs. Noise is always an argument, so a distribution has no random state;
everything is computed row by row, so that what one row gives never depends on the others. Which
distribution fits which action space is decided in `trainer.modules`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.seeding import NoiseKind
from trainer.types import Array

Weight = float | Array
"""A factor for all rows (float), or one per row ([B])."""


class DistributionTerms(ABC):
    """Log-probability, entropy and divergence of B rows, and what their gradients need.

    Attributes:
        logp: log-probability (density) of the given actions, [B].
        entropy: entropy in nats, [B].
        kl: KL(reference ‖ this) in nats, [B]; None if there was no reference.
    """

    logp: Array
    entropy: Array
    kl: Array | None

    @abstractmethod
    def backward(self, *, d_logp: Array, d_entropy: Weight = 0.0, d_kl: Weight = 0.0) -> Array:
        """The gradient of Σ (d_logp·logp + d_entropy·entropy + d_kl·kl) for the inputs.

        Args:
            d_logp: the loss's derivative with respect to each logp, [B].
            d_entropy: the same for the entropies.
            d_kl: the same for the divergences; must be 0 if there was no reference.

        Returns:
            A new array [B, num_inputs].
        """


@dataclass(frozen=True)
class SummedTerms(DistributionTerms):
    """The sums over independent parts whose inputs stand side by side.

    Attributes:
        parts: the terms of every part.
    """

    logp: Array
    entropy: Array
    kl: Array | None
    parts: Sequence[DistributionTerms]

    @classmethod
    def of(cls, parts: Sequence[DistributionTerms]) -> SummedTerms:
        """Adds up the terms of at least one part."""
        divergences = [part.kl for part in parts if part.kl is not None]
        return cls(
            logp=total([part.logp for part in parts]),
            entropy=total([part.entropy for part in parts]),
            kl=total(divergences) if divergences else None,
            parts=parts,
        )

    def backward(self, *, d_logp: Array, d_entropy: Weight = 0.0, d_kl: Weight = 0.0) -> Array:
        """Sums pass gradients on unchanged, so every part gets the same ones."""
        gradients = [
            part.backward(d_logp=d_logp, d_entropy=d_entropy, d_kl=d_kl) for part in self.parts
        ]
        return np.concatenate(gradients, axis=1)


class ActionDistribution(ABC):
    """A family of distributions over actions, parametrised by rows of network outputs.

    Actions are arrays [B, ...]; of nested actions, dicts and tuples of such arrays.

    Attributes:
        num_inputs: the network outputs that one row needs.
        noise_kind: which noise `sample` wants.
        noise_width: how many numbers of noise one row needs.
    """

    num_inputs: int
    noise_kind: NoiseKind
    noise_width: int

    @abstractmethod
    def sample(self, inputs: Array, noise: Array) -> Array:
        """Draws one action per row.

        Args:
            inputs: [B, num_inputs].
            noise: float64 [B, noise_width], of `noise_kind`.

        Returns:
            The actions, [B, ...].
        """

    @abstractmethod
    def deterministic(self, inputs: Array) -> Array:
        """The most probable action of each row, [B, ...]; the first one where several are."""

    @abstractmethod
    def canonical(self, inputs: Array) -> Array:
        """The same distributions' inputs in the form of `evaluate`'s reference, [B, num_inputs].

        It is idempotent, and saves work when the same rows are the reference many times.
        """

    @abstractmethod
    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> DistributionTerms:
        """Everything a policy loss needs, with its gradients.

        Args:
            inputs: [B, num_inputs].
            actions: [B, ...], as `sample` gives them.
            reference: *canonical* inputs of the distributions from which the divergence is
                measured, [B, num_inputs].
        """

    @abstractmethod
    def logp(self, inputs: Array, actions: Array) -> Array:
        """The log-probabilities (or log-densities) of actions, [B]."""

    @abstractmethod
    def entropy(self, inputs: Array) -> Array:
        """The entropies in nats, [B]."""

    @abstractmethod
    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """KL(p ‖ q) of every row in nats, [B]."""


def per_row(weight: Weight) -> Weight:
    """The weight in a form that multiplies arrays [B, K]."""
    return weight if isinstance(weight, float | int) else weight[:, None]


def total(parts: Sequence[Array]) -> Array:
    """The sum of at least one array [B], added in order."""
    summed = parts[0]
    for part in parts[1:]:
        summed = summed + part
    return summed

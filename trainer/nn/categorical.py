"""Distributions over finitely many actions: one choice, or several independent ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainer.nn.distributions import (
    ActionDistribution,
    DistributionTerms,
    SummedTerms,
    Weight,
    per_row,
    total,
)
from trainer.types import Array


@dataclass(frozen=True)
class CategoricalTerms(DistributionTerms):
    """See `DistributionTerms`; the other attributes are the cache of `backward`.

    Attributes:
        log_probs: [B, K].
        probs: [B, K].
        reference_probs: [B, K], or None.
        rows: 0 ... B-1, int64 [B].
        actions: int64 [B].
    """

    logp: Array
    entropy: Array
    kl: Array | None
    log_probs: Array
    probs: Array
    reference_probs: Array | None
    rows: Array
    actions: Array

    def backward(self, *, d_logp: Array, d_entropy: Weight = 0.0, d_kl: Weight = 0.0) -> Array:
        """The gradient with respect to the logits.

        With p the probabilities, r the reference's and 1ₐ the chosen action:
        d logp = 1ₐ - p,   d entropy = -p (log p + entropy),   d KL(r ‖ p) = p - r.
        """
        gradient = self.log_probs + self.entropy[:, None]
        gradient *= per_row(d_entropy)
        gradient += d_logp[:, None]
        gradient *= self.probs
        np.negative(gradient, gradient)
        if self.reference_probs is not None:
            gradient += (self.probs - self.reference_probs) * per_row(d_kl)
        gradient[self.rows, self.actions] += d_logp
        return gradient


class Categorical(ActionDistribution):
    """A choice among K actions; the inputs are K logits.

    Log-probabilities are logits minus their log-sum-exp after the largest logit is subtracted, so
    that no exponential overflows (Blanchard, Higham and Higham 2021, section 3). Actions are int64,
    [B].
    """

    noise_kind = "gumbel"

    def __init__(self, num_actions: int) -> None:
        self.num_inputs = self.noise_width = num_actions

    def sample(self, inputs: Array, noise: Array) -> Array:
        """The action whose logit is largest after Gumbel noise was added (Gumbel 1954, ch. 4).

        Two operations per batch, where inverting the cumulative distribution takes ten: the
        logarithms are in the noise, which is drawn for many steps at once.
        """
        actions: Array = (inputs + noise).argmax(axis=1)
        return actions

    def deterministic(self, inputs: Array) -> Array:
        """The action with the largest logit."""
        actions: Array = inputs.argmax(axis=1)
        return actions

    def canonical(self, inputs: Array) -> Array:
        """Log-probabilities: logits whose log-sum-exp is 0."""
        shifted = inputs - np.maximum.reduce(inputs, axis=1, keepdims=True)
        shifted -= np.log(np.add.reduce(np.exp(shifted), axis=1, keepdims=True))
        return shifted

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> CategoricalTerms:
        """See `ActionDistribution.evaluate`."""
        log_probs = self.canonical(inputs)
        probs = np.exp(log_probs)
        reference_probs = kl = None
        if reference is not None:
            reference_probs = np.exp(reference)
            kl = np.add.reduce(reference_probs * (reference - log_probs), axis=1)
        rows = np.arange(len(inputs))
        return CategoricalTerms(
            logp=log_probs[rows, actions],
            entropy=-np.add.reduce(probs * log_probs, axis=1),
            kl=kl,
            log_probs=log_probs,
            probs=probs,
            reference_probs=reference_probs,
            rows=rows,
            actions=actions,
        )

    def logp(self, inputs: Array, actions: Array) -> Array:
        """The chosen actions' log pₐ."""
        chosen: Array = self.canonical(inputs)[np.arange(len(inputs)), actions]
        return chosen

    def entropy(self, inputs: Array) -> Array:
        """-Σ p log p."""
        log_probs = self.canonical(inputs)
        entropies: Array = -np.add.reduce(np.exp(log_probs) * log_probs, axis=1)
        return entropies

    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """Σ p (log p - log q)."""
        log_p, log_q = self.canonical(p_inputs), self.canonical(q_inputs)
        divergences: Array = np.add.reduce(np.exp(log_p) * (log_p - log_q), axis=1)
        return divergences


class MultiCategorical(ActionDistribution):
    """A independent choices among n₁ ... n_A alternatives; the inputs are their logits in a row.

    Actions are int64, [B, *shape]; the shape is [A] unless another one with A places is given.
    """

    noise_kind = "gumbel"

    def __init__(self, sizes: Sequence[int], *, shape: tuple[int, ...] | None = None) -> None:
        self._shape = (len(sizes),) if shape is None else shape
        self._choices = [Categorical(size) for size in sizes]
        borders = np.cumsum([0, *sizes]).tolist()
        self._slices = [slice(start, stop) for start, stop in pairwise(borders)]
        self.num_inputs = self.noise_width = borders[-1]

    def sample(self, inputs: Array, noise: Array) -> Array:
        """Draws every choice with its own noise."""
        return self.deterministic(inputs + noise)

    def deterministic(self, inputs: Array) -> Array:
        """The most probable alternative of every choice."""
        chosen = [choice.deterministic(logits) for choice, logits in self._split(inputs)]
        return np.stack(chosen, axis=1).reshape(-1, *self._shape)

    def canonical(self, inputs: Array) -> Array:
        """Log-probabilities, choice by choice."""
        return np.concatenate([choice.canonical(x) for choice, x in self._split(inputs)], axis=1)

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> SummedTerms:
        """See `ActionDistribution.evaluate`."""
        parts = []
        choices = self._chosen(actions)
        for index, (choice, logits) in enumerate(self._split(inputs)):
            part_of_reference = None if reference is None else reference[:, self._slices[index]]
            parts.append(choice.evaluate(logits, choices[:, index], reference=part_of_reference))
        return SummedTerms.of(parts)

    def logp(self, inputs: Array, actions: Array) -> Array:
        """The sum over the choices."""
        choices, pairs = self._chosen(actions), enumerate(self._split(inputs))
        return total([choice.logp(x, choices[:, index]) for index, (choice, x) in pairs])

    def entropy(self, inputs: Array) -> Array:
        """The sum over the choices."""
        return total([choice.entropy(logits) for choice, logits in self._split(inputs)])

    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """The sum over the choices."""
        pairs = zip(self._split(p_inputs), self._split(q_inputs), strict=True)
        return total([choice.kl(p, q) for (choice, p), (_, q) in pairs])

    def _chosen(self, actions: Array) -> Array:
        """Actions with the choices in a row, [B, A]."""
        return actions.reshape(len(actions), len(self._choices))

    def _split(self, inputs: Array) -> list[tuple[Categorical, Array]]:
        """Every choice with its logits."""
        parts = [inputs[:, part] for part in self._slices]
        return list(zip(self._choices, parts, strict=True))

"""Distributions over actions: what each offers to acting and to learning, with gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from trainer.errors import EpisodeError
from trainer.seeding import NoiseKind
from trainer.types import Array

# ---- distributions
#
# What every action distribution offers, to acting and to learning. A network gives *inputs*
# (logits, or means and log standard deviations); a distribution turns them into actions, log-
# probabilities, entropies and divergences, and gives the gradients of these with respect to the
# inputs. Noise is always an argument, so a distribution has no random state; everything is
# computed row by row, so that what one row gives never depends on the others. Which distribution
# fits which action space is decided in `trainer.modules`.

Weight = float | Array
"""A factor for all rows (float), or one per row ([B])."""


@dataclass(frozen=True)
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

    def check_actions(self, actions: Any) -> None:
        """Refuses actions that no row can have been given, as far as a family can tell.

        Args:
            actions: [B, ...].

        Raises:
            EpisodeError: there are some; names the first one.
        """
        del actions

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


_NARROW: Final = 7
"""So many numbers NumPy adds up from the left; more of them in eight sums side by side."""

_MANY_ROWS: Final = 256
"""From so many rows on, columns are quicker; below, their calls cost more than they save."""


def per_row(weight: Weight) -> Weight:
    """The weight in a form that multiplies arrays [B, K]."""
    return weight if isinstance(weight, float | int) else weight[:, None]


def of_rows(reduction: np.ufunc, values: Array) -> Array:
    """`reduction.reduce(values, axis=1, keepdims=True)`, quickly where many rows are narrow.

    NumPy takes some 15 ns for each row to begin, and columns one after the other take 1 ns per
    number. It adds up to seven numbers from the left as well, so the bits are the same.

    Args:
        reduction: such as `np.add`.
        values: [B, K], K ≥ 1.

    Returns:
        [B, 1].
    """
    num_rows, width = values.shape
    if width > _NARROW or num_rows < _MANY_ROWS:
        reduced: Array = reduction.reduce(values, axis=1, keepdims=True)
        return reduced
    reduced = values[:, :1].copy()
    for column in range(1, width):
        reduction(reduced, values[:, column : column + 1], out=reduced)
    return reduced


def total(parts: Sequence[Array]) -> Array:
    """The sum of at least one array [B], added in order."""
    summed = parts[0]
    for part in parts[1:]:
        summed = summed + part
    return summed


def _check_choices(actions: Array, sizes: Array) -> None:
    """Refuses what is no choice: an index below 0 would mean the last alternative.

    Args:
        actions: [B, ...].
        sizes: how many alternatives each choice has, in the form of one row.

    Raises:
        EpisodeError: see `ActionDistribution.check_actions`.
    """
    actions, row = np.atleast_1d(actions), 0
    if actions.dtype.kind in "biu" and actions.shape[1:] == sizes.shape:
        is_wrong = (actions < 0) | (actions >= sizes)
        if not is_wrong.any():
            return
        row = int(np.argwhere(is_wrong)[0, 0])
    if len(actions):
        raise EpisodeError(
            f"The actions hold {actions[row].tolist()!r} in row {row}; expected integers from 0 "
            f"to {(sizes - 1).tolist()}: the first action of the space counts as 0."
        )


# ---- categorical
#
# Distributions over finitely many actions: one choice, or several independent ones.


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

    def check_actions(self, actions: Array) -> None:
        """Each is one of the K."""
        _check_choices(actions, np.array(self.num_inputs))

    def canonical(self, inputs: Array) -> Array:
        """Log-probabilities: logits whose log-sum-exp is 0."""
        shifted = inputs - of_rows(np.maximum, inputs)
        shifted -= np.log(of_rows(np.add, np.exp(shifted)))
        return shifted

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> CategoricalTerms:
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

    def check_actions(self, actions: Array) -> None:
        """Each choice is one of its alternatives."""
        sizes = np.array([choice.num_inputs for choice in self._choices])
        _check_choices(actions, sizes.reshape(self._shape))

    def canonical(self, inputs: Array) -> Array:
        """Log-probabilities, choice by choice."""
        return np.concatenate([choice.canonical(x) for choice, x in self._split(inputs)], axis=1)

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> SummedTerms:
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


# ---- bernoulli
#
# The distribution over bits: several independent yes-or-no choices.


@dataclass(frozen=True)
class BernoulliTerms(DistributionTerms):
    """See `DistributionTerms`; the other attributes are the cache of `backward`.

    Attributes:
        logits: [B, A].
        probs: of a 1, [B, A].
        actions: 0 or 1, [B, A].
        reference_probs: [B, A], or None.
    """

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


# ---- gaussian
#
# The distribution over continuous actions: independent normal distributions, one per dimension.

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

    @property
    def constants(self) -> tuple[float, float, float]:
        """The limit of the log standard deviation; what log densities lack, and entropies have."""
        half = 0.5 * self.noise_width
        return self._log_std_clip, half * _LOG_2_PI, half * (1.0 + _LOG_2_PI)

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


# ---- squashed gaussian
#
# Normal distributions squashed into (-1, 1) by tanh, and the gradients that flow through them.

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


# ---- noise
#
# Uniform random numbers turned into other kinds, for those who need several kinds at once. A
# stream of noise has one kind. Where a draw mixes kinds (a choice and a number), it takes uniform
# noise and turns each part into what it needs. All is elementwise or within a row, so that a row
# never depends on the others.

_SMALLEST: Final = 2.0**-54
"""Half the distance of two uniform numbers: what 0 counts as, so that logarithms are finite."""


def uniform_width(kind: NoiseKind, width: int) -> int:
    """How many uniform numbers `from_uniform` takes for `width` numbers of a kind."""
    return 2 * -(-width // 2) if kind == "normal" else width


def from_uniform(uniform: Array, *, kind: NoiseKind, width: int) -> Array:
    """Noise of another kind.

    Gumbel numbers by inversion, -log(-log u); normal ones by Box and Muller (1958), two from two.

    Args:
        uniform: on [0, 1), float64 [B, uniform_width(kind, width)].
        kind: what is wanted.
        width: how many numbers a row shall have.

    Returns:
        float64 [B, width].
    """
    # A copy: NumPy's loops over contiguous memory and over slices need not round alike.
    numbers = np.ascontiguousarray(uniform)
    if kind == "uniform":
        return numbers
    if kind == "gumbel":
        gumbel: Array = -np.log(-np.log(np.maximum(numbers, _SMALLEST)))
        return gumbel
    u = numbers.reshape(len(numbers), numbers.shape[1] // 2, 2)
    radius = np.sqrt(-2.0 * np.log(np.maximum(np.ascontiguousarray(u[:, :, 0]), _SMALLEST)))
    angle = np.ascontiguousarray(u[:, :, 1]) * (2.0 * math.pi)
    normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    return normal.reshape(numbers.shape)[:, :width]

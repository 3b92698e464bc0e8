"""The loss of PPO in C, with the bits of NumPy: of one choice, or of normal distributions.

Whether they are is tried once for each size of minibatches and number of actions, for how NumPy
adds up depends on both.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from trainer.algorithms.ppo.loss import PPOCoefficients, PPOLoss, PPOTargets, ppo_loss
from trainer.nn import ActionDistribution, kernels
from trainer.nn.distributions import Categorical, DiagGaussian
from trainer.types import Array


@kernels.compared_with_numpy("the loss of PPO")
def _losses_are_same(functions: Any) -> bool:
    return all(
        _is_same(functions, distribution, 24)
        for distribution in (
            Categorical(3),
            Categorical(11),
            DiagGaussian((2,)),
            DiagGaussian((9,)),
        )
    )


_MOST_SIZES: Final = 16
"""Of minibatches that are tried: sequences give nearly each another one."""


class LossInC:
    """Computes `ppo_loss` of what a distribution evaluates, for minibatches of a few sizes."""

    def __init__(self) -> None:
        """Nothing was computed yet."""
        self._functions = kernels.functions_if(_losses_are_same)
        self._plans: dict[tuple[Any, ...], _Plan | None] = {}

    def __call__(
        self,
        distribution: ActionDistribution,
        inputs: Array,
        values: Array,
        actions: Array,
        reference: Array,
        targets: PPOTargets,
        coefficients: PPOCoefficients,
    ) -> PPOLoss | None:
        """The loss, whose gradients the next call overwrites; None if NumPy is to compute it.

        Args:
            distribution: π's.
            inputs: of π, [B, K].
            values: V, [B].
            actions: [B, ...].
            reference: canonical inputs of π_old, [B, K].
            targets: of the minibatch.
            coefficients: the weights of the parts.
        """
        if self._functions is None:
            return None
        sizes = (distribution, inputs.shape)
        if sizes not in self._plans:
            if len(self._plans) >= _MOST_SIZES:
                return None
            is_usable = _is_same(self._functions, distribution, len(inputs))
            made = _Plan(self._functions, distribution, len(inputs)) if is_usable else None
            self._plans[sizes] = made
        plan = self._plans[sizes]
        if plan is None:
            return None
        return plan.loss(inputs, values, actions, reference, targets, coefficients)


class _Plan:
    """The memory for minibatches of one size."""

    def __init__(self, functions: Any, distribution: ActionDistribution, batch: int) -> None:
        self._is_categorical = type(distribution) is Categorical
        width = distribution.noise_width
        # What adds up gradients goes by how they lie: as NumPy's, Gaussians by rows.
        self._d_inputs = np.empty((distribution.num_inputs, batch), np.float32)
        self._given = self._d_inputs.T if self._is_categorical else self._d_inputs.T.copy()
        self._d_values = np.empty(batch, np.float32)
        self._scratch = np.empty((7 + 5 * width) * batch + width, np.float32)
        self._plan = kernels.PolicyPlan(
            batch,
            width,
            None,
            None,
            *map(kernels.address_of, (self._d_inputs, self._d_values, self._scratch)),
        )
        self._minibatch, self._sums = kernels.Minibatch(), kernels.PolicySums()
        self._numbers = kernels.PolicyNumbers()
        if isinstance(distribution, DiagGaussian):
            constants = distribution.constants
            self._numbers.log_std_limit, self._numbers.logp_constant = constants[:2]
            self._numbers.entropy_constant = constants[2]
        self._of: PPOCoefficients | None = None
        name = "ppo_categorical" if self._is_categorical else "ppo_gaussian"
        structures = self._plan, self._minibatch, self._numbers, self._sums
        self._at = [kernels.at(structure) for structure in structures]
        self._function = getattr(functions, name)

    def loss(
        self,
        inputs: Array,
        values: Array,
        actions: Array,
        reference: Array,
        targets: PPOTargets,
        coefficients: PPOCoefficients,
    ) -> PPOLoss | None:
        """See `LossInC`."""
        by_column = inputs.T  # as networks lay them out
        floats = targets.action_logp, reference, targets.advantages, targets.value_targets
        if not kernels.are_plain(by_column, values, *floats) or not self._fit(
            values, reference, inputs, actions, targets
        ):
            return None
        self._plan.inputs, self._plan.values = map(kernels.address_of, (by_column, values))
        rows = self._minibatch
        rows.actions = kernels.address_of(actions)
        rows.logp, rows.reference, rows.advantages, rows.targets = map(kernels.address_of, floats)
        if coefficients is not self._of:
            self._set_numbers(coefficients, len(values))
        if not self._function(*self._at):
            return None  # what is no action, NumPy tells
        return self._taken(coefficients, len(values))

    def _fit(
        self, values: Array, reference: Array, inputs: Array, actions: Array, targets: PPOTargets
    ) -> bool:
        """Whether they have the shapes that the memory is made for, and actions their type."""
        shape = values.shape
        if self._is_categorical:
            is_fit = actions.dtype == np.int64 and actions.flags.c_contiguous
            is_fit = is_fit and actions.shape == shape
        else:
            is_fit = kernels.are_plain(actions) and 2 * actions.size == inputs.size
        return (
            is_fit
            and shape == self._d_values.shape
            and reference.shape == inputs.shape
            and targets.action_logp.shape == shape
            and targets.advantages.shape == shape
            and targets.value_targets.shape == shape
        )

    def _set_numbers(self, c: PPOCoefficients, num_rows: int) -> None:
        numbers = self._numbers
        numbers.lowest_ratio, numbers.highest_ratio = 1.0 - c.clip_param, 1.0 + c.clip_param
        numbers.d_surrogate = -1.0 / num_rows
        numbers.value_limit, numbers.d_value = c.vf_clip_param, 2.0 * c.vf_loss_coeff / num_rows
        numbers.d_entropy, numbers.d_kl = -c.entropy_coeff / num_rows, c.kl_coeff / num_rows
        self._of = c

    def _taken(self, coefficients: PPOCoefficients, num_rows: int) -> PPOLoss:
        if not self._is_categorical:
            np.copyto(self._given, self._d_inputs.T)
        return PPOLoss.of_sums(
            self._sums.sums[:],
            num_clipped=self._sums.num_clipped,
            num_within=self._sums.num_within,
            num_rows=num_rows,
            coefficients=coefficients,
            d_action_dist_inputs=self._given,
            d_vf_preds=self._d_values,
        )


def _is_same(functions: Any, distribution: ActionDistribution, batch: int) -> bool:
    """Whether the loss of such a minibatch, of drawn numbers, has the bits of NumPy."""
    if type(distribution) not in (Categorical, DiagGaussian):
        return False
    draw = np.random.default_rng(0)

    def numbers(*shape: int) -> Array:
        return draw.standard_normal(shape).astype(np.float32)

    inputs, values = numbers(distribution.num_inputs, batch).T, numbers(batch)
    reference = distribution.canonical(numbers(batch, distribution.num_inputs))
    reference = np.ascontiguousarray(reference)
    noise = draw.random((batch, distribution.noise_width))
    actions = np.ascontiguousarray(distribution.sample(reference, noise))
    targets = PPOTargets(distribution.logp(reference, actions), numbers(batch), numbers(batch))
    coefficients = PPOCoefficients(0.2, 0.5, 0.7, 0.01, 0.3)
    terms = distribution.evaluate(inputs, actions, reference=reference)
    expected = ppo_loss(targets, terms=terms, values=values, coefficients=coefficients)
    plan = _Plan(functions, distribution, batch)
    found = plan.loss(inputs, values, actions, reference, targets, coefficients)
    if found is None:
        return False
    pairs = [
        [np.asarray(part) for part in pair]
        for pair in zip(vars(found).values(), vars(expected).values(), strict=True)
    ]
    return all(
        mine.tobytes() == other.tobytes() and mine.strides == other.strides for mine, other in pairs
    )

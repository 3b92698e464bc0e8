"""The loss of MARWIL and BC and its gradients, on arrays only.

With y the return, V the value, A the advantage, c² its moving mean square, π the policy:

    A      = y - V
    c²     ← c² + ρ (mean A² - c²)                 Wang et al. 2018, section 5
    w      = exp(β A / c)                          ibid., algorithm 1, with A normalised by c
    L_π    = -mean w log π(a|s)                    ibid., equation 7
    L_V    = mean A² / 2
    total  = L_π + c_v L_V

w is a number here: no gradient flows through it. With β = 0 every weight is 1, and no value is
learnt: behaviour cloning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trainer.nn import DistributionTerms
from trainer.types import Array

_SMALLEST_NORM = 1e-8


@dataclass(frozen=True)
class MARWILLoss:
    """The loss of one minibatch, its parts, and its gradients.

    Attributes:
        policy_loss: L_π.
        vf_loss: L_V; 0 without values.
        entropy: mean entropy of the policy in nats; not part of the loss.
        total_loss: the value that is minimised.
        weights: w, [B].
        moving_square: c² afterwards.
        d_action_dist_inputs: derivative of the total, [B, K].
        d_vf_preds: derivative of the total, [B].
    """

    policy_loss: float
    vf_loss: float
    entropy: float
    total_loss: float
    weights: Array
    moving_square: float
    d_action_dist_inputs: Array
    d_vf_preds: Array


def marwil_loss(
    value_targets: Array,
    *,
    terms: DistributionTerms,
    values: Array,
    beta: float,
    vf_coeff: float,
    moving_square: float,
    update_rate: float,
) -> MARWILLoss:
    """Loss and gradients of one minibatch, in the dtype of `values`.

    Args:
        value_targets: y, [B].
        terms: π at the minibatch's observations and actions.
        values: V, [B]; of no effect with β = 0.
        beta: β ≥ 0.
        vf_coeff: c_v ≥ 0.
        moving_square: c² before, > 0.
        update_rate: ρ in [0, 1].
    """
    num_rows = len(values)
    advantages = value_targets - values if beta else np.zeros_like(values)
    vf_loss = 0.5 * float(np.mean(advantages * advantages))
    if beta:
        moving_square += update_rate * (2.0 * vf_loss - moving_square)
    scale = beta / (_SMALLEST_NORM + math.sqrt(moving_square))
    weights = np.exp(scale * advantages)
    policy_loss = -float(np.mean(weights * terms.logp))
    return MARWILLoss(
        policy_loss=policy_loss,
        vf_loss=vf_loss,
        entropy=float(terms.entropy.mean()),
        total_loss=policy_loss + vf_coeff * vf_loss,
        weights=weights,
        moving_square=moving_square,
        d_action_dist_inputs=terms.backward(d_logp=weights * (-1.0 / num_rows)),
        d_vf_preds=advantages * (-vf_coeff / num_rows),
    )

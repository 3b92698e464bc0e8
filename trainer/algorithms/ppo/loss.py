"""The PPO loss and its gradients, on arrays only.

With r the probability ratio, A the advantage, V the value, y its target, H the entropy, π_old the
policy that acted:

    r      = exp(log π(a|s) - log π_old(a|s))        Schulman et al. 2017, section 3
    L_clip = mean min(r A, clip(r, 1-ε, 1+ε) A)      ibid., equation 7
    L_vf   = mean min((V - y)², c)                   ibid., equation 9, with RLlib's limit c
    KL     = mean KL(π_old(·|s) ‖ π(·|s))            ibid., equation 8
    total  = -L_clip + c_v L_vf - c_h mean H + β KL  ibid., equations 8 and 9

Equation 8 penalises KL *instead of* clipping; RLlib, and we, add both. `vf_clip_param` c limits the
*squared error*, so where (V - y)² > c the value gets no gradient at all: set it to infinity if
returns are much larger than √c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.nn.distributions import DistributionTerms
from trainer.types import Array


@dataclass(frozen=True)
class PPOCoefficients:
    """The weights of the loss's parts in one update.

    Attributes:
        clip_param: ε, ≥ 0.
        vf_clip_param: c, > 0; infinity switches the limit off.
        vf_loss_coeff: c_v, ≥ 0; 0 without a critic.
        entropy_coeff: c_h, ≥ 0.
        kl_coeff: β, ≥ 0; 0 without the KL penalty.
    """

    clip_param: float
    vf_clip_param: float
    vf_loss_coeff: float
    entropy_coeff: float
    kl_coeff: float


@dataclass(frozen=True)
class PPOTargets:
    """What was measured when acting, and what follows from it; all [B].

    Attributes:
        action_logp: log π_old(a|s).
        advantages: A.
        value_targets: y.
    """

    action_logp: Array
    advantages: Array
    value_targets: Array


@dataclass(frozen=True)
class PPOLoss:
    """The loss of one minibatch, its parts, and its gradients.

    Attributes:
        policy_loss: -L_clip.
        vf_loss: L_vf.
        vf_loss_unclipped: mean (V - y)².
        entropy: mean H in nats.
        mean_kl_loss: mean KL in nats.
        clip_fraction: the share of rows whose ratio is outside [1-ε, 1+ε].
        vf_clip_fraction: the share of rows whose (V - y)² is above c.
        total_loss: the value that is minimised.
        d_action_dist_inputs: derivative of the total, [B, K].
        d_vf_preds: derivative of the total, [B].
    """

    policy_loss: float
    vf_loss: float
    vf_loss_unclipped: float
    entropy: float
    mean_kl_loss: float
    clip_fraction: float
    vf_clip_fraction: float
    total_loss: float
    d_action_dist_inputs: Array
    d_vf_preds: Array

    @classmethod
    def of_sums(
        cls,
        sums: Sequence[float],
        *,
        num_clipped: int,
        num_within: int,
        num_rows: int,
        coefficients: PPOCoefficients,
        d_action_dist_inputs: Array,
        d_vf_preds: Array,
    ) -> PPOLoss:
        """The loss that the parts of its rows add up to.

        Args:
            sums: of the surrogates, of the limited and the unlimited squared errors, of the
                entropies and of the divergences.
            num_clipped: rows whose ratio is clipped.
            num_within: rows whose squared error is not limited.
            num_rows: B.
            coefficients: the weights of the parts.
            d_action_dist_inputs: see above.
            d_vf_preds: see above.
        """
        surrogate, vf_loss, vf_loss_unclipped, entropy, kl = (one / num_rows for one in sums)
        c = coefficients
        total_loss = -surrogate - c.entropy_coeff * entropy
        if c.vf_loss_coeff:
            total_loss += c.vf_loss_coeff * vf_loss
        if c.kl_coeff:
            total_loss += c.kl_coeff * kl
        return cls(
            policy_loss=-surrogate,
            vf_loss=vf_loss,
            vf_loss_unclipped=vf_loss_unclipped,
            entropy=entropy,
            mean_kl_loss=kl,
            clip_fraction=num_clipped / num_rows,
            vf_clip_fraction=1.0 - num_within / num_rows,
            total_loss=total_loss,
            d_action_dist_inputs=d_action_dist_inputs,
            d_vf_preds=d_vf_preds,
        )


def ppo_loss(
    targets: PPOTargets, *, terms: DistributionTerms, values: Array, coefficients: PPOCoefficients
) -> PPOLoss:
    """Loss and gradients of one minibatch, in the dtype of `values`.

    Args:
        targets: the minibatch, [B].
        terms: π at the minibatch's observations and actions, with π_old as its reference.
        values: V, [B].
        coefficients: the weights of the parts.
    """
    c, num_rows = coefficients, len(values)
    parts = np.empty((5, num_rows), values.dtype)
    surrogates, squared_errors_clipped, squared_errors, entropies, divergences = parts

    d_logp, num_clipped = _clipped_surrogates(
        terms.logp - targets.action_logp,
        targets.advantages,
        clip_param=c.clip_param,
        out=surrogates,
    )
    d_logp *= -1.0 / num_rows

    errors = values - targets.value_targets
    np.multiply(errors, errors, squared_errors)
    np.minimum(squared_errors, c.vf_clip_param, out=squared_errors_clipped)
    is_within = squared_errors <= c.vf_clip_param
    d_values = np.where(is_within, errors, 0.0)
    d_values *= 2.0 * c.vf_loss_coeff / num_rows

    entropies[:] = terms.entropy
    divergences[:] = 0.0 if terms.kl is None else terms.kl
    return PPOLoss.of_sums(
        np.add.reduce(parts, axis=1).tolist(),
        num_clipped=num_clipped,
        num_within=int(np.count_nonzero(is_within)),
        num_rows=num_rows,
        coefficients=c,
        d_action_dist_inputs=terms.backward(
            d_logp=d_logp, d_entropy=-c.entropy_coeff / num_rows, d_kl=c.kl_coeff / num_rows
        ),
        d_vf_preds=d_values,
    )


def _clipped_surrogates(
    log_ratio: Array, advantages: Array, *, clip_param: float, out: Array
) -> tuple[Array, int]:
    """Writes min(r A, clip(r, 1-ε, 1+ε) A) of equation 7.

    Returns:
        Its derivative for log π, [B]: d(r A)/d log π = r A where the minimum is the unclipped part,
        and 0 elsewhere; and the number of rows whose ratio the clipping changes.
    """
    ratio = np.exp(log_ratio)
    unclipped = ratio * advantages
    clipped = np.minimum(np.maximum(ratio, 1.0 - clip_param), 1.0 + clip_param)
    num_clipped = int(np.count_nonzero(clipped != ratio))
    clipped *= advantages
    np.minimum(unclipped, clipped, out=out)
    # `where`, not a product: an infinite ratio that is clipped has gradient 0, not 0 times
    # infinity.
    return np.where(unclipped <= clipped, unclipped, 0.0), num_clipped

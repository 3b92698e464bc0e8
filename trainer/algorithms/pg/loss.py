"""The policy gradient loss and its gradients, on arrays only.

With G the return that followed an action, and B rows:

    L = -1/B Σ log π(a|s) G        Williams 1992, sections 4 and 5; Sutton et al. 2000, theorem 1

Its gradient is minus the sample mean of ∇ log π(a|s) G. G is a number here: no gradient flows
through it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.nn import DistributionTerms
from trainer.types import Array


@dataclass(frozen=True)
class PGLoss:
    """The loss of one batch and its gradients.

    Attributes:
        policy_loss: L.
        entropy: mean entropy of the policy in nats; not part of the loss.
        d_action_dist_inputs: derivative of L, [B, K].
    """

    policy_loss: float
    entropy: float
    d_action_dist_inputs: Array


def pg_loss(returns: Array, *, terms: DistributionTerms) -> PGLoss:
    """Loss and gradients of one batch.

    Args:
        returns: G, or whatever else is to take its place, [B].
        terms: π at the batch's observations and actions, B rows.
    """
    num_rows = len(returns)
    return PGLoss(
        policy_loss=-float(terms.logp @ returns) / num_rows,
        entropy=float(terms.entropy.mean()),
        d_action_dist_inputs=terms.backward(d_logp=returns * (-1.0 / num_rows)),
    )

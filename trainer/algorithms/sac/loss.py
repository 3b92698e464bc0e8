"""The losses of SAC and their gradients, on arrays only.

With π the policy, Q_i the critics, Q_i⁻ their targets, α the temperature, H̄ the target entropy, w
the importance weights, R, s', γ' the sum of rewards, observation and discount after n steps
(Haarnoja et al. 2018a, 2018b, equation numbers of 2018b):

    y       = R + γ' (min_i Q_i⁻(s', a') - α log π(a'|s')),   a' ~ π(s')        equations 5, 6
    L_Q     = Σ_i mean w · huber(Q_i(s, a) - y)        squared in the paper, Huber in RLlib
    L_π     = mean (α log π(ã|s) - min_i Q_i(s, ã)),          ã ~ π(s)          equation 9
    L_α     = mean -log α (log π(ã|s) + H̄)            log α for α, as in RLlib   equation 18

With finitely many actions the expectations over a', ã are sums (Christodoulou 2019, equations 4,
10, 12).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.types import Array


@dataclass(frozen=True)
class CriticLoss:
    """The loss of one critic and its gradient.

    Attributes:
        loss: L_Q of this critic.
        td_errors: Q(s, a) - y, [B].
        d_q: derivative with respect to Q(s, a), [B].
    """

    loss: float
    td_errors: Array
    d_q: Array


@dataclass(frozen=True)
class PolicyLoss:
    """The loss of a policy over finitely many actions.

    Attributes:
        loss: L_π.
        logp: Σ π log π of each row, [B].
        d_logits: derivative of the loss, [B, n].
    """

    loss: float
    logp: Array
    d_logits: Array


def critic_loss(q_selected: Array, targets: Array, weights: Array) -> CriticLoss:
    """L_Q of one critic.

    Args:
        q_selected: Q(s, a), [B].
        targets: y, [B].
        weights: w, [B].
    """
    errors = q_selected - targets
    slope = np.minimum(np.maximum(errors, -1.0), 1.0)
    losses = slope * (errors - 0.5 * slope)
    return CriticLoss(float(np.mean(weights * losses)), errors, weights * slope / len(errors))


def soft_targets(rewards: Array, discounts: Array, next_values: Array) -> Array:
    """The targets y, [B].

    Args:
        rewards: R, [B].
        discounts: γ', [B].
        next_values: V(s') = min_i Q_i⁻(s', a') - α log π(a'|s'), or its mean over all a', [B].
    """
    targets: Array = rewards + discounts * next_values
    return targets


def discrete_policy_loss(log_probs: Array, q_values: Array, *, alpha: float) -> PolicyLoss:
    """L_π over finitely many actions: mean Σ_a π(a) (α log π(a) - Q(a)).

    With f(a) = α log π(a) - Q(a): dL/d logit_k = π_k (f_k - Σ π f) / B.

    Args:
        log_probs: log π(·|s), [B, n].
        q_values: min_i Q_i(s, ·), [B, n].
        alpha: α ≥ 0.
    """
    probs = np.exp(log_probs)
    advantages = alpha * log_probs - q_values
    means = (probs * advantages).sum(axis=1, keepdims=True)
    return PolicyLoss(
        loss=float(means.mean()),
        logp=(probs * log_probs).sum(axis=1),
        d_logits=probs * (advantages - means) / len(probs),
    )


def temperature_loss(
    logp: Array, *, log_alpha: float, target_entropy: float
) -> tuple[float, float]:
    """L_α and its derivative with respect to log α.

    Args:
        logp: log π(ã|s), or Σ π log π, [B].
        log_alpha: log α.
        target_entropy: H̄ in nats.
    """
    gradient = -float(np.mean(logp + target_entropy))
    return log_alpha * gradient, gradient

"""V-trace: advantages and value targets of a policy, from what an older one has played.

Espeholt et al. 2018, "IMPALA: scalable distributed deep-RL with importance weighted actor-learner
architectures" (arXiv:1802.01561), section 4.1, with the λ of its remark 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.connectors import AdvantageEstimate, Chunks
from trainer.connectors.advantages import discounted_sums
from trainer.types import Array


@dataclass(frozen=True)
class VTraceSettings:
    """How far V-trace trusts old samples.

    Attributes:
        gamma: γ, discount per step, in [0, 1].
        lambda_: λ, in [0, 1]: 0 trusts the values, 1 the rewards.
        clip_rho: ρ̄ > 0, the largest weight of a step's own error in value targets.
    """

    gamma: float
    lambda_: float
    clip_rho: float


def vtrace(chunks: Chunks, ratios: Array, settings: VTraceSettings) -> AdvantageEstimate:
    """V-trace targets, and advantages before their weights (Espeholt et al. 2018, equations 1, 4).

    With ρ_t = min(ρ̄, π/μ) and c_t = λ min(1, π/μ):

        δ_t = ρ_t (r_t + γ V_{t+1} - V_t)
        v_t = V_t + δ_t + γ c_t (v_{t+1} - V_{t+1})
        A_t = r_t + γ (V_{t+1} + λ (v_{t+1} - V_{t+1})) - V_t

    After a chunk, v - V is 0. The paper's advantage has λ = 1. With λ in this place, a sample that
    the policy has played itself (π = μ) gives generalized advantage estimation, for every λ. In the
    policy gradient each step weighs min(ρ̄', π/μ), which is left to the caller: advantages are
    standardised before.

    Args:
        chunks: the experience; values are those of the policy that learns.
        ratios: π(a|x) / μ(a|x), of the policy that learns to the one that acted, float64 [B].
        settings: γ, λ and ρ̄.
    """
    gamma, lambda_ = settings.gamma, settings.lambda_
    ends, errors = chunks.ends, chunks.errors(gamma)
    deltas = np.minimum(settings.clip_rho, ratios) * errors
    traces = gamma * lambda_ * np.minimum(1.0, ratios)
    corrections = discounted_sums(deltas, traces, ends=ends)
    following = np.zeros_like(corrections)  # v - V of the next step
    following[:-1] = corrections[1:]
    following[ends] = 0.0
    return AdvantageEstimate(
        advantages=errors + gamma * lambda_ * following,
        value_targets=chunks.values + corrections,
    )

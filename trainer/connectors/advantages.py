"""How much better an action was than expected: pure functions on chunks of experience.

Several chunks stand one after another in arrays [B]; a chunk ends because its episode terminated,
because it was truncated, or because sampling was cut there. What would have followed is valued by
the value function at the last observation unless the episode terminated (then it is worth 0). No
artificial steps are added to the data for that (RLlib adds one per chunk, and they enter its
standardisation).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trainer.episodes.episode_columns import ADVANTAGES, REWARDS, VALUE_TARGETS, VF_PREDS
from trainer.errors import EpisodeError
from trainer.types import Array
from trainer_toolkit.arguments import require_keys, takes
from trainer_toolkit.checks import boolean, number

SMALLEST_STD: Final = 1e-4
"""Advantages are divided by at least this (RLlib's value)."""


@dataclass(frozen=True)
class Chunks:
    """Rewards and values of chunks, one after another.

    Attributes:
        rewards: float64 [B].
        values: V of the observation before each step, float64 [B].
        lengths: steps of each chunk, ≥ 1, int64 [C]; they add up to B.
        bootstrap_values: V of the observation after each chunk, 0 where its episode terminated,
            float64 [C].
    """

    rewards: Array
    values: Array
    lengths: Array
    bootstrap_values: Array

    @property
    def ends(self) -> Array:
        """The row of every chunk's last step, int64 [C]."""
        ends: Array = np.cumsum(self.lengths) - 1
        return ends

    def errors(self, gamma: float) -> Array:
        """δ_t = r_t + γ V_{t+1} - V_t of every step, float64 [B]."""
        next_values = np.empty_like(self.values)
        next_values[:-1] = self.values[1:]
        next_values[self.ends] = self.bootstrap_values
        errors: Array = self.rewards + gamma * next_values - self.values
        return errors


@dataclass(frozen=True)
class AdvantageEstimate:
    """What a policy and a value function learn from.

    Attributes:
        advantages: float64 [B], not standardised.
        value_targets: float64 [B].
    """

    advantages: Array
    value_targets: Array


def generalized_advantages(chunks: Chunks, *, gamma: float, lambda_: float) -> AdvantageEstimate:
    """Generalized advantage estimation (Schulman et al. 2016, equations 11, 12 and 16).

    δ_t = r_t + γ V_{t+1} - V_t and A_t = δ_t + γλ A_{t+1}, with A = 0 after each chunk. Targets are
    A_t + V_t, the TD(λ) returns.

    Args:
        chunks: the experience.
        gamma: γ, discount per step, in [0, 1].
        lambda_: λ, in [0, 1]: 0 trusts the values, 1 the rewards.
    """
    discounts = np.full(len(chunks.values), gamma * lambda_)
    advantages = discounted_sums(chunks.errors(gamma), discounts, ends=chunks.ends)
    return AdvantageEstimate(advantages, advantages + chunks.values)


def discounted_returns(chunks: Chunks, *, gamma: float, use_critic: bool) -> AdvantageEstimate:
    """Advantages without GAE: discounted sums of rewards, minus V if there is a critic.

    R_t = r_t + γ R_{t+1}, where R after a chunk is its bootstrap value. Targets are R_t. Without a
    critic the bootstrap values should be 0.

    Args:
        chunks: the experience.
        gamma: γ, discount per step, in [0, 1].
        use_critic: subtract V from the returns.
    """
    ends, rewards = chunks.ends, chunks.rewards.copy()
    rewards[ends] += gamma * chunks.bootstrap_values
    returns = discounted_sums(rewards, np.full(len(rewards), gamma), ends=ends)
    return AdvantageEstimate(returns - (chunks.values if use_critic else 0.0), returns)


def estimate_advantages(
    chunks: Chunks, *, gamma: float, lambda_: float, use_gae: bool, use_critic: bool
) -> AdvantageEstimate:
    """`generalized_advantages` if `use_gae`, else `discounted_returns`; see there."""
    if use_gae:
        return generalized_advantages(chunks, gamma=gamma, lambda_=lambda_)
    return discounted_returns(chunks, gamma=gamma, use_critic=use_critic)


@takes(
    last_r=number(),
    gamma=number(),
    lambda_=number(),
    use_gae=boolean(),
    use_critic=boolean(),
)
def compute_advantages(
    rollout: MutableMapping[str, Any],
    last_r: float,
    gamma: float = 0.9,
    lambda_: float = 1.0,
    use_gae: bool = True,
    use_critic: bool = True,
    rewards: str = REWARDS,
    vf_preds: str = VF_PREDS,
) -> MutableMapping[str, Any]:
    """Writes `advantages` and `value_targets` into the columns of one chunk (RLlib's helper).

    Arguments may be given by position, as code written for RLlib does.

    Args:
        rollout: the columns; needs `rewards`, [T], and with `use_gae` or `use_critic` also
            `vf_preds`, [T], as long as it.
        last_r: value of the observation after the chunk; 0 where its episode terminated.
        gamma: discount per step, in [0, 1].
        lambda_: decay of generalized advantage estimation, in [0, 1].
        use_gae: estimate as in Schulman et al. 2016; False takes discounted returns.
        use_critic: without `use_gae`: subtract `vf_preds` from the returns.
        rewards: the column to take rewards from.
        vf_preds: the column to take values from.

    Returns:
        `rollout` itself.

    Raises:
        EpisodeError: `vf_preds` is needed and not there, or the columns are not [T] each.
    """
    require_keys("compute_advantages()", "rollout", rollout, (rewards,))
    numbers = np.asarray(rollout[rewards], np.float64)
    needs_values = use_gae or use_critic
    if needs_values and vf_preds not in rollout:
        raise EpisodeError(
            f"compute_advantages(use_gae={use_gae}, use_critic={use_critic}) needs the values "
            f"{vf_preds!r}, but there are only {', '.join(rollout.keys())}. Add that column, or "
            "take plain discounted returns: use_gae=False, use_critic=False."
        )
    values = np.asarray(rollout[vf_preds] if needs_values else 0 * numbers, np.float64)
    if numbers.ndim != 1 or values.shape != numbers.shape:
        raise EpisodeError(
            f"compute_advantages() got {rewards!r} of shape {numbers.shape} and {vf_preds!r} of "
            f"shape {values.shape}; expected one number per step in both: [T]."
        )
    chunks = Chunks(
        rewards=numbers,
        values=values,
        lengths=np.array([len(numbers)]),
        bootstrap_values=np.array([last_r], np.float64),
    )
    estimate = estimate_advantages(
        chunks, gamma=gamma, lambda_=lambda_, use_gae=use_gae, use_critic=use_critic
    )
    rollout[ADVANTAGES] = estimate.advantages
    rollout[VALUE_TARGETS] = estimate.value_targets
    return rollout


def standardize(advantages: Array) -> Array:
    """(A - mean) / max(std, 1e-4) over all rows, float64 [B]."""
    centred = advantages - advantages.mean()
    standardized: Array = centred / max(SMALLEST_STD, float(advantages.std()))
    return standardized


def explained_variance(targets: Array, predictions: Array) -> float:
    """1 - Var(targets - predictions) / Var(targets), at least -1; 0 if the targets do not vary.

    Args:
        targets: [B].
        predictions: [B].
    """
    variance = float(targets.var())
    if variance == 0.0:
        return 0.0
    return max(-1.0, 1.0 - float((targets - predictions).var()) / variance)


def discounted_sums(numbers: Array, discounts: Array, *, ends: Array) -> Array:
    """y_t = x_t + d_t · y_{t+1}, where y after each row of `ends` is 0; float64 [B].

    A plain loop over Python floats: 0.2 ms for 2048 rows. NumPy has no such recurrence, and closed
    forms with powers of the discount overflow.

    Args:
        numbers: x, float64 [B].
        discounts: d, float64 [B]; overwritten in the rows of `ends`.
        ends: the last row of each chunk, int64 [C].
    """
    discounts[ends] = 0.0
    following = 0.0
    sums = []
    for value, factor in zip(numbers[::-1].tolist(), discounts[::-1].tolist(), strict=True):
        following = value + factor * following
        sums.append(following)
    return np.array(sums[::-1])

"""Observations and rewards on a common scale: what is done to them, and from which moments.

    moments = moments.merged(RunningMoments.of(rows))      everything seen so far
    normalizer = ObservationNormalizer.of(moments, ...)    a frozen value, sent to whoever acts
    network_rows = normalizer(rows)

Only pure functions and frozen values are here; `trainer.connectors.normalization_statistics`
collects the moments.

Sources: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", equation 2.1
(merging moments); the scaling of rewards by the standard deviation of the discounted return is
OpenAI Baselines' `VecNormalize` (2017), as in gymnasium's `NormalizeReward`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trainer.errors import EpisodeError
from trainer.types import Array, FloatArray, State

LIMIT: Final = 10.0
"""Normalised observations and rewards are clipped to ± this (the value of Stable-Baselines3)."""

EPSILON: Final = 1e-8
"""Added to standard deviations (RLlib's value in its `MeanStdFilter`)."""

_RESOLUTION: Final = 1e-7
"""A standard deviation below this share of the mean is what rounding to float32 makes of no change
at all."""


@dataclass(frozen=True)
class RunningMoments:
    """Count, mean and sum of squared deviations of everything seen so far, number by number.

    Attributes:
        count: rows seen.
        mean: float64 [D]; 0 before the first row.
        squares: sum of (x - mean)², float64 [D].
    """

    count: int
    mean: Array
    squares: Array

    @classmethod
    def empty(cls, size: int) -> RunningMoments:
        """Of no rows of `size` numbers."""
        return cls(0, np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, rows: Array) -> RunningMoments:
        """Of some rows, [B, D] of any number type.

        Raises:
            EpisodeError: a number is not finite; it would stay in the moments for ever.
        """
        if not len(rows):
            return cls.empty(rows.shape[1])
        # Too large numbers are found below; they need no warning besides.
        with np.errstate(over="ignore", invalid="ignore"):
            mean = rows.mean(axis=0, dtype=np.float64)
            squares = np.square(rows - mean).sum(axis=0)
        if not np.isfinite(squares).all():
            places = np.flatnonzero(~np.isfinite(squares)).tolist()
            raise EpisodeError(
                "Running means and standard deviations cannot take in numbers that are not finite; "
                f"the env gave some, at {places} of the encoded observation (or as a reward, if "
                "that is [0] of 1). Correct the env, or leave normalisation out."
            )
        return cls(len(rows), mean, squares)

    def merged(self, other: RunningMoments) -> RunningMoments:
        """Of everything that both have seen; order matters in the last bits."""
        if not self.count:
            return other
        if not other.count:
            return self
        count = self.count + other.count
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.count / count)
        squares = self.squares + other.squares
        squares += np.square(difference) * (self.count * other.count / count)
        return RunningMoments(count, mean, squares)

    @property
    def std(self) -> Array:
        """Standard deviations of what was seen (not an estimate for more), float64 [D].

        1 where nothing ever changed: there is no scale to bring it to.
        """
        std = np.sqrt(self.squares / max(1, self.count))
        has_changed = std > _RESOLUTION * np.abs(self.mean)
        unchanged: Array = np.where(has_changed & (std > 0.0), std, 1.0)
        return unchanged

    def get_state(self) -> State:
        """Plain data; copies."""
        return {"count": self.count, "mean": self.mean.copy(), "squares": self.squares.copy()}

    @classmethod
    def from_state(cls, state: State) -> RunningMoments:
        """The moments that `get_state` was called on."""
        return cls(int(state["count"]), np.array(state["mean"]), np.array(state["squares"]))


@dataclass(frozen=True)
class ObservationNormalizer:
    """Brings encoded observations to mean 0 and standard deviation 1: clip((x - mean) / (std + ε)).

    Every row is computed by itself, so it has the same bits whatever other rows are in the batch.

    Attributes:
        mean: float64 [D].
        factors: 1 / (std + ε), float64 [D].
        limits: what the results are clipped to, float64 [D].
    """

    mean: Array
    factors: Array
    limits: Array

    @classmethod
    def of(cls, moments: RunningMoments, *, is_normalized: Array) -> ObservationNormalizer:
        """The normalizer that follows from what was seen.

        Args:
            moments: of D numbers; without any row, numbers are only clipped.
            is_normalized: which numbers are changed at all, bool [D]; one-hot codes, bits and
                action masks are not.
        """
        has_moments = is_normalized & bool(moments.count)
        return cls(
            mean=np.where(has_moments, moments.mean, 0.0),
            factors=np.where(has_moments, 1.0 / (moments.std + EPSILON), 1.0),
            limits=np.where(is_normalized, LIMIT, np.inf),
        )

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Normalised rows, a new array of float32 [B, D].

        In float64 until the end: the difference of large float32 numbers would lose what is left.
        """
        numbers = rows - self.mean
        numbers *= self.factors
        np.minimum(numbers, self.limits, out=numbers)
        np.maximum(numbers, -self.limits, out=numbers)
        return numbers.astype(np.float32)


@dataclass(frozen=True)
class RewardTransform:
    """What learners make of the env's rewards; reported returns stay the env's own.

    Clipping comes first, then scaling. Rewards are not shifted: that would change what is best.

    Attributes:
        clip: True takes signs, a number c clips to ±c; None and False leave rewards as they are.
        factor: 1 / (std of the discounted return + ε); None if rewards are not scaled.
    """

    clip: float | bool | None = None
    factor: float | None = None

    @property
    def does_clip(self) -> bool:
        """Whether `clipped` changes anything."""
        return self.clip is not None and self.clip is not False

    def clipped(self, rewards: Array) -> Array:
        """The rewards clipped, [B]."""
        if not self.does_clip:
            return rewards
        if self.clip is True:
            signs: Array = np.sign(rewards)
            return signs
        limit = float(self.clip or 0.0)
        within: Array = np.clip(rewards, -limit, limit)
        return within

    def scaled(self, rewards: Array) -> Array:
        """The rewards scaled, and then clipped to ±`LIMIT`; [B], of the same number type."""
        if self.factor is None:
            return rewards
        scaled: Array = np.clip(rewards * rewards.dtype.type(self.factor), -LIMIT, LIMIT)
        return scaled

    def __call__(self, rewards: Array) -> Array:
        """Both, [B] of floats."""
        return self.scaled(self.clipped(rewards))


@dataclass(frozen=True)
class Normalization:
    """What is in force for observations and rewards: a value that travels to the env runners.

    Attributes:
        observations: None leaves them as they are encoded.
        rewards: None leaves them as the env paid them.
    """

    observations: ObservationNormalizer | None = None
    rewards: RewardTransform | None = None

    def rewards_to_learn(self, rewards: Any) -> Any:
        """What a learner takes for the rewards of single steps, [B] of floats."""
        return rewards if self.rewards is None else self.rewards(rewards)


NOTHING: Final = Normalization()
"""Changes nothing: what is in force unless a config says otherwise."""

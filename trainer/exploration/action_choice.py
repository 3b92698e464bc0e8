"""What a strategy chooses from: the module's outputs of one vector step, and its random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.exploration.noise_numbers import numbers_for
from trainer.nn import ActionDistribution
from trainer.seeding import NoiseKind
from trainer.types import Array

MASKED: Final = -1e30
"""The logit or Q value of an action that is not allowed; anything below half of it counts, so the
most negative float32 does, too."""


@dataclass(frozen=True, slots=True)
class ActionChoice:
    """The action distributions of B env slots, with the noise to draw from them.

    Attributes:
        distribution: the family.
        inputs: its inputs, float32 [B, K]: logits, Q values, or means and log standard deviations.
        noise: this step's random numbers of each slot, float64 [B, W].
        noise_kind: what they are.
        slots: which env slots the rows are: numbers of the sub-envs in their runner.
        mask: which alternatives are allowed, bool [B, K]; None if all are, or if the inputs alone
            tell (`MASKED`).
    """

    distribution: ActionDistribution
    inputs: Array
    noise: Array
    noise_kind: NoiseKind
    slots: Sequence[int]
    mask: Array | None = None

    def sample(self) -> Array:
        """Actions drawn from the distributions, [B, …]."""
        noise = numbers_for(self.distribution, self.noise, kind=self.noise_kind)
        return self.distribution.sample(self.allowed_inputs(), noise)

    def deterministic_sample(self) -> Array:
        """The most likely actions, [B, …]."""
        return self.distribution.deterministic(self.allowed_inputs())

    def logp(self, actions: Array) -> Array:
        """The log-likelihoods of actions under the distributions, [B]."""
        return self.distribution.logp(self.allowed_inputs(), actions)

    def valid_parts(self) -> Array | None:
        """Which alternatives are allowed, bool [B, K]; None if all are."""
        return valid_parts(self.inputs if self.mask is None else self.allowed_inputs())

    def allowed_inputs(self) -> Array:
        """The inputs with `MASKED` in the place of what is not allowed."""
        if self.mask is None:
            return self.inputs
        allowed: Array = np.where(self.mask, self.inputs, MASKED).astype(self.inputs.dtype)
        return allowed


def valid_parts(inputs: Array) -> Array | None:
    """Which alternatives are not `MASKED`, bool [B, K]; None if none is."""
    valid: Array = inputs > 0.5 * MASKED
    return None if valid.all() else valid

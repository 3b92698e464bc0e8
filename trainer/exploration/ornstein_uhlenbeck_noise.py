"""Continuous actions with noise that is correlated in time (Lillicrap et al. 2016, DDPG)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from checkpoints.arguments import checked_methods
from trainer.exploration.gaussian_noise import GaussianNoise, scale_per_worker
from trainer.exploration.noise_numbers import normal_numbers
from trainer.exploration.settings import checked_number
from trainer.types import Array


@checked_methods(but=("__init__", "get_exploration_action"))
class OrnsteinUhlenbeckNoise(GaussianNoise):
    """Uniform actions at first, then the best action plus an Ornstein-Uhlenbeck process, clipped.

    The process (Uhlenbeck and Ornstein 1930; Lillicrap et al. 2016, section 7): x ← x - θx +
    σ·N(0, 1), from 0 at the start of each episode, and moved on by every step of it. The noise is
    scale(t) · base_scale · x · (high - low), with the factor 1 for dimensions without bounds.

    Every env slot has its own x. It is a function of the episode's random numbers alone, so a
    slot that is put back into the middle of an episode finds it again.
    """

    def __init__(
        self,
        action_space: spaces.Space[Any],
        *,
        ou_theta: float = 0.15,
        ou_sigma: float = 0.2,
        ou_base_scale: float = 0.1,
        **settings: Any,
    ) -> None:
        """Takes the constants of the process.

        Args:
            action_space: of actions as modules give them.
            ou_theta: θ, how fast the noise falls back to 0, in [0, 1].
            ou_sigma: σ, its growth per step.
            ou_base_scale: factor of the noise.
            settings: arguments of `GaussianNoise` but for `stddev`, and its context.

        Raises:
            ConfigError: an argument is wrong.
            UnsupportedSpaceError: the action space is not a Box of floats.
        """
        super().__init__(action_space, **settings)
        self.ou_theta = checked_number(ou_theta, name="ou_theta", maximum=1.0)
        self.ou_sigma = checked_number(ou_sigma, name="ou_sigma")
        self.ou_base_scale = checked_number(ou_base_scale, name="ou_base_scale")
        with np.errstate(over="ignore"):
            span = (self._high.astype(np.float64) - self._low).ravel()
        self._span: Array = np.where(np.isfinite(span), span, 1.0)
        self._states: dict[int, Array] = {}

    def begin_episode(self, slot: int) -> None:
        """Puts the slot's process to 0."""
        self._states[slot] = np.zeros(len(self._span))

    def advance(self, slots: Sequence[int], noise: Array) -> None:
        """Makes one step of every slot's process."""
        numbers = normal_numbers(np.ascontiguousarray(noise))
        for slot, row in zip(slots, numbers, strict=True):
            state = self._states.get(slot, 0.0)
            self._states[slot] = state - self.ou_theta * state + self.ou_sigma * row

    def unscaled_noise(self, slots: Sequence[int], noise: Array) -> Array:
        """The processes as they stand, see the class; float64 [B, A]."""
        del noise
        states = np.stack([self._states[slot] for slot in slots])
        added: Array = self.ou_base_scale * states * self._span
        return added


@checked_methods(but=("__init__", "get_exploration_action"))
class PerWorkerOrnsteinUhlenbeckNoise(OrnsteinUhlenbeckNoise):
    """A constant scale of its own for each env runner; see `PerWorkerGaussianNoise`."""

    def __init__(self, action_space: spaces.Space[Any], **settings: Any) -> None:
        """See `OrnsteinUhlenbeckNoise`, whose schedule counts only without env runners."""
        super().__init__(action_space, **settings)
        self.scale_schedule = scale_per_worker(self) or self.scale_schedule

"""A slowly following copy of a network, to learn against."""

from __future__ import annotations

import copy

import numpy as np

from trainer.modules import RLModule
from trainer.types import State


class TargetNetwork:
    """A copy of a module whose weights follow it: θ⁻ ← τ θ + (1 - τ) θ⁻.

    With τ = 1 and updates from time to time it is that of Mnih et al. 2015, with a small τ at every
    update that of Lillicrap et al. 2016.

    Attributes:
        module: the copy; its gradients are of no use.
    """

    def __init__(self, followed: RLModule) -> None:
        """Starts with the same weights."""
        self._followed = followed
        self.module = copy.deepcopy(followed)

    def follow(self, tau: float) -> None:
        """Moves by the share τ, in (0, 1], of the way."""
        self.module.copy_buffers(self._followed)
        target, source = self.module.parameters.flat, self._followed.parameters.flat
        if tau == 1.0:
            np.copyto(target, source)
        else:
            target *= 1.0 - tau
            target += tau * source

    def get_state(self) -> State:
        """Copies of the weights by name."""
        return self.module.get_state()

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave."""
        self.module.set_state(state)

"""The slowly following critics that targets are computed with."""

from __future__ import annotations

import numpy as np

from trainer.modules import SACModule, TorchSACModule
from trainer.types import Array, State


class TargetCritics:
    """Copies of a module's critics whose weights follow them: θ⁻ ← τ θ + (1 - τ) θ⁻.

    Only critics have targets in SAC; a `TargetNetwork` would carry a copy of the policy along.

    Attributes:
        critics: the copies.
    """

    def __init__(self, module: SACModule | TorchSACModule) -> None:
        """Starts with the same weights.

        Args:
            module: one that learns.
        """
        if module.critics is None:
            raise module.acting_only_error()
        self._followed = module.critics.block
        self.critics = module.copy_critics()
        self._scratch: Array = np.empty_like(self._followed)
        self.follow(1.0)

    def follow(self, tau: float) -> None:
        """Moves by the share τ, in (0, 1], of the way."""
        target, source = self.critics.parameters.flat, self._followed
        if tau == 1.0:
            np.copyto(target, source)
            return
        distance = self._scratch
        np.subtract(source, target, distance)
        np.multiply(distance, tau, distance)
        np.add(target, distance, target)

    def get_state(self) -> State:
        """Copies of the weights by name."""
        return self.critics.parameters.get_state()

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave."""
        self.critics.parameters.set_state(state)

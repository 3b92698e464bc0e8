"""The slowly following critics that targets are computed with."""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.modules import SACModule
from trainer.types import Array, State

_BLOCK: Final = 16_384


class TargetCritics:
    """Copies of a module's critics whose weights follow them: θ⁻ ← τ θ + (1 - τ) θ⁻.

    Only critics have targets in SAC; a `TargetNetwork` would carry a copy of the policy along.

    Attributes:
        critics: the copies.
    """

    def __init__(self, module: SACModule) -> None:
        """Starts with the same weights.

        Args:
            module: one that learns.
        """
        if module.critics is None:
            raise module.acting_only_error()
        self._followed = module.critics.block
        self.critics = module.copy_critics()
        self._scratch: Array = np.empty(_BLOCK, self._followed.dtype)
        self.follow(1.0)

    def follow(self, tau: float) -> None:
        """Moves by the share τ, in (0, 1], of the way."""
        target, source = self.critics.parameters.flat, self._followed
        if tau == 1.0:
            np.copyto(target, source)
            return
        # Block by block, so that the three passes over a block find it in the cache.
        for start in range(0, len(target), _BLOCK):
            part = target[start : start + _BLOCK]
            distance = self._scratch[: len(part)]
            np.subtract(source[start : start + _BLOCK], part, distance)
            np.multiply(distance, tau, distance)
            np.add(part, distance, part)

    def get_state(self) -> State:
        """Copies of the weights by name."""
        return self.critics.parameters.get_state()

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave."""
        self.critics.parameters.set_state(state)

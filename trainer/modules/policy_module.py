"""The ready-made policy network without a value function, for algorithms that need none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from trainer.errors import ModuleError
from trainer.modules.actor_critic import ActorCriticModule
from trainer.types import Array


class PolicyModule(ActorCriticModule):
    """An `ActorCriticModule` without its value network: no tensor, no time is spent on values.

    Settings and names of tensors are the same, so weights of a policy can go from one to the other.
    """

    has_value_network: ClassVar[bool] = False

    def compute_values(self, batch: Mapping[str, Array]) -> Array:
        """Refuses: there are none.

        Raises:
            ModuleError: always.
        """
        del batch
        raise ModuleError(
            "A PolicyModule predicts no values, because its algorithm learns none (PG's advantages "
            "are returns). Use an algorithm with a critic, such as PPO."
        )

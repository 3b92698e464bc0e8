"""What is needed to build a module anywhere: a small frozen value that can travel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from checkpoints.arguments import checked_methods
from trainer.errors import ModuleError
from trainer.modules.actor_critic import ActorCriticModule
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.rl_module import RLModule
from trainer.spaces import ACTION_MASK_KEY


@checked_methods()
@dataclass(frozen=True)
class RLModuleSpec:
    """Which module to build, for which spaces.

    Attributes:
        module_class: None means `ActorCriticModule`.
        observation_space: of the env; None is filled in by the algorithm.
        action_space: of the env; None is filled in by the algorithm.
        model_config: settings of the module; for `ActorCriticModule` those of `DefaultModelConfig`.
            None means all defaults.
        inference_only: leave out what only learning needs.
        action_mask_key: what a Dict observation calls its action mask, if it has one; None is
            filled in by the algorithm.
    """

    module_class: type[RLModule] | None = None
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    model_config: Mapping[str, Any] | DefaultModelConfig | None = field(default_factory=dict)
    inference_only: bool = False
    action_mask_key: str | None = None

    def build(
        self,
        rng: np.random.Generator | None = None,
        *,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> RLModule:
        """A new module.

        Args:
            rng: draws the first weights; None leaves them 0, for a module whose state is set next.
            dtype: number type of the parameters (float64 to check gradients).

        Raises:
            ModuleError: a space is not known, or the class is not an `RLModule`.
            UnsupportedSpaceError: there is no network for a space.
            ConfigError: the model config is wrong.
        """
        module_class = self.module_class or ActorCriticModule
        if not (isinstance(module_class, type) and issubclass(module_class, RLModule)):
            raise ModuleError(
                f"`module_class={module_class!r}` is not a subclass of `RLModule`, so nobody knows "
                "how to call it. Derive your network from `RLModule` and give the class itself, "
                "not an object."
            )
        if self.observation_space is None or self.action_space is None:
            raise ModuleError(
                f"An `RLModuleSpec` was built with observation_space={self.observation_space} and "
                f"action_space={self.action_space}: a network needs both to know its size. Give "
                "them, or let the algorithm fill them in from the env."
            )
        model_config = self.model_config
        if isinstance(model_config, DefaultModelConfig):
            model_config = dataclasses.asdict(model_config)
        return module_class(
            observation_space=self.observation_space,
            action_space=self.action_space,
            model_config=model_config,
            inference_only=self.inference_only,
            action_mask_key=self.action_mask_key or ACTION_MASK_KEY,
            rng=rng,
            dtype=dtype,
        )

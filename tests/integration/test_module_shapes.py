"""A network whose outputs do not fit the actions is refused when the algorithm is built."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from trainer import DQNConfig, ModuleError, PPOConfig, RLModule, RLModuleSpec
from trainer.types import Array


class TooWide(RLModule):
    """Gives 7 numbers for 2 actions."""

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"pi/kernel": (self.obs_size, 7)}

    def initialize(self, rng: np.random.Generator) -> None:
        return

    def forward_acting(self, obs: Array) -> Array:
        return np.zeros((len(obs), 7), np.float32)

    def forward_train(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        count = len(batch["obs"])
        return {"action_dist_inputs": np.zeros((count, 7)), "vf_preds": np.zeros(count)}

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> None:
        return


@pytest.mark.parametrize("config_class", [PPOConfig, DQNConfig])
def test_outputs_of_the_wrong_width_are_named(
    config_class: type[PPOConfig] | type[DQNConfig],
) -> None:
    config = config_class().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=TooWide))
    with pytest.raises(ModuleError, match=r"TooWide.forward_acting gives .*\[1, 7\].*\[1, 2\]"):
        config.build_algo()

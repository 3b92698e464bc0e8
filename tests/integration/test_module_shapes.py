"""A network whose outputs do not fit the actions is refused when the algorithm is built."""

import numpy as np
import pytest

from trainer import (
    DQNConfig,
    ModuleError,
    PGConfig,
    PPOConfig,
    RLModule,
    RLModuleSpec,
)


class TooWide(RLModule):
    """Gives 7 numbers for 2 actions."""

    def parameter_shapes(self):
        return {"pi/kernel": (self.obs_size, 7)}

    def initialize(self, rng):
        return

    def forward_acting(self, obs):
        return np.zeros((len(obs), 7), np.float32)

    def forward_train(self, batch):
        count = len(batch["obs"])
        return {"action_dist_inputs": np.zeros((count, 7)), "vf_preds": np.zeros(count)}

    def backward(self, *, d_action_dist_inputs, d_vf_preds):
        return


@pytest.mark.parametrize("config_class", [PPOConfig, DQNConfig])
def test_outputs_of_the_wrong_width_are_named(config_class):
    config = config_class().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=TooWide))
    with pytest.raises(ModuleError, match=r"TooWide.forward_acting gives .*\[1, 7\].*\[1, 2\]"):
        config.build_algo()


class Without(RLModule):
    """Acts well, but its forward pass of learning leaves something out."""

    def parameter_shapes(self):
        return {"pi/kernel": (self.obs_size, 2)}

    def initialize(self, rng):
        return

    def forward_acting(self, obs):
        return np.zeros((len(obs), 2), np.float32)

    def forward_train(self, batch):
        """Nothing."""

    def backward(self, *, d_action_dist_inputs, d_vf_preds):
        return


class WithoutValues(Without):
    def forward_train(self, batch):
        return {"action_dist_inputs": self.forward_acting(batch["obs"])}


class WithoutInputs(Without):
    def forward_train(self, batch):
        return {"vf_preds": np.zeros(len(batch["obs"]))}


@pytest.mark.parametrize(
    ("config", "module_class", "message"),
    [
        (PPOConfig(), WithoutValues, r"\['action_dist_inputs'\], without 'vf_preds'.*\[B\].*PG"),
        (PPOConfig(), WithoutInputs, r"\['vf_preds'\], without 'action_dist_inputs'.*\[B, 2\]"),
        (PPOConfig(), Without, r"NoneType, without 'vf_preds'"),
        (PGConfig(), WithoutInputs, r".*without 'action_dist_inputs'.*\[B, 2\]"),
        (DQNConfig(), WithoutInputs, r".*without 'action_dist_inputs'.*\[B, 2\]"),
    ],
)
def test_an_output_that_is_left_out_is_named(config, module_class, message):
    config.environment("CartPole-v1").env_runners(num_env_runners=0)
    config.training(train_batch_size=20).rl_module(
        rl_module_spec=RLModuleSpec(module_class=module_class)
    )
    if isinstance(config, PPOConfig):
        config.training(minibatch_size=20)
    if isinstance(config, DQNConfig):
        config.training(num_steps_sampled_before_learning_starts=0)
    with config.build_algo() as algo:
        name = f"{module_class.__name__}.forward_train returned"
        with pytest.raises(ModuleError, match=f"{name} {message}"):
            algo.train()
        assert algo.training_iteration == 0


def test_pg_learns_without_values():
    config = PGConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.training(train_batch_size=20)
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=WithoutValues))
    with config.build_algo() as algo:
        assert algo.train()["training_iteration"] == 1

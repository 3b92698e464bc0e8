"""Networks in Torch among several agents: beside NumPy, shared, frozen, restored."""

import numpy as np
import pytest

from checkpoints import encode
from trainer import (
    Algorithm,
    DQNConfig,
    MultiRLModuleSpec,
    PPOConfig,
    RLModuleSpec,
    SACConfig,
)
from trainer.errors import ConfigError
from trainer.metrics import comparable
from trainer.modules.actor_critic import ActorCriticModule
from trainer.testing.multi_agent_envs import MultiAgentCartPole, MultiAgentPendulum

pytest.importorskip("torch", reason="Torch is not installed (the extra [torch])")

from tests.torch_modules import DenseModule, NoisyDense, TwinSAC

MAPPING = {0: "torch", 1: "numpy"}


def two(config, module_class=NoisyDense, num_env_runners=0):
    """Two agents: the first one's network is in Torch, with dropout and running statistics."""
    specs = {"torch": RLModuleSpec(module_class=module_class), "numpy": RLModuleSpec()}
    config.environment(MultiAgentCartPole, env_config={"num_agents": 2}).debugging(seed=5)
    config.env_runners(
        num_env_runners=num_env_runners, num_envs_per_env_runner=2 // max(1, num_env_runners)
    )
    config.multi_agent(policies={"torch", "numpy"}, policy_mapping_fn=MAPPING)
    config.rl_module(
        model_config={"fcnet_hiddens": [8]},
        rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs),
    )
    return config


def ppo():
    return PPOConfig().training(train_batch_size=61, minibatch_size=16, num_epochs=2)


def outcome(config, iterations=2):
    """All that was learnt, with the buffers of the networks."""
    with config.build_algo() as algo:
        for _ in range(iterations):
            algo.train()
        return encode(algo.get_state(["learner", "counters"]))


def test_one_agent_in_torch_learns_beside_one_in_numpy():
    with two(ppo()).build_algo() as algo:
        before = algo.get_weights()
        result = algo.train()
        after = algo.get_weights()
        kinds = {name: algo.get_module(name).framework for name in MAPPING.values()}
        acting = algo.env_runner.module["torch"].get_state()
    assert kinds == {"torch": "torch", "numpy": "numpy"}
    for name in MAPPING.values():
        assert any(not np.array_equal(before[name][key], after[name][key]) for key in before[name])
        assert np.isfinite(result[f"learners/{name}/total_loss"])
    assert after["torch"]["body.1.num_batches_tracked"] > 0
    assert np.array_equal(acting["body.1.running_mean"], after["torch"]["body.1.running_mean"])


def test_what_the_agent_in_numpy_learns_first_does_not_depend_on_the_other_network():
    # Its actions follow from its own weights and numbers, and the copies of CartPole do not meet.
    weights = []
    for module_class in (NoisyDense, ActorCriticModule):
        with two(ppo(), module_class).build_algo() as algo:
            algo.train()
            weights.append(encode(algo.get_weights()["numpy"]))
    assert weights[0] == weights[1]


@pytest.mark.parametrize("make", [ppo, DQNConfig])
def test_a_restored_run_goes_on_with_the_same_bytes(make, tmp_path):
    def config():
        made = two(make())
        if make is DQNConfig:
            made.training(num_steps_sampled_before_learning_starts=20, train_batch_size=16)
            made.reporting(min_sample_timesteps_per_iteration=30)
        return made

    with config().build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
        expected = encode(comparable(algo.train())["learners"])
    with config().build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        assert encode(comparable(algo.train())["learners"]) == expected


def test_all_agents_share_a_network_in_torch():
    config = ppo().environment(MultiAgentCartPole, env_config={"num_agents": 2})
    config.env_runners(num_env_runners=0).debugging(seed=5)
    config.multi_agent(policies={"shared"}, policy_mapping_fn={0: "shared", 1: "shared"})
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=NoisyDense))
    with config.build_algo() as algo:
        result = algo.train()
        steps = result["env_runners"]["num_module_steps_sampled"]
        tracked = algo.get_module("shared").get_state()["body.1.num_batches_tracked"]
    assert list(steps) == ["shared"]
    # Both agents' rows are learnt from, twice, in minibatches of 16.
    assert tracked == -(-2 * steps["shared"] // 16)


def test_a_frozen_network_in_torch_acts_and_keeps_its_weights_and_buffers():
    config = two(ppo()).multi_agent(policies_to_train=["numpy"])
    with config.build_algo() as algo:
        before = encode(algo.learners["torch"].get_state())
        first = algo.get_module("numpy").get_state()
        result = algo.train()
        assert encode(algo.learners["torch"].get_state()) == before
        assert encode(algo.get_module("numpy").get_state()) != encode(first)
        assert result["env_runners"]["num_module_steps_sampled"]["torch"] > 0
        assert not algo.is_trained("torch")


def test_a_module_of_each_kind_is_read_from_a_checkpoint(tmp_path):
    with two(ppo(), DenseModule).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(str(tmp_path / "saved"))
        actions = {
            name: algo.compute_single_action(np.zeros(4, np.float32), policy_id=name, explore=False)
            for name in MAPPING.values()
        }
    specs = {"torch": RLModuleSpec(module_class=DenseModule), "numpy": RLModuleSpec()}
    spec = MultiRLModuleSpec(rl_module_specs=specs)
    with Algorithm.from_checkpoint(path, env=MultiAgentCartPole, rl_module_spec=spec) as algo:
        for name, action in actions.items():
            again = algo.compute_single_action(
                np.zeros(4, np.float32), policy_id=name, explore=False
            )
            assert again == action


def test_sac_learns_critics_in_torch_beside_critics_in_numpy():
    config = SACConfig().environment(MultiAgentPendulum, env_config={"num_agents": 2})
    config.multi_agent(policies={"torch", "numpy"}, policy_mapping_fn=MAPPING)
    config.training(train_batch_size=16, num_steps_sampled_before_learning_starts=20)
    specs = {"torch": RLModuleSpec(module_class=TwinSAC), "numpy": RLModuleSpec()}
    config.rl_module(
        model_config={"fcnet_hiddens": [8]},
        rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs),
    )
    config.reporting(min_sample_timesteps_per_iteration=30).debugging(seed=3)
    with config.build_algo() as algo:
        before = algo.get_module("torch").get_state()
        learnt = algo.train()["learners"]
        after = algo.get_module("torch").get_state()
    assert any(not np.array_equal(before[key], after[key]) for key in before if "qf_twin" in key)
    assert all(np.isfinite(learnt[name]["qf_loss"]) for name in MAPPING.values())


@pytest.mark.parametrize(("make", "named"), [(SACConfig, "TorchSACModule"), (DQNConfig, "QModule")])
def test_a_network_of_one_of_several_that_does_not_fit_is_named(make, named):
    config = two(make(), DenseModule)
    if make is DQNConfig:
        config.training(num_atoms=5)
    with pytest.raises(ConfigError, match=f"DenseModule(.|\n)*{named}"):
        config.build_algo()

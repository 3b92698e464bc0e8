"""A policy from a checkpoint acts as the algorithm does, without env, runners and callbacks."""

import logging
import shutil
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import CheckpointError, CheckpointMismatchError, write_checkpoint
from tests.saved_files import files_of
from trainer import (
    PPO,
    Algorithm,
    ConfigError,
    ConnectorPipelineV2,
    DQNConfig,
    EnvContractError,
    PPOConfig,
    RLModule,
    SACConfig,
    TD3Config,
    TrainedPolicy,
)
from trainer.testing import MultiAgentCartPole
from trainer.testing.envs import CountdownEnv


class Unbuilt(gym.Wrapper[Any, Any, Any, Any]):
    """An env that a policy never needs, whose actions have bounds of their own."""

    num_built = 0

    def __init__(self, context):
        del context
        Unbuilt.num_built += 1
        env = gym.make("Pendulum-v1")
        super().__init__(gym.wrappers.RescaleAction(env, np.float32(-5.0), np.float32(3.0)))


class Unheard(RLlibCallback):
    """A callback whose code is in the checkpoint, and stays there."""


CONFIGS = {
    "PPO": PPOConfig()
    .environment(Unbuilt)
    .env_runners(observation_filter="MeanStdFilter")
    .callbacks(Unheard)
    .training(train_batch_size=300, minibatch_size=100, num_epochs=2),
    "PPO, not squashed": PPOConfig()
    .environment(Unbuilt, normalize_actions=False, clip_actions=True)
    .training(train_batch_size=300, minibatch_size=100, num_epochs=2),
    "SAC": SACConfig().environment("Pendulum-v1"),
    "TD3": TD3Config().environment("Pendulum-v1"),
    "DQN": DQNConfig()
    .environment("CartPole-v1")
    .env_runners(exploration_config={"type": "SoftQ", "temperature": 1.0})
    .reporting(min_sample_timesteps_per_iteration=50),
}


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    """As the command line makes it: two checkpoints, below `checkpoints`."""
    folder = tmp_path_factory.mktemp("run")
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    config.training(train_batch_size=40, minibatch_size=20, num_epochs=1)
    config.training(model={"fcnet_hiddens": [4]}).environment("CartPole-v1")
    with config.build_algo() as algo:
        for number in (1, 2):
            algo.train()
            algo.save_to_path(folder / "checkpoints" / f"{number:06d}")
    return folder


@pytest.fixture(autouse=True)
def small():
    for config in CONFIGS.values():
        if not config.is_frozen:
            config.env_runners(num_env_runners=0).debugging(seed=4)
            config.training(model={"fcnet_hiddens": [8]})


@pytest.mark.parametrize("name", CONFIGS)
def test_a_policy_gives_the_actions_of_its_algorithm(name, tmp_path):
    with CONFIGS[name].copy(copy_frozen=False).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "saved")
        space = algo.learner.module.observation_space
        space.seed(1)
        observations = [space.sample() for _ in range(50)]
        expected = [algo.compute_single_action(obs, explore=False) for obs in observations]
    Unbuilt.num_built = 0
    policy = TrainedPolicy.from_checkpoint(tmp_path / "saved")
    assert Unbuilt.num_built == 0
    assert policy.observation_space == space
    assert (policy.algorithm, policy.training_iteration) == (name.split(",")[0], 1)
    found = policy.predict_all(observations)
    for action, other in zip(found, expected, strict=True):
        assert np.asarray(action).tobytes() == np.asarray(other).tobytes()
        assert policy.action_space.contains(action)
    if name == "PPO":  # the network alone gives something else: that is why there is a policy
        module = RLModule.from_checkpoint(tmp_path / "saved" / "learner" / "rl_module")
        raw = module.forward_inference({"obs": observations[0][None]})["action_dist_inputs"][0, :1]
        assert abs(raw - expected[0]).max() > 0.01


def test_a_policy_refuses_what_is_no_observation_and_no_policy(run_directory, tmp_path):
    policy = TrainedPolicy.from_checkpoint(run_directory)
    for wrong in (np.full(4, np.nan, np.float32), np.zeros(3, np.float32)):
        with pytest.raises(EnvContractError):
            policy.predict(wrong)
    write_checkpoint(tmp_path / "other", components={"state": 1}, metadata={})
    with pytest.raises(CheckpointMismatchError, match="no checkpoint of an algorithm"):
        TrainedPolicy.from_checkpoint(tmp_path / "other")
    with pytest.raises(CheckpointError):
        TrainedPolicy.from_checkpoint(tmp_path / "nothing")


@pytest.fixture(scope="module")
def run_of_two_modules(tmp_path_factory):
    """A checkpoint of "main" and "old", which differ in weights and in what they have seen."""
    path = tmp_path_factory.mktemp("several") / "saved"
    config = PPOConfig().environment(MultiAgentCartPole, env_config={"num_agents": 2})
    config.env_runners(num_env_runners=0, observation_filter="MeanStdFilter").debugging(seed=3)
    config.multi_agent(policies={"main", "old"}, policy_mapping_fn={0: "main", 1: "old"})
    config.training(train_batch_size=60, minibatch_size=30, num_epochs=1)
    config.training(model={"fcnet_hiddens": [4]})
    with config.build_algo() as algo:
        algo.train()
        algo.save_to_path(path)
    return path


def test_a_policy_of_several_is_taken_by_the_id_of_its_module(run_of_two_modules):
    observations = [np.array([0.1 * n, -1.0, 0.01 * n, 0.5], np.float32) for n in range(-9, 10)]
    inputs = []
    with Algorithm.from_checkpoint(run_of_two_modules, env=MultiAgentCartPole) as algo:
        for id_ in ("main", "old"):
            policy = TrainedPolicy.from_checkpoint(run_of_two_modules, module_id=id_)
            expected = [
                algo.compute_single_action(one, policy_id=id_, explore=False)
                for one in observations
            ]
            assert policy.predict_all(observations) == expected
            encoded = {"obs": np.stack(observations)}
            inputs.append(policy.module.forward_inference(encoded)["action_dist_inputs"])
    main, old = inputs
    assert not np.array_equal(main, old)


def test_a_policy_of_several_without_an_id_is_refused_with_the_ids(
    run_of_two_modules, run_directory
):
    with pytest.raises(ConfigError, match=r"module_id.* none was named; there is 'main', 'old'"):
        TrainedPolicy.from_checkpoint(run_of_two_modules)
    with pytest.raises(ConfigError, match=r"'mian': there is no such module \(.*main"):
        TrainedPolicy.from_checkpoint(run_of_two_modules, module_id="mian")
    with pytest.raises(ConfigError, match="there is 'default_policy'"):
        TrainedPolicy.from_checkpoint(run_directory, module_id="main")
    assert TrainedPolicy.from_checkpoint(run_directory, module_id="default_policy").module


@pytest.mark.parametrize("policies", [{"solo"}, ["solo"], {"solo": None}])
def test_an_only_module_may_be_named_by_its_own_id(policies, tmp_path):
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    config.multi_agent(policies=policies, policy_mapping_fn={"default_agent": "solo"})
    with config.training(model={"fcnet_hiddens": [4]}).build_algo() as algo:
        algo.save_to_path(tmp_path / "saved")
    for given in (None, "solo"):
        assert TrainedPolicy.from_checkpoint(tmp_path / "saved", module_id=given).module
    with pytest.raises(ConfigError, match="there is 'solo'"):
        TrainedPolicy.from_checkpoint(tmp_path / "saved", module_id="default_policy")


@pytest.mark.parametrize("setting", ["env_to_module_connector", "module_to_env_connector"])
def test_a_policy_that_was_trained_with_connector_pieces_is_refused(setting, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    config = PPOConfig().environment(CountdownEnv)
    pieces = {setting: lambda env: [ConnectorPipelineV2()]}
    config.env_runners(num_env_runners=0, **pieces)
    config.training(model={"fcnet_hiddens": [4]})
    with config.build_algo() as algorithm:
        algorithm.save_to_path(tmp_path / "saved")
    assert "refuses single observations" in caplog.text  # before it is trained
    told = rf"`{setting}`.* wrapper of the env.* `observation_filter=\"MeanStdFilter\"`"
    with pytest.raises(CheckpointMismatchError, match=told):
        TrainedPolicy.from_checkpoint(tmp_path / "saved")


def test_the_directory_of_a_run_is_its_newest_checkpoint(run_directory, caplog):
    caplog.set_level(logging.INFO)
    for cls in (PPO, Algorithm):
        with cls.from_checkpoint(run_directory) as algo:
            assert algo.training_iteration == 2
    assert any(text.endswith("000002 is taken.") for text in caplog.messages)
    with PPO.from_checkpoint(run_directory / "checkpoints" / "000001") as algo:
        algo.restore_from_path(run_directory)
        assert algo.training_iteration == 2
        algo.restore_from_path(run_directory / "checkpoints", component="learner/rl_module")
    assert TrainedPolicy.from_checkpoint(run_directory).training_iteration == 2


def test_a_damaged_newest_checkpoint_is_passed_over(run_directory, tmp_path, caplog):
    copy = tmp_path / "copy"
    shutil.copytree(run_directory, copy)
    file = files_of(copy / "checkpoints" / "000002") / "learner.rl_module.state"
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    assert TrainedPolicy.from_checkpoint(copy).training_iteration == 1
    assert any("passed over for an older one" in text for text in caplog.messages)

"""A policy in a file, ONNX or NumPy, acts as `compute_single_action(obs, explore=False)` does."""

import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from checkpoints import CheckpointWriteError
from checkpoints import policy as policy_loader
from checkpoints.policy import PolicyFileError, load_policy
from tests.command_line import run
from trainer import (
    DQNConfig,
    PGConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
    export_onnx,
    export_policy,
)
from trainer.errors import ModuleError, UnsupportedSpaceError
from trainer.testing.envs import CountdownEnv
from trainer.types import Array


class BoxesEnv(gym.Env[Array, Array]):
    """Observations [2, 2]; one action dimension has no bounds, one has only one."""

    observation_space = gym.spaces.Box(-3.0, 9.0, (2, 2), np.float64)
    action_space = gym.spaces.Box(
        np.array([-2.0, -np.inf, 0.0]), np.array([6.0, np.inf, np.inf]), dtype=np.float64
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


class WideEnv(BoxesEnv):
    """The bounds of one action dimension are beyond float32."""

    action_space = gym.spaces.Box(
        np.array([-2e40, -2.0, -2.0]), np.array([6e40, 2.0, np.inf]), dtype=np.float64
    )


class StartsAtThree(CountdownEnv):
    """Its first action is called 3."""

    def __init__(self, config=None):
        super().__init__(config)
        self.action_space = gym.spaces.Discrete(2, start=3)

    def step(self, action):
        return super().step(action - 3)


class SpaceEnv(gym.Env[Any, Any]):
    """Shows any space; a mask always lets an action be possible."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, config):
        self.observation_space = config["space"]

    def observed(self):
        observation = self.observation_space.sample()
        is_masked = isinstance(observation, dict) and "action_mask" in observation
        if is_masked and not observation["action_mask"].any():
            observation["action_mask"][1] = 1
        return observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observed(), {}

    def step(self, action):
        return self.observed(), 0.0, True, False, {}


LAYERS = {"fcnet_hiddens": [6, 5], "head_fcnet_hiddens": [4]}
CONVOLUTIONS = {"conv_filters": [[4, [3, 2], 2], [5, 3, [1, 2]]], "fcnet_hiddens": [6]}
IMAGE = gym.spaces.Box(0, 255, (12, 11, 3), np.uint8)
CHANNELS_FIRST = gym.spaces.Box(0, 255, (3, 12, 11), np.uint8)
MASKED = gym.spaces.Dict(
    observations=gym.spaces.Box(-2.0, 2.0, (4,), np.float32), action_mask=gym.spaces.MultiBinary(3)
)
MASKED_IMAGE = gym.spaces.Dict(observations=IMAGE, action_mask=gym.spaces.MultiBinary(3))
CASES = {
    "PPO, swish": (PPOConfig, "CartPole-v1", {"model": {**LAYERS, "fcnet_activation": "swish"}}),
    "PPO, shared layers, elu, normalised": (
        PPOConfig,
        BoxesEnv,
        {
            "model": {**LAYERS, "vf_share_layers": True, "fcnet_activation": "elu"},
            "observation_filter": "MeanStdFilter",
        },
    ),
    "PPO, free deviations, not scaled": (
        PPOConfig,
        BoxesEnv,
        {"model": {**LAYERS, "free_log_std": True}, "normalize_actions": False},
    ),
    "PPO, deviations of features": (
        PPOConfig,
        BoxesEnv,
        {"model": {**LAYERS, "free_log_std": True, "log_std_by_feature": True}},
    ),
    "PPO, deviations of features, no hidden layer": (
        PPOConfig,
        BoxesEnv,
        {"model": {"fcnet_hiddens": [], "free_log_std": True, "log_std_by_feature": True}},
    ),
    "PPO, bounds beyond float32": (PPOConfig, WideEnv, {"model": LAYERS}),
    "PG, sigmoid, start": (
        PGConfig,
        StartsAtThree,
        {"model": {**LAYERS, "fcnet_activation": "sigmoid"}},
    ),
    "DQN, dueling": (DQNConfig, "CartPole-v1", {"model": LAYERS}),
    "DQN, atoms, no dueling": (
        DQNConfig,
        "CartPole-v1",
        {"model": LAYERS, "num_atoms": 5, "dueling": False},
    ),
    "SAC, box": (SACConfig, "Pendulum-v1", {"model": {**LAYERS, "fcnet_activation": "tanh"}}),
    "SAC, discrete": (SACConfig, "CartPole-v1", {"model": LAYERS}),
    "TD3": (TD3Config, "Pendulum-v1", {"model": LAYERS}),
    "PPO, images": (PPOConfig, SpaceEnv, {"env_config": {"space": IMAGE}, "model": CONVOLUTIONS}),
    "PPO, images, channels first": (
        PPOConfig,
        SpaceEnv,
        {
            "env_config": {"space": CHANNELS_FIRST},
            "model": {**CONVOLUTIONS, "vf_share_layers": False},
        },
    ),
    "DQN, images": (DQNConfig, SpaceEnv, {"env_config": {"space": IMAGE}, "model": CONVOLUTIONS}),
    "PPO, masks, normalised": (
        PPOConfig,
        SpaceEnv,
        {"env_config": {"space": MASKED}, "model": LAYERS, "observation_filter": "MeanStdFilter"},
    ),
    "DQN, masks": (DQNConfig, SpaceEnv, {"env_config": {"space": MASKED}, "model": LAYERS}),
    "PPO, images, masks": (
        PPOConfig,
        SpaceEnv,
        {"env_config": {"space": MASKED_IMAGE}, "model": CONVOLUTIONS},
    ),
}


def built(config_class, env, settings):
    config = config_class().environment(env).env_runners(num_env_runners=0).debugging(seed=3)
    if config_class in (PPOConfig, PGConfig):
        config.training(train_batch_size=20)
    if config_class is PPOConfig:
        config.training(minibatch_size=20, num_epochs=1)
    return config.update_from_dict(settings).build_algo()


def by_reference(algo, folder, inputs):
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    file = export_onnx(algo, folder / "policy.onnx")
    return reference.ReferenceEvaluator(onnx.load(file)).run(None, inputs)


def by_runtime(algo, folder, inputs):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    file = export_onnx(algo, folder / "policy.onnx")
    return runtime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, inputs)


def by_numpy(algo, folder, inputs):
    outputs = load_policy(export_policy(algo, folder / "policy.npz")).run(inputs)
    return outputs["action_dist_inputs"], outputs["action"]


@pytest.mark.parametrize("evaluate", [by_reference, by_runtime, by_numpy])
@pytest.mark.parametrize("name", CASES)
def test_the_file_acts_like_the_algorithm(name, evaluate, tmp_path):
    with built(*CASES[name]) as algo:
        if "observation_filter" in CASES[name][2]:
            algo.train()
        module = algo.learner.module
        obs = _observations(module.observation_space)
        wanted = _different_actions(algo, obs)
        given = evaluate(algo, tmp_path, inputs_of(obs))
        for row, action, values, expected in zip(obs, given[1], given[0], wanted, strict=True):
            _, _, outputs = algo.compute_single_action(row, explore=False, full_fetch=True)
            np.testing.assert_allclose(values, outputs["action_dist_inputs"], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
            assert action.dtype == module.action_space.dtype


_SAMPLE = {("PPO, swish", by_numpy), ("SAC, box", by_numpy)}
_THOUSAND = [
    pytest.param(*case, marks=[] if case in _SAMPLE else [pytest.mark.slow])
    for case in itertools.product(CASES, (by_numpy, by_reference))
]


@pytest.mark.parametrize(("name", "evaluate"), _THOUSAND)
def test_on_a_thousand_observations_outputs_agree_to_1e_6_and_actions_are_equal(
    name, evaluate, tmp_path
):
    with built(*CASES[name]) as algo:
        if "observation_filter" in CASES[name][2]:
            algo.train()
        module = algo.learner.module
        obs = _observations(module.observation_space, 1000)
        # With weights ten times as large as learnt ones, sums of many products in float32 cancel to
        # some 3e-6, live as well as in the file.
        _different_actions(algo, obs[:9], scale=0.2 if "images" in name else 0.7)
        values, actions = evaluate(algo, tmp_path, inputs_of(obs))
        live = [algo.compute_single_action(row, explore=False, full_fetch=True) for row in obs]
    outputs = np.stack([fetched["action_dist_inputs"] for _, _, fetched in live])
    scale = np.abs(outputs).max()  # of numbers of a network, not of each that happens to be near 0
    assert np.abs(values - outputs).max() <= 1e-6 * max(1.0, scale)
    wanted = np.stack([action for action, _, _ in live])
    if np.issubdtype(wanted.dtype, np.integer):
        np.testing.assert_array_equal(actions, wanted)
    else:
        limit = 1e-6 * max(1.0, np.abs(wanted).max())
        assert np.abs(actions - wanted).max() <= limit


def _observations(space, num_rows=9):
    space.seed(5)
    found = [space.sample() for _ in range(num_rows)]
    if not isinstance(space, gym.spaces.Dict):
        return [row if row.dtype == np.uint8 else row.clip(-4, 4) for row in found]
    for row in found:
        row["action_mask"][1] |= not row["action_mask"].any()
    return found


def inputs_of(obs):
    """The batch that a file is given."""
    if not isinstance(obs[0], dict):
        return {"obs": np.stack(obs).astype(np.float32)}
    names = {"obs": "observations", "action_mask": "action_mask"}
    return {
        name: np.stack([row[key] for row in obs]).astype(np.float32) for name, key in names.items()
    }


def test_the_loader_needs_numpy_alone_and_acts_on_single_observations(tmp_path):
    source = Path(policy_loader.__file__)
    shutil.copy(source, tmp_path / "loader.py")
    with built(*CASES["PPO, masks, normalised"]) as algo:
        algo.train()
        obs = _observations(algo.learner.module.observation_space)
        wanted = _different_actions(algo, obs)
        export_policy(algo, tmp_path / "policy.npz")
        checkpoint = algo.save_to_path(tmp_path / "checkpoint")
    np.savez(tmp_path / "obs.npz", allow_pickle=False, **inputs_of(obs))
    program = (
        "import sys, numpy as np\n"
        "from loader import load_policy\n"
        "policy, data = load_policy('policy.npz'), np.load('obs.npz')\n"
        "print([policy.predict(*row) for row in zip(data['obs'], data['action_mask'])])\n"
        "assert not {'trainer', 'checkpoints', 'gymnasium'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([int(action) for action in wanted])
    run("export", checkpoint, "again.npz", "--policy", "--env", "CartPole-v1", folder=tmp_path,
        code=1)  # fmt: skip
    with built(*CASES["DQN, dueling"]) as algo:
        checkpoint = algo.save_to_path(tmp_path / "dqn")
        export_policy(algo, tmp_path / "dqn.npz")
    run("export", checkpoint, "again.npz", "--policy", folder=tmp_path)
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "dqn.npz").read_bytes()


def test_a_number_of_a_box_without_dimensions_is_an_array_as_the_live_policy_gives_it(tmp_path):
    class OneNumberEnv(SpaceEnv):
        action_space = gym.spaces.Box(-2.0, 2.0, ())

    space = gym.spaces.Box(-1.0, 1.0, (2,))
    with built(PPOConfig, OneNumberEnv, {"env_config": {"space": space}}) as algo:
        export_policy(algo, tmp_path / "policy.npz")
        observation = np.ones(2, np.float32)
        wanted = algo.compute_single_action(observation, explore=False)
    action = policy_loader.load_policy(tmp_path / "policy.npz").predict(observation)
    assert type(action) is type(wanted)
    assert OneNumberEnv.action_space.contains(action)  # warns of what is no array
    np.testing.assert_allclose(action, wanted, atol=1e-6)


def test_what_does_not_fit_a_policy_file_is_told(tmp_path):
    with built(*CASES["PPO, masks, normalised"]) as algo:
        file = export_policy(algo, tmp_path / "policy.npz")
    policy = load_policy(file)
    for arguments, text in (
        (([0.0] * 4,), "takes .'action_mask', 'obs'."),
        (([0.0] * 3, [1, 1, 1]), r"shape \(1, 3\)"),
        ((["a"] * 4, [1, 1, 1]), "expected numbers"),
        (([[0.0], [0.0, 0.0]], [1, 1, 1]), "'obs' as what is no array"),
        (([0.0, math.nan, 0.0, 0.0], [1, 1, 1]), "'obs' with numbers that are not finite"),
        (([0.0] * 3 + [math.inf], [1, 1, 1]), "'obs' with numbers that are not finite"),
    ):
        with pytest.raises(PolicyFileError, match=text):
            policy.predict(*arguments)
    with pytest.raises(PolicyFileError, match=r"unequal lengths: \{'obs': 2, 'action_mask': 1\}"):
        policy.run({"obs": np.zeros((2, 4)), "action_mask": np.ones((1, 3))})
    whole = file.read_bytes()
    with np.load(file) as arrays:
        contents = dict(arrays)
    described = json.loads(bytes(contents["policy"]))
    spoilt = [
        {**described, "format": 2},
        {**described, "nodes": [{**described["nodes"][0], "operator": "__import__"}]},
        {**described, "nodes": described["nodes"][1:]},
        [],
    ]
    for description in spoilt:
        text_ = np.frombuffer(json.dumps(description).encode(), np.uint8)
        np.savez(file, **{**contents, "policy": text_})
        with pytest.raises(PolicyFileError):
            load_policy(file)
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(PolicyFileError, match="is no policy file, or damaged"):
            load_policy(file)
    with pytest.raises(FileNotFoundError):
        load_policy(tmp_path / "nothing.npz")


def _different_actions(algo, obs, *, scale=0.7):
    """Gives the algorithm weights with which it does not do the same everywhere."""
    parameters = algo.learner.module.parameters
    for seed in range(100):
        rng = np.random.default_rng(seed)
        parameters.flat[:] = rng.normal(scale=scale, size=parameters.flat.size)
        actions = [algo.compute_single_action(row, explore=False) for row in obs]
        if len(np.unique(actions, axis=0)) > 1:
            return actions
    raise AssertionError("these networks give one action, whatever they see")


def test_what_cannot_be_written_says_why(tmp_path):
    class ChoosesTwice(SpaceEnv):
        action_space = gym.spaces.MultiDiscrete([2, 3])

    two = gym.spaces.Dict(image=IMAGE, speed=gym.spaces.Box(-1.0, 1.0, (2,)))
    slashes = gym.spaces.Dict(
        {"a/b": gym.spaces.Discrete(2), "a": gym.spaces.Dict(b=gym.spaces.Discrete(2))}
    )
    for env, space, error, text in (
        (SpaceEnv, two, ModuleError, "images beside other numbers"),
        (SpaceEnv, slashes, UnsupportedSpaceError, "both be called 'obs/a/b'"),
        (ChoosesTwice, gym.spaces.Discrete(4), UnsupportedSpaceError, "actions of Discrete"),
    ):
        settings = {"env_config": {"space": space}, "model": {"fcnet_hiddens": [4]}}
        with built(PPOConfig, env, settings) as algo:
            for export, name in ((export_onnx, "policy.onnx"), (export_policy, "policy.npz")):
                if export is export_onnx:
                    pytest.importorskip("onnx")
                with pytest.raises(error, match=text):
                    export(algo, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_replaced_only_if_told_so(tmp_path):
    onnx = pytest.importorskip("onnx")
    file = tmp_path / "policy.onnx"
    file.write_text("mine")
    with built(*CASES["DQN, dueling"]) as algo:
        with pytest.raises(CheckpointWriteError, match="overwrite"):
            export_onnx(algo, file)
        assert file.read_text() == "mine"
        export_onnx(algo, file, overwrite=True)
        checkpoint = algo.save_to_path(tmp_path / "checkpoint")
    props = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    assert props["algorithm"] == "DQN"
    run("export", checkpoint, "again.onnx", folder=tmp_path)
    assert (tmp_path / "again.onnx").read_bytes() == file.read_bytes()

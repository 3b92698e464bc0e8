"""A policy written as ONNX gives the actions of `compute_single_action(obs, explore=False)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from checkpoints import CheckpointWriteError
from tests.command_line import run
from trainer import Algorithm, DQNConfig, PGConfig, PPOConfig, SACConfig, export_onnx
from trainer.errors import ModuleError, UnsupportedSpaceError
from trainer.testing.envs import CountdownEnv
from trainer.types import Array

onnx: Any = pytest.importorskip("onnx")
reference: Any = pytest.importorskip("onnx.reference")


class BoxesEnv(gym.Env[Array, Array]):
    """Observations [2, 2]; one action dimension has no bounds, one has only one."""

    observation_space = gym.spaces.Box(-3.0, 9.0, (2, 2), np.float64)
    action_space = gym.spaces.Box(
        np.array([-2.0, -np.inf, 0.0]), np.array([6.0, np.inf, np.inf]), dtype=np.float64
    )

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, True, False, {}


class StartsAtThree(CountdownEnv):
    """Its first action is called 3."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.action_space = gym.spaces.Discrete(2, start=3)

    def step(self, action: Any) -> Any:
        return super().step(action - 3)


LAYERS = {"fcnet_hiddens": [6, 5], "head_fcnet_hiddens": [4]}
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
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
}


def built(config_class: Any, env: Any, settings: dict[str, Any]) -> Algorithm:
    config = config_class().environment(env).env_runners(num_env_runners=0).debugging(seed=3)
    if config_class in (PPOConfig, PGConfig):
        config.training(train_batch_size=20)
    if config_class is PPOConfig:
        config.training(minibatch_size=20, num_epochs=1)
    algo: Algorithm = config.update_from_dict(settings).build_algo()
    return algo


def by_reference(file: Path, obs: Array) -> Any:
    return reference.ReferenceEvaluator(onnx.load(file)).run(None, {"obs": obs})


def by_runtime(file: Path, obs: Array) -> Any:
    runtime: Any = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(
        None, {"obs": obs}
    )


@pytest.mark.parametrize("evaluate", [by_reference, by_runtime])
@pytest.mark.parametrize("name", CASES)
def test_the_model_acts_like_the_algorithm(name: str, evaluate: Any, tmp_path: Path) -> None:
    with built(*CASES[name]) as algo:
        if "observation_filter" in CASES[name][2]:
            algo.train()
        module = algo.learner.module
        space = module.observation_space
        space.seed(5)
        obs = [space.sample().clip(-4, 4) for _ in range(9)]
        wanted = _different_actions(algo, obs)
        file = export_onnx(algo, tmp_path / "policy.onnx")
        inputs, actions = evaluate(file, np.stack(obs).astype(np.float32))
        for row, action, given, expected in zip(obs, actions, inputs, wanted, strict=True):
            _, _, outputs = algo.compute_single_action(row, explore=False, full_fetch=True)
            np.testing.assert_allclose(given, outputs["action_dist_inputs"], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
            assert action.dtype == module.action_space.dtype


def _different_actions(algo: Algorithm, obs: list[Array]) -> list[Any]:
    """Gives the algorithm weights with which it does not do the same everywhere."""
    parameters = algo.learner.module.parameters
    for seed in range(100):
        rng = np.random.default_rng(seed)
        parameters.flat[:] = rng.normal(scale=0.7, size=parameters.flat.size)
        actions = [algo.compute_single_action(row, explore=False) for row in obs]
        if len(np.unique(actions, axis=0)) > 1:
            return actions
    raise AssertionError("these networks give one action, whatever they see")


SMALL = {"fcnet_hiddens": [4]}


def test_what_cannot_be_written_as_onnx_says_why(tmp_path: Path) -> None:
    image = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)
    for space, error, text in (  # the network decides for itself to begin with convolutions
        (image, ModuleError, "convolutions"),
        (gym.spaces.Discrete(4), UnsupportedSpaceError, "observations of a Box"),
    ):
        config = {"observation_space": space}
        with (
            built(PPOConfig, SpaceEnv, {"env_config": config, "model": SMALL}) as algo,
            pytest.raises(error, match=text),
        ):
            export_onnx(algo, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


class SpaceEnv(gym.Env[Any, Any]):
    """Shows any space."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: Any) -> None:
        self.observation_space = config["observation_space"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, True, False, {}


def test_a_file_that_exists_is_replaced_only_if_told_so(tmp_path: Path) -> None:
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

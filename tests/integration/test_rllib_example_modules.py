"""RLlib's own example modules run here with other imports: its files, where Ray is installed.

Nothing of the files is changed but lines that import from `ray`: each name comes from this library
instead. Ray itself is not imported.
"""

import ast
import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import trainer
from trainer import DQNConfig, PGConfig, PPOConfig, RLModuleSpec
from trainer.rllib_names import torch_names
from trainer.testing.envs import StatelessCartPole

pytest.importorskip("torch")

FOLDER = "rllib/examples/rl_modules/classes"


def ported(file):
    """The names of one of RLlib's files, whose imports from `ray` are taken from here."""
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        pytest.skip("Ray is not installed")
    path = Path(found.origin).parent / FOLDER / file
    if not path.exists():
        pytest.skip(f"this version of Ray has no {file}")
    tree = ast.parse(path.read_text())
    namespace = {"__name__": f"ported_{path.stem}"}
    kept = []
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("ray."):
            for alias in statement.names:
                home = torch_names if hasattr(torch_names, alias.name) else trainer
                namespace[alias.asname or alias.name] = getattr(home, alias.name)
        else:
            kept.append(statement)
    exec(compile(ast.Module(kept, []), str(path), "exec"), namespace)
    return namespace


class Pictures(gym.Env[Any, Any]):
    """Random images of 42 × 42, three steps an episode."""

    observation_space = spaces.Box(-1.0, 1.0, (42, 42, 4), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, config=None):
        del config

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), float(action == 1), self.steps == 3, False, {}


MODULES = {
    "TinyAtariCNN": ("tiny_atari_cnn_rlm.py", PPOConfig, Pictures, {}),
    "VPGTorchRLModule": ("vpg_torch_rlm.py", PGConfig, "CartPole-v1", {"hidden_dim": 8}),
    "VPGPolicyNoSharedEncoder": (
        "vpg_using_shared_encoder_rlm.py",
        PGConfig,
        "CartPole-v1",
        {"embedding_dim": 8, "hidden_dim": 8},
    ),
    "LSTMContainingRLModule": (
        "lstm_containing_rlm.py",
        PPOConfig,
        StatelessCartPole,
        {"lstm_cell_size": 8, "dense_layers": [8], "max_seq_len": 4},
    ),
    "LSTMContainingRLModuleWithTargetNetwork": (
        "lstm_containing_rlm.py",
        PPOConfig,
        StatelessCartPole,
        {"lstm_cell_size": 8, "dense_layers": [8], "max_seq_len": 4},
    ),
    "CustomActionDistributionRLModule": (
        "custom_action_distribution_rlm.py",
        PPOConfig,
        "CartPole-v1",
        {"hidden_dim": 8, "action_dist_temperature": 5.0},
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_rllib_learns_with_other_imports(name):
    file, config_class, env, model_config = MODULES[name]
    module_class = ported(file)[name]
    config = config_class().environment(env).env_runners(num_env_runners=0)
    config.training(train_batch_size=24)
    if config_class is PPOConfig:
        config.training(minibatch_size=12, num_epochs=1)
    spec = RLModuleSpec(module_class=module_class, model_config=model_config)
    with config.rl_module(rl_module_spec=spec).build_algo() as algo:
        before = algo.learner.module.parameters.flat.copy()
        algo.train()
        assert algo.learner.module.parameters.flat.tobytes() != before.tobytes()


def test_a_q_network_of_rllibs_kind_learns_with_dqn():
    module_class = ported("vpg_torch_rlm.py")["VPGTorchRLModule"]
    config = DQNConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.training(num_steps_sampled_before_learning_starts=20, train_batch_size=8)
    config.reporting(min_sample_timesteps_per_iteration=40)
    spec = RLModuleSpec(module_class=module_class, model_config={"hidden_dim": 8})
    with config.rl_module(rl_module_spec=spec).build_algo() as algo:
        assert algo.train()["num_env_steps_sampled_lifetime"] >= 40

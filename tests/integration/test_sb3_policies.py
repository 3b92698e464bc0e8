"""Weights of Stable-Baselines3: taken over, refused where they do not fit, never run."""

import io
import itertools
import json
import os
import pickle
import zipfile

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from checkpoints import CheckpointCorruptError, CheckpointMismatchError  # noqa: E402
from trainer import (  # noqa: E402
    DDPGConfig,
    DQNConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
    load_sb3_policy,
)


def chain(name, *sizes):
    """Layers of a `torch.nn.Sequential` with activations between them, as a state_dict."""
    found = {}
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        found |= layer(f"{name}.{2 * number}", inputs, outputs)
    return found


def layer(name, inputs, outputs):
    return {f"{name}.weight": torch.randn(outputs, inputs), f"{name}.bias": torch.randn(outputs)}


def applied(tensors, name, rows, activation):
    """What a chain computes, hidden layers only."""
    numbers = sorted({int(n.split(".")[-2]) for n in tensors if n.startswith(f"{name}.")})
    for number in numbers:
        weight, bias = (tensors[f"{name}.{number}.{part}"] for part in ("weight", "bias"))
        rows = activation(rows @ weight.T + bias)
    return rows


def last(tensors, name, rows):
    return rows @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]


def written(file, tensors, *, variables=None, kwargs=None, data=None):
    """A file as `model.save()` writes it; only what is read of it."""
    with zipfile.ZipFile(file, "w") as archive:
        data = json.dumps({"policy_kwargs": kwargs or {}}) if data is None else data
        archive.writestr("data", data)
        for name, content in (("policy.pth", tensors), ("pytorch_variables.pth", variables or {})):
            buffer = io.BytesIO()
            torch.save(content, buffer)
            archive.writestr(name, buffer.getvalue())
    return file


def actor_critic(inputs, outputs, *, deviations=False):
    return {
        **chain("mlp_extractor.policy_net", inputs, 6, 5),
        **chain("mlp_extractor.value_net", inputs, 6, 5),
        **layer("action_net", 5, outputs),
        **layer("value_net", 5, 1),
        **({"log_std": torch.randn(outputs)} if deviations else {}),
    }


def of_ppo(tensors, rows):
    hidden = applied(tensors, "mlp_extractor.policy_net", rows, torch.nn.functional.elu)
    return last(tensors, "action_net", hidden)


def of_sac(tensors, rows):
    hidden = applied(tensors, "actor.latent_pi", rows, torch.relu)
    return torch.cat([last(tensors, f"actor.{name}", hidden) for name in ("mu", "log_std")], dim=1)


def of_dqn(tensors, rows):
    body = {n: t for n, t in tensors.items() if not n.startswith("q_net.q_net.4")}
    hidden = applied(body, "q_net.q_net", rows, torch.relu)
    return last(tensors, "q_net.q_net.4", hidden)


def of_td3(tensors, rows):
    hidden = applied(body_of_actor(tensors), "actor.mu", rows, torch.relu)
    return last(tensors, "actor.mu.4", hidden)


def body_of_actor(tensors):
    return {n: t for n, t in tensors.items() if not n.startswith("actor.mu.4")}


ELU = {"activation_fn": "<class 'torch.nn.modules.activation.ELU'>"}
SAC_TENSORS = {
    **chain("actor.latent_pi", 3, 6, 5),
    **layer("actor.mu", 5, 1),
    **layer("actor.log_std", 5, 1),
    **chain("critic.qf0", 4, 6, 5, 1),
    **chain("critic.qf1", 4, 6, 5, 1),
    **chain("critic_target.qf0", 4, 6, 5, 1),
}
DDPG_TENSORS = {
    **chain("actor.mu", 3, 6, 5, 1),
    **chain("actor_target.mu", 3, 6, 5, 1),
    **chain("critic.qf0", 4, 6, 5, 1),
    **chain("critic_target.qf0", 4, 6, 5, 1),
}
CASES = {
    "TD3": (
        TD3Config,
        "Pendulum-v1",
        {**DDPG_TENSORS, **chain("critic.qf1", 4, 6, 5, 1)},
        {},
        of_td3,
    ),
    "DDPG": (DDPGConfig, "Pendulum-v1", DDPG_TENSORS, {}, of_td3),
    "PPO": (PPOConfig, "CartPole-v1", actor_critic(4, 2), {"kwargs": ELU}, of_ppo),
    "PPO, a box": (
        PPOConfig,
        "Pendulum-v1",
        actor_critic(3, 1, deviations=True),
        {"kwargs": ELU},
        of_ppo,
    ),
    "DQN": (DQNConfig, "CartPole-v1", chain("q_net.q_net", 4, 6, 5, 2), {}, of_dqn),
    "SAC": (
        SACConfig,
        "Pendulum-v1",
        SAC_TENSORS,
        {"variables": {"log_ent_coef": torch.tensor([-1.5])}},
        of_sac,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_network_computes_what_it_computed_there(name, tmp_path):
    config_class, env, tensors, more, computed = CASES[name]
    policy = load_sb3_policy(written(tmp_path / "agent.zip", tensors, **more))
    assert name.startswith(policy.algorithm)
    assert len(repr(policy)) < 300  # without arrays
    config = config_class().environment(env).env_runners(num_env_runners=0)
    with config.update_from_dict(policy.settings).build_algo() as algo:
        algo.set_weights({"default_policy": policy.weights})
        rows = np.random.default_rng(3).normal(size=(20, tensors_in(tensors))).astype(np.float32)
        found = algo.get_module().forward_inference({"obs": rows})["action_dist_inputs"]
        wanted = computed(tensors, torch.from_numpy(rows)).numpy()
        np.testing.assert_allclose(found[:, : wanted.shape[1]], wanted, rtol=1e-4, atol=1e-5)
        if "box" in name:
            low, high = gym.make(env).action_space.low, gym.make(env).action_space.high
            action = algo.compute_single_action(rows[0], explore=False)
            np.testing.assert_allclose(action, wanted[0].clip(low, high), rtol=1e-5)
            np.testing.assert_array_equal(found[0, 1:], tensors["log_std"].numpy())
        if name == "SAC":
            assert policy.weights["log_alpha"].item() == -1.5
            twin = policy.weights["qf_twin/2/kernel"]
            np.testing.assert_array_equal(twin, tensors["critic.qf1.4.weight"].numpy().T)
        if name == "PPO":
            np.testing.assert_array_equal(
                policy.weights["vf/2/bias"], tensors["value_net.bias"].numpy()
            )
        algo.train()


def tensors_in(tensors):
    """How many numbers an observation has."""
    return next(iter(tensors.values())).shape[1]


def test_a_temperature_that_stays_is_taken(tmp_path):
    variables = {"ent_coef_tensor": torch.tensor(0.2)}
    policy = load_sb3_policy(written(tmp_path / "a.zip", SAC_TENSORS, variables=variables))
    np.testing.assert_allclose(policy.weights["log_alpha"], [np.log(0.2)], rtol=1e-6)


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("it-ran",)


def test_nothing_in_a_file_is_run_and_damage_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tensors = actor_critic(4, 2)
    whole = written(tmp_path / "whole.zip", tensors).read_bytes()
    bad = {
        "runs code": lambda file: written(file, {**tensors, "x": RunsCode()}),
        "runs code beside": lambda file: written(file, tensors, variables={"x": RunsCode()}),
        "a pickle": lambda file: file.write_bytes(pickle.dumps(RunsCode())),
        "cut": lambda file: file.write_bytes(whole[: len(whole) // 2]),
        "not JSON": lambda file: written(file, tensors, data="{"),
        "a bomb": packed_far_beyond_its_size,
        "a bomb in it": bomb_in_the_tensors,
        "memory by a name": lambda file: written(file, {**tensors, "x": bytearray(8)}),
        "one number a billion times": lambda file: written(
            file, {**tensors, "x": torch.zeros(1).expand(10**9)}
        ),
    }
    for name, write in bad.items():
        file = tmp_path / f"{name}.zip"
        write(file)
        with pytest.raises(CheckpointCorruptError, match=r"model\.save") as refused:
            load_sb3_policy(file)
        if "by a name" in name:
            assert "bytearray" in str(refused.value)
        if "bomb" in name or "billion" in name:
            assert "allowed" in str(refused.value)
    assert not (tmp_path / "it-ran").exists()
    with pytest.raises(FileNotFoundError):
        load_sb3_policy("nothing.zip")


def packed_far_beyond_its_size(file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", bytes(100 * 2**20))


def bomb_in_the_tensors(file):
    inner = io.BytesIO()
    packed_far_beyond_its_size(inner)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", inner.getvalue())


def test_other_networks_are_refused_with_what_they_hold(tmp_path):
    uneven = {**actor_critic(4, 2), **chain("mlp_extractor.value_net", 4, 6, 7)}
    more = {**actor_critic(4, 2), "features_extractor.cnn.0.weight": torch.zeros(1)}
    missing = {n: t for n, t in actor_critic(4, 2).items() if n != "value_net.bias"}
    for tensors, text in (
        (chain("actor.latent", 3, 6, 1), "no algorithm that is known here"),
        (uneven, "differ in width"),
        (more, r"corresponds to features_extractor\.cnn\.0\.weight"),
        (missing, r"'value_net\.bias' is missing"),
    ):
        with pytest.raises(CheckpointMismatchError, match=text):
            load_sb3_policy(written(tmp_path / "agent.zip", tensors))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("action_net.weight", ()),
        ("action_net.bias", (2, 1)),
        ("mlp_extractor.policy_net.0.weight", (6,)),
        ("log_std", ()),
    ],
)
def test_tensors_of_other_shapes_are_refused(name, shape, tmp_path):
    tensors = {**actor_critic(4, 2), name: torch.zeros(shape)}
    with pytest.raises(CheckpointMismatchError, match=rf"{name}' has the shape"):
        load_sb3_policy(written(tmp_path / "agent.zip", tensors))


def test_older_versions_of_torch_are_refused(tmp_path, monkeypatch):
    file = written(tmp_path / "agent.zip", actor_critic(4, 2))
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(ImportError, match=r"Torch ≥ 2\.6.*2\.5\.1"):
        load_sb3_policy(file)

"""The settings of a task for Stable-Baselines3 and sb3-contrib, and a run of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.quality.runs import NUM_EPISODES, Learnt, Recorded, Recorder
from benchmarks.quality.tasks import Task

_OF_ENVS: Final = frozenset({"n_envs", "normalize"})
_OF_NETWORKS: Final = frozenset(
    {"net_arch", "activation", "ortho_init", "log_std_init", "lstm_hidden_size", "conv_filters"}
)
_NOT_THERE: Final = frozenset({"double_q", "prioritized", "noise_std"})
_NO_ARGUMENTS: Final = _OF_ENVS | _OF_NETWORKS | _NOT_THERE
_MAY_FALL: Final = frozenset({"learning_rate", "clip_range"})


def learn(task: Task, seed: int, recorder: Recorder) -> Learnt:
    """Trains for the budget."""
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)  # networks of this size gain nothing from more
    settings = task.whole_settings
    started_s = time.process_time()
    env: Any = DummyVecEnv(
        [lambda: Recorded(task.make_env(), recorder)] * settings.get("n_envs", 1)
    )
    if settings.get("normalize"):
        env = VecNormalize(env, gamma=settings["gamma"])
    model = model_of(task, env, seed)
    model.learn(task.num_env_steps)
    processor_s = time.process_time() - started_s
    fresh: Any = DummyVecEnv([task.make_env])
    fresh.seed(seed + 10_000)
    if settings.get("normalize"):
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = env.obs_rms
    mean, _ = evaluate_policy(model, fresh, n_eval_episodes=NUM_EPISODES, warn=False)
    return Learnt(processor_s, float(mean))


def model_of(task: Task, env: Any, seed: int) -> Any:
    """What learns the task. Settings are in its words: most of them are arguments."""
    import stable_baselines3
    from torch import nn

    settings = task.whole_settings
    arguments = {
        name: _falling(value) if name in _MAY_FALL else value
        for name, value in settings.items()
        if name not in _NO_ARGUMENTS
    }
    if "noise_std" in settings:
        arguments["action_noise"] = _normal_noise(env, settings["noise_std"])
    make, policy = getattr(stable_baselines3, task.algorithm), "MlpPolicy"
    policy_kwargs: dict[str, Any] = {"net_arch": settings["net_arch"]}
    if task.algorithm == "PPO":
        policy_kwargs = {
            "net_arch": {"pi": settings["net_arch"], "vf": settings["net_arch"]},
            "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[settings["activation"]],
            "ortho_init": settings["ortho_init"],
            "log_std_init": settings["log_std_init"],
        }
    if "conv_filters" in settings:
        policy = "CnnPolicy"
        policy_kwargs |= {
            "net_arch": [],
            "features_extractor_class": _small_convolutions(),
            "features_extractor_kwargs": {
                "filters": settings["conv_filters"],
                "features_dim": settings["net_arch"][0],
            },
        }
    if task.has_memory:
        from sb3_contrib import RecurrentPPO

        make, policy = RecurrentPPO, "MlpLstmPolicy"
        policy_kwargs |= {
            "lstm_hidden_size": settings["lstm_hidden_size"],
            "enable_critic_lstm": True,
        }
    return make(policy, env, policy_kwargs=policy_kwargs, seed=seed, device="cpu", **arguments)


def _normal_noise(env: Any, stddev: float) -> Any:
    """What is added to actions in [-1, 1]."""
    from stable_baselines3.common.noise import NormalActionNoise

    width = env.action_space.shape[0]
    return NormalActionNoise(np.zeros(width), np.full(width, stddev))


def _small_convolutions() -> type[Any]:
    """A class of convolutions for images that are too small for the peer's own."""
    import torch
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from torch import nn

    class SmallConvolutions(BaseFeaturesExtractor):  # type: ignore[misc]
        def __init__(self, space: Any, filters: list[list[int]], features_dim: int) -> None:
            super().__init__(space, features_dim)
            layers: list[Any] = []
            channels = space.shape[0]
            for width, kernel, stride in filters:
                layers += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
                channels = width
            layers.append(nn.Flatten())
            size = nn.Sequential(*layers)(torch.zeros(1, *space.shape)).shape[1]
            self._layers = nn.Sequential(*layers, nn.Linear(size, features_dim), nn.ReLU())

        def forward(self, observations: Any) -> Any:
            return self._layers(observations)

    return SmallConvolutions


def _falling(value: float | str) -> float | Callable[[float], float]:
    """A number of the Zoo's; `lin_x` falls from x to 0 over the budget."""
    if not isinstance(value, str):
        return value
    start = float(value.removeprefix("lin_"))
    return lambda left: start * left

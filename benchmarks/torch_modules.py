"""What an update costs in NumPy, in Torch through this library, and in a bare Torch loop.

    python -m benchmarks torch_modules

Networks act and learn with one thread. The last part trains PPO on random images of 84 x 84 x 4,
1,024 steps and one epoch, beside Stable-Baselines3's `CnnPolicy` if that is installed. All are
processor times: with one thread, those of the clock on a machine with nothing else to do.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks.figures import alternate, ratio, report
from trainer import PPOConfig, RLModule, RLModuleSpec, TorchRLModule
from trainer.modules import ActorCriticModule
from trainer.nn import Adam
from trainer.runtime.threads import single_threaded_blas
from trainer.types import Array

ROWS: Final = 128
SIZES: Final[Mapping[str, tuple[Any, dict[str, Any]]]] = {
    "64, 64": (spaces.Box(-1.0, 1.0, (8,)), {"fcnet_hiddens": [64, 64]}),
    "256, 256": (spaces.Box(-1.0, 1.0, (8,)), {"fcnet_hiddens": [256, 256]}),
    "1024, 1024": (spaces.Box(-1.0, 1.0, (8,)), {"fcnet_hiddens": [1024, 1024]}),
    "84 x 84 x 4": (
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        {
            "conv_filters": [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]],
            "fcnet_hiddens": [512],
            "fcnet_activation": "relu",
        },
    ),
}
"""Spaces and settings of networks with shared layers."""
ACTIONS: Final = spaces.Discrete(4)


def torch_layers(space: Any, config: Mapping[str, Any]) -> Any:
    """The same network in Torch: body and a head for 4 actions and the value."""
    from torch import nn

    layers: list[Any] = []
    size = int(np.prod(space.shape))
    if "conv_filters" in config:
        channels, side = space.shape[-1], space.shape[0]
        for width, kernel, stride, _ in config["conv_filters"]:
            layers += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU()]
            channels, side = width, (side - kernel) // stride + 1
        layers.append(nn.Flatten())
        size = channels * side * side
    activation = nn.ReLU if "conv_filters" in config else nn.Tanh
    for width in config["fcnet_hiddens"]:
        layers += [nn.Linear(size, width), activation()]
        size = width
    return nn.Sequential(*layers), nn.Linear(size, 5)


class AsInTorch(TorchRLModule):
    """That network as users write it, for eight envs side by side."""

    acting_block = 8

    def setup(self) -> None:
        self.body, self.head = torch_layers(self.observation_space, self.model_config)
        self.is_image = len(self.observation_space.shape or ()) == 3

    def _forward(self, batch: Any, **kwargs: Any) -> Any:
        del kwargs
        obs = batch["obs"]
        if self.is_image:
            obs = obs.permute(0, 3, 1, 2) / 255.0
        outputs = self.head(self.body(obs))
        return {"action_dist_inputs": outputs[:, :4], "vf_preds": outputs[:, 4]}


def update_of(module: RLModule, obs: Array) -> Callable[[], float]:
    """Times some updates of a module: forward, a simple loss, backward, Adam."""
    optimizer = Adam(module.parameters, module.gradients)
    batch = {"obs": obs}

    def step() -> None:
        outputs = module.forward_train(batch)
        inputs, values = outputs["action_dist_inputs"], outputs["vf_preds"]
        module.backward(
            d_action_dist_inputs=np.ascontiguousarray(inputs * (2.0 / inputs.size)),
            d_vf_preds=values * (2.0 / values.size),
        )
        optimizer.step(lr=1e-4)

    return timed(step)


def bare_update(space: Any, config: Mapping[str, Any], obs: Array) -> Callable[[], float]:
    """The same in Torch alone."""
    import torch

    body, head = torch_layers(space, config)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-4)
    is_image = len(space.shape) == 3

    def step() -> None:
        batch = torch.from_numpy(obs).reshape(len(obs), *space.shape)
        if is_image:
            batch = batch.permute(0, 3, 1, 2) / 255.0
        outputs = head(body(batch))
        loss = (outputs[:, :4] ** 2).mean() + (outputs[:, 4] ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return timed(step)


def timed(step: Callable[[], None]) -> Callable[[], float]:
    """Gives the milliseconds of a step, by as many steps as take a tenth of a second."""
    # The first steps make memory and choose kernels: they are slow, and neither count nor tell how
    # many steps take how long.
    warmed_up_at = time.process_time() + 0.5
    step()
    while time.process_time() < warmed_up_at:
        step()
    started_at = time.process_time()
    step()
    step()
    count = max(1, int(0.2 / (time.process_time() - started_at)))

    def measure() -> float:
        started_at = time.process_time()
        for _ in range(count):
            step()
        return 1e3 * (time.process_time() - started_at) / count

    return measure


def updates(repeats: int = 7) -> None:
    """Prints what an update costs, by size."""
    import torch

    torch.set_num_threads(1)
    for name, (space, config) in SIZES.items():
        rng = np.random.default_rng(0)
        obs = rng.integers(0, 256, (ROWS, int(np.prod(space.shape)))).astype(np.float32)
        if len(space.shape) == 1:
            obs /= 255.0

        def ready_made(backend: str, space: Any = space, config: Any = config) -> RLModule:
            chosen = {**config, "vf_share_layers": True, "backend": backend}
            spec = RLModuleSpec(ActorCriticModule, space, ACTIONS, chosen)
            return spec.build(np.random.default_rng(0))

        own = RLModuleSpec(AsInTorch, space, ACTIONS, config).build(np.random.default_rng(0))
        ours, bare = alternate(
            update_of(own, obs), bare_update(space, config, obs), unit="ms", repeats=repeats
        )
        in_numpy, in_torch = alternate(
            update_of(ready_made("numpy"), obs),
            update_of(ready_made("torch"), obs),
            unit="ms",
            repeats=repeats,
        )
        report(f"{name}: ready-made, NumPy", in_numpy)
        report(f'{name}: ready-made, backend="torch"', in_torch)
        report(f"{name}: TorchRLModule", ours)
        report(f"{name}: bare Torch", bare)
        report(f"{name}: TorchRLModule / bare Torch", ratio(ours, bare), target="≤ 1.15")


class Pictures(gymnasium.Env[Any, Any]):
    """Random images, 100 steps an episode."""

    def __init__(self, env_config: Any = None) -> None:
        del env_config
        self.observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = ACTIONS
        self._pictures = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._pictures[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._pictures[self._steps % 8], float(action == 1), self._steps >= 100, False, {}


def ours_on_images(backend: str | None) -> Callable[[], float]:
    """Times an iteration; None: the network is a `TorchRLModule`."""
    config = PPOConfig().environment(Pictures).debugging(seed=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=8)
    config.training(train_batch_size=1024, minibatch_size=64, num_epochs=1, lr=3e-4)
    model = SIZES["84 x 84 x 4"][1]
    if backend is None:
        spec = RLModuleSpec(module_class=AsInTorch, model_config=model)
        config.rl_module(rl_module_spec=spec)
    else:
        shared = {**model, "vf_share_layers": True, "backend": backend}
        config.rl_module(model_config=shared)
    algo = config.build_algo()

    def measure() -> float:
        started_at = time.process_time()
        algo.train()
        return time.process_time() - started_at

    return measure


def sb3_on_images() -> Callable[[], float]:
    """Times an iteration of Stable-Baselines3 with the same network and sizes."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    env = make_vec_env(Pictures, n_envs=8, seed=0)
    model = PPO("CnnPolicy", env, n_steps=128, batch_size=64, n_epochs=1, seed=0, device="cpu")

    def measure() -> float:
        started_at = time.process_time()
        model.learn(1024, reset_num_timesteps=False)
        return time.process_time() - started_at

    return measure


def images(repeats: int = 5) -> None:
    """Prints seconds for 1,024 steps of 84 x 84 x 4 and one epoch."""
    if importlib.util.find_spec("stable_baselines3") is None:
        print("  Stable-Baselines3 is not installed: without it")
        for backend in ("numpy", "torch", None):
            ours, _ = alternate(ours_on_images(backend), lambda: 1.0, unit="s", repeats=repeats)
            report(f"images: {backend or 'TorchRLModule'}", ours)
        return
    for backend, target in (("numpy", "≤ 1.7"), ("torch", "≤ 1.0"), (None, "≤ 1.0")):
        ours, theirs = alternate(
            ours_on_images(backend), sb3_on_images(), unit="s", repeats=repeats
        )
        name = backend or "TorchRLModule"
        report(f"images: {name}", ours)
        report("images: Stable-Baselines3", theirs)
        report(f"images: {name} / Stable-Baselines3", ratio(ours, theirs), target=target)


def main() -> None:
    """Prints all of it."""
    print("torch_modules: an update of 128 rows, one thread")
    with single_threaded_blas():
        updates()
    print("torch_modules: PPO on images, 1,024 steps, one epoch")
    images()


if __name__ == "__main__":
    main()

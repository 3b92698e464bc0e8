"""Networks in Torch: a convolution with batch normalisation and dropout, and one that exists.

Needs the extra `[torch]`. docs/modules.md explains the rules.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

from trainer import PPOConfig, RLModuleSpec, TorchRLModule
from trainer.testing import TargetEnv


class Convolution(TorchRLModule):
    """Reads images [height, width, channels] of bytes."""

    def setup(self) -> None:
        height, width, channels = self.observation_space.shape
        self.body = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * height * width, 64),
            nn.ReLU(),
            nn.Dropout(0.05),
        )
        self.pi = nn.Linear(64, self.action_space.n)
        self.vf = nn.Linear(64, 1)

    def _features(self, batch: dict[str, Any]) -> torch.Tensor:
        return self.body(batch["obs"].permute(0, 3, 1, 2) / 255.0)

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"action_dist_inputs": self.pi(self._features(batch))}

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        features = self._features(batch)
        return {"action_dist_inputs": self.pi(features), "embeddings": features}

    def compute_values(self, batch: Any, embeddings: Any = None) -> torch.Tensor:
        features = self._features(batch) if embeddings is None else embeddings
        return self.vf(features).squeeze(-1)


class Existing(nn.Module):
    """A network that knows nothing of reinforcement learning: two outputs from one body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.vf = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(obs)
        return self.pi(features), self.vf(features)


def train(
    env: object, spec: RLModuleSpec, arguments: argparse.Namespace, **env_config: int
) -> None:
    """Trains PPO and prints what was reached."""
    config = (
        PPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(num_env_runners=arguments.num_env_runners, num_envs_per_env_runner=8)
        .rl_module(rl_module_spec=spec)
        .training(train_batch_size=512, minibatch_size=128, num_epochs=6, lr=2e-3, gamma=0.9)
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        results = [algo.train() for _ in range(arguments.iterations)]
        module = algo.get_module()
        assert isinstance(module, TorchRLModule)
        state_dict = module.to_torch()
        reached = results[-1]["env_runners/episode_return_mean"]
        print(f"{type(module).__name__}: return {reached:.2f}, {len(state_dict)} tensors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-env-runners", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=10)
    given = parser.parse_args()
    train(TargetEnv, RLModuleSpec(module_class=Convolution), given, size=5)
    torch.manual_seed(0)
    train("CartPole-v1", RLModuleSpec(module_class=TorchRLModule.wrapping(Existing())), given)

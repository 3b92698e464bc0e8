"""Two agents, two kinds of networks: one of your own in Torch, the other ready-made in NumPy.

Each agent is to say the number that it was shown one step before: 9 of 10 times at best, 3 by
chance. With --frozen, the ready-made network acts, but does not learn. Needs the extra `[torch]`.
docs/multi-agent.md explains modules and their agents, docs/modules.md networks.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

from trainer import MultiRLModuleSpec, PPOConfig, RLModuleSpec, TorchRLModule
from trainer.testing import RepeatAfterMe


class Embedding(TorchRLModule):
    """Looks up vectors for the number shown now and the one before, and decides by both."""

    def setup(self) -> None:
        num_numbers, num_values = self.observation_space.shape
        width = self.model_config["width"]
        self.vectors = nn.Linear(num_values, width, bias=False)
        self.body = nn.Sequential(nn.Flatten(), nn.LayerNorm(num_numbers * width), nn.ReLU())
        self.pi = nn.Linear(num_numbers * width, self.action_space.n)
        self.vf = nn.Linear(num_numbers * width, 1)

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"action_dist_inputs": self.pi(self.body(self.vectors(batch["obs"])))}

    def compute_values(self, batch: Any, embeddings: Any = None) -> torch.Tensor:
        del embeddings  # what `_forward` gives under that name
        return self.vf(self.body(self.vectors(batch["obs"]))).squeeze(-1)


def main(arguments: argparse.Namespace) -> None:
    """Trains both and prints what each of them reaches."""
    specs = {
        "in_torch": RLModuleSpec(module_class=Embedding, model_config={"width": 8}),
        "in_numpy": RLModuleSpec(model_config={"fcnet_hiddens": [16]}),
    }
    config = (
        PPOConfig()
        .environment(RepeatAfterMe, env_config={"num_agents": 2, "num_values": 3})
        .env_runners(num_env_runners=arguments.num_env_runners, num_envs_per_env_runner=8)
        .multi_agent(
            policies=set(specs),
            policy_mapping_fn={0: "in_torch", 1: "in_numpy"},
            policies_to_train=["in_torch"] if arguments.frozen else None,
        )
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        .training(train_batch_size=960, minibatch_size=96, num_epochs=6, lr=5e-3, gamma=0.5)
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        results = [algo.train() for _ in range(arguments.iterations)]
        returns = results[-1]["env_runners/module_episode_return_mean"]
        learnt = [name for name in sorted(specs) if algo.is_trained(name)]
    print(f"learnt: {', '.join(learnt)}")
    print(", ".join(f"{name} {returns[name]:.2f}" for name in sorted(returns)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-env-runners", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--frozen", action="store_true", help="train the network in Torch alone")
    main(parser.parse_args())

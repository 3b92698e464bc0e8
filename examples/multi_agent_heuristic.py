"""A heuristic module: rock, paper, scissors against a player that follows a rule.

    python examples/multi_agent_heuristic.py

A rule is a module without weights that only knows how to act. Leave its id out of
`policies_to_train`; everything else is as with networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer import PPOConfig, RLModule, RLModuleSpec
from trainer.testing import RockPaperScissors


class BeatsLast(RLModule):
    """Chooses what beats the last choice of the other player."""

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def initialize(self, rng: np.random.Generator) -> None:
        del rng

    def forward_acting(self, obs: np.ndarray) -> np.ndarray:
        # One-hot: rock, paper, scissors, nothing yet. What is to be chosen gets all the odds.
        choice = (obs.argmax(axis=1) + 1) % 3
        return np.where(np.arange(3) == choice[:, None], 0.0, -1e9).astype(np.float32)

    def forward_train(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError("a rule is not trained")

    def backward(self, **derivatives: Any) -> None:
        raise NotImplementedError("a rule is not trained")


def opponent(agent_id: str, episode: Any) -> str:
    """The learner sits on either side, in turn."""
    learner_sits_at = f"player_{episode.number % 2}"
    return "learns" if agent_id == learner_sits_at else "rule"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--num-env-runners", type=int, default=2)
    arguments = parser.parse_args()
    config = (
        PPOConfig()
        .environment(RockPaperScissors)
        .env_runners(num_env_runners=arguments.num_env_runners, num_envs_per_env_runner=4)
        .multi_agent(
            policies={"learns": None, "rule": RLModuleSpec(module_class=BeatsLast)},
            policy_mapping_fn=opponent,
            policies_to_train=["learns"],
        )
        .training(train_batch_size=600, minibatch_size=150, num_epochs=8, lr=5e-3, gamma=0.9)
        .training(model={"fcnet_hiddens": [32]})
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(arguments.iterations):
            result = algo.train()
            by_module = result["env_runners/module_episode_return_mean"]
            print({module: round(mean, 2) for module, mean in by_module.items()}, "of 15")


if __name__ == "__main__":
    main()

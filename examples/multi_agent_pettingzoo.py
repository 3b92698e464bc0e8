"""A game of PettingZoo: noughts and crosses, learnt against a player that moves at random.

    pip install "local-trainer[pettingzoo]"
    python examples/multi_agent_pettingzoo.py

The env is given as PettingZoo makes it. Moves that are not possible are masked by the env's
`action_mask`, so none is ever made; a player waits while the other one moves.
"""

from __future__ import annotations

import argparse
from typing import Any

from pettingzoo.classic import tictactoe_v3

from trainer import PolicySpec, PPOConfig


def sides(agent_id: str, episode: Any) -> str:
    """The learner begins in every other game."""
    begins = episode.number % 2 == 0
    return "learns" if (agent_id == "player_1") == begins else "random"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--num-env-runners", type=int, default=2)
    arguments = parser.parse_args()
    config = (
        PPOConfig()
        .environment(lambda _: tictactoe_v3.env())
        .env_runners(num_env_runners=arguments.num_env_runners, num_envs_per_env_runner=4)
        .multi_agent(
            policies={"learns": None, "random": PolicySpec("random")},
            policy_mapping_fn=sides,
            policies_to_train=["learns"],
        )
        .training(train_batch_size=2000, minibatch_size=250, num_epochs=6, lr=2e-3, gamma=0.95)
        .training(model={"fcnet_hiddens": [64]}, entropy_coeff=0.01)
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(arguments.iterations):
            result = algo.train()
            mean = result["env_runners/module_episode_return_mean/learns"]
            print(f"iteration {result['training_iteration']}: {mean:+.2f} per game (+1 is a win)")


if __name__ == "__main__":
    main()

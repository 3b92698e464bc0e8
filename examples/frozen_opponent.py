"""One player learns against another that does not: a random one first, then a copy of the learner.

Run this file; it prints what the learner wins. docs/multi-agent.md explains how modules change.
"""

from __future__ import annotations

import argparse

from trainer import PolicySpec, PPOConfig
from trainer.testing import RockPaperScissors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=8)
    arguments = parser.parse_args()
    config = (
        PPOConfig()
        .environment(RockPaperScissors)
        .env_runners(num_env_runners=arguments.num_env_runners)
        .multi_agent(
            policies={"main": None, "random": PolicySpec("random")},
            policy_mapping_fn={"player_0": "main", "player_1": "random"},
            policies_to_train=["main"],
        )
        .training(train_batch_size=150, minibatch_size=50, num_epochs=4, lr=1e-2)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .debugging(seed=1)
    )
    with config.build_algo() as algo:
        results = [algo.train() for _ in range(arguments.iterations)]
        won = results[-1]["env_runners/module_episode_return_mean/main"]
        print(f"Against random play: {won:.2f} per game.")

        # The opponent is now the learner as it is at this moment, and stays so.
        algo.add_module(
            "before",
            copy_of="main",
            new_agent_to_module_mapping_fn={"player_0": "main", "player_1": "before"},
        )
        algo.remove_module("random")
        frozen = algo.get_weights()["before"]
        results = [algo.train() for _ in range(arguments.iterations)]
        won = results[-1]["env_runners/module_episode_return_mean/main"]
        same = all(
            (frozen[name] == now).all() for name, now in algo.get_weights()["before"].items()
        )
        print(f"Against its former self: {won:.2f} per game.")
        print(f"The former self is as it was: {same}.")


if __name__ == "__main__":
    main()

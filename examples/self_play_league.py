"""A league: one module learns against frozen copies of itself, and meets the strongest most often.

A callback adds a copy every third iteration, and weighs the opponents by what they win. Stop the
program and start it again: it goes on with the same league, to the same bytes. docs/multi-agent.md
explains it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from callbacks import RLlibCallback
from checkpoints import latest_checkpoint
from trainer import Matchups, PPOConfig
from trainer.testing import RockPaperScissors


class League(RLlibCallback):
    """Keeps the opponents, and what each of them won against the learner per game."""

    def __init__(self) -> None:
        self.paid = {"copy_0": 0.0}

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
        for agent, paid in episode.get_agent_returns().items():
            if (module := episode.module_for(agent)) != "main":
                for key, value in (("paid", paid), ("games", 1)):
                    metrics_logger.log_value((key, module), value, reduce="sum")

    def on_train_result(self, *, algorithm: Any, result: Any, **_: Any) -> None:
        seen = result["env_runners"]
        for opponent, games in seen.get("games", {}).items():
            self.paid[opponent] = seen["paid"][opponent] / games
        if algorithm.training_iteration % 3 == 0:
            new = f"copy_{len(self.paid)}"
            algorithm.add_module(new, copy_of="main")
            self.paid[new] = 0.0
            algorithm.set_policy_mapping_fn(self.matchups())

    def matchups(self) -> Matchups:
        """Who meets whom how often: either seat, the stronger ones more often."""
        pairings = []
        for opponent, paid in self.paid.items():
            weight = max(0.2, 1.0 + paid)
            pairings.append((weight, {"player_0": "main", "player_1": opponent}))
            pairings.append((weight, {"player_0": opponent, "player_1": "main"}))
        return Matchups(pairings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--directory", type=Path, default=Path("league"))
    arguments = parser.parse_args()
    config = (
        PPOConfig()
        .environment(RockPaperScissors)
        .env_runners(num_env_runners=arguments.num_env_runners)
        .multi_agent(
            policies=["main", "copy_0"],
            policy_mapping_fn={"player_0": "main", "player_1": "copy_0"},
            policies_to_train=["main"],
        )
        .callbacks(League)
        .training(train_batch_size=150, minibatch_size=50, num_epochs=4, lr=1e-2)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .debugging(seed=1)
    )
    with config.build_algo() as algo:
        newest = latest_checkpoint(arguments.directory)
        if newest is not None:
            algo.restore_from_path(newest)
            print(f"Goes on with {', '.join(algo.module_ids)}.")
        returns: dict[str, float] = {}
        while algo.training_iteration < arguments.iterations:
            result = algo.train()
            returns = result["env_runners/module_episode_return_mean"]
            algo.save_to_path(arguments.directory / f"{algo.training_iteration:06d}")
        print(f"The league has {', '.join(algo.module_ids)}.")
        for module, won in returns.items():
            print(f"{module}: {won:.2f} per game.")


if __name__ == "__main__":
    main()

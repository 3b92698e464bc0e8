"""The two-step game, with both players as one agent.

    python examples/multi_agent_groups.py

The first player chooses a table: one pays 7 whatever comes, the other one 8 if both players then
make the right move, and less if one of them does not. Players that learn apart punish each other
for what they try. As a group, one module chooses both moves, and finds the 8.

Source: Rashid et al. 2018, "QMIX: monotonic value function factorisation for deep multi-agent
reinforcement learning", section 5.
"""

from __future__ import annotations

import argparse
from typing import Any

from trainer import MultiAgentEnv, PPOConfig
from trainer.testing import TwoStepGame


def as_team(env_config: Any) -> MultiAgentEnv:
    """Observations and actions of the agent "team" are tuples; its reward is the sum."""
    return TwoStepGame(env_config).with_agent_groups({"team": ["player_0", "player_1"]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--num-env-runners", type=int, default=2)
    arguments = parser.parse_args()
    config = (
        PPOConfig()
        .environment(as_team)
        .env_runners(num_env_runners=arguments.num_env_runners, num_envs_per_env_runner=4)
        .training(train_batch_size=400, minibatch_size=100, num_epochs=8, lr=5e-3)
        .training(model={"fcnet_hiddens": [32]}, entropy_coeff=0.05)
        .evaluation(evaluation_duration=10, evaluation_config={"explore": False})
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(arguments.iterations):
            algo.train()
        best = algo.evaluate()["env_runners/episode_return_mean"]
    print(f"return {best:.1f}, and 8 is the most")


if __name__ == "__main__":
    main()

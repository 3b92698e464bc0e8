"""Shared parameters: four agents, each with a pole of its own, learn with one module.

    python examples/multi_agent_shared.py

Nothing says that there are several agents but the env: all are served by `default_policy`, which
learns from the steps of all of them.
"""

from __future__ import annotations

import argparse

from trainer import PPOConfig, make_multi_agent

FourPoles = make_multi_agent("CartPole-v1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--num-env-runners", type=int, default=2)
    arguments = parser.parse_args()
    config = (
        PPOConfig()
        .environment(FourPoles, env_config={"num_agents": 4})
        .env_runners(num_env_runners=arguments.num_env_runners, num_envs_per_env_runner=2)
        .training(train_batch_size=1000, minibatch_size=256, num_epochs=6, lr=1e-3)
        .training(model={"fcnet_hiddens": [32]})
        .debugging(seed=0)
    )
    with config.build_algo() as algo:
        for _ in range(arguments.iterations):
            result = algo.train()
            runners = result["env_runners"]
            by_agent = runners["agent_episode_return_mean"]
            print(
                f"iteration {result['training_iteration']}: return "
                f"{runners['episode_return_mean']:.1f}, of agent 0 alone {by_agent[0]:.1f}"
            )


if __name__ == "__main__":
    main()

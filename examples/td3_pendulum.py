"""TD3 swings a pendulum up, plays without noise, and writes its policy down.

The file holds the network alone; `checkpoints.policy` acts by it with NumPy and nothing else.
"""

from __future__ import annotations

import argparse

import numpy as np

from checkpoints.policy import load_policy
from trainer import TD3Config, export_policy


def make_config(num_env_runners: int) -> TD3Config:
    """Small networks, and one update per env step."""
    return (
        TD3Config()
        .environment("Pendulum-v1")
        .env_runners(num_env_runners=num_env_runners)
        .training(
            train_batch_size=64,
            num_steps_sampled_before_learning_starts=500,
            model={"fcnet_hiddens": [64, 64]},
        )
        .evaluation(evaluation_duration=5)
        .debugging(seed=0)
    )


def main() -> None:
    """Trains, evaluates and exports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-env-runners", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=7)
    arguments = parser.parse_args()
    with make_config(arguments.num_env_runners).build_algo() as algo:
        for _ in range(arguments.iterations):
            result = algo.train()
            learner, played = result["learners/default_policy"], result["env_runners"]
            print(f"return {played['episode_return_mean']:.0f}, Q {learner['qf_mean']:.0f}")
        evaluated = algo.evaluate()["env_runners"]["episode_return_mean"]
        print(f"without noise: return {evaluated:.0f}")
        export_policy(algo, "pendulum.npz")
        observation = np.array([1.0, 0.0, 0.0], np.float32)
        action = algo.compute_single_action(observation, explore=False)
    difference = np.abs(load_policy("pendulum.npz").predict(observation) - action).max()
    print(f"the file differs by {difference:.6f}")


if __name__ == "__main__":
    main()

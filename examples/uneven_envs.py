"""Envs whose steps take unevenly long: PPO waits for the slowest runner, APPO for none.

    python examples/uneven_envs.py
    python examples/uneven_envs.py --num-iterations 30 --num-env-runners 8

Prints how long iterations take, and which share of the time runners spend in their env.
"""

import argparse
import time
from typing import Any

import gymnasium
import numpy as np

from trainer import APPOConfig, PPOConfig


class UnevenCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose steps take 1 to 10 ms, each as long as it happens to."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._rng = np.random.default_rng(env_config.worker_index)

    def step(self, action: Any) -> Any:
        time.sleep(float(np.clip(self._rng.lognormal(np.log(0.003), 0.6), 0.001, 0.01)))
        return super().step(action)


def measure(config: PPOConfig, num_iterations: int) -> None:
    """Trains, and prints what came of it."""
    with config.build_algo() as algo:
        for _ in range(3):
            algo.train()
        started_at, in_env_s = time.perf_counter(), 0.0
        for _ in range(num_iterations):
            in_env_s += algo.train()["env_runners/env_step_timer"]
        took_s = time.perf_counter() - started_at
        share = in_env_s / took_s / max(1, algo.config.num_env_runners)
        per_iteration = 1000 * took_s / num_iterations
        print(
            f"{type(algo).__name__:>5}: {per_iteration:.0f} ms per iteration, {share:.0%} in envs"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-iterations", type=int, default=15)
    parser.add_argument("--num-env-runners", type=int, default=4)
    args = parser.parse_args()
    for config in (PPOConfig(), APPOConfig().training(sample_ahead=2)):
        config.environment(UnevenCartPole).env_runners(num_env_runners=args.num_env_runners)
        config.training(train_batch_size=25 * max(1, args.num_env_runners), minibatch_size=None)
        config.training(num_epochs=2, lr=3e-4, vf_clip_param=None).debugging(seed=0)
        measure(config, args.num_iterations)


if __name__ == "__main__":
    main()

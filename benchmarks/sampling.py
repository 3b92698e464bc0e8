"""Env steps per second of one runner's `sample()`.

Compared with gymnasium's own vector env, which gets random actions.
"""

from __future__ import annotations

import time

import gymnasium

from benchmarks.figures import alternate, ratio, report
from trainer import PPOConfig

NUM_ENVS = 8
NUM_STEPS = 16_384


def main() -> None:
    """Prints the rates and their ratio."""
    print(f"sampling: CartPole-v1, {NUM_ENVS} envs, 64×64 tanh, no callbacks, seed 0")
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=NUM_ENVS)
        .training(model={"fcnet_hiddens": [64, 64]})
        .debugging(seed=0)
    )
    vector_env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS)
    vector_env.reset(seed=0)
    vector_env.action_space.seed(0)
    with config.build_algo() as algo:
        runner = algo.env_runner

        def ours() -> float:
            started_at = time.perf_counter()
            runner.sample(num_timesteps=NUM_STEPS)
            return NUM_STEPS / (time.perf_counter() - started_at)

        def theirs() -> float:
            started_at = time.perf_counter()
            for _ in range(NUM_STEPS // NUM_ENVS):
                vector_env.step(vector_env.action_space.sample())
            return NUM_STEPS / (time.perf_counter() - started_at)

        mine, other = alternate(ours, theirs, unit="steps/s", repeats=9)
    vector_env.close()
    report("sample() of one runner", mine)
    report("SyncVectorEnv with random actions", other)
    report("ratio", ratio(mine, other), target="≥ 0.6")

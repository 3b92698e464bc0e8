"""Env steps per second of one runner's `sample()`.

Compared with a vector env that gets random actions: gymnasium's of single envs, for single envs as
users have them and for gymnasium's `CartPoleVectorEnv`, which steps all sub-envs in one call; and a
bare pool of EnvPool's, for the same in a runner.
"""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import gymnasium

from benchmarks.figures import Figure, alternate, ratio, report
from trainer import PPOConfig
from trainer.envs.envpool_envs import EnvPoolVectorEnv

NUM_ENVS = 8
NUM_SUB_ENVS = 64
NUM_STEPS = 16_384


def main() -> None:
    """Prints the rates and their ratios."""
    print(f"sampling: CartPole-v1, {NUM_ENVS} envs, 64×64 tanh, no callbacks, seed 0")
    _compare(NUM_ENVS, "SYNC", target="≥ 0.65")
    print()
    print(f"sampling: gymnasium's CartPoleVectorEnv, {NUM_SUB_ENVS} sub-envs, the same network")
    _compare(NUM_SUB_ENVS, "VECTOR_ENTRY_POINT", target="≥ 3")
    if importlib.util.find_spec("envpool") is not None:
        print()
        print(f"sampling: EnvPool, {NUM_SUB_ENVS} CartPoles, the same network")
        _compare(NUM_SUB_ENVS, "ENVPOOL", target="≥ 0.5")


def _compare(num_envs: int, mode: str, *, target: str) -> None:
    mine, other = rates(num_envs, mode, repeats=9)
    report("sample() of one runner", mine)
    report(f"{'a bare pool' if mode == 'ENVPOOL' else 'SyncVectorEnv'} with random actions", other)
    report("ratio", ratio(mine, other), target=target)


def rates(num_envs: int, mode: str, *, repeats: int) -> tuple[Figure, Figure]:
    """Env steps per second of `sample()`, and of a vector env with random actions.

    Args:
        num_envs: sub-envs of each.
        mode: ours, a `gym_env_vectorize_mode`.
        repeats: how often each is measured, in turn.
    """
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=num_envs,
            gym_env_vectorize_mode=mode,
        )
        .training(model={"fcnet_hiddens": [64, 64]})
        .debugging(seed=0)
    )
    vector_env: Any = (
        EnvPoolVectorEnv("CartPole-v1", num_envs, {})
        if mode == "ENVPOOL"
        else gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)
    )
    vector_env.reset(seed=0)
    vector_env.action_space.seed(0)
    step = vector_env.pool.step if mode == "ENVPOOL" else vector_env.step
    with config.build_algo() as algo:
        runner = algo.env_runner

        def ours() -> float:
            started_at = time.perf_counter()
            runner.sample(num_timesteps=NUM_STEPS)
            elapsed_s = time.perf_counter() - started_at
            runner.take_records()  # else they would pile up: they are not asked for here
            return NUM_STEPS / elapsed_s

        def theirs() -> float:
            started_at = time.perf_counter()
            for _ in range(NUM_STEPS // num_envs):
                step(vector_env.action_space.sample())
            return NUM_STEPS / (time.perf_counter() - started_at)

        figures = alternate(ours, theirs, unit="steps/s", repeats=repeats)
    vector_env.close()
    return figures

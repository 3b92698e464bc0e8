"""What PPO earns with normalised rewards, from the first episode to the last.

    python -m benchmarks normalized_rewards        # three seeds
    python -m benchmarks normalized_rewards:1      # one

A critic whose first batch is on a scale of its own needs several updates to come back, so the mean
over all episodes of training counts, not only what is reached. Pendulum-v1 has the settings of
`benchmarks/tasks.py` and normalised rewards besides. HalfCheetah-v5 (`pip install
"gymnasium[mujoco]"`) has what the RL Zoo calls its defaults for MuJoCo: normalised observations and
rewards, else Stable-Baselines3's defaults.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any, Final

from benchmarks.figures import Figure, report
from benchmarks.tasks import ppo_pendulum
from trainer import PPOConfig

NUM_SEEDS: Final = 3
NUM_ENV_STEPS: Final = 100_000


def pendulum() -> PPOConfig:
    """Rewards from -16 to 0, four envs."""
    return ppo_pendulum().environment(normalize_rewards=True)


def half_cheetah() -> PPOConfig:
    """Returns from -500 to some thousands, one env, 2048 steps per batch."""
    return (
        PPOConfig()
        .environment("HalfCheetah-v5", normalize_rewards=True)
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=1, observation_filter="MeanStdFilter"
        )
        .training(
            train_batch_size=2048,
            minibatch_size=64,
            num_epochs=10,
            lr=3e-4,
            gamma=0.99,
            lambda_=0.95,
            clip_param=0.2,
            use_kl_loss=False,
            vf_loss_coeff=0.5,
            vf_clip_param=None,
            grad_clip=0.5,
            model={"fcnet_hiddens": [64, 64], "free_log_std": True},
        )
    )


def returns_of(config: PPOConfig, seed: int) -> list[float]:
    """The returns of all episodes of training, in order."""
    returns: list[float] = []

    def note(episode: Any) -> None:
        returns.append(episode.get_return())

    with config.debugging(seed=seed).callbacks(on_episode_end=note).build_algo() as algo:
        while algo.counters.num_env_steps_sampled < NUM_ENV_STEPS:
            algo.train()
    return returns


def main(num_seeds: int = NUM_SEEDS) -> None:
    """Prints mean returns.

    Args:
        num_seeds: how many seeds each is measured with, from 0 on.
    """
    print(f"PPO with normalised rewards, {NUM_ENV_STEPS:,} env steps, {num_seeds} seeds")
    configs: dict[str, Callable[[], PPOConfig]] = {"Pendulum-v1": pendulum}
    if importlib.util.find_spec("mujoco"):
        configs["HalfCheetah-v5"] = half_cheetah
    else:
        print("  mujoco is not installed: without HalfCheetah-v5")
    for name, config in configs.items():
        runs = [returns_of(config(), seed) for seed in range(num_seeds)]
        whole = [statistics.fmean(returns) for returns in runs]
        last = [statistics.fmean(returns[-len(returns) // 5 :]) for returns in runs]
        report(f"{name}: mean return over the run", Figure(whole, ""))
        report(f"{name}: mean return of the last fifth", Figure(last, ""))

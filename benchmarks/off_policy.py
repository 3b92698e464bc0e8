"""Env steps per second of algorithms that learn from replay, and how many steps they need.

Speed: DQN on CartPole-v1 with one update per 4 env steps, against Stable-Baselines3 with the same
settings in the same run: 64×64, batches of 64, a uniform buffer, no double or dueling learning
(which Stable-Baselines3 lacks), the target network copied every 500 steps. Both have 8 envs in one
process and one thread, which is the faster choice for both, and learn in rounds: 256 steps (32 of
each env), then 64 updates, as the RL Zoo's settings for CartPole do. In rounds of 32 steps we need
a third more time, because every request has a price of its own. SAC on Pendulum-v1 with one update
per env step, likewise: 256×256, batches of 256, one env in the main process. There, both sides use
all cores: Torch within matrix products, we for the two critics.

Learning: the budgets for CartPole and Pendulum are what the tuned settings of the RL Zoo (for
Stable-Baselines3) give. A random walk finds the end of FrozenLake's larger map once in 545 tries of
32 steps each; a table of values that follows the same ε needs 24,000 to 63,000 steps (learning rate
0.5, five seeds), so a network gets 100,000. A policy has solved an env when 20 evaluation episodes
without exploration reach the return.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.figures import Figure, alternate, ratio, report
from benchmarks.peers import sb3_dqn_rate, sb3_sac_rate
from trainer import AlgorithmConfig, DQNConfig, SACConfig

SEEDS = (0, 1, 2)
NUM_ENVS = 8
STEPS_PER_ENV = 32
NUM_STEPS = 8_192
REPEATS = 5
NUM_SAC_STEPS = 1_024


def dqn_speed_config() -> DQNConfig:
    """What both sides run."""
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=NUM_ENVS,
            rollout_fragment_length=STEPS_PER_ENV,
        )
        .training(
            train_batch_size=64,
            training_intensity=16,
            lr=1e-4,
            double_q=False,
            dueling=False,
            grad_clip=10.0,
            num_steps_sampled_before_learning_starts=1000,
            target_network_update_freq=500,
            epsilon=[[0, 1.0], [10_000, 0.05]],
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
            model={"fcnet_hiddens": [64, 64], "fcnet_activation": "relu"},
        )
        .reporting(min_sample_timesteps_per_iteration=1024)
        .debugging(seed=0)
    )


def sac_pendulum() -> SACConfig:
    """The settings of the RL Zoo: Stable-Baselines3's defaults, but this learning rate."""
    return (
        SACConfig()
        .environment("Pendulum-v1")
        .training(
            actor_lr=1e-3,
            critic_lr=1e-3,
            alpha_lr=1e-3,
            gamma=0.99,
            train_batch_size=256,
            num_steps_sampled_before_learning_starts=100,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 1_000_000},
            model={"fcnet_hiddens": [256, 256]},
        )
        .reporting(min_sample_timesteps_per_iteration=NUM_SAC_STEPS)
        .debugging(seed=0)
    )


def speed() -> None:
    """Prints the rates of DQN and SAC and their ratios."""
    print(f"DQN speed: CartPole-v1, {NUM_ENVS} envs, 64×64, batch 64, one update per 4 steps")
    theirs = partial(
        sb3_dqn_rate, num_envs=NUM_ENVS, steps_per_env=STEPS_PER_ENV, num_steps=NUM_STEPS
    )
    _compare(dqn_speed_config(), theirs, num_steps=NUM_STEPS, target="≥ 4")
    print()
    print("SAC speed: Pendulum-v1, 256×256, batch 256, one update per step")
    theirs = partial(sb3_sac_rate, num_steps=NUM_SAC_STEPS)
    _compare(sac_pendulum(), theirs, num_steps=NUM_SAC_STEPS, target="≥ 1.3")


def _compare(
    config: AlgorithmConfig,
    make_theirs: Callable[[], Callable[[], float]],
    *,
    num_steps: int,
    target: str,
) -> None:
    with config.build_algo() as algo:
        algo.train()

        def ours() -> float:
            started_at, sampled = time.perf_counter(), algo.counters.num_env_steps_sampled
            while algo.counters.num_env_steps_sampled < sampled + num_steps:
                algo.train()
            return num_steps / (time.perf_counter() - started_at)

        if not importlib.util.find_spec("stable_baselines3"):
            report("local-trainer", Figure([ours() for _ in range(REPEATS)], "steps/s"))
            print("  Stable-Baselines3 is not installed: pip install 'local-trainer[bench]'")
            return
        mine, other = alternate(ours, make_theirs(), unit="steps/s", repeats=REPEATS)
    report("local-trainer", mine)
    report("Stable-Baselines3", other)
    report("ratio", ratio(mine, other), target=target)


@dataclass(frozen=True)
class Task:
    """An env to solve.

    Attributes:
        name: what is printed.
        config: the settings, for a seed.
        wanted_return: mean of 20 evaluation episodes, at least.
        max_env_steps: the budget.
    """

    name: str
    config: Callable[[], AlgorithmConfig]
    wanted_return: float
    max_env_steps: int


def dqn_cartpole() -> DQNConfig:
    """The settings of the RL Zoo, which learn in rounds of 256 steps and 128 updates."""
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(rollout_fragment_length=256)
        .training(
            lr=2.3e-3,
            train_batch_size=64,
            training_intensity=32,
            grad_clip=10.0,
            double_q=False,
            dueling=False,
            num_steps_sampled_before_learning_starts=1000,
            target_network_update_freq=10,
            epsilon=[[0, 1.0], [8000, 0.04]],
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100_000},
            model={"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"},
        )
        .reporting(min_sample_timesteps_per_iteration=1024)
    )


def dqn_frozen_lake() -> DQNConfig:
    """A maze of 64 fields with one reward at its end."""
    return (
        DQNConfig()
        .environment("FrozenLake-v1", env_config={"map_name": "8x8", "is_slippery": False})
        .env_runners(num_envs_per_env_runner=8, rollout_fragment_length=4)
        .training(
            lr=1e-3,
            train_batch_size=64,
            training_intensity=16,
            n_step=3,
            num_steps_sampled_before_learning_starts=1000,
            target_network_update_freq=500,
            epsilon=[[0, 1.0], [40_000, 0.1]],
            model={"fcnet_hiddens": [64]},
        )
        .reporting(min_sample_timesteps_per_iteration=2048)
    )


TASKS = (
    Task("DQN, CartPole-v1", dqn_cartpole, 450.0, 50_000),
    Task("SAC, Pendulum-v1", sac_pendulum, -200.0, 20_000),
    Task("DQN, FrozenLake-v1 8x8", dqn_frozen_lake, 1.0, 100_000),
)


def solve(task: Task, seed: int) -> tuple[float, int, float]:
    """Seconds, env steps, and the mean return of the last evaluation."""
    config = task.config().debugging(seed=seed)
    config.evaluation(evaluation_interval=2, evaluation_duration=20)
    started_at, mean = time.perf_counter(), float("nan")
    with config.build_algo() as algo:
        last_start = task.max_env_steps - algo.config.min_sample_timesteps_per_iteration
        while algo.counters.num_env_steps_sampled <= last_start:
            result = algo.train()
            if "evaluation" in result:
                mean = result["evaluation/env_runners/episode_return_mean"]
            if mean >= task.wanted_return:
                break
        return time.perf_counter() - started_at, algo.counters.num_env_steps_sampled, mean


def learning() -> None:
    """Prints seconds, steps and returns of every task."""
    for task in TASKS:
        print(f"{task.name} to a mean return of {task.wanted_return:g}, seeds {SEEDS}")
        runs = [solve(task, seed) for seed in SEEDS]
        seconds, steps, means = zip(*runs, strict=True)
        report("time", Figure(seconds, "s"))
        report("env steps", Figure(steps, "steps"), target=f"each ≤ {task.max_env_steps:,}")
        report("mean return of 20 episodes", Figure(means, ""), target=f"≥ {task.wanted_return:g}")


def main() -> None:
    """Speed first, while the machine is cool."""
    speed()
    print()
    learning()

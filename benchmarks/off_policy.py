"""Env steps per second of algorithms that learn from replay.

DQN on CartPole-v1 with one update per 4 env steps, against Stable-Baselines3 with the same
settings in the same run: 64×64, batches of 64, a uniform buffer, no double or dueling learning
(which Stable-Baselines3 lacks), the target network copied every 500 steps. Both have 8 envs in one
process and one thread, which is the faster choice for both, and learn in rounds: 256 steps (32 of
each env), then 64 updates, as the RL Zoo's settings for CartPole do. In rounds of 32 steps we need
a third more time, because every request has a price of its own; a second row has one env and rounds
of 4 steps, as users run DQN. SAC on Pendulum-v1 with one update
per env step, likewise: 256×256, batches of 256, one env in the main process. There, both sides use
all cores: Torch within matrix products, we for the two critics.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial

from benchmarks.figures import Figure, alternate, ratio, report
from benchmarks.peers import sb3_dqn_rate, sb3_sac_rate
from benchmarks.tasks import sac_pendulum
from trainer import AlgorithmConfig, DQNConfig

NUM_ENVS = 8
STEPS_PER_ENV = 32
NUM_STEPS = 8_192
NUM_SHORT_STEPS = 4_096
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


def main() -> None:
    """Prints the rates of DQN and SAC and their ratios."""
    print(f"DQN speed: CartPole-v1, {NUM_ENVS} envs, 64×64, batch 64, one update per 4 steps")
    theirs = partial(
        sb3_dqn_rate, num_envs=NUM_ENVS, steps_per_env=STEPS_PER_ENV, num_steps=NUM_STEPS
    )
    _compare(dqn_speed_config(), theirs, num_steps=NUM_STEPS, target="≥ 4")
    print()
    print("DQN speed: the same with one env, in rounds of 4 steps and one update")
    _compare(short_dqn_config(), sb3_short_dqn, num_steps=NUM_SHORT_STEPS, target="≥ 4.5")
    print()
    print("SAC speed: Pendulum-v1, 256×256, batch 256, one update per step")
    theirs = partial(sb3_sac_rate, num_steps=NUM_SAC_STEPS)
    _compare(sac_pendulum().debugging(seed=0), theirs, num_steps=NUM_SAC_STEPS, target="≥ 1.3")


def short_dqn_config() -> DQNConfig:
    """The same with one env, in rounds of 4 steps and one update: as users run it."""
    return dqn_speed_config().env_runners(num_envs_per_env_runner=1, rollout_fragment_length=4)


def sb3_short_dqn() -> Callable[[], float]:
    """The rate of Stable-Baselines3 with these settings."""
    return sb3_dqn_rate(num_envs=1, steps_per_env=4, num_steps=NUM_SHORT_STEPS)


def rates(
    config: AlgorithmConfig,
    make_theirs: Callable[[], Callable[[], float]] | None,
    *,
    num_steps: int,
    repeats: int = REPEATS,
) -> tuple[Figure, Figure | None]:
    """Env steps per second of ours, and in turn of a peer.

    Args:
        config: ours.
        make_theirs: makes the peer, and returns what measures its rate; None measures ours alone.
        num_steps: env steps per measurement.
        repeats: how often each is measured.
    """
    with config.build_algo() as algo:
        algo.train()

        def ours() -> float:
            started_at, sampled = time.perf_counter(), algo.counters.num_env_steps_sampled
            while algo.counters.num_env_steps_sampled < sampled + num_steps:
                algo.train()
            made = algo.counters.num_env_steps_sampled - sampled
            return made / (time.perf_counter() - started_at)

        if make_theirs is None:
            return Figure([ours() for _ in range(repeats)], "steps/s"), None
        return alternate(ours, make_theirs(), unit="steps/s", repeats=repeats)


def _compare(
    config: AlgorithmConfig,
    make_theirs: Callable[[], Callable[[], float]],
    *,
    num_steps: int,
    target: str,
) -> None:
    is_there = importlib.util.find_spec("stable_baselines3") is not None
    mine, other = rates(config, make_theirs if is_there else None, num_steps=num_steps)
    report("local-trainer", mine)
    if other is None:
        print("  Stable-Baselines3 is not installed: pip install 'local-trainer[bench]'")
        return
    report("Stable-Baselines3", other)
    report("ratio", ratio(mine, other), target=target)

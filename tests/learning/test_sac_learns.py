"""SAC swings the pendulum up, and balances a pole with Discrete actions."""

from __future__ import annotations

import pytest

from benchmarks.tasks import EVALUATION, Task, sac_pendulum, solve
from trainer import SACConfig

pytestmark = pytest.mark.learning

SEEDS = (0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow))


def small_pendulum() -> SACConfig:
    """The task of the benchmark with networks and batches that take a quarter of the time."""
    return sac_pendulum().training(train_batch_size=128, model={"fcnet_hiddens": [64, 64]})


def cartpole() -> SACConfig:
    """One update per env step; the entropy aimed at leaves room for a sure hand."""
    return (
        SACConfig()
        .environment("CartPole-v1")
        .env_runners(num_envs_per_env_runner=4)
        .training(
            actor_lr=1e-3,
            critic_lr=1e-3,
            alpha_lr=1e-3,
            tau=0.01,
            train_batch_size=64,
            training_intensity=64,
            target_entropy=0.3,
            num_steps_sampled_before_learning_starts=500,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
            model={"fcnet_hiddens": [64, 64]},
        )
        .reporting(min_sample_timesteps_per_iteration=1000)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pendulum_is_swung_up_within_half_the_budget_of_the_rl_zoo(seed: int) -> None:
    # Measured: 4,096 env steps, 8 s each; evaluated after every second iteration.
    task = Task("SAC, Pendulum-v1", small_pendulum, EVALUATION, -200.0, 10_000)
    assert solve(task, seed)[2] >= -200.0


@pytest.mark.slow
def test_a_pole_is_balanced_with_discrete_actions() -> None:
    # Measured: 2,000 env steps, 2 s. A random policy reaches 20.
    task = Task("SAC, CartPole-v1", cartpole, EVALUATION, 150.0, 10_000)
    assert solve(task, 0)[2] >= 150.0

"""SAC swings the pendulum up, and balances a pole with Discrete actions."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from benchmarks.tasks import EVALUATION, Task, sac_pendulum, solve
from trainer import SACConfig

pytestmark = pytest.mark.learning


class Follow(gymnasium.Env[Any, Any]):
    """One step: pays most, 1, for the number that is shown."""

    def __init__(self, env_config=None):
        self.observation_space = self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._shown = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._shown = self.np_random.uniform(-0.9, 0.9, 1).astype(np.float32)
        return self._shown, {}

    def step(self, action):
        return self._shown, 1.0 - float((action - self._shown)[0]) ** 2, True, False, {}


def small_pendulum():
    """The task of the benchmark with networks and batches that take a quarter of the time."""
    return sac_pendulum().training(train_batch_size=128, model={"fcnet_hiddens": [64, 64]})


def cartpole():
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


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_a_number_that_is_shown_is_followed(seed):
    config = cartpole().environment(Follow).training(actor_lr=5e-3, critic_lr=5e-3, alpha_lr=5e-3)
    config.training(num_steps_sampled_before_learning_starts=100, target_entropy=-1.0)
    config.reporting(min_sample_timesteps_per_iteration=600)
    config.evaluation(evaluation_duration=50, evaluation_config={"explore": False})
    with config.debugging(seed=seed).build_algo() as algo:
        assert algo.evaluate()["env_runners/episode_return_mean"] < 0.9  # 0.4 at random
        algo.train()
        assert algo.evaluate()["env_runners/episode_return_mean"] >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_pendulum_is_swung_up_within_half_the_budget_of_the_rl_zoo(seed):
    # Measured: 4,096 env steps, 8 s each; evaluated after every second iteration.
    task = Task("SAC, Pendulum-v1", small_pendulum, EVALUATION, -200.0, 10_000)
    assert solve(task, seed)[2] >= -200.0


@pytest.mark.slow
def test_a_pole_is_balanced_with_discrete_actions():
    # Measured: 2,000 env steps, 2 s. A random policy reaches 20.
    task = Task("SAC, CartPole-v1", cartpole, EVALUATION, 150.0, 10_000)
    assert solve(task, 0)[2] >= 150.0

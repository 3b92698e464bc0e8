"""Observations in odd units: learnt from when they are normalised, and not when they are not."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from trainer import PPOConfig

pytestmark = pytest.mark.learning


class InOddUnits(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole, 500 metres from the origin, with angles in units of 10,000 radians."""

    def __init__(self, context):
        del context
        super().__init__(gym.make("CartPole-v1", disable_env_checker=True))
        self.observation_space = gym.spaces.Box(-1e9, 1e9, (4,), np.float32)

    @staticmethod
    def _converted(observation):
        return (observation * [1.0, 1e6, 1e-4, 1.0] + [500.0, 0.0, 0.0, -300.0]).astype(np.float32)

    def reset(self, **arguments):
        observation, info = self.env.reset(**arguments)
        return self._converted(observation), info

    def step(self, action):
        observation, *rest = self.env.step(action)
        return self._converted(observation), *rest


def best_return(seed, **settings):
    """The best mean return of the last 100 episodes within 24,576 env steps."""
    config = (
        PPOConfig()
        .environment(InOddUnits)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(
            train_batch_size=1024,
            minibatch_size=128,
            num_epochs=6,
            lr=1e-3,
            lambda_=0.95,
            clip_param=0.2,
            use_kl_loss=False,
            vf_clip_param=None,
            model={"fcnet_hiddens": [32, 32]},
        )
        .debugging(seed=seed)
    )
    config.update_from_dict(settings)
    best = 0.0
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled < 24_576 and best < 150.0:
            best = max(best, algo.train()["env_runners/episode_return_mean"])
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_learns_with_the_filter(seed):
    # Measured: 150 after 18,400 to 21,500 env steps, 2 s each.
    assert best_return(seed, observation_filter="MeanStdFilter") >= 150.0


def test_ppo_learns_with_filter_and_normalised_rewards():
    settings = {"observation_filter": "MeanStdFilter", "normalize_rewards": True}
    assert best_return(0, **settings) >= 150.0


@pytest.mark.slow
def test_negative_control_ppo_does_not_learn_without():
    assert best_return(0) < 100.0  # measured: 42

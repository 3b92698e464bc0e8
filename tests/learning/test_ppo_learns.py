"""PPO finds the known best behaviour of tiny envs, whatever the seed."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trainer import PPOConfig
from trainer.nn.optimizers import Adam
from trainer.testing.envs import ContinuousEnv, CorridorEnv

pytestmark = pytest.mark.learning

SEEDS = (0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow))
CORRIDOR_ITERATIONS = 5
"""Longer, values that run away turn the sign of advantages: the end is found by two mistakes."""


class Bandit(gymnasium.Env[Any, Any]):
    """One step, four arms; the observation names the arm that pays 1."""

    def __init__(self, env_config=None):
        self.observation_space = spaces.Discrete(4)
        self.action_space = spaces.Discrete(4)
        self._arm = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._arm = int(self.np_random.integers(4))
        return self._arm, {}

    def step(self, action):
        return self._arm, float(action == self._arm), True, False, {}


class WindingCorridor(CorridorEnv):
    """At every other place the two actions are exchanged: none of them alone finds the end.

    Straight on is also what learning with the wrong sign may come to.
    """

    def step(self, action):
        return super().step(int(action) ^ self.place % 2)


def config(env, seed, **settings):
    made = (
        PPOConfig()
        .environment(env, env_config=settings.pop("env_config", {}))
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(
            train_batch_size=500,
            minibatch_size=125,
            num_epochs=8,
            lr=5e-3,
            lambda_=0.95,
            model={"fcnet_hiddens": [32]},
            use_kl_loss=False,
        )
        .evaluation(evaluation_duration=10, evaluation_config={"explore": False})
        .debugging(seed=seed)
    )
    return made.update_from_dict(settings)


def learnt_return(made, iterations):
    """The mean return of the most likely actions before training, and after it."""
    with made.build_algo() as algo:
        before = algo.evaluate()["env_runners"]["episode_return_mean"]
        for _ in range(iterations):
            algo.train()
        return before, algo.evaluate()["env_runners"]["episode_return_mean"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bandit_is_solved(seed):
    before, after = learnt_return(config(Bandit, seed), 8)
    assert before < 1.0
    assert after == 1.0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("batch_mode", "one_hot"), [("complete_episodes", True), ("truncate_episodes", False)]
)
def test_the_end_of_a_corridor_is_found_on_the_shortest_way(seed, batch_mode, one_hot):
    env_config = {"corridor_length": 6, "one_hot": one_hot}
    made = config(WindingCorridor, seed, env_config=env_config, batch_mode=batch_mode)
    _, after = learnt_return(made, CORRIDOR_ITERATIONS)
    assert after == pytest.approx(CorridorEnv(env_config).best_return)


@pytest.mark.parametrize("seed", SEEDS)
def test_negative_control_with_the_sign_turned_the_end_of_a_corridor_is_not_found(
    seed, monkeypatch
):
    step = Adam.step
    monkeypatch.setattr(Adam, "step", lambda optimizer, *, lr: step(optimizer, lr=-lr))
    env_config = {"corridor_length": 6}
    made = config(WindingCorridor, seed, env_config=env_config)
    _, after = learnt_return(made, CORRIDOR_ITERATIONS)
    assert after < CorridorEnv(env_config).best_return


@pytest.mark.parametrize("seed", SEEDS)
def test_a_number_is_repeated_with_continuous_actions(seed):
    """Who always answers 0 gets -8/3 on average: 8 times the mean square of a number in [-1, 1]."""
    settings = {"gamma": 0.0, "lr": 1e-3, "batch_mode": "complete_episodes"}
    before, after = learnt_return(config(ContinuousEnv, seed, **settings), 12)
    assert before < -1.5
    assert after > -0.1


def test_negative_control_without_learning_nothing_is_learnt():
    before, after = learnt_return(config(ContinuousEnv, 0, lr=0.0), 3)
    assert after < -1.5
    assert np.isclose(before, after, rtol=0.5)

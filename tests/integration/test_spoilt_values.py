"""Envs that give no numbers: told at once, with sub-env, episode and step, wherever it shows."""

import math

import numpy as np
import pytest
from gymnasium import spaces

from tests.small_runs import small_ppo
from trainer import EnvContractError
from trainer.testing.envs import ContinuousEnv, CountdownEnv


class Spoilt(CountdownEnv):
    """Gives a spoilt reward or observation in one step of its sub-env 1."""

    def __init__(self, env_config):
        super().__init__({"min_length": 8, "max_length": 8})
        self._config = env_config

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps == self._config["step"] and self._config.vector_index == 1:
            reward = self._config.get("reward", reward)
            observation[0] = self._config.get("observation", observation[0])
        return observation, reward, terminated, truncated, info


def config(env=Spoilt, *, num_env_runners=0, **env_config):
    made = small_ppo(num_env_runners, env=env, batch=20, env_config=env_config)
    return made.env_runners(num_envs_per_env_runner=2)


NO_NUMBERS = (None, "1.5", np.ones(1))
STEPS = (1, 2, 8)
"""The first one, one in the middle, and the last one of an episode."""


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("reward", [math.nan, -math.inf, *NO_NUMBERS])
def test_a_reward_that_is_no_finite_number_is_told(reward, step):
    expected = rf"'Spoilt' gave the reward .* at step {step} of episode 'training-1-0' in sub-env"
    if step == 1 and not isinstance(reward, float):
        expected = r"step\(\) of env 'Spoilt' returned the reward .*; expected a number"
    with (
        config(step=step, reward=reward).build_algo() as algo,
        pytest.raises(EnvContractError, match=expected) as raised,
    ):
        algo.train()
    assert repr(reward) in str(raised.value)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("observation", [math.nan, math.inf])
def test_an_observation_that_is_not_finite_is_told(observation, step):
    expected = rf"'Spoilt' gave the observation .* at step {step} of episode 'training-1-0' in sub-"
    with (
        config(step=step, observation=observation).build_algo() as algo,
        pytest.raises(EnvContractError, match=expected),
    ):
        algo.train()


class CannotTakeNan(ContinuousEnv):
    """Gives NaN once, and fails by itself at the action that follows from it."""

    def reset(self, **options):
        observation, info = super().reset(**options)
        return observation * np.float32(math.nan), info

    def step(self, action):
        if not np.isfinite(action).all():
            raise OverflowError("the motor needs a number")
        return super().step(action)


def test_an_env_that_fails_because_of_its_own_nan_is_told_where_that_came_from():
    with (
        config(CannotTakeNan).build_algo() as algo,
        pytest.raises(EnvContractError, match=r"at the reset of episode 'training-0-0'") as raised,
    ):
        algo.train()
    assert isinstance(raised.value.__cause__, Exception)


@pytest.mark.process
def test_a_runner_that_gets_none_as_a_reward_is_not_repaired_in_vain():
    with config(num_env_runners=1, step=8, reward=None).build_algo() as algo:
        with pytest.raises(EnvContractError, match=r"reward None at step 8 .* in sub-env 1"):
            algo.train()
        assert algo.env_runner_group.num_remote_worker_restarts() == 0


class Nested(Spoilt):
    """The observation in parts."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.observation_space = spaces.Dict(
            {"left": spaces.Discrete(2), "right": self.observation_space}
        )

    def reset(self, **options):
        observation, info = super().reset(**options)
        return {"left": 1, "right": observation}, info

    def step(self, action):
        observation, *rest = super().step(action)
        return {"left": 1, "right": observation}, *rest


def test_a_part_of_a_nested_observation_that_is_not_finite_is_told():
    with (
        config(Nested, step=3, observation=math.nan).build_algo() as algo,
        pytest.raises(EnvContractError, match=r"observation .*'right'.* at step 3 of"),
    ):
        algo.train()


def test_numbers_of_every_kind_are_rewards():
    for reward in (True, 1, np.float32(2), np.int8(1), np.array(3.0), np.bool_(True)):
        with config(step=2, reward=reward).build_algo() as algo:
            assert algo.train()["training_iteration"] == 1

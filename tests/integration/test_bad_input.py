"""Bad input: one clear error each — what happened, what was expected, what to do."""

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import CheckpointError
from tests.small_runs import known, small_ppo
from trainer import (
    PPO,
    ConfigError,
    EnvContractError,
    EnvCreationError,
    SerializationError,
    TrainerError,
    UnsupportedSpaceError,
)
from trainer.testing.envs import CountdownEnv, FailingEnv
from trainer.testing.faults import InjectedFaultError


def config(env=CountdownEnv, *, num_env_runners=0, **settings):
    return small_ppo(num_env_runners, env=env, num_slots=2, batch=40, **settings)


class OldStyle(CountdownEnv):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class OldReset(CountdownEnv):
    def reset(self, **options):
        return super().reset(**options)[0]


class WithoutSpaces(gymnasium.Env[Any, Any]):
    pass


class TextActions(CountdownEnv):
    def __init__(self, env_config):
        super().__init__(env_config)
        self.action_space = spaces.Text(3)


def train(made):
    with made.build_algo() as algo:
        algo.train()


def check_one_error(act, error, expected):
    with pytest.raises(error) as raised:
        act()
    for text in expected:
        assert text in str(raised.value)


@pytest.mark.parametrize(
    ("act", "error", "expected"),
    [
        (
            lambda: config("CartPol-v1").build_algo(),
            EnvCreationError,
            ["'CartPol-v1' is not known", "Did you mean 'CartPole-v1'", "Accepted are"],
        ),
        (
            lambda: PPO(config={}),
            ConfigError,
            ["no env to train in", "config.environment('CartPole-v1')"],
        ),
        (lambda: config(3.5).build_algo(), ConfigError, ["env=3.5", "expected"]),
        (
            lambda: config(minibatch_size=41).build_algo(),
            ConfigError,
            ["minibatch_size=41", "larger than train_batch_size=40", "Give minibatch_size=40"],
        ),
        (
            lambda: config(TextActions).build_algo(),
            UnsupportedSpaceError,
            ["Text(", "Discrete", "wrapper"],
        ),
        (
            lambda: PPO.from_checkpoint("/nowhere/at/all"),
            CheckpointError,
            ["/nowhere/at/all"],
        ),
    ],
    ids=["unknown env id", "no env", "no kind of env", "minibatch", "space", "no checkpoint"],
)
def test_one_clear_error(act, error, expected):
    check_one_error(act, error, expected)


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 1])
@pytest.mark.parametrize(
    ("env", "where", "error", "expected"),
    [
        (
            FailingEnv,
            "init",
            EnvCreationError,
            ["Could not make env 'FailingEnv'", "this fails on purpose", "env_config={'where'"],
        ),
        (FailingEnv, "reset", InjectedFaultError, ["this fails on purpose"]),
        (
            OldStyle,
            None,
            EnvContractError,
            ["returned a tuple of 4", "must be split into terminated and truncated"],
        ),
        (
            OldReset,
            None,
            EnvContractError,
            ["returned a ndarray", "expected the tuple (observation, info dict)"],
        ),
        (
            WithoutSpaces,
            None,
            EnvContractError,
            ["observation_space=None", "Set self.observation_space in __init__"],
        ),
    ],
)
def test_an_env_that_fails_is_one_clear_error_wherever_it_is(
    num_env_runners, env, where, error, expected
):
    env_config = {"where": where} if where else {}
    made = config(env, num_env_runners=num_env_runners, env_config=env_config)
    check_one_error(lambda: train(made), error, expected)


@pytest.mark.process
@pytest.mark.parametrize("place", ["env", "env_config"])
def test_what_cannot_travel_is_named_and_fine_without_processes(place):
    lock = threading.Lock()

    class HoldsALock(CountdownEnv):
        own_lock = lock

    settings = {
        "env": {"env": HoldsALock},
        "env_config": {"env_config": {"log": lock}},
    }
    named = {"env": r"config\.env", "env_config": r"config\.env_config\['log'\]"}
    with pytest.raises((SerializationError, ConfigError), match=named[place]) as raised:
        config(num_env_runners=1, **settings[place]).build_algo()
    assert "lock" in str(raised.value).lower()
    train(config(num_env_runners=0, **settings[place]))


@pytest.mark.process
def test_a_callback_that_cannot_travel_is_named():
    lock = threading.Lock()
    made = config(num_env_runners=1).callbacks(on_episode_end=lambda **kwargs: lock)
    with pytest.raises(TrainerError, match=r"on_episode_end.*lock"):
        made.build_algo()


def test_an_error_changes_nothing_and_loses_nothing(tmp_path):
    with config().build_algo() as algo:
        algo.train()
        before = known(algo)
        with pytest.raises(CheckpointError):
            algo.restore_from_path(tmp_path)
        weights = {**algo.get_weights()["default_policy"], "pi/0/kernel": np.zeros(3)}
        with pytest.raises(TrainerError, match="pi/0/kernel"):
            algo.set_weights({"default_policy": weights})
        with pytest.raises(ConfigError):
            algo.config.lr = 3.0
        with pytest.raises(ConfigError):
            algo.env_runner_group.foreach_env_runner([print, print])
        assert known(algo) == before
        assert algo.train()["training_iteration"] == 2


class ChangesItsForm(CountdownEnv):
    """Answers well at first, and as a function says at step 3 of its second episode, or its reset.

    Settings: that function, by the name of the method that answers so.
    """

    def __init__(self, env_config):
        super().__init__({"min_length": 5, "max_length": 5})
        self.spoilt = env_config
        self.num_resets = self.num_steps = 0

    def reset(self, **options):
        self.num_resets, self.num_steps = self.num_resets + 1, 0
        return self._answer("reset", super().reset(**options), is_late=self.num_resets == 2)

    def step(self, action):
        self.num_steps += 1
        is_late = self.num_resets == 2 and self.num_steps == 3
        return self._answer("step", super().step(action), is_late=is_late)

    def _answer(self, method, answer, *, is_late):
        return self.spoilt[method](answer) if is_late and method in self.spoilt else answer


def train_with(num_env_runners=0, **spoilt):
    train(
        config(
            ChangesItsForm,
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=1,
            env_config=spoilt,
        )
    )


@pytest.mark.parametrize("num_env_runners", [0, pytest.param(1, marks=pytest.mark.process)])
@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ({"step": lambda answer: answer[:4]}, r"step\(\).*a tuple of 4.* at step 3 of {}"),
        ({"step": lambda answer: None}, r"step\(\) of env.*a NoneType at step 3 of {}"),
        (
            {"step": lambda answer: (*answer[:2], np.zeros(2, bool), False, {})},
            r"terminated=array.* at step 3 of {}.*True or False",
        ),
        (
            {"reset": lambda answer: answer[0]},
            r"reset\(\).* at step 0 of {}.*\(observation, info",
        ),
    ],
    ids=["old step", "nothing", "array for a flag", "old reset"],
)
def test_an_answer_of_another_form_after_the_first_is_named(spoilt, message, num_env_runners):
    where = "episode 'training-0-1' in sub-env 0"
    with pytest.raises(EnvContractError, match=message.format(where)) as caught:
        train_with(num_env_runners, **spoilt)
    assert "ChangesItsForm" in str(caught.value)


def test_an_error_of_the_envs_own_code_stays_what_it_is():
    def unpack(answer):
        first, second = answer
        return first, second

    with pytest.raises(ValueError, match="too many values to unpack") as caught:
        train_with(step=unpack)
    assert not isinstance(caught.value, EnvContractError)


def test_no_action_follows_from_an_observation_that_is_not_finite():
    with config().build_algo() as algo:
        good = algo.config.env({}).observation_space.sample()
        for value in (np.nan, np.inf):
            with pytest.raises(EnvContractError, match="not finite, so no action follows"):
                algo.compute_single_action(np.full_like(good, value), explore=False)
        assert algo.compute_single_action(good) in (0, 1)

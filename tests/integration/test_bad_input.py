"""Bad input: one clear error each — what happened, what was expected, what to do."""

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from callbacks import CallbackConfigError
from checkpoints import CheckpointError, encode
from trainer import (
    PPO,
    ConfigError,
    EnvContractError,
    EnvCreationError,
    PPOConfig,
    SerializationError,
    TrainerError,
    UnknownSettingError,
    UnsupportedSpaceError,
)
from trainer.testing.envs import CountdownEnv, FailingEnv
from trainer.testing.faults import InjectedFaultError

SMALL = {
    "train_batch_size": 40,
    "minibatch_size": 20,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [8]},
    "num_envs_per_env_runner": 2,
    "seed": 5,
}


def config(env=CountdownEnv, *, num_env_runners=0, **settings):
    made = PPOConfig().environment(env).env_runners(num_env_runners=num_env_runners)
    return made.update_from_dict({**SMALL, **settings})


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


class TextObservations(CountdownEnv):
    def __init__(self, env_config):
        super().__init__(env_config)
        self.observation_space = spaces.Text(3)


def train(made):
    with made.build_algo() as algo:
        algo.train()


CASES = {
    "unknown env id": (
        lambda: config("CartPol-v1").build_algo(),
        EnvCreationError,
        ["'CartPol-v1' is not known", "Did you mean 'CartPole-v1'", "Accepted are"],
    ),
    "no env": (
        lambda: PPO(config=dict(SMALL)),
        ConfigError,
        ["no env to train in", "config.environment('CartPole-v1')"],
    ),
    "env of a wrong kind": (
        lambda: config(3.5).build_algo(),
        ConfigError,
        ["env=3.5", "expected", ],
    ),
    "unknown setting": (
        lambda: config().training(num_epoch=1),
        UnknownSettingError,
        ["num_epoch", "Did you mean `num_epochs`"],
    ),
    "unknown key of a dict": (
        lambda: PPO(config={**SMALL, "gama": 0.9}, env="CartPole-v1"),
        UnknownSettingError,
        ["gama", "Did you mean `gamma`"],
    ),
    "wrong type": (
        lambda: config(lr="fast").build_algo(),
        ConfigError,
        ["lr='fast'", "expected"],
    ),
    "several at once": (
        lambda: config(lr="fast", gamma=1.5, num_epochs=0).build_algo(),
        ConfigError,
        ["lr='fast'", "gamma=1.5", "num_epochs=0"],
    ),
    "minibatch larger than the batch": (
        lambda: config(minibatch_size=41).build_algo(),
        ConfigError,
        ["minibatch_size=41", "larger than train_batch_size=40", "Give minibatch_size=40"],
    ),
    "unknown event": (
        lambda: config().callbacks(on_episode_finish=print).build_algo(),
        (ConfigError, CallbackConfigError),
        ["on_episode_finish", "on_episode_end"],
    ),
    "no callback": (
        lambda: config().callbacks(3).build_algo(),
        (ConfigError, CallbackConfigError),
        ["callbacks", "3"],
    ),
    "env whose constructor raises": (
        lambda: config(FailingEnv, env_config={"where": "init"}).build_algo(),
        EnvCreationError,
        ["Could not make env 'FailingEnv'", "this fails on purpose", "env_config={'where'"],
    ),
    "env whose reset raises": (
        lambda: train(config(FailingEnv, env_config={"where": "reset"})),
        InjectedFaultError,
        ["this fails on purpose"],
    ),
    "env of the old gym API": (
        lambda: train(config(OldStyle)),
        EnvContractError,
        ["returned a tuple of 4", "must be split into terminated and truncated"],
    ),
    "reset without info": (
        lambda: train(config(OldReset)),
        EnvContractError,
        ["returned a ndarray", "expected the tuple (observation, info dict)"],
    ),
    "env without spaces": (
        lambda: config(WithoutSpaces).build_algo(),
        EnvContractError,
        ["observation_space=None", "Set self.observation_space in __init__"],
    ),
    "action space without a policy": (
        lambda: config(TextActions).build_algo(),
        UnsupportedSpaceError,
        ["Text(", "Discrete", "wrapper"],
    ),
    "observation space without a network": (
        lambda: config(TextObservations).build_algo(),
        UnsupportedSpaceError,
        ["Text(", "Box"],
    ),
    "no checkpoint": (
        lambda: PPO.from_checkpoint("/nowhere/at/all"),
        CheckpointError,
        ["/nowhere/at/all"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_clear_error(case):
    act, error, expected = CASES[case]
    with pytest.raises(error) as raised:
        act()
    for text in expected:
        assert text in str(raised.value)


@pytest.mark.process
@pytest.mark.parametrize(
    "case",
    [
        "env whose constructor raises",
        "env of the old gym API",
        "reset without info",
        "env without spaces",
        "env whose reset raises",
    ],
)
def test_the_same_errors_come_out_of_processes(case):
    _, error, expected = CASES[case]
    envs = {
        "env whose constructor raises": (FailingEnv, {"where": "init"}),
        "env of the old gym API": (OldStyle, {}),
        "reset without info": (OldReset, {}),
        "env without spaces": (WithoutSpaces, {}),
        "env whose reset raises": (FailingEnv, {"where": "reset"}),
    }
    env, env_config = envs[case]
    with pytest.raises(error) as raised:
        train(config(env, num_env_runners=1, env_config=env_config))
    for text in expected:
        assert text in str(raised.value)


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


def test_a_callback_that_does_not_accept_its_arguments_is_told_when_configured():
    def wants_more(episode, something_else):
        raise AssertionError

    with pytest.raises((ConfigError, CallbackConfigError), match="something_else"):
        config().callbacks(on_episode_end=wants_more).build_algo()


def test_an_error_changes_nothing_and_loses_nothing(tmp_path):
    with config().build_algo() as algo:
        algo.train()
        before = encode({**algo.get_state(), "config": None})
        with pytest.raises(CheckpointError):
            algo.restore_from_path(tmp_path)
        weights = {**algo.get_weights()["default_policy"], "pi/0/kernel": np.zeros(3)}
        with pytest.raises(TrainerError, match="pi/0/kernel"):
            algo.set_weights({"default_policy": weights})
        with pytest.raises(ConfigError):
            algo.config.lr = 3.0
        with pytest.raises(ConfigError):
            algo.env_runner_group.foreach_env_runner([print, print])
        assert encode({**algo.get_state(), "config": None}) == before
        assert algo.train()["training_iteration"] == 2


class ChangesItsForm(CountdownEnv):
    """Answers well at first, and from step 3 of its second episode on as it should not."""

    bad_step = None
    bad_reset = None

    def __init__(self, env_config):
        super().__init__({"min_length": 5, "max_length": 5})
        self.num_resets = self.num_steps = 0

    def reset(self, **options):
        self.num_resets, self.num_steps = self.num_resets + 1, 0
        answer = super().reset(**options)
        return type(self).bad_reset(answer) if self.bad_reset and self.num_resets == 2 else answer

    def step(self, action):
        self.num_steps += 1
        answer = super().step(action)
        is_bad = self.num_resets == 2 and self.num_steps == 3
        return type(self).bad_step(answer) if self.bad_step and is_bad else answer


class LaterOldStep(ChangesItsForm):
    bad_step = staticmethod(lambda answer: answer[:4])


class LaterNone(ChangesItsForm):
    bad_step = staticmethod(lambda answer: None)


class LaterArrayFlag(ChangesItsForm):
    bad_step = staticmethod(lambda answer: (*answer[:2], np.zeros(2, bool), False, {}))


class LaterOldReset(ChangesItsForm):
    bad_reset = staticmethod(lambda answer: answer[0])


class OwnValueError(ChangesItsForm):
    @staticmethod
    def bad_step(answer):
        first, second = answer  # an error of the env's own code
        return first, second


@pytest.mark.parametrize("num_env_runners", [0, pytest.param(1, marks=pytest.mark.process)])
@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            LaterOldStep,
            r"step\(\).*a tuple of 4.* at step 3 of episode 'training-0-1' in sub-env 0",
        ),
        (
            LaterNone,
            r"step\(\) of env.*a NoneType at step 3 of episode 'training-0-1' in sub-env 0",
        ),
        (LaterArrayFlag, r"terminated=array.* at step 3 of episode 'training-0-1'.*True or False"),
        (LaterOldReset, r"reset\(\).* at step 0 of episode 'training-0-1'.*\(observation, info"),
    ],
)
def test_an_answer_of_another_form_after_the_first_is_named(env, message, num_env_runners):
    with pytest.raises(EnvContractError, match=message) as caught:
        train(config(env, num_env_runners=num_env_runners, num_envs_per_env_runner=1))
    assert env.__name__ in str(caught.value)


def test_an_error_of_the_envs_own_code_stays_what_it_is():
    with pytest.raises(ValueError, match="too many values to unpack") as caught:
        train(config(OwnValueError, num_envs_per_env_runner=1))
    assert not isinstance(caught.value, EnvContractError)


def test_no_action_follows_from_an_observation_that_is_not_finite():
    with config().build_algo() as algo:
        good = algo.config.env({}).observation_space.sample()
        for value in (np.nan, np.inf):
            with pytest.raises(EnvContractError, match="not finite, so no action follows"):
                algo.compute_single_action(np.full_like(good, value), explore=False)
        assert algo.compute_single_action(good) in (0, 1)

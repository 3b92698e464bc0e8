"""`check_env_state` passes envs that can be gone on with, and names what the others lack."""

import random

import numpy as np
import pytest
from gymnasium import wrappers

from trainer.testing import CountdownEnv, RestlessEnv, check_env_state

LONG = {"min_length": 12, "max_length": 20}


class Right(CountdownEnv):
    env_state_attributes = ("length", "steps", "_mixture")


class ForgetsSteps(RestlessEnv):
    """Neither method knows of the steps, so only going on shows it."""

    def get_state(self):
        return {key: value for key, value in super().get_state().items() if key != "steps"}

    def set_state(self, state):
        super().set_state({**state, "steps": 0})


class ForgetsGenerator(RestlessEnv):
    def get_state(self):
        return {**super().get_state(), "generator": None}

    def set_state(self, state):
        super().set_state({**state, "generator": self.generator.getstate()})


class ForgetsWhatAnEpisodeLeaves(CountdownEnv):
    """Longer episodes follow after longer ones; the end of an episode is right, the next wrong."""

    env_state_attributes = ("length", "steps", "_mixture")
    extra = 0

    def reset(self, **options):
        answer = super().reset(**options)
        self.length += self.extra
        self.extra = (self.extra + self.length) % 5
        return answer


class SetsInVain(RestlessEnv):
    def set_state(self, state):
        pass


class Changing(RestlessEnv):
    def get_state(self):
        return {**super().get_state(), "seen": self.generator.random()}


class NotPlain(RestlessEnv):
    def get_state(self):
        return {**super().get_state(), "generator": self.generator}

    def set_state(self, state):
        self.generator = random.Random()


class SharesItsBuffer(Right):
    """Every observation is the same array: what is compared must be copied."""

    def reset(self, **options):
        self.buffer = np.zeros(2, np.float32)
        self.buffer[:] = super().reset(**options)[0]
        return self.buffer, {}

    def step(self, action):
        answer = super().step(action)
        self.buffer[:] = answer[0]
        return self.buffer, *answer[1:]


@pytest.mark.parametrize(
    "env",
    [
        Right,
        RestlessEnv,
        SharesItsBuffer,
        lambda context: wrappers.FrameStackObservation(
            wrappers.TimeLimit(RestlessEnv(context), 7), 3
        ),
    ],
)
def test_envs_that_can_be_gone_on_with_pass(env):
    check_env_state(env, env_config=LONG)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (CountdownEnv, "no layer of it has get_state and set_state"),
        (ForgetsSteps, "is missing in get_state()"),
        (ForgetsGenerator, "After set_state(), the observation of answer 0 is"),
        (ForgetsWhatAnEpisodeLeaves, "is missing in get_state()"),
        (SetsInVain, "in vain: SetsInVain has another state after set_state()"),
        (Changing, "It must change nothing"),
        (NotPlain, "NotPlain.get_state() gave"),
        ("CartPole-v1", "The state of the env 'CartPole-v1' would not be used"),
    ],
)
def test_what_is_wrong_is_named(env, message):
    config = {} if isinstance(env, str) else LONG
    with pytest.raises(AssertionError) as caught:
        check_env_state(env, env_config=config)
    assert message in str(caught.value)


def test_a_mistake_that_shows_late_needs_a_longer_look():
    check_env_state(ForgetsWhatAnEpisodeLeaves, env_config=LONG, num_steps=1, num_states=1)
    with pytest.raises(AssertionError):
        check_env_state(ForgetsWhatAnEpisodeLeaves, env_config=LONG, num_steps=60)

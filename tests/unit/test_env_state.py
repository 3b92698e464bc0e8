"""The state of an env through its wrappers: what is taken, what is given back, what is refused."""

import random
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.envs.registration import EnvSpec

from checkpoints import decode, encode
from trainer.envs import EnvState, StatefulEnv, why_no_env_state
from trainer.episodes.nested import copied
from trainer.testing import CountdownEnv, RestlessEnv
from trainer.testing.envs import ContinuousEnv, TaskCountdownEnv
from trainer_toolkit.trees import same


class Remembering(CountdownEnv):
    """A CountdownEnv with a state; its noise comes from `np_random`, which is not part of it."""

    def get_state(self):
        return {"length": self.length, "steps": self.steps, "mixture": self._mixture}

    def set_state(self, state):
        self.length, self.steps, self._mixture = (state[key] for key in state)


class Declaring(CountdownEnv):
    env_state_attributes = ("length", "steps", "_mixture")


class Continuous(ContinuousEnv):
    env_state_attributes = ("received", "_number")


def countdown(length=40):
    return Remembering({"min_length": length, "max_length": length})


def time_limited():
    env = countdown()
    env.spec = EnvSpec("Countdown-v0", max_episode_steps=23)  # TimeAwareObservation looks there
    return wrappers.TimeLimit(env, 23)


# Of those that remember nothing, two: that the others are known is asserted below.
WRAPPED = {
    "none": countdown,
    "declared": lambda: Declaring({"min_length": 20, "max_length": 40}),
    "its own generator": lambda: RestlessEnv({"min_length": 20, "max_length": 40}),
    "Autoreset": lambda: wrappers.Autoreset(countdown(12)),
    "ClipAction": lambda: wrappers.ClipAction(Continuous({"num_steps": 30})),
    "DelayObservation": lambda: wrappers.DelayObservation(countdown(), 3),
    "FrameStackObservation": lambda: wrappers.FrameStackObservation(countdown(), 4),
    "FrameStackObservation, zero": lambda: wrappers.FrameStackObservation(
        countdown(), 9, padding_type="zero"
    ),
    "MaxAndSkipObservation": lambda: wrappers.MaxAndSkipObservation(countdown(), 3),
    "NormalizeObservation": lambda: wrappers.NormalizeObservation(countdown()),
    "NormalizeReward": lambda: wrappers.NormalizeReward(Continuous({"num_steps": 30})),
    "PassiveEnvChecker": lambda: wrappers.PassiveEnvChecker(countdown()),
    "RecordEpisodeStatistics": lambda: wrappers.RecordEpisodeStatistics(countdown(9)),
    "StickyAction": lambda: wrappers.StickyAction(countdown(), 0.5),
    "TimeAwareObservation": lambda: wrappers.TimeAwareObservation(time_limited()),
    "TimeLimit": time_limited,
    "many": lambda: wrappers.FrameStackObservation(
        wrappers.NormalizeReward(
            wrappers.NormalizeObservation(wrappers.StickyAction(time_limited(), 0.3))
        ),
        3,
    ),
}


def state_of(env):
    state = EnvState.of(env)
    assert state is not None
    return state


def taken(env):
    state = state_of(env).take()
    assert state is not None
    return state


def played(env, num_steps, *, seed=7):
    """Answers to random actions, with resets where episodes end; infos without times."""
    env.action_space.seed(seed)
    answers = []
    for number in range(num_steps):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        counted = {key: info["episode"][key] for key in "rl"} if "episode" in info else {}
        answers.append(
            (copied(observation), float(reward), terminated, truncated, *counted.values())
        )
        if (terminated or truncated) and not isinstance(env, wrappers.Autoreset):
            answers.append((copied(env.reset(seed=number)[0]),))
    return answers


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.parametrize("name", WRAPPED)
def test_a_fresh_env_goes_on_exactly_from_a_state(name):
    env, other = WRAPPED[name](), WRAPPED[name]()
    env.reset(seed=3)
    played(env, 8)
    state, expected = taken(env), played(env, 50)
    other.reset(seed=99)
    assert state_of(other).give_back(state)
    found = played(other, 50)
    assert same(found, expected)
    assert taken(other) == taken(env)


def test_every_wrapper_of_gymnasium_is_known_or_left_out_on_purpose():
    # Conversions need other libraries, and AtariPreprocessing an emulator: those are replayed.
    left_out = {"AtariPreprocessing", "ArrayConversion", "JaxToNumpy", "JaxToTorch"}
    left_out |= {"NumpyToTorch", "vector"}
    unknown = {
        name
        for name in set(wrappers.__all__) - left_out
        if EnvState.of(bare(getattr(wrappers, name))) is None
    }
    assert unknown == set()


def bare(wrapper_class):
    """A wrapper around an env with a state, without its constructor's demands."""
    wrapper = wrapper_class.__new__(wrapper_class)
    gym.Wrapper.__init__(wrapper, countdown())
    wrapper.recorded_frames = []  # RecordVideo asks for them in the end
    return wrapper


@pytest.mark.parametrize("name", ["gravity", "spec.entry_point", "unwrapped.length", "length"])
def test_a_state_sets_no_other_attributes_than_those_that_are_remembered(name):
    env = Declaring()
    env.spec = EnvSpec("Declared-v0", entry_point="known:Env")
    env.reset(seed=3)
    known, state = taken(env), decode(taken(env))
    ((_, attributes),) = state["layers"]
    del attributes["length"]
    if name != "length":
        attributes[name] = "spoilt"
    back = state_of(env)
    assert not back.give_back(encode(state))
    assert "setting the attributes of Declaring raised ValueError" in back.trouble
    assert env.spec.entry_point == "known:Env"
    assert taken(env) == known


def test_a_state_is_plain_data_that_does_not_change_with_the_env():
    class Sharing(Remembering):
        def reset(self, **options):
            self.numbers = np.zeros(2)
            return super().reset(**options)

        def get_state(self):
            return {"numbers": self.numbers}

        def set_state(self, state):
            self.numbers = state["numbers"]

    env = wrappers.TimeLimit(Sharing(), 9)
    env.reset(seed=1)
    state = taken(env)
    env.unwrapped.numbers += 1.0
    assert decode(state)["layers"][0] == ["TimeLimit", {"_elapsed_steps": 0}]
    assert decode(state)["layers"][1][1]["numbers"].tolist() == [0.0, 0.0]
    assert decode(state)["np_random"] == env.unwrapped.np_random.bit_generator.state


# ---- what is not taken


class Plain(gym.Wrapper[Any, Any, Any, Any]):
    pass


class Transparent(gym.Wrapper[Any, Any, Any, Any]):
    env_state_attributes = ()


class Answering(gym.Wrapper[Any, Any, Any, Any]):
    """Takes the state of an env that has no methods for it."""

    def get_state(self):
        env = self.unwrapped
        return [env.length, env.steps, env._mixture]

    def set_state(self, state):
        env = self.unwrapped
        env.length, env.steps, env._mixture = state


class TwoArguments(CountdownEnv):
    def get_state(self):
        return 0

    def set_state(self, qpos, qvel):
        pass


class NeedsAnArgument(CountdownEnv):
    def get_state(self, key):
        return key

    def set_state(self, state):
        pass


class Unwritten(CountdownEnv, StatefulEnv):
    pass


class OwnTimeLimit(wrappers.TimeLimit[Any, Any]):
    pass


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (CountdownEnv, ""),
        (lambda: wrappers.TimeLimit(CountdownEnv(), 5), ""),
        (lambda: Plain(CountdownEnv()), ""),
        (TaskCountdownEnv, ""),
        (Unwritten, ""),
        (lambda: Plain(countdown()), "nothing is known of the state of Plain"),
        (lambda: OwnTimeLimit(countdown(), 5), "nothing is known of the state of OwnTimeLimit"),
        (lambda: Plain(Answering(CountdownEnv())), "nothing is known of the state of Plain"),
        (TwoArguments, r"TwoArguments.set_state\(qpos.*cannot be called as set_state\(state\)"),
        (NeedsAnArgument, r"NeedsAnArgument.get_state\(key.*cannot be called as get_state\(\)"),
        (lambda: Transparent(CountdownEnv()), "nothing is known of the state of CountdownEnv"),
    ],
)
def test_what_is_unknown_is_not_taken_and_told_only_where_somebody_expects_it(make, why):
    env = make()
    assert EnvState.of(env) is None
    assert re.fullmatch(f"{why}.*" if why else "", why_no_env_state(env), re.DOTALL)


@pytest.mark.parametrize(
    "make",
    [
        lambda: wrappers.TimeLimit(Answering(CountdownEnv()), 30),
        lambda: Answering(Plain(CountdownEnv())),
        lambda: Transparent(wrappers.TimeLimit(countdown(), 30)),
    ],
)
def test_a_wrapper_can_answer_for_what_is_inside(make):
    env, other = make(), make()
    env.reset(seed=3)
    played(env, 2)
    assert why_no_env_state(env) == ""
    other.reset(seed=4)
    assert state_of(other).give_back(taken(env))
    assert same(played(other, 50), played(env, 50))


# ---- what goes wrong


class NotPlain(Remembering):
    def get_state(self):
        return {"generator": random.Random(1)}


class Raising(Remembering):
    def get_state(self):
        raise KeyError("lost")


class Undeclared(CountdownEnv):
    env_state_attributes = ("nowhere",)


@pytest.mark.parametrize(
    ("env", "trouble"),
    [
        (NotPlain(), r"NotPlain.get_state\(\) gave.*generator.*Random"),
        (Raising(), r"Raising.get_state\(\) raised KeyError: 'lost'"),
        (Undeclared(), r"the attributes of Undeclared raised AttributeError.*nowhere"),
    ],
)
def test_a_state_that_cannot_be_taken_is_told(env, trouble):
    env.reset(seed=1)
    state = state_of(env)
    assert state.take() is None
    assert re.search(trouble, state.trouble), state.trouble


class Forgetting(Remembering):
    def set_state(self, state):
        self.length, self._mixture = state["length"], state["mixture"]


class Refusing(Remembering):
    def set_state(self, state):
        raise ValueError("not like this")


@pytest.mark.parametrize(
    ("env", "trouble"),
    [
        (Forgetting({"min_length": 9}), r"Forgetting has another state after .* in \['steps'\]"),
        (Refusing({"min_length": 9}), r"Refusing.set_state\(\) raised ValueError: not like this"),
    ],
)
def test_a_state_that_is_not_taken_back_is_told(env, trouble):
    env.reset(seed=1)
    played(env, 3)
    state = state_of(env)
    saved = state.take()
    env.reset(seed=1)
    assert not state.give_back(saved)
    assert re.search(trouble, state.trouble), state.trouble
    assert state.fits


@pytest.mark.parametrize(
    "saved",
    [
        {"layers": [["Other", {}]], "np_random": None},
        {"layers": 3, "np_random": None},
        {"layers": [["Remembering", {}]]},
        ["layers"],
        7,
    ],
)
def test_a_state_of_other_layers_or_of_nothing_is_refused_untouched(saved):
    env = countdown()
    env.reset(seed=1)
    state, before = state_of(env), taken(env)
    assert not state.give_back(encode(saved))
    assert not state.fits
    assert taken(env) == before


@pytest.mark.parametrize(
    "generator", [{"bit_generator": "os"}, {"bit_generator": "PCG64", "state": 1}, 5]
)
def test_a_generator_that_is_none_is_refused(generator):
    env = countdown()
    env.reset(seed=1)
    state = decode(taken(env)) | {"np_random": generator}
    assert not (asked := state_of(env)).give_back(encode(state))
    assert "np_random did not take its state" in asked.trouble


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_any_generator_of_numpy_is_taken_along(kind):
    env, other = countdown(), countdown()
    env.reset(seed=1)
    env.np_random = np.random.Generator(kind(5))
    played(env, 3)
    other.reset(seed=1)
    assert state_of(other).give_back(taken(env))
    assert same(played(other, 20), played(env, 20))


def test_the_generator_stays_the_object_that_others_hold():
    env = countdown()
    env.reset(seed=1)
    held = env.np_random
    state = taken(env)
    expected = held.random()
    assert state_of(env).give_back(state)
    assert held is env.np_random
    assert held.random() == expected

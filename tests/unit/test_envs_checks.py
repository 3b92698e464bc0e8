"""The contract of an env, each clause with an env that breaks it on purpose."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trainer import EnvContractError
from trainer.envs.env_checks import (
    check_reset,
    check_reset_signature,
    check_spaces,
    check_step,
    is_finite,
)
from trainer.testing.envs import ContinuousEnv, CorridorEnv, CountdownEnv, FailingEnv, UnseededEnv

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
INSIDE = np.zeros(2, np.float32)
CASTS = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")


@pytest.mark.parametrize(
    "make", [CountdownEnv, CorridorEnv, ContinuousEnv, UnseededEnv, FailingEnv]
)
def test_our_own_debug_envs_keep_the_contract(make):
    env = make()
    check_spaces(env, name="own")
    check_reset_signature(env, name="own")
    check_reset(env.reset(seed=1), env.observation_space, name="own")
    for _ in range(3):
        action = env.action_space.sample()
        check_step(env.step(action), env.observation_space, name="own")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_whose_squares_overflow_are_finite_without_a_warning(dtype):
    large = np.full(3, np.finfo(dtype).max, dtype)
    assert is_finite(large)
    assert not is_finite(np.append(large, dtype(np.nan)))
    assert not is_finite(np.append(large, dtype(np.inf)))


class WithoutSpaces(gymnasium.Env[Any, Any]):
    pass


class WithAPlainSpace(CountdownEnv):
    def __init__(self):
        super().__init__()
        self.action_space = 2


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (WithoutSpaces(), "'mine' has observation_space=None; expected a gymnasium space"),
        (WithAPlainSpace(), r"action_space=2; .* Set self.action_space in __init__"),
    ],
)
def test_a_missing_space_is_named(env, expected):
    with pytest.raises(EnvContractError, match=expected):
        check_spaces(env, name="mine")


class OldReset(CountdownEnv):
    def reset(self):
        return INSIDE


class AnyKeywordReset(CountdownEnv):
    def reset(self, **options):
        return super().reset(**options)


def test_a_reset_without_seed_is_refused_also_behind_wrappers_and_any_keywords_are_fine():
    for env in (OldReset(), gymnasium.wrappers.TimeLimit(OldReset(), 10)):
        with pytest.raises(EnvContractError, match=r"takes \(nothing\); expected a `seed`"):
            check_reset_signature(env, name="old")
    check_reset_signature(AnyKeywordReset(), name="any")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (INSIDE, r"returned a ndarray; expected the tuple \(observation, info dict\)"),
        ((INSIDE,), r"returned a tuple of 1: \(ndarray\)"),
        ((INSIDE, None), r"returned a tuple of 2: \(ndarray, NoneType\)"),
        ((np.zeros(3, np.float32), {}), r"outside its space: shape \(3,\), dtype float32"),
        (("text", {}), "outside its space"),
    ],
)
@CASTS
def test_a_wrong_answer_of_reset_is_told(answer, expected):
    with pytest.raises(EnvContractError, match=rf"reset\(\) of env 'mine'.*{expected}"):
        check_reset(answer, BOX, name="mine")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((INSIDE, 1.0, False, {}), "old form .* must be split into terminated and truncated"),
        ([INSIDE, 1.0, False, False, {}], "returned a list"),
        ((INSIDE, "1", False, False, {}), "the reward '1'; expected a number"),
        ((INSIDE, np.ones(2), False, False, {}), "expected a number"),
        ((INSIDE, 1.0, 0, False, {}), "terminated=0; expected True or False"),
        ((INSIDE, 1.0, False, None, {}), "truncated=None; expected True or False"),
        ((INSIDE, 1.0, False, False, []), r"the info \[\]; expected a dict"),
        ((np.zeros((1, 2)), 1.0, False, False, {}), r"outside its space: shape \(1, 2\)"),
        ((np.array(["a", "b"]), 1.0, False, False, {}), "outside its space"),
    ],
)
def test_a_wrong_answer_of_step_is_told(answer, expected):
    with pytest.raises(EnvContractError, match=rf"step\(\) of env 'mine'.*{expected}"):
        check_step(answer, BOX, name="mine")


@pytest.mark.parametrize(
    "answer",
    [
        (INSIDE, 1, False, True, {}),
        (INSIDE, np.float32(1.0), np.bool_(True), np.False_, {}),
        (INSIDE, np.array(1.0), False, False, {}),
        (np.zeros(2, np.float64), 1.0, False, False, {}),
        (np.full(2, 1.0001, np.float32), 1.0, False, False, {}),
        ([0.0, 0.0], 1.0, False, False, {}),
    ],
    ids=["int reward", "numpy scalars", "array scalar", "float64", "beyond its bounds", "list"],
)
@CASTS
def test_common_and_harmless_answers_pass(answer):
    check_step(answer, BOX, name="mine")


def test_a_discrete_observation_outside_its_space_is_shown():
    with pytest.raises(EnvContractError, match=r"outside its space: 7; expected Discrete\(3\)"):
        check_reset((7, {}), spaces.Discrete(3), name="mine")

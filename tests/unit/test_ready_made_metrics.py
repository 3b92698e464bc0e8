"""Metrics named by paths: found, told apart from misspelt ones, and counted in all units."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from callbacks import CallbackConfigError
from callbacks.ready_made.metric_values import WatchedMetric, number_at, numbers_in, value_at
from tests.steered_algorithm import result_of
from trainer import ResultDict

RETURN = "env_runners/episode_return_mean"
EVALUATION = f"evaluation/{RETURN}"


@pytest.mark.parametrize("kind", [dict, ResultDict])
def test_a_path_leads_into_nested_results(kind):
    result = kind(result_of(3, mean=2.5))
    assert value_at(result, RETURN) == 2.5
    assert value_at(result, "training_iteration") == 3
    assert value_at(result, "env_runners/nothing") is None
    assert value_at(result, "training_iteration/deeper") is None


def test_old_keys_are_understood_where_the_result_does():
    assert value_at(ResultDict(result_of(1, mean=2.5)), "episode_reward_mean") == 2.5


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0), (np.float32(0.5), 0.5), (np.int64(4), 4.0), (math.nan, None), (math.inf, None),
        (True, None), (np.True_, None), ("3", None), (None, None), ({"a": 1}, None),
    ],
)  # fmt: skip
def test_only_finite_numbers_are_numbers(value, number):
    assert number_at({"x": value}, "x") == number


def test_numbers_are_listed_by_path_without_the_config():
    tree = {"a": {"b": 1, "c": "no"}, "config": {"lr": 1.0}, "d": np.float64(2.0)}
    assert list(numbers_in(tree)) == [("a/b", 1.0), ("d", 2.0)]


# ---- present, not yet, misspelt


def test_a_misspelt_metric_is_an_error_that_names_the_nearest():
    with pytest.raises(CallbackConfigError, match="nearest ones are 'env_runners/episode_return"):
        WatchedMetric("env_runners/epsode_return_mean").read(result_of(1))
    with pytest.raises(CallbackConfigError, match="'env_runners/episode_return_mean'"):
        WatchedMetric("episode_return_mean").read(result_of(1))
    with pytest.raises(CallbackConfigError, match="Here it is 'evaluation/env_runners/episode_ret"):
        WatchedMetric("eval/mean_reward").read(result_of(1))


def test_what_is_no_number_is_an_error():
    with pytest.raises(CallbackConfigError, match="'env_runners' is a dict"):
        WatchedMetric("env_runners").read(result_of(1))


def test_before_any_episode_ended_a_metric_may_be_absent():
    metric = WatchedMetric("env_runners/mine")
    assert metric.read(result_of(1, episodes_per_iteration=0)) is None
    with pytest.raises(CallbackConfigError, match="although episodes have ended"):
        metric.read(result_of(2))


def test_a_metric_that_was_there_once_even_as_nan_may_be_absent_later():
    metric = WatchedMetric("mine")
    assert metric.read(result_of(1, mine=math.nan)) is None
    assert metric.read(result_of(2)) is None
    assert metric.read(result_of(3, mine=2.0)) == 2.0


def evaluated(iteration, *, at, **more):
    evaluation = {
        "evaluated_at_iteration": at,
        "env_runners": {"episode_return_mean": 7.0, "num_episodes": 4, **more},
    }
    return result_of(iteration, evaluation=evaluation)


def test_only_a_fresh_evaluation_counts():
    metric, config = WatchedMetric(EVALUATION), SimpleNamespace(evaluation_interval=2)
    assert metric.read(result_of(1), config=config) is None
    assert metric.read(evaluated(2, at=2), config=config) == 7.0
    assert metric.read(evaluated(3, at=2), config=config) is None


def test_waiting_for_an_evaluation_that_never_comes_is_an_error():
    config = SimpleNamespace(evaluation_interval=None)
    with pytest.raises(CallbackConfigError, match="`evaluation_interval` is not set"):
        WatchedMetric(EVALUATION).read(result_of(1), config=config)


def test_a_misspelt_metric_of_an_evaluation_is_an_error_at_the_first_fresh_one():
    metric, config = WatchedMetric(f"{EVALUATION}_"), SimpleNamespace(evaluation_interval=2)
    assert metric.read(result_of(1), config=config) is None
    assert metric.read(evaluated(2, at=2, num_episodes=0), config=config) is None
    with pytest.raises(CallbackConfigError, match=f"The nearest ones are '{EVALUATION}'"):
        metric.read(evaluated(4, at=4), config=config)

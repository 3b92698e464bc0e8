"""Early stopping: goals, plateaus, budgets, and what of them survives a restore."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callbacks import CallbackConfigError, EarlyStopping, RLlibCallback
from callbacks.ready_made.stopping import Plateau, StopCriteria
from tests.steered_algorithm import SteeredAlgorithm, result_of


def stops_at(callback, returns, **changes):
    """The first iteration that says it is over."""
    algorithm = SteeredAlgorithm(callback)
    for iteration, value in enumerate(returns, start=1):
        if algorithm.tell(mean=value, **changes)["done"]:
            return iteration
    return None


# ---- goals


def test_a_goal_ends_the_run_and_says_why():
    algorithm = SteeredAlgorithm(EarlyStopping(at_least=3))
    results = algorithm.tell_returns([1.0, 2.999, 3.0])
    assert [result["done"] for result in results] == [False, False, True]
    assert "stop_reason" not in results[1]
    assert results[2]["stop_reason"] == (
        "Goal reached after 300 env steps: env_runners/episode_return_mean is 3, at least 3."
    )


def test_a_goal_may_be_a_value_from_above():
    assert stops_at(EarlyStopping(at_most=-1), [0.0, -0.5, -1.0]) == 3
    assert stops_at(EarlyStopping(at_least=10, at_most=-1), [0.0, -2.0]) == 2


def test_no_return_yet_reaches_no_goal():
    assert stops_at(EarlyStopping(at_least=-5), [math.nan, math.inf], mine=1.0) is None
    assert stops_at(EarlyStopping(at_most=5), [math.nan, -math.inf]) is None


def test_goals_may_be_about_what_other_callbacks_log_late():
    class Late(RLlibCallback):
        def on_train_result(self, *, algorithm, result, **kwargs):
            result["late"] = algorithm.training_iteration

    algorithm = SteeredAlgorithm(EarlyStopping("late", at_least=2), Late)
    assert [result["done"] for result in algorithm.tell_returns([1, 1])] == [False, True]


# ---- budgets


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ({"max_iterations": 3}, "Stopped after 3 iterations."),
        ({"max_env_steps": 201}, "Stopped after 300 env steps."),
        ({"max_episodes": 15}, "Stopped after 15 episodes."),
        ({"max_time_s": 5.5}, "Stopped after 6 seconds."),
        ({"max_env_steps": 10_000, "max_iterations": 3}, "Stopped after 3 iterations."),
    ],
)
def test_a_budget_is_used_up_in_the_iteration_that_reaches_it(budget, text):
    algorithm = SteeredAlgorithm(EarlyStopping(**budget))
    results = algorithm.tell_returns([1, 2, 3])
    assert [result["done"] for result in results] == [False, False, True]
    assert results[2]["stop_reason"] == text


def test_a_budget_needs_no_metric():
    algorithm = SteeredAlgorithm(EarlyStopping("misspelt", max_iterations=1))
    assert algorithm.tell()["done"]


# ---- plateaus


def test_a_plateau_is_so_many_values_in_a_row_without_progress():
    returns = [1.0, 2.0, 2.0, 1.5, 2.1, 2.1, 2.0, 2.1]
    assert stops_at(EarlyStopping(patience=3), returns) == 8
    assert stops_at(EarlyStopping(patience=2), returns) == 4
    assert stops_at(EarlyStopping(patience=3, min_delta=0.2), returns) == 5
    assert stops_at(EarlyStopping(patience=3, mode="min"), returns) == 4


def test_results_without_a_value_do_not_count_for_a_plateau():
    assert stops_at(EarlyStopping(patience=2), [math.nan] * 5 + [1.0, 1.0, math.nan, 1.0]) == 9


def test_the_reason_of_a_plateau_names_the_best_value():
    results = SteeredAlgorithm(EarlyStopping(patience=2)).tell_returns([5.0, 4.0, 3.0])
    assert results[2]["stop_reason"] == (
        "Stopped at a plateau in iteration 3: the last 2 values of env_runners/episode_return_mean "
        "were no better than 5."
    )


@given(
    values=st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=20),
    patience=st.integers(1, 4),
    mode=st.sampled_from(["max", "min"]),
)
def test_a_plateau_without_min_delta_is_what_its_definition_says(values, patience, mode):
    plateau = Plateau(patience=patience, min_delta=0.0, mode=mode)
    best_of = max if mode == "max" else min
    for end, value in enumerate(values, start=1):
        plateau.add(value)
        seen = values[:end]
        since_best = end - 1 - seen.index(best_of(seen))
        assert plateau.is_reached == (since_best >= patience)
        if plateau.is_reached:
            break


# ---- together


def test_the_first_reason_stays():
    callbacks = [EarlyStopping(max_iterations=1), EarlyStopping(max_env_steps=1)]
    assert SteeredAlgorithm(*callbacks).tell()["stop_reason"] == "Stopped after 1 iteration."


def test_the_plateau_survives_a_restore_and_the_criteria_are_those_of_the_config():
    returns = [3.0, 1.0, 1.0, 1.0]
    first = SteeredAlgorithm(EarlyStopping(patience=3))
    first.tell_returns(returns[:3])
    restored = SteeredAlgorithm(EarlyStopping(patience=3))
    restored.callbacks.set_state(first.callbacks.get_state())
    assert restored.tell_returns(returns[3:])[0]["done"]
    fresh = SteeredAlgorithm(EarlyStopping(patience=3))
    assert not fresh.tell_returns(returns[3:])[0]["done"], "without the state it would not stop"
    patient = SteeredAlgorithm(EarlyStopping(patience=5))
    patient.callbacks.set_state(first.callbacks.get_state())
    assert not patient.tell_returns(returns[3:])[0]["done"]


def test_the_state_of_one_without_a_plateau_fits_one_with():
    restored = SteeredAlgorithm(EarlyStopping(patience=1))
    restored.callbacks.set_state(SteeredAlgorithm(EarlyStopping(at_least=9)).callbacks.get_state())
    assert [r["done"] for r in restored.tell_returns([1.0, 1.0])] == [False, True]


def test_the_plateau_of_another_metric_counts_for_nothing():
    first = SteeredAlgorithm(EarlyStopping(patience=2))
    first.tell_returns([500.0, 400.0])
    restored = SteeredAlgorithm(EarlyStopping("won", patience=2))
    restored.callbacks.set_state(first.callbacks.get_state())
    assert [restored.tell(won=won)["done"] for won in (0.5, 0.6, 0.7)] == [False] * 3


# ---- misuse


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "no criterion is given"),
        ({"at_least": math.nan}, "`at_least=nan` must be a finite number"),
        ({"max_iterations": 0}, "`max_iterations=0` must be an int of at least 1"),
        ({"max_env_steps": 1e6}, "`max_env_steps=1000000.0` must be an int"),
        ({"max_time_s": -1}, "`max_time_s=-1` must be a finite number above 0"),
        ({"patience": True}, "`patience=True` must be an int of at least 1"),
        ({"patience": 3, "min_delta": -0.1}, "`min_delta=-0.1` must be a finite number of at"),
        ({"patience": 3, "mode": "maximum"}, "`mode='maximum'` must be one of 'max', 'min'"),
        ({"at_least": 1, "min_delta": 0.5}, "`patience=None` must be"),
        ({"at_least": 1, "metric": "a//b"}, "`metric='a//b'` is no path"),
    ],
)
def test_misuse_is_refused_at_once(arguments, text):
    with pytest.raises(CallbackConfigError) as caught:
        EarlyStopping(**arguments)
    assert text in str(caught.value)


def test_all_problems_are_named_together():
    with pytest.raises(CallbackConfigError) as caught:
        EarlyStopping(max_iterations=0, max_episodes=-1, at_most=math.inf)
    assert len(caught.value.problems) == 3


def test_goals_are_told_in_words():
    assert StopCriteria(at_least=450).goal_text() == "return ≥ 450"
    assert StopCriteria(metric="a/loss", at_most=0.1, at_least=9).goal_text() == (
        "loss ≥ 9 or loss ≤ 0.1"
    )
    assert StopCriteria(max_iterations=3).reason(result_of(2), value=1e9) is None

"""The guard against NaN and infinity: what it finds, what is no alarm, what happens then."""

import math
import pickle

import numpy as np
import pytest

from callbacks import CallbackConfigError, NonFiniteError, NonFiniteGuard
from tests.steered_algorithm import SteeredAlgorithm


def found(algorithm, **changes):
    """The places that the guard names."""
    with pytest.raises(NonFiniteError) as caught:
        algorithm.tell(**changes)
    return caught.value.places


def test_a_learner_metric_is_named_by_its_path():
    learners = {"default_policy": {"total_loss": math.nan, "entropy": 0.1, "kl": -math.inf}}
    assert found(SteeredAlgorithm(NonFiniteGuard()), learners=learners) == (
        "learners/default_policy/total_loss is nan",
        "learners/default_policy/kl is -inf",
    )


def test_weights_are_named_with_number_and_first_place():
    algorithm = SteeredAlgorithm(NonFiniteGuard)
    algorithm.tell()
    algorithm.weights["default_policy"]["pi"][1, 0:2] = [math.inf, math.nan]
    assert found(algorithm) == ("weights/default_policy/pi: 2 of 6 numbers, first inf at [1, 0]",)


def test_a_return_that_is_nan_is_an_alarm_only_after_an_episode_ended():
    def evaluated(num_episodes):
        return {"env_runners": {"episode_return_mean": math.nan, "num_episodes": num_episodes}}

    algorithm = SteeredAlgorithm(NonFiniteGuard())
    algorithm.tell(mean=math.nan, episodes_per_iteration=0, evaluation=evaluated(0))
    assert found(algorithm, mean=math.nan) == ("env_runners/episode_return_mean is nan",)
    assert found(algorithm, evaluation=evaluated(3))
    assert found(algorithm, mean=math.inf, episodes_per_iteration=0), "which no lack of them makes"


def test_named_metrics_may_be_numbers_arrays_and_lists():
    algorithm = SteeredAlgorithm(NonFiniteGuard(["a", "b/c", "d"]))
    algorithm.tell(a=1.0, b={"c": np.zeros(2)}, d=[1, 2])
    places = found(algorithm, a=math.nan, b={"c": np.array([0.0, math.nan])}, d=[1, math.inf])
    assert places == ("a is nan", "b/c: 1 of 2 numbers, first nan at [1]", "d/1 is inf")


def test_a_misspelt_metric_is_an_error_and_a_late_one_is_not():
    with pytest.raises(CallbackConfigError, match="no metric 'env_runners/episode_retrun_mean'"):
        SteeredAlgorithm(NonFiniteGuard(["env_runners/episode_retrun_mean"])).tell()
    first = SteeredAlgorithm(NonFiniteGuard(["mine"]))
    first.tell(mine=1.0)
    restored = SteeredAlgorithm(NonFiniteGuard(["mine"]))
    restored.callbacks.set_state(first.callbacks.get_state())
    restored.tell()


def test_integers_words_and_metrics_that_nobody_named_are_no_alarm():
    algorithm = SteeredAlgorithm(NonFiniteGuard([]))
    algorithm.weights["default_policy"]["steps"] = np.array([1, 2])
    learners = {"default_policy": {"name": "nan", "updates": 3, "on": True}}
    assert "non_finite" not in algorithm.tell(learners=learners, mine=math.nan, mean=math.nan)


def test_stopping_marks_the_result_instead_of_raising():
    algorithm = SteeredAlgorithm(NonFiniteGuard(on_found="stop"))
    assert "non_finite" not in algorithm.tell()
    result = algorithm.tell(learners={"p": {"loss": math.nan}})
    assert result["done"] is True
    assert result["non_finite"] == ["learners/p/loss is nan"]
    assert "learners/p/loss is nan" in result["stop_reason"]


def test_the_error_says_what_the_algorithm_holds_and_names_ten_places_at_most():
    learners = {"p": {f"m{index}": math.nan for index in range(12)}}
    with pytest.raises(NonFiniteError) as caught:
        SteeredAlgorithm(NonFiniteGuard()).tell(learners=learners)
    text = str(caught.value)
    assert "holds the weights from before it" in text
    assert "learners/p/m9 is nan; and 2 more places." in text
    assert len(caught.value.places) == 12
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.places) == (text, caught.value.places)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"metrics": "mine"}, r"must be a list of paths: write \['mine'\]"),
        ({"metrics": 3}, "`metrics=3` must be a list of paths, such as"),
        ({"metrics": ["a/"]}, "`metrics='a/'` is no path"),
        ({"on_found": "warn"}, "`on_found='warn'` must be one of 'raise', 'stop'"),
    ],
)
def test_misuse_is_refused_at_once(arguments, text):
    with pytest.raises(CallbackConfigError, match=text):
        NonFiniteGuard(**arguments)

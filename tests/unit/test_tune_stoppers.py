"""Stop criteria: each ends at its row, and what would never end is told."""

import copy
import datetime as dt
import math

import pytest

from trainer.errors import TuneError
from trainer.metrics import ResultDict
from trainer.tune.rows import number_at, ranking_key, score_at, value_at, view_of
from trainer.tune.stoppers import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    StopCriteria,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)

NAN = math.nan


def ends_at(stop, scores, *, trial_id="00000"):
    """The number of the row at which a trial is stopped."""
    criteria = stop if isinstance(stop, StopCriteria) else StopCriteria(stop)
    for number, score in enumerate(scores, 1):
        row = {"training_iteration": number, "score": score, "nested": {"loss": -score}}
        if criteria.stops_trial(trial_id, row) or criteria.stops_all():
            return number
    return None


def test_a_criterion_that_raises_is_named():
    def too_long(trial_id, result):
        return bool(result["length"] > 3)

    class OfAll(Stopper):
        def __call__(self, trial_id, result):
            return False

        def stop_all(self):
            raise ZeroDivisionError("no trials")

    with pytest.raises(TuneError, match=r"stop criterion too_long\(\) raised KeyError: 'length', "
                       r"asked about trial 00000, whose row has .*score") as caught:  # fmt: skip
        ends_at(too_long, [1.0])
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(TuneError, match=r"criterion OfAll raised ZeroDivisionError: no trials"):
        ends_at([{"score": 9.0}, OfAll()], [1.0])


def test_bounds_have_two_directions_and_any_of_them_stops():
    assert ends_at({"score": 3}, [1, 2, 3, 4]) == 3
    assert ends_at({"nested/loss": ("<=", -2)}, [1, 2, 3]) == 2
    assert ends_at({"score": (">=", 9), "training_iteration": 2}, [1, 2, 3]) == 2
    assert ends_at({"score": 0.5}, [NAN, 0.4]) is None
    criteria = StopCriteria({"score": 3})
    assert criteria.stops_trial("0", {"score": 3}) == "score >= 3"


def test_functions_stoppers_and_lists_stop():
    assert ends_at(lambda trial_id, result: result["score"] > 1, [1, 2]) == 2
    assert ends_at(MaximumIterationStopper(3), [0] * 5) == 3
    assert ends_at([{"score": 9}, MaximumIterationStopper(2)], [0] * 5) == 2
    assert ends_at(CombinedStopper(NoopStopper(), MaximumIterationStopper(2)), [0] * 5) == 2
    assert ends_at(None, [0] * 5) is None
    assert ends_at(NoopStopper(), [0] * 5) is None


def test_a_maximum_of_iterations_does_not_count_rows_made_again():
    stopper = MaximumIterationStopper(3)
    assert not any(stopper("0", {"training_iteration": 2}) for _ in range(10))


def test_a_trial_that_stands_still_is_stopped():
    assert ends_at(TrialPlateauStopper("score", std=0.1), [1, 2, 3, 4, 4, 4, 4]) == 7
    assert ends_at(TrialPlateauStopper("score", num_results=2, grace_period=3), [1, 1, 1]) == 3
    assert ends_at(TrialPlateauStopper("score"), [1, NAN, 1, 1, 1]) is None
    assert ends_at(TrialPlateauStopper("other"), [1] * 9) is None
    above = TrialPlateauStopper("score", metric_threshold=2, mode="max", num_results=2)
    assert ends_at(above, [1, 1, 1, 1, 1, 2, 2]) == 7


def test_an_experiment_that_stands_still_is_ended():
    assert ends_at(ExperimentPlateauStopper("score", top=2, mode="max"), [1, 3, 2, 3]) == 4
    assert ends_at(ExperimentPlateauStopper("score", top=2), [1, 3, NAN, 1]) == 4
    patient = ExperimentPlateauStopper("score", top=2, patience=2)
    assert ends_at(patient, [1, 1, 2, 2, 2]) == 3


def test_a_timeout_is_no_row_s_business_and_inexact():
    criteria = StopCriteria([TimeoutStopper(dt.timedelta(minutes=2)), {"score": 1}])
    assert criteria.deadline_s == 120
    assert not criteria.is_exact
    assert StopCriteria(None, time_budget_s=5).deadline_s == 5
    assert StopCriteria(CombinedStopper(TimeoutStopper(3)), time_budget_s=5).deadline_s == 3
    assert StopCriteria({"score": 1}).is_exact
    assert not StopCriteria({"score": 1, "time_total_s": 5}).is_exact


class OwnTime(Stopper):
    """Asks a timeout itself."""

    is_exact = False

    def __init__(self, timeout):
        self.timeout = timeout

    def __call__(self, trial_id, result):
        return False

    def stop_all(self):
        return self.timeout.stop_all()


def test_a_timeout_that_a_stopper_of_a_user_asks_counts_from_then_on(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("trainer.tune.stoppers.time.monotonic", lambda: now[0])
    criteria = StopCriteria(OwnTime(TimeoutStopper(60)))
    assert criteria.deadline_s is None
    assert criteria.stops_all() is None
    now[0] += 40
    assert criteria.stops_all() is None
    copied = copy.deepcopy(criteria)
    now[0] += 200
    assert criteria.stops_all() == "OwnTime"
    assert copied.stops_all() is None  # time in which it did not run does not count
    now[0] += 21
    assert copied.stops_all() == "OwnTime"


def test_a_timeout_of_an_experiment_leaves_the_clock_to_it(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("trainer.tune.stoppers.time.monotonic", lambda: now[0])
    given = TimeoutStopper(60)
    for criteria in (StopCriteria(given), StopCriteria(CombinedStopper(given))):
        assert criteria.stops_all() is None
        now[0] += 100
        assert criteria.stops_all() is None
    assert not given.is_of_experiment


def test_a_key_that_never_appears_is_an_error_with_the_nearest_one():
    criteria = StopCriteria({"scoer": 5, "training_iteration": 100})
    row = {"training_iteration": 1, "score": 1.0}
    for _ in range(4):
        assert criteria.stops_trial("0", row) is None
    with pytest.raises(TuneError, match=r"'scoer' is in none of them.*'score'"):
        criteria.stops_trial("1", row)
    late = StopCriteria({"score": 5})
    rows = [{"other": 1}] * 4 + [{"score": 1}] + [{"other": 1}] * 9
    assert [late.stops_trial("0", row) for row in rows] == [None] * 14


@pytest.mark.parametrize(
    "stop",
    [
        3,
        "score",
        {"score": "high"},
        {"score": ("=", 3)},
        {3: 4},
        lambda result: True,
        [{"score": 1}, 5],
        Stopper,
    ],
)
def test_what_is_no_stop_criterion_is_refused(stop):
    with pytest.raises(TuneError, match=r"stop="):
        StopCriteria(stop)


def test_stoppers_refuse_arguments_without_sense():
    with pytest.raises(TuneError, match="direction"):
        TrialPlateauStopper("score", metric_threshold=3)
    with pytest.raises(TuneError, match="top"):
        ExperimentPlateauStopper("score", top=1)
    for kind in (ExperimentPlateauStopper, TrialPlateauStopper):
        with pytest.raises(TuneError, match=r"std=0.*expected.*std > 0"):
            kind("score", std=0)
    with pytest.raises(TuneError, match="seconds"):
        TimeoutStopper(0)


def test_whether_trials_depend_on_each_other():
    assert StopCriteria([{"score": 1}, MaximumIterationStopper(3)]).is_of_trial
    assert not StopCriteria(lambda trial_id, result: False).is_of_trial
    assert not StopCriteria(ExperimentPlateauStopper("score")).is_of_trial
    assert StopCriteria({"a": 1}).keys == ("a",)
    assert StopCriteria([{"a": 1}, FunctionStopper(lambda trial_id, result: True)]).keys is None


# ---- rows


def test_values_are_found_by_key_path_and_old_key():
    row = {"a/b": 1, "c": {"d": 2}, "env_runners": {"episode_return_mean": 7.5}, "n": None}
    assert (value_at(row, "a/b"), value_at(row, "c/d")) == (1, 2)
    assert number_at(row, "episode_reward_mean") == 7.5
    assert number_at(ResultDict(row), "env_runners/episode_return_mean") == 7.5
    assert math.isnan(number_at(row, "absent"))
    assert math.isnan(number_at(row, "n"))
    assert score_at(row, "c/d", "min") == -2
    assert view_of(row, ["c/d", "absent", "episode_reward_mean"]) == {
        "c/d": 2,
        "episode_reward_mean": 7.5,
    }


def test_ranks_put_nan_last_and_the_smaller_number_first():
    scores = {0: NAN, 1: 1.0, 2: 3.0, 3: 1.0, 4: -math.inf}
    assert sorted(scores, key=lambda each: ranking_key(scores[each], each)) == [2, 1, 3, 4, 0]

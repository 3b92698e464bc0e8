"""N runners give, bit for bit, what one process computes from the raw values."""

import functools
import logging
import math
import operator
import pickle
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import codec
from trainer.errors import MetricsError
from trainer.metrics import Delta, MetricsLogger
from trainer.metrics.statistic import Moments

VALUES = st.lists(
    st.floats(-1e12, 1e12)
    | st.sampled_from([0.1, 1e16, -1e16, -0.0, math.nan])
    | st.integers(-9, 9),
    max_size=9,
)
ITERATIONS = st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=4)
"""values[iteration][runner] = what this runner logged."""

OPTIONS = [
    {},
    {"window": 4},
    {"window": float("inf")},
    {"window": 3, "clear_on_reduce": True},
    {"ema_coeff": 0.3},
    {"reduce": "sum"},
    {"reduce": "sum", "clear_on_reduce": True},
    {"reduce": "sum", "window": 5},
    {"reduce": "min"},
    {"reduce": "max", "window": 2},
    {"reduce": None},
    {"reduce": None, "window": 4},
    {"reduce": None, "window": 4, "percentiles": [10, 50]},
]


def log_all(logger, values):
    for value in values:
        for number, options in enumerate(OPTIONS):
            logger.log_value(("k", str(number)), value, **options)


def from_runners(iterations):
    runners = [MetricsLogger() for _ in range(3)]
    driver, results = MetricsLogger(), []
    for of_runners in iterations:
        for runner, values in zip(runners, of_runners, strict=False):
            log_all(runner, values)
        drained = [pickle.loads(pickle.dumps(runner.drain())) for runner in runners]
        driver.aggregate(drained, key="env_runners")
        results.append(driver.compile())
    return results


@given(iterations=ITERATIONS)
def test_results_are_what_the_raw_values_say(iterations):
    """Against plain formulas, without any logger."""
    history = []
    for of_runners, result in zip(iterations, from_runners(iterations), strict=True):
        new = [value for values in of_runners for value in values]
        history += new
        if not history:
            assert result == {}
            continue
        found = result["env_runners"]["k"]
        expected = {
            "0": mean(new),
            "1": mean(history[-4:]),
            "2": mean(history),
            "5": math.fsum(numbers(history)),
            "6": math.fsum(numbers(new)),
            "7": math.fsum(numbers(history[-5:])),
            "8": min(numbers(history), default=math.nan),
            "9": max(numbers(history[-2:]), default=math.nan),
        }
        for key, value in expected.items():
            assert found[key] == value or (math.isnan(found[key]) and math.isnan(value)), key
        assert str(found["10"]) == str(new)
        assert str(found["11"]) == str(history[-4:])


def numbers(values):
    return [value for value in values if not math.isnan(value)]


def mean(values):
    kept = numbers(values)
    return math.fsum(kept) / len(kept) if kept else math.nan


def test_a_mean_of_means_and_a_running_sum_would_be_wrong():
    """Negative controls: runners with unequal counts, and numbers that round."""
    runners = [[1.0], [4.0, 4.0, 4.0]]
    assert from_runners([runners])[0]["env_runners"]["k"]["0"] == 3.25
    assert statistics.mean(statistics.mean(values) for values in runners) == 2.5

    rounding = [[1e16, 1.0, 1.0], [-1e16, 1.0]]
    assert from_runners([rounding])[0]["env_runners"]["k"]["6"] == 3.0
    assert sum(functools.reduce(operator.add, values) for values in rounding) != 3.0


@given(parts=st.lists(VALUES, min_size=3, max_size=3), order=st.permutations([0, 1, 2]))
def test_moments_do_not_depend_on_the_order_of_runners(parts, order):
    def merged(places):
        whole = Moments()
        for place in places:
            part = Moments()
            for value in parts[place]:
                part.add(value)
            whole.merge(part)
        return codec.encode(whole.get_state())

    assert merged(order) == merged([0, 1, 2])


def test_extremes_are_floats_as_soon_as_one_value_is():
    moments = Moments()
    moments.add(1)
    assert (str(moments.low), str(moments.total)) == ("1", "1")
    moments.add(2.5)
    assert (str(moments.low), str(moments.high), str(moments.total)) == ("1.0", "2.5", "3.5")


def test_a_runner_still_sees_its_own_values_after_handing_over():
    runner = MetricsLogger()
    for value in (1, 2):
        runner.log_value("sum", value, reduce="sum")
        runner.log_value("window", value, window=3)
        runner.log_value("mean", value)
        runner.drain()
    assert runner.peek("sum") == 3
    assert runner.peek("window") == 1.5
    assert math.isnan(runner.peek("mean"))


def test_the_drivers_own_values_stand_in_order_with_the_runners():
    driver = MetricsLogger()
    runner = MetricsLogger()
    driver.log_value("x", 1, reduce=None, window=3)
    runner.log_value("x", 2, reduce=None, window=3)
    driver.aggregate([runner.drain()])
    driver.log_value("x", 3, reduce=None, window=3)
    assert driver.peek("x") == [1, 2, 3]


def test_a_delta_is_small_however_many_values_there_were():
    runner = MetricsLogger()
    for number in range(20_000):
        runner.log_value("mean", number * 0.1)
        runner.log_value("window", number * 0.1, window=10)
    drained = runner.drain()
    assert isinstance(drained["mean"], Delta)
    assert len(pickle.dumps(drained)) < 1500
    driver = MetricsLogger()
    driver.aggregate([drained])
    assert driver.peek("mean") == math.fsum(n * 0.1 for n in range(20_000)) / 20_000


def test_plain_numbers_can_be_aggregated():
    driver = MetricsLogger()
    driver.aggregate([{"a": 1, "b": {"c": 2}}, {"a": 3}], key=("evaluation", "env_runners"))
    assert driver.peek(("evaluation", "env_runners")) == {"a": 2.0, "b": {"c": 2.0}}


def test_different_options_in_different_runners(caplog):
    def drained(**options):
        logger = MetricsLogger()
        logger.log_value("x", 1.0, **options)
        return logger.drain()

    driver = MetricsLogger()
    with caplog.at_level(logging.WARNING):
        driver.aggregate([drained(window=2), drained(window=3)])
    assert "different options" in caplog.text
    assert driver.peek("x") == 1.0
    with pytest.raises(MetricsError, match="cannot be merged"):
        driver.aggregate([drained()])


def test_logging_a_key_that_came_from_runners_does_not_warn(caplog):
    runner, driver = MetricsLogger(), MetricsLogger()
    runner.log_value("x", 1.0, window=3)
    with runner.log_time("t"):
        pass
    driver.aggregate([runner.drain()])
    with caplog.at_level(logging.WARNING):
        driver.log_value("x", 2.0, window=3)
        with driver.log_time("t"):
            pass
    assert not caplog.records
    assert driver.peek("x") == 1.5
    assert [entry["key"] for entry in driver.get_state()["statistics"]] == [["x"]]


@pytest.mark.parametrize("keys", [("a", "a/b"), (("a", "b"), "a"), ("a/b/c", ("a", "b"))])
def test_a_value_and_a_group_of_one_name_are_refused_where_they_meet(keys):
    """In one logger at the call, in those of two runners when they are put together."""
    runners = [MetricsLogger(), MetricsLogger()]
    for runner, key in zip(runners, keys, strict=True):
        runner.log_value(key, 1)
    with pytest.raises(MetricsError, match=r"^'a.*' cannot be logged beside 'a.*a group at once"):
        runners[0].log_value(keys[1], 2)
    with pytest.raises(MetricsError, match=r"^'env_runners/a.*' cannot be logged beside 'env_r"):
        MetricsLogger(root=True).aggregate([one.drain() for one in runners], key="env_runners")

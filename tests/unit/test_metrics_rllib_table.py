"""RLlib's documented behaviour of `MetricsLogger`, line by line, as far as it was not decided anew.

Decided anew: without options, the plain mean since the last result (not a moving average of weight
0.01); windows in order of iteration, runner and time (not interleaved); moving averages of several
runners over their values in that order (not a mean of averages, which weighs all runners alike).
"""

import math
import pickle

import numpy as np
import pytest

from checkpoints import codec
from trainer.errors import MetricsError
from trainer.metrics import MetricsLogger


def logged(values, **options):
    logger = MetricsLogger()
    for value in values:
        logger.log_value("x", value, **options)
    return logger


def merged(*parts, **options):
    driver = MetricsLogger(root=True)
    driver.aggregate([logged(part, **options).reduce() for part in parts])
    return driver


@pytest.mark.parametrize(
    ("reduce", "entries", "reduced"),
    [("mean", [3, 2.5, 3.5], 3.0), ("min", [3, 1, 2], 1), ("max", [3, 4, 5], 5),
     ("sum", [3, 5, 7], 15)],
)  # fmt: skip
def test_reduced_per_index(reduce, entries, reduced):
    options = {"reduce": reduce, "reduce_per_index_on_aggregate": True}
    driver = merged([1, 2], [3, 4, 5], window=3, **options)
    assert driver.peek("x", compile=False) == entries
    assert driver.peek("x") == reduced
    assert merged([1, 2], [3, 4, 5], window=2, **options).peek("x", compile=False) == entries[-2:]
    clearing = merged([1, 2], [3, 4, 5], clear_on_reduce=True, **options)
    assert clearing.reduce() == {"x": reduced}
    assert clearing.peek("x", compile=False) == []


def test_per_index_counts_from_the_newest_and_goes_on_in_time():
    options = {"window": 3, "reduce_per_index_on_aggregate": True}
    driver = merged([200, 300, 400], [250, 350, 450], **options)
    assert driver.peek("x", compile=False) == [225, 325, 425]
    driver.aggregate([logged([10], **options).reduce(), logged([20, 30], **options).reduce()])
    assert driver.peek("x", compile=False) == [425, 20, 20]
    assert driver.peek("x", stat="sum") == 465
    driver.set_value("x", 1)
    assert driver.peek("x", compile=False) == [425, 20, 1]
    restored = MetricsLogger()
    restored.check_state(codec.decode(codec.encode(driver.get_state())))
    restored.set_state(codec.decode(codec.encode(driver.get_state())))
    assert restored.peek("x", compile=False) == [425, 20, 1]
    assert codec.encode(restored.get_state()) == codec.encode(driver.get_state())


def test_per_index_changes_nothing_where_there_is_no_index():
    options = {"reduce": "sum", "reduce_per_index_on_aggregate": True}
    driver = merged([1, 2], [3], **options)
    driver.aggregate([logged([4], **options).reduce()])
    assert driver.peek("x") == 10


@pytest.mark.parametrize("options", [{"reduce": None, "window": 2}, {"ema_coeff": 0.1}])
def test_per_index_needs_a_reduction(options):
    with pytest.raises(MetricsError, match="reduce_per_index_on_aggregate=True cannot be combined"):
        logged([1], reduce_per_index_on_aggregate=True, **options)


def test_per_index_with_nan_and_empty_entries():
    options = {"window": 3, "reduce_per_index_on_aggregate": True}
    driver = merged([math.nan, 1], [math.nan, math.nan], **options)
    assert str(driver.peek("x", compile=False)) == "[nan, 1.0]"
    assert driver.peek("x") == 1.0
    assert [driver.peek("x", stat=stat) for stat in ("count", "nan_count")] == [1, 1]
    assert math.isnan(merged([math.nan], **options).peek("x", stat="min"))


def test_different_ways_to_keep_a_key_cannot_be_merged():
    by_index = logged([1], window=3, reduce_per_index_on_aggregate=True).reduce()
    plain = logged([1], window=3).reduce()
    for first, second in ((by_index, plain), (plain, by_index)):
        with pytest.raises(MetricsError, match="cannot be merged"):
            MetricsLogger().aggregate([first, second])


def test_what_a_runners_logger_reduces_can_be_aggregated_and_read():
    runner = MetricsLogger()
    for value in (1, 2, 6):
        runner.log_value(("car", "speed"), value)
        runner.log_value("last", value, reduce=None, window=2)
    reduced = pickle.loads(pickle.dumps(runner.reduce()))
    assert MetricsLogger.peek_results(reduced) == {"car": {"speed": 3.0}, "last": [2, 6]}
    assert MetricsLogger.peek_results({"plain": [1, 2], "n": 3}) == {"plain": [1, 2], "n": 3}
    driver = MetricsLogger(root=True)
    driver.merge_and_log_n_dicts([reduced, {"car": {"speed": 7}}], key=("evaluation", "env"))
    assert driver.reduce() == {"evaluation": {"env": {"car": {"speed": 4.0}, "last": [2, 6]}}}


def test_slashes_separate_the_parts_of_a_key():
    logger = MetricsLogger(True)
    logger.log_value("car/speed", 1)
    logger.log_value(("car", "speed"), 2)
    logger.log_value(("car/speed",), 6)
    assert logger.peek(("car", "speed")) == logger.peek("car/speed") == 3.0
    logger.log_dict({"a/b": {"c": 1}}, key="top/most")
    with logger.log_time("times/all"):
        pass
    logger.aggregate([logged([4]).reduce()], key="env_runners/here")
    assert logger.peek(("top", "most", "a", "b", "c")) == 1.0
    assert ("times", "all") in logger
    assert "times" in logger
    assert logger.peek("env_runners/here/x") == 4.0
    logger.set_value("car/speed", 9)
    assert logger.reduce()["car"] == {"speed": 9.0}
    logger.delete("top/most", "a")
    assert "top" not in logger
    logger.delete("car", "speed")
    logger.log_value("car/speed", 5, reduce="sum")  # a new key, with options of its own
    assert logger.peek("car/speed") == 5


def test_another_spelling_of_a_key_with_other_options_warns(caplog):
    logger = MetricsLogger()
    logger.log_value("a/b", 1, window=2)
    logger.log_value(("a", "b"), 2, window=2)
    assert not caplog.records
    logger.log_value(("a/b",), 3)
    assert "'a/b' is logged with different options" in caplog.text
    assert logger.peek("a/b") == 2.5


@pytest.mark.parametrize("key", ["", "a//b", "/a", "a/", ("a", "")])
def test_no_part_of_a_key_is_empty(key):
    with pytest.raises(MetricsError, match="no part is empty"):
        MetricsLogger().log_value(key, 1.0)


def test_images_of_several_runners_are_kept_whole_and_in_order():
    def image(number):
        return np.full((2, 3), number, np.uint8)

    driver = MetricsLogger(root=True)
    for iteration in (0, 10):
        runners = [MetricsLogger(), MetricsLogger()]
        for number, runner in enumerate(runners, start=iteration):
            runner.log_value("heat_map", image(number), reduce=None)
            runner.log_value("last_maps", image(number), reduce=None, window=3)
        driver.aggregate([pickle.loads(pickle.dumps(runner.reduce())) for runner in runners])
        result = driver.reduce()
        assert [(item.shape, item.dtype, item.max()) for item in result["heat_map"]] == [
            ((2, 3), np.uint8, iteration),
            ((2, 3), np.uint8, iteration + 1),
        ]
    assert [item.max() for item in result["last_maps"]] == [1, 10, 11]
    assert driver.peek("heat_map") == []

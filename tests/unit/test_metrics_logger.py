"""What the options of `log_value` mean, and what is refused."""

import logging
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import codec
from trainer.errors import MetricsError
from trainer.metrics import MetricsLogger, ResultDict
from trainer.metrics.result import HiddenMetrics, overlaid

TWO_RESULTS = [
    # options, result after 1, 2, 3; result after 7 more
    ({}, 2.0, 7.0),
    ({"window": 2}, 2.5, 5.0),
    ({"window": 2, "clear_on_reduce": True}, 2.5, 7.0),
    ({"window": float("inf")}, 2.0, 3.25),
    ({"ema_coeff": 0.5}, 2.25, 4.625),
    ({"reduce": "sum"}, 6, 13),
    ({"reduce": "sum", "clear_on_reduce": True}, 6, 7),
    ({"reduce": "sum", "window": 2}, 5, 10),
    ({"reduce": "min"}, 1, 1),
    ({"reduce": "min", "clear_on_reduce": True}, 1, 7),
    ({"reduce": "min", "window": 2}, 2, 3),
    ({"reduce": "max"}, 3, 7),
    ({"reduce": "max", "window": 1}, 3, 7),
    ({"reduce": None}, [1, 2, 3], [7]),
    ({"reduce": None, "window": 2}, [2, 3], [3, 7]),
]


@pytest.mark.parametrize(("options", "first", "second"), TWO_RESULTS)
def test_two_results_in_a_row(options, first, second):
    logger = MetricsLogger(root=True)
    for value in (1, 2, 3):
        logger.log_value("x", value, **options)
    assert logger.peek("x") == first
    assert logger.reduce() == {"x": first}
    logger.log_value("x", 7, **options)
    result = logger.reduce()["x"]
    assert result == second
    assert type(result) is type(second)


@pytest.mark.parametrize(
    ("options", "empty"),
    [
        ({}, "nan"),
        ({"reduce": "min", "clear_on_reduce": True}, "nan"),
        ({"reduce": "sum", "clear_on_reduce": True}, "0"),
        ({"reduce": None}, "[]"),
        ({"window": 3, "clear_on_reduce": True}, "nan"),
        ({"reduce": None, "window": 3, "clear_on_reduce": True, "percentiles": [50]}, "{50: nan}"),
    ],
)
def test_a_result_without_new_values(options, empty):
    logger = MetricsLogger(root=True)
    logger.log_value("x", 1, **options)
    logger.reduce()
    assert str(logger.reduce()["x"]) == empty
    assert logger.drain() == {}


def test_nan_is_ignored_but_counted_and_keeps_its_place_in_windows():
    logger = MetricsLogger()
    for value in (1.0, math.nan, 3.0, np.float32("nan")):
        logger.log_value("mean", value)
        logger.log_value("window", value, window=2)
        logger.log_value("ema", value, ema_coeff=0.5)
        logger.log_value("max", value, reduce="max")
    assert logger.peek() == {"ema": 2.0, "max": 3.0, "mean": 2.0, "window": 3.0}
    assert [logger.peek("mean", stat=stat) for stat in ("count", "nan_count")] == [2, 2]
    assert [logger.peek("window", stat=stat) for stat in ("count", "nan_count")] == [1, 1]


def test_only_nan_gives_nan_and_later_numbers_count():
    logger = MetricsLogger(root=True)
    logger.log_value("ema", math.nan, ema_coeff=0.5)
    logger.log_value("sum", math.nan, reduce="sum")
    assert math.isnan(logger.reduce()["ema"])
    assert logger.peek("ema", compile=False) == []
    logger.log_value("ema", 4.0, ema_coeff=0.5)
    assert logger.reduce() == {"ema": 4.0, "sum": 0}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, int),
        (np.bool_(True), int),
        (np.int32(1), int),
        (np.float32(1), float),
        (np.array(1.0), float),
        (2**60, float),
    ],
)
def test_numbers_of_all_kinds_become_python_numbers(value, kind):
    logger = MetricsLogger(root=True)
    logger.log_value("x", value, reduce="sum")
    assert type(logger.reduce()["x"]) is kind


def test_arrays_and_lists_are_kept_whole():
    logger = MetricsLogger()
    array = np.ones(2)
    logger.log_value("x", array, reduce=None)
    array[0] = 5.0  # the caller may go on using it
    logger.log_value("x", [1, 2], reduce=None)
    assert [np.asarray(item).tolist() for item in logger.peek("x")] == [[1.0, 1.0], [1, 2]]
    assert logger.peek("x", stat="max") == 2


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("text", {}),
        (None, {}),
        ([10**500], {}),
        (np.ones(3), {}),
        (np.complex64(1), {}),
        (Decimal(1), {}),
        (Fraction(1, 3), {}),
        ("text", {"reduce": None}),
        (["a"], {"reduce": None}),
        ([[1], [1, 2]], {"reduce": None}),
        (np.array([None]), {"reduce": None}),
        ([1.0], {"reduce": None, "window": 5, "percentiles": True}),
    ],
)
def test_other_values_are_refused(value, options):
    with pytest.raises(MetricsError, match=r"^x: .* cannot be logged with reduce=.*float\(x\)"):
        MetricsLogger().log_value("x", value, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"window": 3, "ema_coeff": 0.1}, "window=3 and ema_coeff=0.1 cannot be combined"),
        ({"reduce": "sum", "ema_coeff": 0.1}, "ema_coeff=0.1 cannot be combined with reduce='sum'"),
        ({"reduce": "mena"}, r"reduce='mena' is unknown.*Did you mean 'mean'"),
        ({"reduce": "lifetime_sum"}, "'lifetime_sum' is unknown.*sum of all.*reduce=\"sum\""),
        ({"window": 0}, "window=0 is no number of values"),
        ({"window": True}, "window=True is no number of values"),
        ({"ema_coeff": 0.0}, r"ema_coeff=0.0 lies outside \(0, 1\]"),
        ({"percentiles": True}, "percentiles=True cannot be combined with reduce='mean'"),
        ({"reduce": None, "percentiles": [5]}, "cannot be combined"),
        ({"reduce": None, "window": 3, "percentiles": [101]}, r"\[101\] are not all within"),
        ({"with_throughput": True}, "with_throughput=True cannot be combined with reduce='mean'"),
        (
            {"reduce": "sum", "with_throughput": True, "throughput_ema_coeff": 2.0},
            "throughput_ema_coeff=2.0 lies outside",
        ),
    ],
)
def test_impossible_options_are_refused(options, text):
    logger = MetricsLogger()
    with pytest.raises(MetricsError, match=text):
        logger.log_value("x", 1.0, **options)
    assert "x" not in logger


@pytest.mark.parametrize("key", [(), ("a", 1.5), 3.5, [], ["a", []], {"a": 1}, None])
def test_a_key_is_a_string_or_a_tuple_of_strings(key):
    with pytest.raises(MetricsError, match="is no key"):
        MetricsLogger().log_value(key, 1.0)


def test_a_list_of_parts_is_the_same_key():
    logger = MetricsLogger()
    logger.log_value(["car", "speed"], 1.0)
    logger.log_value(["car", "speed"], 2.0)
    logger.log_value("car/speed", 6.0)
    with logger.log_time(["car", "time"]):
        pass
    assert ["car", "time"] in logger
    logger.set_value(["car", "wheels"], 4.0)
    assert logger.peek(["car", "speed"]) == logger.peek(("car", "speed")) == 3.0
    assert logger.peek("car/wheels") == 4.0
    assert logger.reduce(["car"])["wheels"] == 4.0


def test_other_options_later_warn_once_and_change_nothing(caplog):
    logger = MetricsLogger()
    with caplog.at_level(logging.WARNING):
        logger.log_value("x", 1.0, window=2)
        for value in (2.0, 3.0):
            logger.log_value("x", value)
            logger.log_value("x", value, window=2)
        logger.log_value("same", 1.0, reduce="sum")
        logger.log_value("same", 1.0, reduce="sum", window=float("inf"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'window': 2" in caplog.text
    assert logger.peek("x") == 3.0


@pytest.mark.parametrize(
    ("key", "is_told"),
    [
        ("mean", True),
        ("group/mean", True),
        ("group", True),  # it would hide what stands there
        ("group/mean/mine", True),
        ("group/mine", False),
        ("group/by_agent/mine", False),
        ("mine/mean", False),
        (("group", 1), False),
    ],
)
def test_a_metric_that_does_not_show_is_told_once(key, is_told, caplog):
    runners = {"episode_return_mean": 3.0}
    group = {"mean": 1.0, "by_agent": {"a": 2.0}}
    standard = ResultDict({"mean": 1.0, "group": group, "env_runners": runners})
    logger, hidden = MetricsLogger(root=True), HiddenMetrics()
    logger.log_value(key, 5)
    for _ in range(2):
        hidden.warn(logger.peek(), standard)
    shown = ResultDict(overlaid(logger.peek(), standard)).flat()
    assert shown.items() >= standard.flat().items()
    assert is_told is (len(shown) == len(standard.flat()))
    assert ["does not appear" in text for text in caplog.messages] == [True] * is_told
    hidden = HiddenMetrics()
    hidden.warn(logger.peek(), standard, but=logger.peek())  # what showed before
    assert len(caplog.messages) == is_told


@pytest.mark.parametrize(
    ("key", "is_told"),
    [
        ("episode_reward_mean", True),
        ("evaluation", True),
        ("evaluation/env_runners/episode_return_mean", True),
        ("replay_buffer/num_env_steps_stored", True),
        ("stop_reason", True),
        ("evaluation/mine", False),
        ("replay_buffer/mine", False),
        ("evaluations", False),
    ],
)
def test_a_metric_that_is_taken_for_a_standard_one_is_told_once(key, is_told, caplog):
    standard = ResultDict({"env_runners": {"episode_return_mean": 3.0}})
    logger, hidden = MetricsLogger(root=True), HiddenMetrics()
    logger.log_value(key, 5, min_max=False)
    for _ in range(2):
        hidden.warn(logger.peek(), standard)
    assert ResultDict(overlaid(logger.peek(), standard))[key] == 5
    assert [f"{key!r} is found where" in text for text in caplog.messages] == [True] * is_told


@pytest.mark.parametrize(
    ("key", "group"), [("x", "x_min/b"), ("x_mean", "x_max/b"), ("x", "x_throughput/b")]
)
def test_a_group_wins_against_what_stands_beside_a_key(key, group):
    for keys in ((key, group), (group, key)):
        logger = MetricsLogger(root=True)
        for logged in keys:
            logger.log_value(logged, 2, reduce="sum", with_throughput=True)
        logger.log_value("y", 2)
        logger.log_value("y_min/b", 3, min_max=False)
        result = logger.compile()
        assert ResultDict(result)[group] == ResultDict(result)[key] == 2
        assert (result["y"], result["y_max"], result["y_min"]) == (2.0, 2, {"b": 3.0})


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (10**400, "10000"),
        (-(10**400), "-10000"),
        (2**1024, "17976931348623159"),
        (10**5000, "int"),  # Python does not write so many digits
        (np.array(10**400, object), "10000"),
        (np.longdouble(2) ** 1024, ""),
    ],
    ids=["large", "small", "next", "endless", "object", "long"],  # pytest cannot write them either
)
def test_numbers_beyond_floats_are_refused_and_leave_no_key(value, told):
    if isinstance(value, np.longdouble) and np.isinf(value):
        pytest.skip("long floats are no longer here")
    logger = MetricsLogger()
    logger.log_value("known", 1)
    for key in ("new", "known"):
        with pytest.raises(MetricsError, match=f"^{key}: .*{told}.*none is larger.*another unit"):
            logger.log_value(key, value)
    assert logger.peek() == {"known": 1.0}
    logger.log_value("known", np.float64("inf"))  # what is infinite itself may be logged
    assert logger.peek() == {"known": math.inf}


def test_min_and_max_stand_beside_means():
    logger = MetricsLogger()
    for value in (1.0, 2.0, 6.0):
        logger.log_value(("car", "speed"), value)
        logger.log_value("theta_mean", value, window=2)
        logger.log_value("ema", value, ema_coeff=0.5)
        logger.log_value("plain", value, min_max=False)
        logger.log_value("total", value, reduce="sum")
    assert logger.compile() == {
        "car": {"speed": 3.0, "speed_max": 6.0, "speed_min": 1.0},
        "ema": 3.75,
        "plain": 3.0,
        "theta_max": 6.0,
        "theta_mean": 4.0,
        "theta_min": 2.0,
        "total": 9.0,
    }


def test_a_key_logged_under_such_a_name_wins():
    logger = MetricsLogger()
    logger.log_value("x_mean", 1.0)
    logger.log_value("x_min", 5.0, min_max=False)
    assert logger.compile() == {"x_max": 1.0, "x_mean": 1.0, "x_min": 5.0}


def test_percentiles():
    logger = MetricsLogger()
    for value in range(101):
        for key, percentiles in {"x": [5, 50], "all": True, "array": np.array([0, 100])}.items():
            logger.log_value(key, value, reduce=None, window=101, percentiles=percentiles)
    assert logger.peek("x") == {5: 5.0, 50: 50.0}
    assert list(logger.peek("all")) == [0, 50, 75, 90, 95, 99, 100]
    assert logger.peek("array") == {0: 0, 100: 100}


@given(values=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=9), percentile=st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values, percentile):
    logger = MetricsLogger()
    for value in values:
        logger.log_value("x", value, reduce=None, window=9, percentiles=[percentile])
    expected = float(np.percentile(values, percentile))
    assert logger.peek("x")[percentile] == pytest.approx(expected, rel=1e-12, abs=1e-6)


def test_percentiles_of_infinities():
    logger = MetricsLogger()
    for value in (-math.inf, 0.0, math.inf, math.inf):
        logger.log_value("x", value, reduce=None, window=4, percentiles=[0, 10, 50, 90])
    assert list(logger.peek("x").values()) == [-math.inf, -math.inf, math.inf, math.inf]


class FakeClock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_throughput_is_the_growth_per_second():
    clock = FakeClock()
    logger = MetricsLogger(clock=clock)
    options = {"reduce": "sum", "with_throughput": True}
    logger.log_value("steps", 100, throughput_ema_coeff=0.5, **options)
    assert str(logger.compile()) == "{'steps': 100, 'steps_throughput': nan}"
    for steps, expected in ((20, 10.0), (60, 20.0)):
        clock.now_s += 2
        logger.log_value("steps", steps, throughput_ema_coeff=0.5, **options)
        assert logger.compile()["steps_throughput"] == expected
    assert logger.peek("steps", throughput=True) == 20.0
    assert logger.peek("steps") == 180


def test_throughput_can_be_looked_at_before_there_is_a_result():
    clock = FakeClock()
    for root in (True, False):
        logger = MetricsLogger(root=root, clock=clock)
        options = {"reduce": "sum", "with_throughput": True}
        logger.log_value(("a", "count"), 1, **options)
        logger.log_value("plain", 1)
        assert math.isnan(logger.peek(("a", "count"), throughput=True))
        clock.now_s += 0.5
        logger.log_value(("a", "count"), 4, **options)
        # The first amount took an unknown time.
        assert logger.peek(("a", "count"), throughput=True) == 8.0
        assert logger.peek(throughput=True) == {"a": {"count_throughput": 8.0}}
        assert logger.peek("a", throughput=True) == {"count_throughput": 8.0}
        logger.reduce()
        clock.now_s += 0.5
        assert logger.peek(("a", "count"), throughput=True) == 8.0


def test_times_are_logged_as_means_and_are_no_state():
    clock = FakeClock()
    logger = MetricsLogger(clock=clock)
    for seconds in (1.0, 3.0):
        with logger.log_time("block"):
            clock.now_s += seconds
    try:
        with logger.log_time(("deep", "block"), reduce="sum"):
            clock.now_s += 2.0
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass  # the time of a block that failed counts as well
    assert logger.get_state() == {"statistics": []}
    assert logger.compile() == {"block": 2.0, "deep": {"block": 2.0}}
    with pytest.raises(TypeError, match=r"log_time\(\) got unknown options \['windw'\]"):
        logger.log_time("block", windw=3)
    with pytest.raises(TypeError, match=r"log_dict\(\) got unknown options \['windw'\]"):
        logger.log_dict({"block": 1.0}, windw=3)


def test_a_timer_can_be_nested_in_itself():
    clock = FakeClock()
    logger = MetricsLogger(clock=clock)
    timer = logger.log_time("t", reduce=None)
    with timer:
        clock.now_s += 1.0
        with timer:
            clock.now_s += 2.0
    assert logger.peek("t") == [2.0, 3.0]


def test_dicts_are_logged_leaf_by_leaf():
    logger = MetricsLogger()
    logger.log_dict({"a": 1, "b": {"c": 2}}, key="top", reduce="sum")
    logger.log_dict({"d": 3})
    assert logger.peek() == {"d": 3.0, "top": {"a": 1, "b": {"c": 2}}}
    assert logger.peek("top") == {"a": 1, "b": {"c": 2}}
    assert logger.peek(("top", "b")) == {"c": 2}
    assert ("top", "b") in logger
    assert ("top", "x") not in logger


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"kept": 5, "new": {"good": 1, "bad": "x"}}, r"^top/new/bad: str 'x' cannot be logged"),
        ({"kept": 5, "new": {"good": 1}, "kept/below": 2}, "'top/kept/below' cannot be .* beside"),
        ({"new": 1, "kept": [1, 2]}, "^top/kept: list"),
    ],
)
def test_a_dict_with_one_leaf_that_is_refused_logs_nothing(values, told):
    logger = MetricsLogger()
    logger.log_value("top/kept", 3.0, reduce="sum")
    before = logger.get_state()
    with pytest.raises(MetricsError, match=told):
        logger.log_dict(values, key="top", reduce="sum")
    assert logger.get_state() == before
    logger.log_dict({"kept": 5, "new": {"good": 1}}, key="top", reduce="sum")
    assert logger.peek("top") == {"kept": 8.0, "new": {"good": 1}}


def test_peek_of_an_unknown_key_names_the_nearest():
    logger = MetricsLogger()
    logger.log_value(("env", "speed"), 1.0)
    with pytest.raises(KeyError, match="'env/speed'"):
        logger.peek(("env", "sped"))
    with pytest.raises(KeyError, match="standard key of results"):
        logger.peek(("env_runners", "episode_return_mean"))
    assert logger.peek("nothing", default=3) == 3
    assert logger.peek("nothing", None) is None
    assert MetricsLogger().peek() == {}


def test_peek_gives_other_statistics_and_single_values():
    logger = MetricsLogger()
    for value in (1, 2, 6):
        logger.log_value("mean", value)
        logger.log_value("window", value, window=2)
    stats = ("mean", "sum", "min", "max", "count")
    assert [logger.peek("mean", stat=stat) for stat in stats] == [3.0, 9, 1, 6, 3]
    assert [logger.peek("window", stat=stat) for stat in stats] == [4.0, 8, 2, 6, 2]
    assert logger.peek("window", compile=False) == [2, 6]
    assert logger.peek("mean", compile=False) == [3.0]
    assert logger.peek_results({"a": 1}) == {"a": 1}


def test_set_value_overwrites():
    logger = MetricsLogger()
    for key, options in {"w": {"window": 3}, "s": {"reduce": "sum"}, "l": {"reduce": None}}.items():
        for value in (1, 2):
            logger.log_value(key, value, **options)
        logger.set_value(key, 10)
    logger.set_value("new", 5, reduce="sum")
    assert logger.peek() == {"l": [1, 10], "new": 5, "s": 10, "w": 5.5}
    logger.log_value("w", 10, window=3)  # a window stays a window
    assert logger.peek("w") == 7.0


@pytest.mark.parametrize("options", [{}, {"window": 2}, {"reduce": "sum"}, {"reduce": None}])
def test_a_value_that_is_refused_overwrites_nothing(options):
    logger = MetricsLogger(root=True)
    logger.log_value("x", 3, **options)
    before = logger.get_state()
    with pytest.raises(MetricsError, match="cannot be logged"):
        logger.set_value("x", "three")
    assert logger.get_state() == before


def test_set_value_reaches_what_was_there_before_the_last_result():
    logger = MetricsLogger(root=True)
    logger.log_value("w", 1, window=3)
    logger.log_value("s", 1, reduce="sum")
    logger.reduce()
    logger.set_value("w", 7)
    logger.set_value("s", 7)
    assert logger.peek() == {"s": 7, "w": 7.0}


def test_delete_and_reset():
    logger = MetricsLogger()
    logger.log_dict({"a": {"b": 1, "c": 2}, "d": 3, "e": 4})
    logger.delete("a", "b")
    logger.delete("d")
    logger.delete("d", key_error=False)
    assert logger.peek() == {"a": {"c": 2.0}, "e": 4.0}
    with pytest.raises(KeyError, match="cannot be deleted"):
        logger.delete("d")
    logger.delete("a")
    logger.log_value("a", 5.0)  # may be a value now
    assert logger.peek() == {"a": 5.0, "e": 4.0}
    logger.reset()
    assert logger.peek() == {}
    logger.log_value("e", 1.0, reduce="sum")
    assert logger.peek("e") == 1.0


def test_results_are_in_order_of_keys():
    logger = MetricsLogger()
    for key in ("b", "a", ("c", "z"), ("c", "y")):
        logger.log_value(key, 1, min_max=False)
    assert str(logger.compile()) == "{'a': 1.0, 'b': 1.0, 'c': {'y': 1.0, 'z': 1.0}}"


@pytest.mark.parametrize("after_result", [False, True])
def test_states_round_trip_and_go_on(after_result):
    original, restored = MetricsLogger(), MetricsLogger()
    keys = ("plain", ("nested--key", "a/b"), ("by", 3))

    def log(logger, values):
        for number, (options, _, _) in enumerate(TWO_RESULTS):
            for value in values:
                logger.log_value((*keys[number % 3], str(number)), value, **options)
        logger.log_value("rare", np.arange(3), reduce=None, window=2)

    log(original, (0.1, 0.2, math.inf, 0.3))
    if after_result:
        original.reduce()
        log(original, (1e16, 1.0))
    encoded = codec.encode(original.get_state())
    restored.log_value("old", 1.0)
    restored.check_state(codec.decode(encoded))
    restored.set_state(codec.decode(encoded))
    assert codec.encode(restored.get_state()) == encoded
    for logger in (original, restored):
        log(logger, (5.0, 6.0))
    assert codec.encode(restored.get_state()) == codec.encode(original.get_state())
    assert str(restored.compile()) == str(original.compile())
    assert codec.encode(restored.get_state()) == codec.encode(original.get_state())


def test_a_first_value_that_is_refused_leaves_no_key_and_no_options():
    logger = MetricsLogger()
    logger.log_value(("car", "speed"), 1.0)
    for key in ("height", ("car", "height"), "car/speed"):
        for method in (logger.log_value, logger.set_value):
            with pytest.raises(MetricsError, match="cannot be logged"):
                method(key, None)
    assert logger.peek() == {"car": {"speed": 1.0}}
    for _ in range(2):  # the first options hold: those of this call
        logger.log_value("height", 3.0, reduce="sum")
    assert logger.peek("height") == 6.0

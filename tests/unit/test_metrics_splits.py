"""However log calls are split into runners and reports, the results are the same bytes."""

import math
import pickle
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoints import codec
from trainer.metrics import MetricsLogger

VARIANTS = {
    "plain": {},
    "clearing": {"clear_on_reduce": True},
    "window": {"window": 4},
    "clearing window": {"window": 4, "clear_on_reduce": True},
}
OPTIONS = {
    "mean": {},
    "mean of window": {"window": 3},
    "mean of all": {"window": float("inf")},
    "clearing window": {"window": 3, "clear_on_reduce": True},
    "average": {"ema_coeff": 0.3},
    "clearing average": {"ema_coeff": 0.3, "clear_on_reduce": True},
    "throughput": {"reduce": "sum", "with_throughput": True},
    **{
        f"{name} {reduce}": {"reduce": reduce, **more}
        for reduce in ("sum", "min", "max", None)
        for name, more in VARIANTS.items()
    },
    "percentiles": {"reduce": None, "window": 5, "percentiles": [10, 50]},
}
VALUES = st.floats(-1e12, 1e12) | st.sampled_from([0.1, 1e16, -1e16, -0.0, math.nan, math.inf, 3])
CALLS = st.lists(st.tuples(st.sampled_from(["early", "late/er"]), VALUES), max_size=6)
RUNS = st.lists(  # [iteration][report][runner] = calls
    st.lists(st.lists(CALLS, min_size=3, max_size=3), min_size=1, max_size=2),
    min_size=1,
    max_size=3,
)


def log(logger, calls):
    for key, value in calls:
        for name, options in OPTIONS.items():
            logger.log_value((name, key), value, **options)


def stopped_clock():
    return 0.0


@given(run=RUNS, goes_between=st.booleans(), restarts=st.booleans())
def test_every_split_gives_the_same_bytes(run, goes_between, restarts):
    """Against one root logger, told everything in order of iteration, report, runner and time.

    `goes_between`: the last two runners are aggregated by a logger between. `restarts`: runners
    are new ones after every report.
    """
    driver, single = (MetricsLogger(root=True, clock=stopped_clock) for _ in range(2))
    runners = [MetricsLogger() for _ in range(3)]
    for reports in run:
        for of_runners in reports:
            if restarts:
                runners = [MetricsLogger() for _ in range(3)]
            for runner, calls in zip(runners, of_runners, strict=True):
                log(runner, calls)
                log(single, calls)
            handed = [pickle.loads(pickle.dumps(runner.reduce())) for runner in runners]
            if goes_between:
                between = MetricsLogger()
                between.aggregate(handed[1:])
                handed = [handed[0], between.reduce()]
            driver.aggregate(handed)
        assert codec.encode(driver.compile()) == codec.encode(single.compile())
    assert codec.encode(driver.get_state()) == codec.encode(single.get_state())


PARTS = st.lists(st.lists(VALUES, max_size=5), min_size=3, max_size=3)


@example(parts=[[], [0.0], [-5e-324]], order=[0, 1, 2], window=2, reduce="mean")
@given(
    parts=PARTS,
    order=st.permutations([0, 1, 2]),
    window=st.sampled_from([2, None]),
    reduce=st.sampled_from(["mean", "sum", "min", "max"]),
)
def test_per_index_is_associative_and_knows_no_order_of_runners(parts, order, window, reduce):
    def handed(values):
        logger = MetricsLogger()
        for value in values:
            logger.log_value(
                "x",
                value,
                reduce=reduce,
                window=window,
                clear_on_reduce=True,
                reduce_per_index_on_aggregate=True,
            )
        return logger.reduce()

    def together(*items):
        logger = MetricsLogger()
        logger.aggregate(items)
        return logger

    flat = together(*(handed(part) for part in parts))
    left = together(together(handed(parts[0]), handed(parts[1])).reduce(), handed(parts[2]))
    shuffled = together(*(handed(parts[place]) for place in order))
    states = [codec.encode(logger.get_state()) for logger in (flat, left, shuffled)]
    assert states[0] == states[1] == states[2]
    length = min(max(map(len, parts)), window or 9)
    for index in range(1, length + 1):
        column = [part[-index] for part in parts if len(part) >= index]
        numbers = [value for value in column if not math.isnan(value)]
        found = flat.peek("x", compile=False)[-index]
        assert str(float(found)) == str(float(reduced(numbers, reduce) + 0.0))


def reduced(numbers, how):
    if not numbers:
        return math.nan
    if how in ("min", "max"):
        return min(numbers) if how == "min" else max(numbers)
    return math.fsum(numbers) / (len(numbers) if how == "mean" else 1)


def bytes_of_metrics():
    """What the values logged here and the library's metrics hold; not what other threads do."""
    filters = [tracemalloc.Filter(True, name) for name in (__file__, "*/trainer/metrics/*")]
    traces = tracemalloc.take_snapshot().filter_traces(filters).traces
    return sum(trace.size for trace in traces)


@pytest.mark.parametrize(
    ("options", "is_bounded"),
    [
        ({}, True),
        ({"window": float("inf")}, True),
        ({"reduce": "sum"}, True),
        ({"reduce": "min"}, True),
        ({"window": 100}, True),
        ({"reduce": None, "window": 100}, True),
        ({"reduce": None}, False),  # negative controls: documented, until the next result
        ({"ema_coeff": 0.1}, False),
    ],
)
def test_memory_is_bounded(options, is_bounded):
    logger = MetricsLogger(root=True)

    def log_many(number):
        for step in range(number):
            logger.log_value("x", step * 0.1, **options)

    tracemalloc.start()
    try:
        log_many(1_000)
        before = bytes_of_metrics()
        log_many(8_000)
        assert (bytes_of_metrics() - before < 60_000) is is_bounded
        logger.reduce()
        assert bytes_of_metrics() - before < 60_000
    finally:
        tracemalloc.stop()

"""Progress lines: what they say, how long still, and that no terminal can stop a run."""

from __future__ import annotations

import copy
import io
import logging
import math
import pickle
import sys
from typing import Any, cast

import pytest

from callbacks import CallbackConfigError, EarlyStopping, ProgressPrinter, make_multi_callbacks
from callbacks.ready_made.progress import LineOutput, ProgressLines, duration
from callbacks.ready_made.stopping import StopCriteria
from tests.steered_algorithm import SteeredAlgorithm, result_of


def last_column(criteria: StopCriteria, *, elapsed_s: float = 2.0, iterations: int = 2) -> str:
    lines = ProgressLines(criteria)
    for iteration in range(1, iterations + 1):
        line = lines.line(result_of(iteration), elapsed_s=elapsed_s)
    return line.rpartition(" │ ")[2]


def test_a_line_says_how_far_how_fast_how_good_how_long() -> None:
    lines = ProgressLines(StopCriteria(max_iterations=12))
    assert lines.line(result_of(2, mean=20.25, steps_per_iteration=5000), elapsed_s=4.0) == (
        "iter    2 │     10,000 steps │   1,250 steps/s │ return   20.2 │     10 episodes │ 0:04 │ "
        "ETA 0:40"
    )


def test_a_return_that_is_not_known_yet_is_a_dash() -> None:
    line = ProgressLines(StopCriteria()).line(result_of(1, mean=math.nan), elapsed_s=0.0)
    assert "return      – │" in line
    assert " 0 steps/s" in line


@pytest.mark.parametrize(
    ("budget", "remaining"),
    [
        ({"max_iterations": 12}, "ETA 0:30"),
        ({"max_env_steps": 1200}, "ETA 0:30"),
        ({"max_episodes": 60}, "ETA 0:30"),
        ({"max_time_s": 24}, "ETA 0:30"),
        ({"max_time_s": 24, "max_iterations": 4}, "ETA 0:06"),
        ({"max_iterations": 1}, "ETA 0:00"),
        ({"max_iterations": 12, "at_least": 450}, "ETA 0:30 or return ≥ 450"),
        ({"at_least": 450}, "until return ≥ 450"),
        ({}, "no end set"),
    ],
)
def test_the_time_that_remains_follows_from_the_first_budget_to_end(
    budget: dict[str, Any], remaining: str
) -> None:
    # 3 seconds per iteration of 100 steps, 5 episodes and 2 seconds of training; 2 are done.
    assert last_column(StopCriteria(**budget), elapsed_s=3.0) == remaining


def test_a_run_that_goes_on_elsewhere_is_timed_anew() -> None:
    lines = ProgressLines(StopCriteria(max_iterations=20))
    lines.line(result_of(10), elapsed_s=100.0)
    assert lines.line(result_of(5), elapsed_s=2.0).endswith("ETA 0:30")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3723, "1:02:03")]
)
def test_durations_are_written_as_on_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ---- the callback


def printed(*callbacks: Any, iterations: int = 2, **arguments: Any) -> list[str]:
    stream = io.StringIO()
    printer = ProgressPrinter(stream=stream, **arguments)
    algorithm = SteeredAlgorithm(printer, *callbacks)
    algorithm.tell_returns([1.0] * iterations)
    return stream.getvalue().splitlines()


def test_prints_a_line_per_iteration_with_the_time_between_them() -> None:
    times = iter([10.0, 15.0, 25.0])
    lines = printed(iterations=3, max_iterations=8, clock=lambda: next(times))
    rates = [line.split(" │ ")[2].strip() for line in lines]
    assert rates == ["50 steps/s", "20 steps/s", "10 steps/s"], "the first by the time it reports"
    assert lines[2].endswith("ETA 0:28")  # (2 + 5 + 10) / 3 · 5


def test_budgets_of_early_stopping_are_known_and_its_reason_is_printed() -> None:
    stopping = EarlyStopping(max_iterations=2)
    for beside in (stopping, make_multi_callbacks([stopping])):
        lines = printed(beside, clock=lambda: 0.0)
        assert "ETA 0:02" in lines[0]
        assert lines[2] == "Stopped after 2 iterations."
    assert "ETA" in printed(stopping, max_env_steps=1000)[0]


def test_without_a_stream_it_prints_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    SteeredAlgorithm(ProgressPrinter).tell()
    assert capsys.readouterr().out.count("iter    1 │") == 1


def test_copies_share_the_stream_and_what_is_sent_away_has_none() -> None:
    stream = io.StringIO()
    printer = ProgressPrinter(stream=stream, max_iterations=5)
    SteeredAlgorithm(copy.deepcopy(printer)).tell()
    assert stream.getvalue().count("\n") == 1
    sent = pickle.loads(pickle.dumps(ProgressPrinter(stream=sys.stderr, max_iterations=5)))
    assert sent.get_state() == {}
    assert sent._stream is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_iterations": -1}, "`max_iterations=-1` must be an int"),
        ({"stream": "log.txt"}, "`stream='log.txt'` cannot be written to"),
    ],
)
def test_misuse_is_refused_at_once(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(CallbackConfigError, match=text):
        ProgressPrinter(**arguments)


# ---- output that fails


class FailingStream(io.StringIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.num_calls = 0

    def write(self, text: str) -> int:
        self.num_calls += 1
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "full"), KeyError("of a user")])
def test_a_stream_that_fails_is_told_once_and_left_alone(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stream = FailingStream(error)
    output = LineOutput(stream)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            output.write("line")
    assert stream.num_calls == 1
    assert len(caplog.records) == 1
    assert type(error).__name__ in caplog.text


def test_a_broken_pipe_stops_no_training() -> None:
    printer = ProgressPrinter(stream=FailingStream(BrokenPipeError()))
    assert len(SteeredAlgorithm(printer).tell_returns([1.0] * 2)) == 2


def test_a_result_without_its_time_stops_no_training() -> None:
    stream = io.StringIO()
    result = result_of(1)
    del result["time_this_iter_s"]
    SteeredAlgorithm(ProgressPrinter(stream=stream)).tell(result)
    assert stream.getvalue().startswith("iter    1 │")


def test_a_closed_stream_and_a_missing_console_are_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    stream.close()
    LineOutput(stream).write("line")
    monkeypatch.setattr(sys, "stdout", None)
    LineOutput().write("line")


def test_characters_that_the_stream_lacks_are_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    LineOutput(stream).write("a │ b")
    assert raw.getvalue() == b"a ? b\n"


def test_a_line_from_a_signal_handler_inside_another_is_dropped_alone() -> None:
    stream = FailingStream(RuntimeError("reentrant call"))
    output = LineOutput(cast(Any, stream))
    output.write("line")
    output.write("line")
    assert stream.num_calls == 2

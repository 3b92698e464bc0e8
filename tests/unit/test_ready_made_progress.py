"""Progress lines: what they say, how long still, and that no terminal can stop a run."""

import atexit
import copy
import io
import math
import pickle
import sys
from types import SimpleNamespace

import pytest

from callbacks import CallbackConfigError, EarlyStopping, ProgressPrinter, make_multi_callbacks
from callbacks.ready_made import progress
from callbacks.ready_made.display import LineOutput, Surface, live_surface, sparkline
from callbacks.ready_made.progress import ProgressLines, TrainingProgress, duration
from callbacks.ready_made.stopping import StopCriteria
from tests.steered_algorithm import SteeredAlgorithm, result_of


def last_column(criteria, *, elapsed_s=2.0, iterations=2):
    lines = ProgressLines(criteria)
    for iteration in range(1, iterations + 1):
        line = lines.line(result_of(iteration), elapsed_s=elapsed_s)
    return line.rpartition(" │ ")[2]


def test_a_line_says_how_far_how_fast_how_good_how_long():
    lines = ProgressLines(StopCriteria(max_iterations=12))
    assert lines.line(result_of(2, mean=20.25, steps_per_iteration=5000), elapsed_s=4.0) == (
        "iter    2 │     10,000 steps │   1,250 steps/s │ return   20.2 │     10 episodes │ 0:04 │ "
        "ETA 0:40"
    )


def test_a_return_that_is_not_known_yet_is_a_dash():
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
def test_the_time_that_remains_follows_from_the_first_budget_to_end(budget, remaining):
    # 3 seconds per iteration of 100 steps, 5 episodes and 2 seconds of training; 2 are done.
    assert last_column(StopCriteria(**budget), elapsed_s=3.0) == remaining


def test_a_run_that_goes_on_elsewhere_is_timed_anew():
    lines = ProgressLines(StopCriteria(max_iterations=20))
    lines.line(result_of(10), elapsed_s=100.0)
    assert lines.line(result_of(5), elapsed_s=2.0).endswith("ETA 0:30")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3723, "1:02:03")]
)
def test_durations_are_written_as_on_a_clock(seconds, text):
    assert duration(seconds) == text


# ---- the callback


def printed(*callbacks, iterations=2, **arguments):
    stream = io.StringIO()
    printer = ProgressPrinter(stream=stream, **arguments)
    algorithm = SteeredAlgorithm(printer, *callbacks)
    algorithm.tell_returns([1.0] * iterations)
    return stream.getvalue().splitlines()


def test_prints_a_line_per_iteration_with_the_time_between_them():
    times = iter([10.0, 15.0, 25.0])
    lines = printed(iterations=3, max_iterations=8, clock=lambda: next(times))
    rates = [line.split(" │ ")[2].strip() for line in lines]
    assert rates == ["50 steps/s", "20 steps/s", "10 steps/s"], "the first by the time it reports"
    assert lines[2].endswith("ETA 0:28")  # (2 + 5 + 10) / 3 · 5


def test_budgets_of_early_stopping_are_known_and_its_reason_is_printed():
    stopping = EarlyStopping(max_iterations=2)
    for beside in (stopping, make_multi_callbacks([stopping])):
        lines = printed(beside, clock=lambda: 0.0)
        assert "ETA 0:02" in lines[0]
        assert lines[2] == "Stopped after 2 iterations."
    assert "ETA" in printed(stopping, max_env_steps=1000)[0]


def test_without_a_stream_it_prints_to_standard_output(capsys):
    SteeredAlgorithm(ProgressPrinter).tell()
    assert capsys.readouterr().out.count("iter    1 │") == 1


def test_copies_share_the_stream_and_what_is_sent_away_has_none():
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
        ({"live": "yes"}, "`live='yes'` is neither True, False nor None"),
        ({"live": 1}, "`live=1` is neither"),
    ],
)
def test_misuse_is_refused_at_once(arguments, text):
    with pytest.raises(CallbackConfigError, match=text):
        ProgressPrinter(**arguments)


# ---- output that fails


class FailingStream(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error
        self.num_calls = 0

    def write(self, text):
        self.num_calls += 1
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "full"), KeyError("of a user")])
def test_a_stream_that_fails_is_told_once_and_left_alone(error, caplog):
    stream = FailingStream(error)
    SteeredAlgorithm(ProgressPrinter(stream=stream)).tell_returns([1.0] * 3)
    assert stream.num_calls == 1
    assert len(caplog.records) == 1
    assert type(error).__name__ in caplog.text


def test_a_result_without_its_time_stops_no_training():
    stream = io.StringIO()
    result = result_of(1)
    del result["time_this_iter_s"]
    SteeredAlgorithm(ProgressPrinter(stream=stream)).tell(result)
    assert stream.getvalue().startswith("iter    1 │")


def test_a_closed_stream_and_a_missing_console_are_no_error(monkeypatch):
    stream = io.StringIO()
    stream.close()
    LineOutput(stream).write("line")
    monkeypatch.setattr(sys, "stdout", None)
    LineOutput().write("line")


def test_characters_that_the_stream_lacks_are_replaced():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    LineOutput(stream).write("a │ b")
    assert raw.getvalue() == b"a ? b\n"


def test_a_line_from_a_signal_handler_inside_another_is_dropped_alone():
    stream = FailingStream(RuntimeError("reentrant call"))
    output = LineOutput(stream)
    output.write("line")
    output.write("line")
    assert stream.num_calls == 2


# ---- a block that is redrawn


class Screen:
    """A surface that remembers what was drawn."""

    def __init__(self, *, fails=False):
        self.texts = []
        self.is_closed = False
        self._fails = fails
        self.surface = Surface(self.take, self.end)

    def take(self, text):
        self.texts.append(text)
        if self._fails:
            raise OSError("the terminal is gone")

    def end(self):
        self.is_closed = True


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 8, ""),
        ([3.0, 3.0], 8, "▅▅"),
        ([0.0, 7.0], 8, "▁█"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 0, 10, 20, 30, 30], 3, "▁▅█"),  # means of two: 0, 15, 30
        ([-1.0, 5.0, -1.0], 1, "▅"),
    ],
)
def test_a_sparkline_shows_the_course_of_numbers(values, width, bars):
    assert sparkline(values, width=width) == bars


def shown(results, *, times):
    screen, clock = Screen(), iter(times)
    progress = TrainingProgress(
        StopCriteria(max_iterations=12),
        title="PPO on CartPole-v1",
        output=LineOutput(io.StringIO()),
        surface=screen.surface,
        clock=lambda: next(clock),
    )
    for result in results:
        progress.show(result, elapsed_s=2.0)
    progress.close()
    assert screen.is_closed
    return screen.texts


def test_the_block_has_rate_time_left_the_course_of_returns_and_faults(monkeypatch):
    monkeypatch.setenv("COLUMNS", "121")
    second = result_of(2, mean=30.0)
    second["fault_tolerance"] = {
        "num_healthy_workers": 2, "num_remote_worker_restarts": 3, "repair_time_s": 0.5,
        "num_episodes_lost": 1, "num_episodes_lost_lifetime": 4,
    }  # fmt: skip
    texts = shown([result_of(1, mean=10.0), second], times=[0.0, 0.0, 1.0, 1.0])
    assert texts[-1].splitlines() == [
        "PPO on CartPole-v1",
        "iter    2 │        200 steps │      50 steps/s │ return   30.0 │     10 episodes │ 0:04 │ "
        "ETA 0:20",
        "returns  ▁█  best 30.0 at iteration 2",
        "faults   remote worker restarts 3, episodes lost 4",
    ]
    assert "faults   none" in texts[0]
    monkeypatch.setenv("COLUMNS", "41")
    narrow = shown([result_of(1, mean=math.nan)], times=[0.0, 0.0])[-1]
    assert max(map(len, narrow.splitlines())) <= 40
    assert "ETA" in narrow
    assert "no episode has ended yet" in narrow


def test_results_that_come_fast_are_drawn_now_and_then_and_the_last_one_always():
    results = [result_of(number) for number in range(1, 5)]
    texts = shown(results, times=[0.0, 0.0, 0.1, 0.6, 0.6, 0.7, 0.7])
    assert [text.splitlines()[1][:9] for text in texts] == ["iter    1", "iter    3", "iter    4"]


def test_a_terminal_that_goes_away_is_told_once_and_disturbs_nothing(caplog):
    screen = Screen(fails=True)
    for _ in range(3):
        screen.surface.draw("text")
    screen.surface.close()
    assert len(screen.texts) == 1
    assert len(caplog.records) == 1


def test_there_is_no_surface_where_nobody_looks():
    assert live_surface() is None  # the output of tests is captured


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_rich_redraws_the_block_in_place_at_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    surface = live_surface()
    assert terminal.getvalue() == "", "nothing before the first text"
    surface.draw("one\ntwo")
    before = terminal.getvalue()
    surface.draw("three\x1b[2J\nfour")
    surface.close()
    again = terminal.getvalue()[len(before) :]
    assert "\x1b[1A" in again, "the cursor goes up by the lines of the block"
    assert "three\\x1b[2J" in again, "what is shown cannot steer the terminal"
    assert again.rstrip().endswith("\x1b[?25h"), "the cursor is there again"


def test_a_notebook_updates_one_cell(monkeypatch):
    class ZMQInteractiveShell:
        pass

    updates = []
    handle = SimpleNamespace(update=lambda data, raw: updates.append(data["text/plain"]))
    shown_cells = []

    def display(data, *, raw, display_id):
        shown_cells.append(data)
        return handle

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    algorithm = SteeredAlgorithm(ProgressPrinter(max_iterations=3, clock=lambda: 0.0))
    algorithm.tell_returns([1.0, 2.0, 3.0])  # fast, and none says `done`
    assert len(shown_cells) == 1
    assert len(updates) == 3
    assert "returns  ▁▅█" in updates[-1]


def test_the_printer_redraws_at_a_terminal_if_it_is_asked_to(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    stopping = EarlyStopping(max_iterations=2)
    SteeredAlgorithm(stopping, ProgressPrinter(live=True)).tell_returns([1.0, 2.0])
    assert terminal.getvalue().rstrip().endswith("Stopped after 2 iterations.")
    assert "\x1b[?25h" in terminal.getvalue(), "closed when training is done"
    assert sys.stdout is terminal
    lines = Terminal()
    monkeypatch.setattr(sys, "stdout", lines)
    SteeredAlgorithm(ProgressPrinter()).tell_returns([1.0])
    assert lines.getvalue().startswith("iter    1 │"), "lines, unless it is asked to"


def test_what_is_not_drawn_yet_is_drawn_at_the_end_of_the_process(monkeypatch):
    screen, at_exit = Screen(), []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(atexit, "unregister", at_exit.remove)
    monkeypatch.setattr(progress, "live_surface", lambda **_: screen.surface)
    algorithm = SteeredAlgorithm(ProgressPrinter(live=True, clock=lambda: 0.0))
    algorithm.tell_returns([1.0, 2.0, 3.0])
    assert len(screen.texts) == 1
    (close,) = at_exit
    close()
    assert screen.texts[-1].splitlines()[1].startswith("iter    3")
    assert screen.is_closed
    algorithm.tell(result_of(4) | {"done": True})
    assert at_exit == []

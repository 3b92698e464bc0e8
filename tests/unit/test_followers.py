"""Followers: a sink gets every row once, in order, wherever it was stopped, and delays nobody."""

import functools
import json
import re
import sys
import threading
from pathlib import Path

import pytest

from callbacks.ready_made import followers
from callbacks.ready_made.followers import Follower, FollowerThread, Sink, finish_all
from callbacks.ready_made.rows_file import RowsFile
from tests.scripts import run_script
from trainer.testing.processes import wait_until


class Noting(Sink):
    """Notes what it is asked, and keeps rows as a file would."""

    def __init__(self, bookmark=Path()):
        self.name, self.bookmark = "the sink", bookmark
        self.asked = []
        self.rows = []
        self.before = lambda number: None

    def begin(self, number):
        self.asked.append(("begin", number))
        self.rows = [row for row in self.rows if row["training_iteration"] < number]
        return self.rows[-1]["training_iteration"] if self.rows else 0

    def append(self, number, row):
        self.before(number)
        self.asked.append(number)
        self.rows.append(row)

    def end(self, *, failed):
        self.asked.append("failed" if failed else "end")


@pytest.fixture
def rows(tmp_path):
    return RowsFile(tmp_path / "rows.jsonl")


def row(number, **values):
    return {"training_iteration": number, **values}


def write(rows, *numbers, **values):
    for number in numbers:
        rows.append(row(number, **values))


def follower_of(rows, sink, thread=None):
    """As another process would make one, unless another one of this process lives."""
    sink.bookmark = rows.path.with_name("bookmark")
    return Follower(rows, sink, thread or FollowerThread("the sink"))


def started(rows, sink, *numbers):
    """A follower at work on these rows."""
    follower = follower_of(rows, sink)
    write(rows, *numbers)
    follower.wake()
    return follower


def catch_up(rows, sink):
    follower_of(rows, sink).catch_up()


# ---- following


def test_a_sink_gets_each_row_once_in_order_also_in_the_next_process(rows):
    sink = Noting()
    catch_up(rows, sink)
    assert sink.asked == [], "nothing begins before there is a row"
    write(rows, 1, 2)
    catch_up(rows, sink)
    write(rows, 3)
    catch_up(rows, sink)
    catch_up(rows, sink)
    assert sink.asked == [("begin", 1), 1, 2, ("begin", 3), 3, ("begin", 4)]
    assert sink.rows == list(rows.rows())


@pytest.mark.parametrize("kept", range(9))
def test_rows_that_are_taken_back_are_followed_again_from_a_place_not_far_behind(rows, kept):
    sink = Noting()
    write(rows, *range(1, 9), word="old")
    catch_up(rows, sink)
    sink.asked.clear()
    write(rows, *range(kept + 1, 11), word="new")
    catch_up(rows, sink)
    assert sink.rows == list(rows.rows())
    repeated = kept - len([number for number in sink.asked if number in range(kept + 1)])
    assert repeated >= kept // 2, "at most as many again as were taken back"


def test_rows_that_are_taken_back_while_it_follows_do_not_stay(rows):
    sink = Noting()
    follower = follower_of(rows, sink)
    write(rows, 1, 2, 3, 4, word="old")

    def take_back(number):
        if number == 3:
            sink.before = lambda number: None
            write(rows, 2, 3, word="new")

    sink.before = take_back
    follower.catch_up()  # what it had begun to read
    follower.catch_up()  # it was woken meanwhile
    assert sink.rows == list(rows.rows())
    assert [each["word"] for each in sink.rows] == ["old", "new", "new"]


def test_what_the_sink_lacks_comes_first(rows):
    sink = Noting()
    write(rows, *range(1, 8))
    catch_up(rows, sink)
    sink.rows = sink.rows[:3]
    write(rows, 8)
    catch_up(rows, sink)
    assert sink.rows == list(rows.rows())


def test_a_bookmark_that_is_lost_or_cannot_be_read_costs_time_only(rows, caplog):
    bookmark, sink = rows.path.with_name("bookmark"), Noting()
    for text in (None, "torn", "[3]", '{"bookmarks": 3}', '{"bookmarks": [[1, 2]]}'):
        bookmark.unlink(missing_ok=True)
        if text is not None:
            bookmark.write_text(text)
        rows.keep(0)
        write(rows, 1, 2)
        catch_up(rows, sink)
        assert sink.rows == list(rows.rows())
        assert len(json.loads(bookmark.read_text())["bookmarks"]) == 2
    assert {"int", "Expecting", "Bookmark"} <= set(re.findall(r"read \(\W*(\w+)", caplog.text))


def test_rows_up_to_a_number_only(rows):
    sink = Noting()
    write(rows, 1, 2, 3)
    follower = follower_of(rows, sink)
    follower.until = 2
    follower.catch_up()
    assert sink.asked == [("begin", 1), 1, 2]


def test_an_evaluation_that_is_only_repeated_is_no_point(rows):
    shown, points = Noting(), Noting()
    shown.holds_points = False
    for number, made_at in ((1, None), (2, 2), (3, 2), (4, 4), (5, 4)):
        more = {} if made_at is None else {"evaluation": {"evaluated_at_iteration": made_at}}
        write(rows, number, **more)
        catch_up(rows, points)  # each time a process of its own
    shown.bookmark = rows.path.with_name("other")
    Follower(rows, shown, FollowerThread("x")).catch_up()
    assert ["evaluation" in each for each in points.rows] == [False, True, False, True, False]
    assert ["evaluation" in each for each in shown.rows] == [False, True, True, True, True]


# ---- sinks that fail


def failing(*errors):
    """Raises these, one after the other."""
    left = list(errors)

    def fail(number):
        if left and (error := left.pop(0)) is not None:
            raise error

    return fail


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit(3)])
def test_a_sink_that_fails_gets_what_it_lacks_later(rows, error):
    sink = Noting()
    sink.before = failing(None, error, error)
    follower = follower_of(rows, sink)
    write(rows, 1)
    follower.catch_up()
    for number in (2, 3):
        write(rows, number)
        with pytest.raises(type(error)):
            follower.catch_up()
        assert follower.is_behind
    follower.catch_up()
    assert not follower.is_behind
    assert sink.rows == list(rows.rows())
    assert sink.asked[-3:] == [("begin", 2), 2, 3], "half of a row might have been there"


# ---- the thread


class Gate(Noting):
    """Takes rows only when it is let; `with gate:` lets it in the end."""

    def __init__(self):
        super().__init__()
        self.may_write = threading.Semaphore(0)
        self.before = lambda number: self.may_write.acquire()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.may_write.release(10_000)


def test_rows_are_followed_on_a_thread_that_ends_when_all_is_done(rows):
    before, sink = threading.active_count(), Noting()
    follower = follower_of(rows, sink)
    for number in range(1, 100):
        write(rows, number)
        follower.wake()
    assert follower.thread.flush(10)
    assert sink.rows == list(rows.rows())
    assert wait_until(lambda: threading.active_count() == before)
    write(rows, 100)
    follower.wake()
    assert follower.thread.flush(10)
    assert len(sink.rows) == 100


def test_a_sink_that_hangs_delays_nobody_and_loses_nothing(rows, caplog):
    with Gate() as gate:
        follower = follower_of(rows, gate)
        for number in range(1, 1200):
            write(rows, number)
            follower.wake()
        assert not follower.thread.flush(0.0)
        assert gate.rows == []
    assert follower.thread.flush(20)
    assert gate.rows == list(rows.rows())
    assert not caplog.messages


def test_what_a_sink_raises_is_logged_once_and_it_catches_up_with_the_next_row(rows, caplog):
    sink = Noting()
    sink.before = failing(OSError("disk full"), SystemExit("no"), OSError("disk full"))
    follower = follower_of(rows, sink)
    for number in (1, 2, 3, 4):
        write(rows, number)
        follower.wake()
        assert follower.thread.flush(10), "it has failed, or has all"
    assert sink.rows == list(rows.rows())
    (message,) = caplog.messages
    assert "the sink could not be brought up to date (OSError('disk full'))" in message
    assert str(rows.path) in message


def test_one_thread_serves_several_followers_one_of_which_fails(tmp_path):
    thread, sinks = FollowerThread("trials"), [Noting(), Noting(), Noting()]
    sinks[1].before = failing(OSError("no"))
    for number, sink in enumerate(sinks):
        rows = RowsFile(tmp_path / f"{number}.jsonl")
        write(rows, 1, 2)
        sink.bookmark = tmp_path / f"{number}.bookmark"
        Follower(rows, sink, thread).wake()
    assert thread.flush(10)
    assert [len(sink.rows) for sink in sinks] == [2, 0, 2]


def test_no_thread_can_be_started_while_the_interpreter_ends(rows, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    follower = follower_of(rows, Noting())
    write(rows, 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        follower.wake()
    assert follower.is_behind
    assert follower.thread.flush(0.0), "nothing waits for ever"
    follower.wake()
    assert follower.thread.flush(10)
    assert not follower.is_behind


# ---- followers of one sink, one after the other


def test_a_sink_is_ended_before_another_follower_goes_on(rows):
    asked = []
    with Gate() as gate:
        gate.asked = asked
        started(rows, gate, 1, 2)
        assert wait_until(lambda: bool(asked))
        sink = Noting()
        sink.asked, sink.rows = asked, gate.rows
        again = started(rows, sink, 3)
    assert again.thread.flush(10)
    assert [each for each in asked if isinstance(each, int)] == [1, 2, 3]
    assert [each for each in asked if not isinstance(each, int)][1] == "end"
    assert sink.rows == list(rows.rows())


def test_a_follower_whose_thread_comes_late_does_not_take_the_sink_back(
    rows, tmp_path, monkeypatch
):
    monkeypatch.setattr(followers, "EXIT_PATIENCE_S", 0.05)
    thread, sink = FollowerThread("busy"), Noting()
    with Gate() as gate:
        other = RowsFile(tmp_path / "other.jsonl")
        write(other, 1)
        gate.bookmark = tmp_path / "other.bookmark"
        Follower(other, gate, thread).wake()
        late = follower_of(rows, Noting(), thread)
        late.wake()
        again = started(rows, sink, 1)
        assert again.thread.flush(10)
    assert thread.flush(10)
    write(rows, 2)
    again.wake()
    assert again.thread.flush(10)
    assert sink.rows == list(rows.rows())
    assert late.sink.rows == []


def test_a_sink_that_hangs_holds_the_next_follower_up_only_for_a_while(rows, monkeypatch):
    monkeypatch.setattr(followers, "EXIT_PATIENCE_S", 0.05)
    with Gate() as gate:
        first = started(rows, gate, 1)
        assert wait_until(lambda: gate.asked)
        sink = Noting()
        again = started(rows, sink, 2)
        assert again.thread.flush(10)
        assert sink.rows == list(rows.rows())
        noted = rows.path.with_name("bookmark").read_text()
    assert first.thread.flush(10)
    assert rows.path.with_name("bookmark").read_text() == noted, "it counts no more"


# ---- the end


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(followers, "EXIT_PATIENCE_S", 0.05)
    monkeypatch.setattr(followers, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(followers, "_TOLD_AFTER_S", 0.0)


def test_sinks_are_ended_behind_their_last_row_and_a_further_row_opens_them_again(rows):
    sink = Noting()
    follower = started(rows, sink, 1)
    assert finish_all([follower.thread])
    assert sink.asked == [("begin", 1), 1, "end"]
    assert finish_all([follower.thread])
    write(rows, 2)
    follower.wake()
    follower.end(failed=True)
    follower.wake()
    assert finish_all([follower.thread])
    assert sink.asked == [("begin", 1), 1, "end", 2, "failed"]


@pytest.mark.usefixtures("impatient")
def test_the_end_waits_as_long_as_a_sink_gets_on(rows, monkeypatch, caplog):
    monkeypatch.setattr(followers, "EXIT_PATIENCE_S", 20.0)
    with Gate() as gate:
        follower = started(rows, gate, *range(1, 20))

        def let_in_one_by_one():
            for number in range(1, 20):
                gate.may_write.release()
                assert wait_until(functools.partial(gate.asked.__contains__, number))

        opener = threading.Thread(target=let_in_one_by_one)
        opener.start()
        assert finish_all([follower.thread])
        opener.join()
    assert gate.asked[-2:] == [19, "end"]
    assert "the sink is still busy" in caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_at_ends", [True, False])
def test_the_end_gives_up_a_sink_that_hangs(rows, is_at_ends, monkeypatch, caplog):
    monkeypatch.setattr(followers, "SERVICE_PATIENCE_S", 0.2)
    with Gate() as gate:
        gate.is_at_ends = is_at_ends
        follower = started(rows, gate, 1)
        assert not finish_all([follower.thread])
    assert follower.thread.flush(10)
    assert f"has not answered for 0 s, and gets nothing more. Rows are kept in {rows.path}" in (
        caplog.text
    )


def test_the_end_says_of_a_sink_that_fails_where_the_rows_are(rows, caplog):
    sink = Noting()
    sink.before = failing(*[OSError("down")] * 3)
    follower = started(rows, sink, 1)
    assert finish_all([follower.thread])
    assert "the sink did not get everything. Rows are kept in" in caplog.text


def test_ctrl_c_ends_the_wait(rows, monkeypatch, caplog):
    def interrupted(_, timeout_s):
        raise KeyboardInterrupt

    with Gate() as gate:
        gate.must_end = True
        follower = started(rows, gate, 1)
        with monkeypatch.context() as patch:
            patch.setattr(FollowerThread, "flush", interrupted)
            assert not finish_all([follower.thread])
        assert follower.thread not in followers._UNFINISHED
        assert "Ctrl-C has ended the wait" in caplog.text
    assert follower.thread.flush(10)


_ENDING = """
import concurrent.futures, pathlib, sys, threading
from callbacks.ready_made import followers
from callbacks.ready_made.rows_file import RowsFile

followers.EXIT_PATIENCE_S, followers.SERVICE_PATIENCE_S = 20.0, float(sys.argv[2])
followers._TOLD_AFTER_S, followers._LOOK_EVERY_S = 0.0, 0.01

class Sink(followers.Sink):
    name, must_end, is_at_ends = "the sink", True, True
    bookmark = pathlib.Path(sys.argv[1]) / "at"

    def __init__(self): pass

    def append(self, number, row):
        if number == 1:
            threading.Event().wait(float(sys.argv[3]) or None)  # the process is at its end by then
            with concurrent.futures.ThreadPoolExecutor() as executor:  # services start threads
                executor.submit(str, 1).result()
        print("row", number)

    def end(self, *, failed): print("end")

rows = RowsFile(pathlib.Path(sys.argv[1]) / "rows.jsonl")
thread = followers.FollowerThread("the sink")
rows.append({"training_iteration": 1})
followers.Follower(rows, Sink(), thread).wake()
for number in (2, 3):
    rows.append({"training_iteration": number})
del thread
"""


@pytest.mark.process
@pytest.mark.skipif(
    sys.version_info[:3] in {(3, 12, 0), (3, 12, 1)},
    reason="these let no thread begin once the main thread has ended",
)
def test_the_end_of_the_process_ends_sinks_that_nothing_refers_to_any_more(tmp_path):
    ended = run_script(_ENDING, tmp_path, 60, 0.3)
    assert ended.stdout == "row 1\nrow 2\nrow 3\nend\n"
    assert "the sink is still busy; the end waits while it gets on" in ended.stderr


@pytest.mark.process
def test_the_end_of_the_process_gives_up_a_sink_that_never_answers(tmp_path):
    ended = run_script(_ENDING, tmp_path, 0.1, 0)
    assert ended.stdout == ""
    assert "the sink has not answered for 0 s, and gets nothing more" in ended.stderr

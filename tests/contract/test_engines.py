"""What every engine must give, one test per obligation of `trainer.runtime.engine`.

Each runs over all engines. What handlers of local processes do to themselves, such as dying, is
scripted where a handler lives in the process of its owner.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.errors import SerializationError
from trainer.ray_engine.engine import RayEngine
from trainer.runtime import local_engine
from trainer.runtime.engine import NO_NOTES, StallLimit
from trainer.runtime.local_engine import LocalEngine
from trainer.runtime.messages import Failed, Lost, RemoteTraceback, Success, pack
from trainer.runtime.process_start import START_METHOD_VARIABLE
from trainer.runtime.threads import set_blas_threads
from trainer.runtime.worker_pool import WorkerPool
from trainer.testing import FakeEngine, ScriptedFault, is_process_alive, wait_until
from trainer.testing.fake_engine import FakePlace

pytestmark = pytest.mark.process

_PRELOADED = ("numpy", "trainer.runtime.worker")
_PATIENCE_S = 120.0


class Handler:
    """Does what tests tell it; harm only where it is alone in its process."""

    def __init__(self, signals, owner=0):
        self._signals = signals
        self._owner = owner
        self._closes_into = None

    def report(self):
        return "made"

    def failure_context(self):
        return {"env": 3}

    def close(self):
        if self._closes_into is not None:
            self._closes_into.write_text("closed", encoding="utf-8")

    def close_into(self, file):
        self._closes_into = file

    def echo(self, value):
        return value

    def fail(self):
        raise KeyError("user's own")

    def no_pickle(self):
        return sys.stdout

    def no_unpickle(self):
        return _RaisesWhenUnpacked()

    def progress(self, num_heartbeats, notes=()):
        self._signals.notes[: len(notes)] = notes
        for _ in range(num_heartbeats):
            self._signals.num_heartbeats += 1

    def die(self, num_heartbeats, notes, file=None):
        """Makes progress, then dies; the script strikes at the last heartbeat."""
        if file is not None:
            with file.open("a", encoding="utf-8") as calls:
                calls.write("called\n")
        self.progress(num_heartbeats, notes)
        self._die()

    def hang(self):
        if os.getpid() != self._owner:
            while True:
                time.sleep(60)

    def until_told(self):
        """Makes progress until it is told to end."""
        num_heartbeats = 0
        while not self._signals.must_end:
            self._signals.num_heartbeats += 1
            num_heartbeats += 1
            if os.getpid() != self._owner:
                time.sleep(0.001)
        return num_heartbeats

    def interrupt(self):
        os.kill(self._owner, signal.SIGINT)
        return "still here"

    def blas_threads(self):
        return set_blas_threads(1)

    def import_path(self):
        return sys.path

    def draw(self):
        return random.random()

    def _die(self):
        assert os.getpid() != self._owner
        os._exit(7)


class _RaisesWhenUnpacked:
    """Raises on the other side, in any process."""

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ValueError("it does not unpack")


def _factory():
    owner = os.getpid()
    return pack(lambda signals: Handler(signals, owner))


_SCRIPT = (
    ScriptedFault("die", method="die", at_sign=3, exit_code=7, times=99),
    ScriptedFault("hang", method="hang", times=99),
)


def fake_engine(*faults):
    """The fake engine, in which the harmful methods do what they do to a process."""
    return FakeEngine(*faults, *_SCRIPT)


ENGINES = {
    "local": LocalEngine,
    "fake": fake_engine,
    "ray": lambda: RayEngine(init_arguments={"object_store_memory": 100 * 2**20}),
}
NAMES = ["local", "fake", pytest.param("ray", marks=pytest.mark.ray)]


@pytest.fixture(params=[*NAMES, pytest.param("spawned", marks=pytest.mark.slow)])
def engine(request, monkeypatch):
    if request.param == "spawned":
        monkeypatch.setenv(START_METHOD_VARIABLE, "spawn")
        return LocalEngine()
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return ENGINES[request.param]()


@contextlib.contextmanager
def pool_of(engine, number=1):
    names = [f"worker {index}" for index in range(1, number + 1)]
    pool = WorkerPool(names, engine=engine, preload_modules=_PRELOADED)
    try:
        yield pool
    finally:
        pool.stop()


@pytest.fixture
def pool(engine):
    """Two places, of which the first has a worker."""
    with pool_of(engine, 2) as pool:
        start(pool, 1)
        yield pool


def start(pool, *indices):
    for index in indices:
        pool[index].start(_factory(), StallLimit(_PATIENCE_S))
    for _ in indices:
        assert pool.next_outcome()[1] == Success("made")


def ask(pool, method, *arguments, limit_s=_PATIENCE_S):
    pool[1].submit(method, arguments, StallLimit(limit_s))
    index, outcome = pool.next_outcome()
    assert index == 1
    return outcome


def wait_for(pool, condition):
    """Waits by the engine's clock, while no call ends; whether the condition came true."""
    deadline_s = pool.now_s() + _PATIENCE_S
    while not condition() and pool.now_s() < deadline_s:
        assert pool.outcome_within(0.02) is None
    return condition()


# ---- bytes in, bytes out


def test_a_handler_is_made_from_bytes_and_answers_calls(pool):
    value = {"list": [1, (2.5, None)], "bytes": b"\0" * 1_000_000}
    assert ask(pool, "echo", value) == Success(value)
    assert ask(pool, "echo", 2) == Success(2)


def test_an_answer_is_a_copy_as_from_another_process(pool):
    value = [1]
    outcome = ask(pool, "echo", value)
    assert isinstance(outcome, Success)
    assert outcome.value == value
    assert outcome.value is not value


def test_arguments_that_cannot_be_pickled_are_refused_and_the_worker_is_untouched(pool):
    with pytest.raises(SerializationError, match="worker 1 was not asked"):
        pool[1].submit("echo", (sys.stdout,))
    assert pool.pending() == []
    assert ask(pool, "echo", 2) == Success(2)


@pytest.mark.parametrize("what", ["factory", "argument", "answer"])
def test_what_cannot_be_unpickled_is_a_failure_of_the_call(pool, what):
    if what == "factory":
        pool[1].start(pack(_RaisesWhenUnpacked()))
        outcome = pool.next_outcome()[1]
    elif what == "argument":
        outcome = ask(pool, "echo", _RaisesWhenUnpacked())
    else:
        outcome = ask(pool, "no_unpickle")
    assert isinstance(outcome, Failed)
    assert "it does not unpack" in outcome.describe()
    start(pool, 1)
    assert ask(pool, "echo", 2) == Success(2)


def test_an_answer_that_cannot_be_pickled_is_a_failure_of_the_call(pool):
    outcome = ask(pool, "no_pickle")
    assert isinstance(outcome, Failed)
    assert "cannot be sent to another process" in outcome.describe()
    assert ask(pool, "echo", 2) == Success(2)


def test_what_code_raises_comes_back_as_itself_with_traceback_and_context(pool):
    outcome = ask(pool, "fail")
    assert isinstance(outcome, Failed)
    error = outcome.failure.unpack_error()
    assert isinstance(error, KeyError)
    assert error.args == ("user's own",)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in fail" in str(error.__cause__)
    assert outcome.failure.context == {"env": 3}


# ---- one call at a time, answers from many


def test_answers_of_several_come_as_they_end_and_a_slow_one_holds_up_nobody(engine):
    with pool_of(engine, 3) as pool:
        start(pool, 1, 2, 3)
        pool[1].submit("until_told", ())
        for index in (2, 3):
            pool[index].submit("echo", (index,))
        assert dict([pool.next_outcome(), pool.next_outcome()]) == {2: Success(2), 3: Success(3)}
        assert pool.pending() == [1]
        pool[1].request_end()
        assert pool.next_outcome()[0] == 1


def test_of_several_that_have_ended_the_smallest_number_is_taken_first(engine):
    with pool_of(engine, 3) as pool:
        start(pool, 1, 2, 3)
        for index in (3, 1, 2):
            pool[index].submit("echo", (index,))
        for index in (1, 2, 3):
            assert wait_for_answer(pool, index)
        assert [pool.next_outcome()[0] for _ in range(3)] == [1, 2, 3]


def wait_for_answer(pool, index):
    """Waits until one place has its answer, and takes nothing."""
    deadline_s = pool.now_s() + _PATIENCE_S
    while not pool[index].has_answer and pool.now_s() < deadline_s:
        pool.sleep(0.01)
    return pool[index].has_answer


def test_what_a_place_says_of_itself_follows_its_life(engine):
    with pool_of(engine) as pool:
        place = pool[1]

        def says():
            return place.is_running, place.is_busy, place.owes_answer, place.identity is not None

        assert says() == (False, False, False, False)
        start(pool, 1)
        assert says() == (True, False, False, True)
        place.submit("until_told", (), StallLimit(5.0))
        assert says() == (True, True, True, True)
        assert place.stall_limit_s == 5.0
        assert pool.outcome_within(0.0) is None
        place.request_end()
        pool.next_outcome()
        assert says() == (True, False, False, True)
        with pytest.raises(RuntimeError, match="No worker owes an answer"):
            pool.outcome_within(0.0)
        place.kill()
        assert says() == (False, False, False, False)
        with pytest.raises(RuntimeError, match="start it first"):
            place.submit("echo", (1,))


def test_a_worker_can_be_replaced_by_another_at_any_time(pool):
    ask(pool, "close_into", Path("nowhere"))
    start(pool, 1)  # a handler that knows nothing of that
    assert ask(pool, "echo", 1) == Success(1)


# ---- deaths


def test_a_death_is_noticed_exactly_once_and_touches_no_other(pool):
    start(pool, 2)
    pool[2].submit("until_told", ())
    assert ask(pool, "die", 3, ()) == Lost(exit_code=7)
    assert pool.pending() == [2]
    assert not pool[1].is_running
    assert pool.outcome_within(0.0) is None
    pool[2].request_end()
    index, outcome = pool.next_outcome()
    assert (index, type(outcome)) == (2, Success)
    start(pool, 1)
    assert ask(pool, "echo", 1) == Success(1)


def test_the_post_mortem_holds_the_last_heartbeat_and_notes(pool):
    ask(pool, "progress", 5)
    notes = (3, 1, 4, 1, 5, 9)
    outcome = ask(pool, "die", 3, notes)
    assert isinstance(outcome, Lost)
    assert outcome.notes == notes
    assert pool[1].num_heartbeats == 3
    assert outcome.num_heartbeats == 8  # since the place was made
    assert "exit code 7" in outcome.describe()


def test_a_call_that_ran_is_not_repeated_by_the_engine(pool, tmp_path):
    file = tmp_path / "calls"
    assert isinstance(ask(pool, "die", 3, (), file), Lost)
    start(pool, 1)
    assert ask(pool, "echo", 1) == Success(1)
    assert file.read_text(encoding="utf-8") == "called\n"


def test_a_worker_that_dies_while_idle_answers_the_next_call_as_lost(engine, pool):
    end_worker(engine, pool)
    assert ask(pool, "echo", 1) == Lost(exit_code=-signal.SIGKILL)
    start(pool, 1)


def test_a_worker_that_something_outside_ends_is_lost(engine, pool):
    pool[1].submit("until_told", ())
    assert wait_for(pool, lambda: pool[1].num_heartbeats > 0)
    end_worker(engine, pool)
    assert pool.next_outcome() == (1, Lost(exit_code=-signal.SIGKILL))


def end_worker(engine, pool):
    """Ends the first worker from outside."""
    if isinstance(engine, FakeEngine):
        engine.places["worker 1"].lose()
        return
    pid = pool.pids()[1]
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not is_process_alive(pid))


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_that_cannot_be_started_is_lost_with_the_reason(name, monkeypatch):
    engine = FakeEngine(ScriptedFault("not_start")) if name == "fake" else ENGINES[name]()
    with pool_of(engine) as pool, monkeypatch.context() as patch:
        if isinstance(engine, RayEngine):
            patch.setattr(engine, "_needs", {"CPU": 1000.0})
            patch.setattr(engine, "placement_timeout_s", 0.2)
        patch.setattr(local_engine, "ProcessPoolExecutor", _no_process)
        pool[1].start(_factory())
        _, outcome = pool.next_outcome()
        assert isinstance(outcome, Lost)
        assert outcome.start_error
        assert "could not be started" in outcome.describe()
        patch.undo()
        pool.stop()
        start(pool, 1)


def _no_process(*_, **__):
    raise OSError("no more processes")


# ---- kill is final


def test_an_answer_that_was_there_before_a_kill_is_not_taken(pool):
    pool[1].submit("echo", ("old",))
    assert wait_for_answer(pool, 1)
    pool[1].kill()
    assert pool.pending() == []
    start(pool, 1)
    assert ask(pool, "echo", "new") == Success("new")


def test_an_answer_that_comes_after_a_kill_is_not_taken():
    """Only a scripted engine lets a killed worker answer; a network may, too."""
    engine = fake_engine(ScriptedFault("answer_after_kill", method="echo", seconds=0.01))
    with pool_of(engine) as pool:
        start(pool, 1)
        pool[1].submit("echo", ("old",))
        pool[1].kill()
        start(pool, 1)  # takes longer than the answer
        assert ask(pool, "echo", "new") == Success("new")


def test_without_incarnations_the_answer_of_a_killed_worker_would_be_taken(monkeypatch):
    receive = FakePlace._receive

    def receive_any(place, answer, *, incarnation):
        del incarnation
        receive(place, answer, incarnation=place.incarnation)

    monkeypatch.setattr(FakePlace, "_receive", receive_any)
    with pytest.raises(AssertionError, match="old"):
        test_an_answer_that_comes_after_a_kill_is_not_taken()


def test_a_busy_worker_is_killed_at_once(pool):
    pids = pool.pids()
    pool[1].submit("hang", ())
    assert pool.kill_busy() == [1]
    assert pool.pending() == []
    assert not pool[1].is_running
    assert not any(is_process_alive(pid) for pid in pids.values())
    start(pool, 1)


# ---- signals


def test_progress_and_notes_are_seen_while_the_call_is_under_way(pool):
    pool[1].submit("until_told", ())
    assert wait_for(pool, lambda: pool[1].num_heartbeats >= 5)
    seen = pool[1].num_heartbeats
    pool[1].request_end()
    _, outcome = pool.next_outcome()
    assert isinstance(outcome, Success)
    assert outcome.value == pool[1].num_heartbeats >= seen
    assert ask(pool, "progress", 2, (7, 8)) == Success(None)
    assert pool[1].num_heartbeats == 2
    assert pool[1].notes == (7, 8, 0, 0, 0, 0)


def test_notes_and_the_wish_to_end_belong_to_one_call(pool):
    ask(pool, "progress", 2, (7, 8))
    pool[1].request_end()
    pool[1].submit("until_told", ())
    assert wait_for(pool, lambda: pool[1].num_heartbeats > 0)  # it was not told in this call
    assert pool[1].notes == NO_NOTES
    pool[1].request_end()
    assert isinstance(pool.next_outcome()[1], Success)


def test_a_call_without_progress_is_warned_of_once_then_killed(pool, caplog):
    begun_s = pool.now_s()
    pool[1].submit("hang", (), StallLimit(0.4, "sample_timeout_s"))
    _, outcome = pool.next_outcome()
    assert isinstance(outcome, Lost)
    assert outcome.stalled_s is not None
    assert 0.4 <= outcome.stalled_s <= pool.now_s() - begun_s
    assert "killed (sample_timeout_s=0.4)" in outcome.describe()
    warnings = [record.getMessage() for record in caplog.records]
    assert len([text for text in warnings if "worker 1 has made no progress" in text]) == 1
    assert not pool[1].is_running


def test_a_call_with_progress_may_take_longer_than_its_limit(pool):
    pool[1].submit("until_told", (), StallLimit(0.3))
    begun_s = pool.now_s()
    assert wait_for(pool, lambda: pool.now_s() - begun_s > 0.5)
    pool[1].request_end()
    assert isinstance(pool.next_outcome()[1], Success)


@pytest.mark.parametrize("name", NAMES)
def test_from_the_first_progress_on_a_start_may_have_another_limit(name):
    fault = ScriptedFault("hang", method="start", at_sign=1)
    engine = FakeEngine(fault) if name == "fake" else ENGINES[name]()
    owner = os.getpid()

    def hang_after_a_beat(signals):
        handler = Handler(signals, owner)
        handler.progress(1)
        handler.hang()
        return handler

    with pool_of(engine) as pool:
        pool[1].start(
            pack(hang_after_a_beat), StallLimit(600.0, at_work=StallLimit(0.2, "sample_timeout_s"))
        )
        _, outcome = pool.next_outcome()
        assert isinstance(outcome, Lost)
        assert "killed (sample_timeout_s=0.2)" in outcome.describe()


# ---- what workers are like


def test_workers_compute_with_one_blas_thread_and_the_owner_with_its_own(pool):
    before = set_blas_threads(2)
    try:
        if before is None:
            pytest.skip("this BLAS does not tell its number of threads")
        assert ask(pool, "blas_threads") == Success(1)
        assert set_blas_threads(2) == 2
    finally:
        if before is not None:
            set_blas_threads(before)


def test_workers_find_the_modules_that_their_owner_finds(engine, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "module_of_the_user.py").write_text("VALUE = 5\n", encoding="utf-8")
    with pool_of(engine) as pool:
        start(pool, 1)
        path = ask(pool, "import_path")
        assert isinstance(path, Success)
        assert str(tmp_path) in path.value


def test_workers_have_random_generators_of_their_own(pool):
    random.seed(5)
    expected = random.random()
    random.seed(5)
    drawn = ask(pool, "draw")
    assert random.random() == expected
    assert ask(pool, "draw") != drawn


def test_an_interrupt_is_the_owners_and_leaves_the_call_alone(pool):
    with pytest.raises(KeyboardInterrupt):
        interrupt_while_waiting(pool)
    assert pool.next_outcome() == (1, Success("still here"))
    assert ask(pool, "echo", 1) == Success(1)


def interrupt_while_waiting(pool):
    """Waits for a call that interrupts its owner, and for the interrupt, which may come later."""
    pool[1].submit("interrupt", ())
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        pool.sleep(0.05)
    pytest.fail("no interrupt has come")


def test_what_is_brought_along_is_asked_for_at_each_start(engine):
    starts = []
    arrivals = engine.make_arrivals()
    place = engine.make_place("worker", arrivals=arrivals, inherit=lambda: starts.append(1))
    for number in (1, 2):
        place.start(_factory())
        assert place.take() == Success("made")
        assert len(starts) == number
    place.stop(grace_s=2.0)


# ---- the end


def test_idle_handlers_close_and_busy_workers_are_ended(engine, tmp_path):
    with pool_of(engine, 2) as pool:
        start(pool, 1, 2)
        for index in (1, 2):
            pool[index].submit("close_into", (tmp_path / f"closed {index}",))
            pool.next_outcome()
        pids = pool.pids()
        pool[2].submit("hang", ())
        pool.stop()
        pool.stop()
        assert wait_until(lambda: not any(is_process_alive(pid) for pid in pids.values()))
        assert not any(place.is_running for place in pool.places.values())
        assert [file.name for file in tmp_path.iterdir()] == ["closed 1"]


def test_a_pool_that_is_dropped_leaves_no_worker(engine):
    pool = WorkerPool(["worker 1"], engine=engine, preload_modules=_PRELOADED)
    start(pool, 1)
    place, pids = pool[1], pool.pids()
    pool[1].submit("hang", ())
    del pool
    assert wait_until(lambda: not place.is_running)
    assert wait_until(lambda: not any(is_process_alive(pid) for pid in pids.values()))


_SCRIPT_OF_OWNER = """
import os, sys, time
from tests.contract.test_engines import ENGINES
from trainer.runtime.worker_pool import WorkerPool
from trainer.runtime.messages import pack

class Chatty:
    def __init__(self, signals): pass
    def report(self): return os.getpid()
    def failure_context(self): return {}
    def close(self): pass
    def chat(self, letter):
        for _ in range(50):
            print(letter * 100)
        sys.stdout.write("unfinished")

if __name__ == "__main__":
    pool = WorkerPool(["one", "two"], engine=ENGINES[sys.argv[1]]())
    for place in pool.places.values(): place.start(pack(Chatty))
    pids = [pool.next_outcome()[1].value for _ in pool.places]
    for letter, place in zip("ab", pool.places.values()): place.submit("chat", (letter,))
    for _ in pool.places: pool.next_outcome()
    for place in pool.places.values(): place.submit("chat", ("c",))
    os.write(1, f"\\npids {pids[0]} {pids[1]}\\n".encode())  # in one piece
    time.sleep(60)
"""


@pytest.mark.parametrize("name", NAMES)
def test_lines_arrive_whole_and_workers_end_with_their_owner(name, tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(_SCRIPT_OF_OWNER, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    owner = subprocess.Popen(
        [sys.executable, str(script), name],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert owner.stdout is not None
    lines = []
    for line in owner.stdout:
        lines.append(_RAYS_PREFIX.sub("", line.rstrip("\n")))
        has_pids = any(each.startswith("pids") for each in lines)
        if has_pids and (name != "ray" or _num_chatted(lines) == 100):  # Ray forwards them later
            break
    owner.kill()
    owner.wait()
    owner.stdout.close()
    whole = {letter * 100 for letter in "abc"}
    (told,) = [line for line in lines if line.startswith("pids")]
    chatted = [line.replace("unfinished", "") for line in lines if line != told]
    assert set(chatted) - {""} <= whole
    assert [chatted.count("a" * 100), chatted.count("b" * 100)] == [50, 50]
    pids = [int(pid) for pid in told.split()[1:]]
    within_s = 60.0 if name == "ray" else 4.0
    assert wait_until(lambda: not any(is_process_alive(pid) for pid in pids), within_s=within_s)


_RAYS_PREFIX = re.compile(r"^(\x1b\[\d+m)?\((one|two) pid=[^)]*\)(\x1b\[0m)? ")
"""With the name of the place."""


def _num_chatted(lines):
    return sum("a" * 100 in line or "b" * 100 in line for line in lines)


# ---- the suite finds an engine that does not keep to it


def _take_and_keep_call(place):
    call, outcome = place._call, _TAKE(place)
    place._call = call  # it answers once more
    return outcome


def _lose_without_post_mortem(place, exit_code=None):
    place._signals.notes[:] = NO_NOTES
    _LOSE(place, exit_code)


def _kill_on_paper(place):
    if place._call is not None and place._call.has_arrived:
        place.is_busy = False  # and the answer stays
        return
    _KILL(place)


_TAKE, _LOSE, _KILL = FakePlace.take, FakePlace.lose, FakePlace.kill


_BROKEN = (
    ("take", _take_and_keep_call, test_a_death_is_noticed_exactly_once_and_touches_no_other),
    ("lose", _lose_without_post_mortem, test_the_post_mortem_holds_the_last_heartbeat_and_notes),
    ("kill", _kill_on_paper, test_an_answer_that_was_there_before_a_kill_is_not_taken),
    (
        "_as_worker",
        lambda _, do: do(),
        test_workers_compute_with_one_blas_thread_and_the_owner_with_its_own,
    ),
    ("_as_worker", lambda _, do: do(), test_workers_have_random_generators_of_their_own),
    (
        "num_heartbeats",
        property(lambda _: 0),
        test_progress_and_notes_are_seen_while_the_call_is_under_way,
    ),
)


@pytest.mark.parametrize(("method", "broken", "test"), _BROKEN)
def test_an_engine_that_breaks_an_obligation_fails_its_test(monkeypatch, method, broken, test):
    with pool_of(fake_engine(), 2) as pool:
        start(pool, 1)
        monkeypatch.setattr(FakePlace, method, broken)
        monkeypatch.setitem(globals(), "_PATIENCE_S", 5.0)  # what is wanted never comes
        with pytest.raises((AssertionError, RuntimeError)):
            test(pool)
        monkeypatch.undo()

"""Worker processes under every kind of misfortune: where it breaks × how.

What holds on every engine is tested in `tests/contract/test_engines.py`.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from concurrent import futures
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection

import pytest

from trainer.errors import ConfigError, RemoteError
from trainer.runtime.engine import StallLimit
from trainer.runtime.messages import Failed, Lost, Success, pack
from trainer.runtime.process_start import START_METHOD_VARIABLE, choose_start_method
from trainer.runtime.worker_pool import WorkerPool
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = pytest.mark.process

PRELOADED = ("numpy", "trainer.runtime.worker")


class _UnpicklableError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")
        self.stream = sys.stdout


def _raise():
    raise KeyError("user's own")


def _raise_unpicklable():
    raise _UnpicklableError(1, 2)


def _exit():
    os._exit(7)


def _leave():
    raise SystemExit(3)


def _segfault():
    import faulthandler

    faulthandler.disable()
    ctypes.string_at(0)


def _sigkill():
    os.kill(os.getpid(), signal.SIGKILL)


class _ActsWhenUnpickled:
    """Does harm on the worker's side of the pipe."""

    def __init__(self, act):
        self.act = act

    def __reduce__(self):
        return _call, (self.act,)


class _ActsWhenPickled:
    """Does harm while the worker packs its answer."""

    def __init__(self, act):
        self.act = act

    def __reduce__(self):
        self.act()
        return int, ()


def _call(act):
    act()


class Handler:
    """Does what tests tell it."""

    def __init__(self, signals):
        self.signals = signals

    def report(self):
        return os.getpid()

    def failure_context(self):
        return {"env": 3}

    def close(self):
        pass

    def echo(self, value):
        return value

    def act(self, act):
        act()

    def answer_that_acts(self, act):
        return _ActsWhenPickled(act)

    def huge(self, num_bytes):
        return b"x" * num_bytes

    def die_in_the_middle_of_the_answer(self):
        def send_half(connection, packed):
            os.write(connection.fileno(), bytes(packed)[: len(packed) // 2])
            _sigkill()

        Connection._send = send_half
        return self.huge(100_000)

    def work_with_progress(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.signals.num_heartbeats += 1
            time.sleep(0.01)
        return "done"

    def show_progress(self, num_heartbeats):
        for _ in range(num_heartbeats):
            self.signals.num_heartbeats += 1

    def hang(self):
        while True:
            time.sleep(60)


# The default run has all cases forked and these spawned, too; the long run has all.
both_ways = pytest.mark.parametrize("start_method", ["forkserver", "spawn"], indirect=True)


@pytest.fixture
def pool(start_method):
    pool = WorkerPool(["first", "second"], preload_modules=PRELOADED)
    yield pool
    pool.stop()


def started(pool, *indices):
    for index in indices:
        pool[index].start(pack(Handler))
    for _ in indices:
        _, outcome = pool.next_outcome()
        assert isinstance(outcome, Success)


def ask(pool, method, *arguments, stall_limit_s=20):
    pool[1].submit(method, arguments, StallLimit(stall_limit_s))
    index, outcome = pool.next_outcome()
    assert index == 1
    return outcome


ENDINGS = {
    "raise": (_raise, Failed, "KeyError"),
    "raise unpicklable": (_raise_unpicklable, Failed, "_UnpicklableError"),
    "exit": (_exit, Lost, "exit code 7"),
    "segfault": (_segfault, Lost, "SIGSEGV"),
    "sigkill": (_sigkill, Lost, "SIGKILL, "),
}
PLACES = {
    "running": lambda pool, act: ask(pool, "act", act),
    "unpickling the request": lambda pool, act: ask(pool, "echo", _ActsWhenUnpickled(act)),
    "pickling the answer": lambda pool, act: ask(pool, "answer_that_acts", act),
}


MISFORTUNES = tuple((how, place) for how in ENDINGS for place in PLACES)
SPAWNED = (("raise", "running"),)


def misfortune(start_method, how, place):
    """One case; slow if it is spawned and not a sample."""
    is_slow = start_method == "spawn" and (how, place) not in SPAWNED
    marks = (pytest.mark.slow,) if is_slow else ()
    return pytest.param(start_method, how, place, id=f"{start_method}-{how}-{place}", marks=marks)


@pytest.mark.parametrize(
    ("start_method", "how", "place"),
    [misfortune(method, *case) for method in ("forkserver", "spawn") for case in MISFORTUNES],
    indirect=["start_method"],
)
def test_every_misfortune_is_told_and_the_worker_can_be_started_again(pool, place, how):
    act, expected, text = ENDINGS[how]
    started(pool, 1)
    outcome = PLACES[place](pool, act)
    assert isinstance(outcome, expected)
    assert not isinstance(outcome, Success)
    assert text in outcome.describe()
    if isinstance(outcome, Lost):
        started(pool, 1)
    assert ask(pool, "echo", 5) == Success(5)


@pytest.mark.parametrize("how", ENDINGS)
def test_a_factory_that_fails_is_told(pool, how):
    act, expected, text = ENDINGS[how]

    def factory(signals):
        act()

    pool[1].start(pack(factory))
    _, outcome = pool.next_outcome()
    assert isinstance(outcome, expected)
    assert not isinstance(outcome, Success)
    assert text in outcome.describe()


def test_system_exit_in_user_code_is_a_lost_worker_not_a_hang(pool):
    started(pool, 1)
    assert isinstance(ask(pool, "act", _leave), (Lost, Failed))


def test_progress_before_submit_returns_counts(pool, monkeypatch):
    """A worker may be faster than the main process, which is interrupted by others under load."""
    submit = ProcessPoolExecutor.submit

    def submit_and_wait(*arguments):
        future = submit(*arguments)
        futures.wait([future])
        return future

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit_and_wait)
    started(pool, 1)
    for _ in range(2):
        assert ask(pool, "show_progress", 3) == Success(None)
        assert pool[1].num_heartbeats == 3


@both_ways
def test_a_worker_killed_in_the_middle_of_its_answer_is_noticed(pool):
    """The executor's thread reads half a message and must not wait for the other half."""
    started(pool, 1)
    pool[1].submit("die_in_the_middle_of_the_answer", ())
    found = pool.outcome_within(10.0)
    if found is None:  # or else the clean-up would wait for ever, too
        os._exit(1)
    assert found == (1, Lost(exit_code=-signal.SIGKILL))


def test_a_worker_that_dies_in_the_moment_it_is_asked_is_noticed(pool, monkeypatch):
    """Before Python 3.12, the executor may note a call after it has failed all that it knows."""
    started(pool, 1)
    pid = pool.pids()[1]

    def submit_late(executor, *_):
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not executor._executor_manager_thread.is_alive())
        return futures.Future()

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit_late)
    pool[1].submit("echo", (1,))
    assert pool.outcome_within(10.0) == (1, Lost(exit_code=-signal.SIGKILL))


def test_a_stopped_process_counts_as_stalled(pool):
    started(pool, 1)
    pid = pool.pids().get(1)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert isinstance(ask(pool, "echo", 1, stall_limit_s=0.3), Lost)
    assert wait_until(lambda: not is_process_alive(pid))


def test_a_huge_answer_arrives(pool):
    started(pool, 1)
    outcome = ask(pool, "huge", 50_000_000)
    assert isinstance(outcome, Success)
    assert len(outcome.value) == 50_000_000


def test_an_error_that_cannot_travel_is_replaced_by_its_text(pool):
    started(pool, 1)
    outcome = ask(pool, "act", _raise_unpicklable)
    assert isinstance(outcome, Failed)
    error = outcome.failure.unpack_error()
    assert isinstance(error, RemoteError)
    assert "_UnpicklableError: 1 2" in str(error)


_HANDLER_SCRIPT = """
import os, time
from trainer.runtime.messages import pack
from trainer.runtime.worker_pool import WorkerPool

class Handler:  # of __main__, in a script without a guard
    def __init__(self, signals): pass
    def report(self): return os.getpid()
    def failure_context(self): return {}
    def close(self): pass
    def hang(self):
        while True: time.sleep(60)
"""

_PARENT_SCRIPT = (
    _HANDLER_SCRIPT
    + """
    def block(self):  # holds the interpreter lock for ever
        import ctypes
        ctypes.PyDLL(None).sleep(600)

pool = WorkerPool(["busy", "idle", "blocked"])
for place in pool.places.values(): place.start(pack(Handler))
pids = [pool.next_outcome()[1].value for _ in pool.places]
pool[1].submit("hang", ())
BLOCK
copy = os.fork()  # which lives on does not keep them
if copy:
    print(copy, *pids, flush=True)
time.sleep(60)
"""
)


# What blocks beside the others shows all that a run without it does, but not with spawn.
@pytest.mark.parametrize(
    ("start_method", "should_block"),
    [
        ("forkserver", True),
        ("spawn", False),
        pytest.param("forkserver", False, marks=pytest.mark.slow),
    ],
    indirect=["start_method"],
)
def test_workers_die_with_their_parent_also_if_a_forked_copy_of_it_lives_on(
    start_method, should_block
):
    if should_block and sys.platform != "linux":
        pytest.skip("only the kernel, through the fork server, ends code with the interpreter lock")
    block = 'pool[3].submit("block", ())' if should_block else ""
    script = _PARENT_SCRIPT.replace("BLOCK", block)
    line = [sys.executable, "-W", "ignore", "-c", script]  # Python warns of forks beside threads
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        copy, *pids = map(int, parent.stdout.readline().split())
        parent.kill()
    try:
        assert len(pids) == 3
        assert wait_until(lambda: not any(is_process_alive(pid) for pid in pids))
        assert is_process_alive(copy)
    finally:
        os.kill(copy, signal.SIGKILL)


_EXIT_SCRIPT = (
    _HANDLER_SCRIPT
    + """

pool = WorkerPool(["hanging"])
pool[1].start(pack(Handler))
print(pool.next_outcome()[1].value, flush=True)
pool[1].submit("hang", ())
raise RuntimeError("the script ends without stopping the pool")
"""
)


def test_a_script_that_fails_while_a_worker_hangs_ends_at_once(start_method):
    done = subprocess.run(
        [sys.executable, "-c", _EXIT_SCRIPT],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert "the script ends without stopping the pool" in done.stderr
    assert wait_until(lambda: not is_process_alive(int(done.stdout)))


def test_only_safe_start_methods_are_chosen(monkeypatch):
    monkeypatch.setenv(START_METHOD_VARIABLE, "fork")
    with pytest.raises(
        ConfigError, match=r"METHOD is 'fork'; .* by 'forkserver' or 'spawn'. Set it"
    ):
        choose_start_method()
    monkeypatch.delenv(START_METHOD_VARIABLE)
    assert choose_start_method() in {"forkserver", "spawn"}

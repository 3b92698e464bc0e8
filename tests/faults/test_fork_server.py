"""The fork server, from which workers are copied, dies: another one is started, nothing is lost."""

import functools
import os
import shutil
import signal
import sys
import threading
import time
from multiprocessing import forkserver, util
from pathlib import Path
from types import SimpleNamespace

import pytest

from checkpoints import Checkpointable, CheckpointWriteError, encode
from tests.small_runs import kill
from trainer import PPOConfig, RunnerLostError, actors
from trainer.metrics import comparable
from trainer.runtime import local_engine
from trainer.runtime import process_start as fork_server
from trainer.runtime.messages import pack
from trainer.runtime.process_start import (
    START_METHOD_VARIABLE,
    choose_start_method,
    make_context,
)
from trainer.runtime.worker_pool import WorkerPool
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import is_process_alive, wait_until
from trainer_toolkit.interrupts import signals_deferred

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(choose_start_method() != "forkserver", reason="there is no fork server"),
]

SERVER = forkserver._forkserver  # there is no public way


@pytest.fixture(autouse=True)
def with_a_fork_server(monkeypatch):
    monkeypatch.setenv(START_METHOD_VARIABLE, "forkserver")


def config():
    return (
        PPOConfig()
        .environment(CountdownEnv)
        .env_runners(num_env_runners=2)
        .training(train_batch_size=40, minibatch_size=40, num_epochs=1)
        .training(model={"fcnet_hiddens": [8]})
        .debugging(seed=3)
    )


def outcome(before_the_second):
    """Two iterations and everything known after them, but the settings."""
    with config().build_algo() as algo:
        results = [algo.train()]
        before_the_second(algo)
        results.append(algo.train())
        state = {**algo.get_state(), "config": None}
    return encode([[{**comparable(result), "config": None} for result in results], state])


@functools.cache
def undisturbed():
    return outcome(lambda _: None)


@actors.remote
class Counter(Checkpointable):
    def __init__(self, count=0):
        self.count = count

    def get(self):
        return self.count

    def get_state(self, components=None, *, not_components=None):
        return {"count": self.count}

    def set_state(self, state):
        self.count = state["count"]


@pytest.mark.skipif(sys.platform != "linux", reason="actors outlive the fork server elsewhere")
def test_actors_that_died_with_the_fork_server_are_missed(tmp_path):
    counter = Counter.options(name="counter").remote(3)
    with config().build_algo() as algo:
        path = algo.save_to_path(tmp_path / "1")
        kill_fork_server()
        assert counter._address.wait_for_end(10.0)
        with pytest.raises(CheckpointWriteError, match="actor 'counter'"):
            algo.save_to_path(tmp_path / "2")
        counter = Counter.options(name="counter").remote()
        algo.restore_from_path(path)
        algo.save_to_path(tmp_path / "2")
    assert actors.get(counter.get.remote()) == 3
    actors.shutdown()


def test_only_this_user_reaches_the_fork_server(monkeypatch):
    """Some versions of Python would give its socket a name that every user can connect to."""
    monkeypatch.setattr(util, "abstract_sockets_supported", True, raising=False)
    make_context("forkserver", lambda _process, _arguments: None)
    assert not util.abstract_sockets_supported
    with config().build_algo():
        folder = Path(SERVER._forkserver_address).parent
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.stat().st_uid == os.geteuid()


class Imported:
    """What a worker has at its beginning, of modules that nothing here imports."""

    def __init__(self, signals):
        self.found = "colorsys" in sys.modules

    def report(self):
        return self.found

    def failure_context(self):
        return {}

    def close(self):
        pass


def has_preloaded(*modules):
    pool = WorkerPool(["worker"], preload_modules=modules)
    try:
        pool[1].start(pack(Imported))
        answer = pool.next_outcome()[1]
        return bool(answer.value)
    finally:
        pool.stop()


@pytest.mark.parametrize("has_worker", [False, True])
def test_a_server_without_workers_makes_room_for_one_that_has_a_slow_import(
    has_worker, monkeypatch
):
    monkeypatch.setattr(fork_server, "_SLOW_IMPORTS", frozenset({"colorsys"}))
    assert not has_preloaded()
    pid = SERVER._forkserver_pid
    if has_worker:
        with config().build_algo() as algo:
            assert not has_preloaded("colorsys")
            assert SERVER._forkserver_pid == pid
            algo.train()
        return
    assert has_preloaded("colorsys")
    assert not is_process_alive(pid)
    pid = SERVER._forkserver_pid
    assert has_preloaded()
    assert has_preloaded("colorsys"), "it is not started anew for what it has"
    assert SERVER._forkserver_pid == pid
    fork_server.preload((), "forkserver")
    SERVER._stop()  # the servers of other tests are not to have it


def kill_fork_server():
    """Kills it and waits until it is dead, but leaves it for multiprocessing to notice."""
    pid = SERVER._forkserver_pid
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) is not None)


def test_a_fork_server_killed_between_iterations_makes_no_difference():
    assert outcome(lambda _: kill_fork_server()) == undisturbed()


def test_a_fork_server_whose_end_the_program_was_told_instead_of_us_makes_no_difference():
    def disturb(_):
        kill_fork_server()
        os.waitpid(SERVER._forkserver_pid, 0)  # as os.wait() does

    assert outcome(disturb) == undisturbed()


def test_a_temporary_folder_that_was_cleared_away_makes_no_difference():
    def clear(algo):
        shutil.rmtree(Path(SERVER._forkserver_address).parent)
        kill(algo.env_runner_group, 1)

    assert outcome(clear) == outcome(lambda _: None)


class NotingLock:
    """A lock that notes that someone waits for it."""

    def __init__(self):
        self.lock = threading.RLock()
        self.is_waited_for = threading.Event()

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            self.is_waited_for.set()
            self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_an_exit_code_is_not_lost_while_another_process_is_started(monkeypatch):
    """multiprocessing asks for those of all its processes, whenever it starts another one."""
    lock = NotingLock()
    monkeypatch.setattr(fork_server, "_LOCK", lock)
    read = vars(forkserver)["read_signed"]
    make = vars(make_context("forkserver", lambda _process, _arguments: None))["Process"]
    process, other = make(target=os._exit, args=(7,)), make(target=os._exit, args=(8,))
    with signals_deferred():
        process.start()
    starter = threading.Thread(target=other.start)

    def read_late(descriptor):
        monkeypatch.setattr(forkserver, "read_signed", read)
        starter.start()
        assert lock.is_waited_for.wait(20), "the other one is started in this very moment"
        return read(descriptor)

    monkeypatch.setattr(forkserver, "read_signed", read_late)
    with signals_deferred():
        process.join()
        starter.join()
        other.join()
    assert (process.exitcode, other.exitcode) == (7, 8)


@pytest.mark.parametrize("has_connected", [False, True])
def test_a_fork_server_that_dies_while_a_worker_starts_makes_no_difference(
    has_connected, monkeypatch, caplog
):
    ensure_running, connect = SERVER.ensure_running, forkserver.connect_to_new_process

    def dies_before_the_connection():
        monkeypatch.setattr(SERVER, "ensure_running", ensure_running)
        ensure_running()
        kill_fork_server()

    def dies_after_the_connection(fds):
        monkeypatch.setattr(forkserver, "connect_to_new_process", connect)
        os.kill(SERVER._forkserver_pid, signal.SIGSTOP)  # connected, but the request is not taken
        connected = connect(fds)
        kill_fork_server()
        return connected

    def disturb(algo):
        if has_connected:
            monkeypatch.setattr(forkserver, "connect_to_new_process", dies_after_the_connection)
        else:
            monkeypatch.setattr(SERVER, "ensure_running", dies_before_the_connection)
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)

    assert outcome(disturb) == undisturbed()
    assert "could not be started" in caplog.text


@pytest.fixture
def short_patience(monkeypatch):
    monkeypatch.setattr(fork_server, "STOPPED_LIMIT_S", 0.1)
    monkeypatch.setattr(local_engine, "SUSPICIOUS_S", 0.2)


def stop_fork_server():
    """Stops it and waits until it is; it cannot tell of deaths then, nor start workers."""
    os.kill(SERVER._forkserver_pid, signal.SIGSTOP)
    os.waitid(os.P_PID, SERVER._forkserver_pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("dies_first", [True, False])
def test_a_fork_server_that_is_stopped_makes_no_difference(dies_first, caplog):
    def disturb(algo):
        pid = algo.env_runner_group.env_runner_pids()[1]
        if dies_first:
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda: not is_process_alive(pid))
        stop_fork_server()
        if not dies_first:  # this death is not reported
            os.kill(pid, signal.SIGKILL)

    assert outcome(disturb) == undisturbed()
    assert "is stopped (SIGSTOP). It is ended, and the workers" in caplog.text


@pytest.mark.usefixtures("short_patience")
def test_who_waits_for_the_end_of_a_process_ends_a_stopped_fork_server(caplog):
    context = make_context("forkserver", lambda *_: None)
    process = context.Process(target=time.sleep, args=(3600,))
    with signals_deferred():
        process.start()
    stop_fork_server()  # it cannot tell of the end
    os.kill(process.pid, signal.SIGKILL)
    waiting = threading.Thread(target=process.join, daemon=True)
    waiting.start()
    waiting.join(20)
    assert not waiting.is_alive()
    assert "is stopped (SIGSTOP). It is ended" in caplog.text


@pytest.mark.usefixtures("short_patience")
def test_an_algorithm_is_built_and_stopped_beside_a_stopped_fork_server():
    with config().build_algo():
        pass
    stop_fork_server()
    with config().build_algo() as algo:
        algo.train()
        stop_fork_server()
    assert algo.env_runner_group.env_runner_pids() == {}


def test_a_fork_server_that_hangs_is_replaced_after_a_while(monkeypatch, caplog):
    end = fork_server._end

    def end_once(pid, why):
        monkeypatch.setattr(fork_server, "ANSWER_LIMIT_S", 60.0)  # the next one imports first
        end(pid, why)

    with config().build_algo():
        pass
    stop_fork_server()
    monkeypatch.setattr(fork_server, "_is_stopped", lambda _: False)  # it hangs
    monkeypatch.setattr(fork_server, "ANSWER_LIMIT_S", 0.5)
    monkeypatch.setattr(fork_server, "_end", end_once)
    with caplog.at_level("WARNING"), config().build_algo() as algo:
        algo.train()
    assert "has not answered for 0.5 s. It is ended" in caplog.text


def test_workers_that_can_never_be_started_are_an_error_after_three_tries(monkeypatch):
    tries = []

    def refuse(fds):
        tries.append(fds)
        raise OSError("no more processes")

    monkeypatch.setattr(forkserver, "connect_to_new_process", refuse)
    with pytest.raises(RunnerLostError, match=r"could not be started \(OSError: no more") as raised:
        config().env_runners(num_env_runners=1).build_algo()
    assert len(tries) == 3
    assert "failed 3 times in a row" in str(raised.value)
    assert "No process came up for it in 3 tries" in str(raised.value)


def test_an_executor_whose_lock_is_held_does_not_keep_the_fork_server_from_being_seen(monkeypatch):
    """As Python 3.12 does it: the executor's thread waits for the fork server, with the lock."""
    is_ended, has_shut_down = threading.Event(), threading.Event()

    class Watch:
        def look(self):
            is_ended.set()

    def shutdown(*, wait, cancel_futures):
        assert wait
        assert cancel_futures
        assert is_ended.wait(20)
        has_shut_down.set()

    monkeypatch.setattr(local_engine, "ForkServerWatch", Watch)
    executor = SimpleNamespace(shutdown=shutdown)
    with signals_deferred():
        local_engine._shut_down(executor)
    assert has_shut_down.is_set()

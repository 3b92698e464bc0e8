"""What every test gets: checks that it leaves nothing behind, and no lock to chance."""

import contextlib
import faulthandler
import functools
import gc
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gymnasium.vector
import hypothesis
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from checkpoints.signatures import DATA_VARIABLE
from tests.lock_guard import guarded_conditions, unguarded
from tests.ray_cluster import cluster_for_tests, why_no_ray
from trainer import actors
from trainer.actors import handles as actor_start
from trainer.algorithms import building
from trainer.runtime import local_engine, process_start
from trainer.testing.processes import wait_until

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_BYTECODE_FOLDER = "PYTHONPYCACHEPREFIX"
_RUN_BESIDE_OTHERS = "PYTEST_XDIST_WORKER"
_MANY_PROCESSES = 20
_NEW_OBJECTS = 20_000
"""After so many, Python looks for garbage."""
_IMPORTED_BY_TESTS = (
    "pytest",
    "trainer",
    "trainer.testing.envs",
    "trainer.tune",
    "gymnasium.envs.classic_control",
)

_HANGS_AFTER_S = 120
_ARMED_AT = pytest.StashKey[float]()

if not hasattr(gymnasium.vector, "AutoresetMode"):
    # Their cases are its modes; gymnasium 1.0 has one, and no name for it.
    collect_ignore_glob = ["integration/test_vector_envs*.py"]

# A busy machine makes any example late once; tests that may hang have limits of their own.
hypothesis.settings.register_profile("few", deadline=None, max_examples=40)
hypothesis.settings.register_profile("many", deadline=None, max_examples=400)  # `make test-long`
hypothesis.settings.load_profile("few")


def pytest_sessionstart(session):
    """Nothing is looked through for garbage while tests are collected: they all stay.

    And what tests save is signed with a key of theirs, which their processes inherit.
    """
    gc.disable()
    if DATA_VARIABLE not in os.environ:
        folder = tempfile.mkdtemp(prefix="local-trainer-tests-")
        os.environ[DATA_VARIABLE] = folder
        session.config.add_cleanup(functools.partial(shutil.rmtree, folder, ignore_errors=True))


@pytest.fixture
def as_another_user(tmp_path, monkeypatch):
    """What was saved until now is somebody else's, as on another machine."""
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data of another user"))


def pytest_collection_finish():
    """Leaves what is there when all tests are collected out of every collection of garbage.

    A million objects, modules and tests: to look through them takes 0.2 s, in each test that looks
    for leaks or drops an algorithm. And garbage is looked for less often than Python does by
    itself, which takes a twentieth of the processor time of all tests.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_NEW_OBJECTS)


def pytest_runtest_setup(item):
    """Lets a test that hangs for 120 s, or for 60 s more, say where; a slow one after an hour.

    As pytest's `faulthandler_timeout`, which starts and ends a thread for each test: as much
    processor time as a fifth of what pytest does for one. A test that is busy may crash when it is
    asked where: frames are read while they change. So a slow one is not asked while it may be.
    """
    now, stash = time.monotonic(), item.config.stash
    is_slow = item.get_closest_marker("slow") is not None
    if is_slow or now - stash.get(_ARMED_AT, -math.inf) > _HANGS_AFTER_S / 2:
        stash[_ARMED_AT] = -math.inf if is_slow else now
        to = stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(3600.0 if is_slow else 1.5 * _HANGS_AFTER_S, file=to)


@pytest.fixture(autouse=True, scope="session")
def signals_do_what_they_do_in_a_terminal():
    """Whatever started the tests: shells let what runs in the background ignore Ctrl-C.

    Processes inherit that, so it holds for programs that tests start, too.
    """
    expected = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in expected.items()}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, set(expected))
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def processes_start_from_bytecode(request, tmp_path_factory):
    """Where Python may write no bytecode, the processes of tests find some in a temporary folder.

    Else each of them compiles all our modules: 0.65 s instead of 0.35 s, some hundred times.
    """
    num_processes = sum("process" in item.keywords for item in request.session.items)
    if not os.environ.get(_NO_BYTECODE) or num_processes < _MANY_PROCESSES:
        yield
        return
    base = tmp_path_factory.getbasetemp()
    is_one_of_several = _RUN_BESIDE_OTHERS in os.environ
    folder = (base.parent if is_one_of_several else base) / "bytecode"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(_NO_BYTECODE)
        patch.setenv(_BYTECODE_FOLDER, str(folder))
        # Processes that multiprocessing starts inherit the ban and only read, so this one writes.
        with contextlib.suppress(FileExistsError):  # another one does it
            folder.mkdir()
            subprocess.run([sys.executable, "-c", "import trainer.cli.main, pytest"], check=True)
        yield


@pytest.fixture(autouse=True, scope="session")
def processes_have_imported_what_tests_import():
    """The fork server preloads it: else each worker that needs a test's class imports pytest.

    That takes 0.1 s, and 0.02 s is all that the start of a worker takes otherwise.
    """

    def preload(modules, start_method):
        process_start.preload((*modules, *_IMPORTED_BY_TESTS), start_method)

    with pytest.MonkeyPatch.context() as patch:
        for user in (actor_start, local_engine):
            patch.setattr(user, "preload", preload)
        # One that has Torch takes longer to start a worker, and most tests do without.
        patch.setattr(process_start, "_SLOW_IMPORTS", frozenset())
        preload((), "forkserver")  # whoever starts the server: tests may, too
        yield


@pytest.fixture(autouse=True, scope="session")
def ray_cluster(request):
    """A Ray cluster of two machines, as far as Ray knows; None if no test of this run needs it."""
    if why_no_ray() or not any("ray" in item.keywords for item in request.session.items):
        yield None
        return
    with cluster_for_tests() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def algorithms_of_a_test_end_with_it():
    """To define an algorithm is to register it, and errors list all that there are."""
    before = dict(building._ALGORITHMS)
    yield
    building._ALGORITHMS.clear()
    building._ALGORITHMS.update(before)


@pytest.fixture(autouse=True, scope="session")
def conditions_are_guarded():
    """See `enters_no_condition_unguarded`."""
    with guarded_conditions():
        yield


@pytest.fixture(autouse=True)
def enters_no_condition_unguarded():
    """Fails a test in which an interrupt could have left a lock taken that a thread waits for."""
    yield
    found = dict.fromkeys(unguarded)
    unguarded.clear()
    assert not found, f"Put signals off there (trainer_toolkit.interrupts): {', '.join(found)}"


@pytest.fixture(autouse=True)
def needs_ray(request):
    """Skips tests with the marker `ray` where Ray is missing."""
    if "ray" in request.keywords and why_no_ray():
        pytest.skip(why_no_ray())


@pytest.fixture(autouse=True)
def leaves_nothing_behind():
    """Fails a test after which more processes or threads live than before it."""
    threads_before = set(threading.enumerate())
    yield

    def processes():
        return [process.name for process in multiprocessing.active_children()]

    def threads():
        new = [thread.name for thread in threading.enumerate() if thread not in threads_before]
        return [name for name in new if name != "tqdm_monitor"]  # of torch.onnx: one, for good

    if processes() or threads():
        gc.collect()
    assert wait_until(lambda: not processes()), f"processes are left: {processes()}"
    assert wait_until(lambda: not threads()), f"threads are left: {threads()}"


@pytest.fixture
def actors_end():
    """Ends the actors of this process: what another test left, and those of this one."""
    actors.shutdown()
    yield
    actors.shutdown()


@pytest.fixture(params=["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def start_method(request, monkeypatch):
    """How workers start; a spawned one takes most of a second, a forked one some milliseconds."""
    monkeypatch.setenv(process_start.START_METHOD_VARIABLE, request.param)
    return request.param

"""Actors and those who use them, dying in every way."""

# mypy: disable-error-code="attr-defined"
# Type checkers take a decorated class for the class itself.

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from trainer import actors
from trainer.actors.connection import _Process
from trainer.actors.registry import (
    DETACHED_REGISTRY_VARIABLE,
    ActorRegistry,
    registry_of_this_process,
)
from trainer.errors import RemoteError
from trainer.runtime.process_start import START_METHOD_VARIABLE
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("actors_end")]


@pytest.fixture
def detached_registry(monkeypatch):
    """One for detached actors that no other test sees; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="lt-") as folder:
        monkeypatch.setenv(DETACHED_REGISTRY_VARIABLE, folder)
        yield folder


@actors.remote
class Fragile:
    def __init__(self, error=None):
        if error is not None:
            raise LookupError(error)

    def pid(self):
        return os.getpid()

    def exit(self, code):
        os._exit(code)

    def leave(self):
        sys.exit(3)

    def segfault(self):
        faulthandler.disable()
        ctypes.string_at(0)

    def be_killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def sleep(self):
        time.sleep(600)


@actors.remote
class Asker:
    def how_it_ends(self, fragile, code):
        try:
            actors.get(fragile.exit.remote(code))
        except actors.ActorDiedError as error:
            return str(error)
        return "it lives"

    def kill(self, fragile):
        actors.kill(fragile)


@pytest.mark.parametrize(
    "start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("method", "args", "how"),
    [
        ("exit", (7,), "ended with exit code 7"),
        ("segfault", (), "SIGSEGV"),
        ("be_killed", (), "SIGKILL"),
    ],
)
def test_a_dead_actor_is_named_with_how_it_ended(start_method, method, args, how, monkeypatch):
    monkeypatch.setenv(START_METHOD_VARIABLE, start_method)
    fragile = Fragile.options(name="fragile").remote()
    answers = [getattr(fragile, method).remote(*args), fragile.pid.remote()]
    for answer in answers:
        with pytest.raises(actors.ActorDiedError, match=rf"'fragile' \(Fragile\).*{how}"):
            actors.get(answer, timeout=20)
    with pytest.raises(actors.ActorDiedError, match=how):
        fragile.pid.remote()
    assert actors.get(Fragile.options(name="fragile").remote().pid.remote()) > 0


def test_leaving_is_an_error_of_the_call_only():
    fragile = Fragile.remote()
    with pytest.raises(RemoteError, match="SystemExit"):
        actors.get(fragile.leave.remote())
    assert actors.get(fragile.pid.remote()) > 0


def test_an_actor_that_could_not_be_made_says_why():
    fragile = Fragile.options(name="fragile").remote("no such thing")
    with pytest.raises(
        actors.ActorDiedError, match=r"raised builtins\.LookupError: no such"
    ) as caught:
        actors.get(fragile.pid.remote(), timeout=20)
    assert isinstance(caught.value.__cause__, LookupError)
    assert wait_until(lambda: not fragile._address.is_alive())
    # No process listens any more, which is not what is to be told.
    with pytest.raises(actors.ActorDiedError, match="no such") as caught:
        fragile.pid.remote()
    assert isinstance(caught.value.__cause__, LookupError)
    assert actors.get(Fragile.options(name="fragile").remote().pid.remote()) > 0


def test_connections_to_actors_that_ended_are_forgotten():
    for _ in range(3):
        fragile = Fragile.remote()
        assert actors.get(fragile.pid.remote()) > 0
        assert fragile._address.socket_path in _Process.links
        actors.kill(fragile)
        # No further call: what is never used again is what would stay.
        assert wait_until(lambda: not _Process.links)


def test_other_processes_learn_how_an_actor_ended():
    fragile = Fragile.options(name="fragile").remote()
    asker = Asker.remote()
    told = actors.get(asker.how_it_ends.remote(fragile, 7), timeout=20)
    assert "actor 'fragile' (Fragile), process" in told
    assert "ended with exit code 7" in told


def test_a_busy_actor_can_be_killed():
    fragile = Fragile.remote()
    pid = actors.get(fragile.pid.remote())
    answer = fragile.sleep.remote()
    actors.kill(fragile)
    assert not is_process_alive(pid)
    with pytest.raises(actors.ActorDiedError, match=r"was ended by kill\(\)"):
        actors.get(answer, timeout=20)
    actors.kill(fragile)  # nothing to do


def test_an_actor_can_be_killed_by_others_even_if_it_is_stopped():
    fragile = Fragile.options(name="fragile").remote()
    os.kill(actors.get(fragile.pid.remote()), signal.SIGSTOP)
    actors.get(Asker.remote().kill.remote(fragile), timeout=20)
    with pytest.raises(actors.ActorNameError):
        actors.get_actor("fragile")
    with pytest.raises(actors.ActorDiedError, match=r"was ended by kill\(\)"):
        actors.get(fragile.pid.remote(), timeout=20)
    assert actors.get(Fragile.options(name="fragile").remote().pid.remote()) > 0


_DRIVER = """
import os, signal, sys, time
from trainer import actors
from trainer.actors.registry import registry_of_this_process

@actors.remote
class Holder:
    def pid(self):
        return os.getpid()
    def put(self, value):
        self.value = value
        return value
    def get(self):
        return self.value

handle = Holder.options(name="held", {options}).remote()
print(actors.get(handle.put.remote(42)) and actors.get(handle.pid.remote()), flush=True)
print(registry_of_this_process().directory, flush=True)
{ending}
"""


def run_driver(ending, options=""):
    script = _DRIVER.format(ending=ending, options=options)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stdout.split()
    assert len(lines) == 2, done.stderr
    if ending != _SIGKILL:
        assert done.stderr == "" or "RuntimeError: end" in done.stderr
    return done.returncode, int(lines[0]), lines[1]


_SIGKILL = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("start_method", "ending"),
    [
        ("forkserver", "raise RuntimeError('end')"),
        ("forkserver", _SIGKILL),
        *(
            pytest.param(start_method, ending, marks=pytest.mark.slow)
            for start_method, ending in [
                ("forkserver", "pass"),
                ("forkserver", "sys.exit(0)"),
                ("spawn", _SIGKILL),
                ("spawn", "pass"),
                ("spawn", "sys.exit(0)"),
                ("spawn", "raise RuntimeError('end')"),
            ]
        ),
    ],
)
def test_actors_end_with_the_process_that_made_them(start_method, ending, monkeypatch):
    monkeypatch.setenv(START_METHOD_VARIABLE, start_method)
    code, pid, folder = run_driver(ending)
    assert code == {"raise RuntimeError('end')": 1, _SIGKILL: -signal.SIGKILL}.get(ending, 0)
    assert wait_until(lambda: not is_process_alive(pid))
    if ending == _SIGKILL:
        run_driver("pass")  # the next one sweeps
    assert not Path(folder).exists()


@pytest.mark.parametrize("ending", [pytest.param("pass", marks=pytest.mark.slow), _SIGKILL])
def test_a_detached_actor_outlives_its_maker(detached_registry, ending):
    _, pid, _ = run_driver(ending, "lifetime='detached'")
    handle = actors.get_actor("held")
    assert actors.get(handle.get.remote(), timeout=20) == 42
    with pytest.raises(actors.ActorNameError, match="taken"):
        Fragile.options(name="held").remote()
    actors.shutdown()
    assert is_process_alive(pid)
    actors.kill(handle)
    assert wait_until(lambda: not is_process_alive(pid))
    assert not ActorRegistry(detached_registry).names()
    with pytest.raises(actors.ActorDiedError, match=r"kill\(\)"):
        handle.get.remote()


def test_actors_that_ended_leave_no_file_behind(detached_registry):
    """However they end; that is told to those who ask later, all the same."""
    gone = []
    for ending, how in (("exit", "exit code 7"), ("kill", r"kill\(\)"), ("raise", "no such")):
        for options in ({}, {"name": ending}, {"lifetime": "detached"}):
            arguments = ("no such thing",) if ending == "raise" else ()
            fragile = Fragile.options(**options).remote(*arguments)
            if ending == "exit":
                fragile.exit.remote(7)
            elif ending == "kill":
                actors.kill(fragile)
            gone.append((fragile, how))
    for fragile, how in gone:
        assert fragile._address.wait_for_end(10.0)
        with pytest.raises(actors.ActorDiedError, match=how):
            actors.get(fragile.pid.remote(), timeout=20)
    left = {"lock", "endings"}
    own = Path(registry_of_this_process().directory)
    assert wait_until(lambda: {path.name for path in own.iterdir()} <= {*left, "owner"})
    assert wait_until(lambda: {path.name for path in Path(detached_registry).iterdir()} <= left)


def test_traces_of_a_detached_actor_that_died_alone_go_with_the_next_one(detached_registry):
    _, pid, _ = run_driver("pass", "lifetime='detached'")
    os.kill(pid, signal.SIGKILL)  # it is not watched any more
    assert wait_until(lambda: not is_process_alive(pid))
    assert len(list(Path(detached_registry).iterdir())) > 3
    actors.kill(Fragile.options(lifetime="detached").remote())
    assert wait_until(
        lambda: {path.name for path in Path(detached_registry).iterdir()} == {"lock", "endings"}
    )


def test_a_folder_that_others_can_enter_is_refused(detached_registry):
    Path(detached_registry).chmod(0o755)
    with pytest.raises(actors.ActorError, match="can be entered by other users"):
        Fragile.options(name="held", lifetime="detached").remote()


def test_fork_does_not_share_connections():
    script = """
import os
from trainer import actors

@actors.remote
class Counter:
    def __init__(self):
        self.count = 0
    def inc(self):
        self.count += 1
        return self.count

counter = Counter.remote()
actors.get(counter.inc.remote())
pid = os.fork()
for _ in range(100):
    actors.get(counter.inc.remote(), timeout=20)
if pid == 0:
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(status, actors.get(counter.inc.remote()))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["0", "202"]


def test_a_program_that_ends_ends_its_actors_though_their_folder_is_gone():
    script = """
import os, shutil
from trainer import actors
from trainer.actors.registry import registry_of_this_process

@actors.remote
class Keeper:
    def pid(self):
        return os.getpid()

print(actors.get(Keeper.options(name="keeper").remote().pid.remote()), flush=True)
shutil.rmtree(registry_of_this_process().directory)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert wait_until(lambda: not is_process_alive(int(done.stdout)))

"""Processes that an env starts end with its runner, however the runner or the main process ends."""

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from trainer import PPOConfig, actors
from trainer.runtime import process_start as process_groups
from trainer.runtime.process_start import START_METHOD_VARIABLE
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = pytest.mark.process

both_ways = pytest.mark.parametrize(
    "start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)]
)


class SimulatorEnv(CountdownEnv):
    """Starts two processes: one that belongs to it, and one that is to outlive it."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.folder = Path(env_config["folder"])
        for name, is_detached in (("own", False), ("detached", True)):
            process = subprocess.Popen(
                ["sleep", "60"], stdout=subprocess.DEVNULL, start_new_session=is_detached
            )
            self.note(name, process.pid)
        atexit.register(self.note, "handler", 1)
        if env_config.get("hangs"):
            atexit.register(time.sleep, 60)

    def note(self, name, number):
        with (self.folder / name).open("a") as file:
            file.write(f"{number}\n")

    def close(self):
        self.note("closed", 1)


def noted(folder, name):
    file = folder / name
    return [int(line) for line in file.read_text().split()] if file.exists() else []


@pytest.fixture
def short_folder():
    """A path with room for the name of a socket: 108 bytes in all, and pytest's own are long."""
    with tempfile.TemporaryDirectory(prefix="lt-") as name:
        yield Path(name)


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    for pid in noted(tmp_path, "own") + noted(tmp_path, "detached"):
        if is_process_alive(pid):
            os.kill(pid, signal.SIGKILL)


def build(folder, **env_config):
    config = PPOConfig().environment(SimulatorEnv, env_config={"folder": str(folder), **env_config})
    config.env_runners(num_env_runners=1)
    config.training(train_batch_size=20, minibatch_size=20, num_epochs=1)
    return config.training(model={"fcnet_hiddens": [8]}).build_algo()


def runner_pid(algo):
    return algo.env_runner_group.env_runner_pids()[1]


def all_ended(pids):
    return wait_until(lambda: not any(is_process_alive(pid) for pid in pids))


@both_ways
def test_stop_closes_envs_runs_atexit_handlers_and_ends_what_is_left(
    start_method, folder, monkeypatch
):
    monkeypatch.setenv(START_METHOD_VARIABLE, start_method)
    build(folder).stop()
    assert noted(folder, "closed") == noted(folder, "handler") == [1]
    assert all_ended(noted(folder, "own"))
    assert all(map(is_process_alive, noted(folder, "detached")))


def test_an_atexit_handler_that_hangs_is_waited_for_no_longer_than_an_env_that_closes(
    folder, caplog, monkeypatch
):
    monkeypatch.setattr("trainer.runner_group.runners.CLOSING_S", 0.3)
    algo = build(folder, hangs=True)
    begun_at = time.monotonic()
    algo.stop()
    assert time.monotonic() - begun_at < 20.0, "not the 60 s of the handler"
    assert "did not close within 0.3 s: close() of its envs or an atexit handler" in caplog.text


@both_ways
def test_a_killed_runner_takes_its_simulators_along(start_method, folder, monkeypatch):
    monkeypatch.setenv(START_METHOD_VARIABLE, start_method)
    with build(folder) as algo:
        (simulator,) = noted(folder, "own")
        os.kill(runner_pid(algo), signal.SIGKILL)
        algo.train()
        assert all_ended([simulator])
        detached, _ = noted(folder, "detached")
        assert is_process_alive(detached)
        assert is_process_alive(noted(folder, "own")[1])
    assert noted(folder, "closed") == [1]


def test_simulators_of_an_idle_runner_that_is_killed_end_although_nobody_asks_for_it(folder):
    with build(folder) as algo:
        os.kill(runner_pid(algo), signal.SIGKILL)
        assert all_ended(noted(folder, "own"))


def test_a_killed_reaper_is_replaced(folder):
    with build(folder) as algo:
        algo.train()
        first = process_groups.reaper_pid()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert all_ended([first])  # who is told while it dies is not missed before the next time
        os.kill(runner_pid(algo), signal.SIGKILL)
        algo.train()
        assert process_groups.reaper_pid() not in (None, first)
        assert all_ended(noted(folder, "own")[:1])
        os.kill(runner_pid(algo), signal.SIGKILL)  # the new one knows of its group
        assert all_ended(noted(folder, "own"))


def test_what_an_actor_started_ends_with_it(folder):
    class Starter:
        def pids(self):
            return os.getpid(), subprocess.Popen(["sleep", "60"]).pid

    for end in (lambda handle, _: actors.kill(handle), lambda _, pid: os.kill(pid, signal.SIGKILL)):
        handle = actors.remote(Starter).remote()
        actor, simulator = actors.get(handle.pids.remote())
        end(handle, actor)
        assert all_ended([actor, simulator])


SCRIPT = """
import sys
from tests.faults.test_env_children import build
from pathlib import Path
algo = build(Path(sys.argv[1]))
algo.train()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("start_method", "whom"),
    [
        ("forkserver", "process"),
        ("spawn", "group"),
        pytest.param("forkserver", "group", marks=pytest.mark.slow),
        pytest.param("spawn", "process", marks=pytest.mark.slow),
    ],
)
def test_simulators_and_folders_go_with_a_killed_main_process(
    start_method, whom, folder, short_folder
):
    temporary = short_folder
    main = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, START_METHOD_VARIABLE: start_method, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    with main:
        assert main.stdout is not None
        assert main.stdout.readline() == "ready\n"
        assert list(temporary.glob("pymp-*")) != []
        (os.kill if whom == "process" else os.killpg)(main.pid, signal.SIGKILL)
        assert main.stdout.read() == ""
    assert all_ended(noted(folder, "own"))
    assert all(map(is_process_alive, noted(folder, "detached")))
    assert wait_until(lambda: list(temporary.glob("pymp-*")) == [])

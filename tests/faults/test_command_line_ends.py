"""Ctrl-C and SIGTERM on the command line: a checkpoint, a message, three seconds, nothing left."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from checkpoints import latest_checkpoint, read_manifest, verify
from tests.command_line import SMALL, command
from trainer.cli import training_run
from trainer.testing.processes import wait_until

pytestmark = pytest.mark.process

PROJECT = Path(__file__).resolve().parents[2]
LIMIT_S = 3.0
FINISHING_S = 0.5
"""What an iteration gets in these tests, so that a busy machine has time for the rest."""

GET_STUCK = """
import threading
from pathlib import Path

def get_stuck():
    Path(__file__).with_name("is_there").touch()
    while not threading.Event().wait(0.1):
        pass  # in pieces: Python forgets a signal that comes right before an endless wait
"""
ENVS = f"""
{GET_STUCK}
from trainer.cli import training_run
from trainer.testing.envs import CountdownEnv

training_run._FINISHING_S = {FINISHING_S}

class Obedient(CountdownEnv):
    pass

class StuckWhenMade(CountdownEnv):
    def __init__(self, env_config):
        super().__init__(env_config)
        get_stuck()

class StuckInStep(CountdownEnv):
    def step(self, action):
        get_stuck()

    def close(self):
        get_stuck()

class StuckInEvaluation(CountdownEnv):
    def __init__(self, env_config):
        super().__init__(env_config)
        self.is_stuck = env_config.get("is_stuck", False)

    def step(self, action):
        if self.is_stuck:
            get_stuck()
        return super().step(action)

class StuckInClose(CountdownEnv):
    def close(self):
        get_stuck()

class Announcing(CountdownEnv):
    num_steps = 0
    def step(self, action):
        Announcing.num_steps += 1
        if Announcing.num_steps == 20:  # of 20 in the first request
            Path(__file__).with_name("is_there").touch()
        return super().step(action)
"""
EVALUATING = [
    "--set", "evaluation_interval=1", "--set", "evaluation_num_env_runners=1",
    "--set", 'evaluation_config={"env_config": {"is_stuck": true}}',
]  # fmt: skip


class Ended(NamedTuple):
    code: int
    out: str
    errors: str
    lasted_s: float


def started(folder, env, *words, runners=2):
    (folder / "my_envs.py").write_text(ENVS)
    line = command(
        "train", "--env", f"my_envs.{env}", *SMALL, "--num-env-runners", runners,
        "--run-dir", "run", *words,
    )  # fmt: skip
    paths = {"PYTHONPATH": os.pathsep.join([str(PROJECT), str(folder)]), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        line,
        cwd=folder,
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )


def send(process, number):
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: the runners get it, too
    else:
        process.send_signal(number)


def ended(process, *numbers):
    """Sends signals; returns when everyone has closed the pipes: no process is left."""
    since = time.monotonic()
    for count, number in enumerate(numbers):
        send(process, number)
        if count < len(numbers) - 1:
            assert process.stdout is not None
            while "Finishing the iteration" not in (line := process.stdout.readline()):
                assert line, "it ended without a word"
            # The first has arrived: two of a kind at once would be one.
    out, errors = process.communicate(timeout=30)
    return Ended(process.returncode, out, errors, time.monotonic() - since)


def once_there(process, folder):
    assert wait_until(lambda: (folder / "is_there").exists(), within_s=30)
    return process


WHERE = {
    "sampling": ("StuckInStep", 2, []),
    "sampling in the main process": ("StuckInStep", 0, []),
    "learning": ("Announcing", 2, ["--set", "num_epochs=1000000"]),
    "evaluation": ("StuckInEvaluation", 1, EVALUATING),
    "evaluation beside training": (
        "StuckInEvaluation",
        1,
        [*EVALUATING, "--set", "evaluation_parallel_to_training=true"],
    ),
    "asynchronous evaluation": (
        "StuckInEvaluation",
        1,
        [*EVALUATING, "--set", "enable_async_evaluation=true"],
    ),
}
DEFAULT = {("sampling", signal.SIGINT), ("evaluation beside training", signal.SIGTERM)}


def place(where, number):
    marks = () if (where, number) in DEFAULT else (pytest.mark.slow,)
    return pytest.param(where, number, id=f"{where}-{number.name}", marks=marks)


@pytest.mark.parametrize(
    ("where", "number"),
    [place(where, number) for where in WHERE for number in (signal.SIGINT, signal.SIGTERM)],
)
def test_the_first_signal_leaves_a_checkpoint_and_ends_in_time(where, number, tmp_path):
    env, runners, words = WHERE[where]
    process = once_there(started(tmp_path, env, *words, runners=runners), tmp_path)
    found = ended(process, number)
    assert found.code == 130
    told = [line for line in found.errors.splitlines() if not line.startswith("WARNING An asyn")]
    assert told == []
    assert "Stopped by you; " in found.out
    assert found.lasted_s < LIMIT_S
    saved = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert saved is not None
    verify(saved)


def test_what_is_waited_for_leaves_a_second_for_all_the_rest():
    assert training_run._FINISHING_S + training_run._STOPPING_S <= LIMIT_S - 1.0


def test_a_second_signal_ends_at_once(tmp_path, monkeypatch):
    # After the first one, the run would wait for the iteration until the test gives up.
    waiting = ENVS.replace(f"_FINISHING_S = {FINISHING_S}", "_FINISHING_S = 600.0")
    monkeypatch.setattr(sys.modules[__name__], "ENVS", waiting)
    process = once_there(started(tmp_path, "StuckInStep"), tmp_path)
    found = ended(process, signal.SIGINT, signal.SIGINT)
    assert found.code == 130
    assert found.errors == "Stopped.\n"
    assert found.lasted_s < 20.0


def in_terminal(folder, *before):
    """A run as the leader of a terminal of its own, and the other end of the terminal."""
    ours, theirs = os.openpty()
    line = command("train", "--env", "CartPole-v1", *SMALL, "--num-env-runners", 2, "--run-dir")
    process = subprocess.Popen(
        [*before, *line, "run"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        start_new_session=True,
    )
    os.close(theirs)
    return process, ours


def test_a_closed_terminal_leaves_a_checkpoint_of_the_last_iteration(tmp_path):
    process, terminal = in_terminal(tmp_path)
    results = tmp_path / "run" / "results.jsonl"
    assert wait_until(lambda: results.exists() and results.read_text().count("\n") >= 2)
    since = time.monotonic()
    os.close(terminal)  # the kernel sends SIGHUP to the run and its runners
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGHUP)  # and so does the shell
    assert process.wait(timeout=30) == 130
    assert time.monotonic() - since < LIMIT_S
    saved = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert saved is not None
    verify(saved)
    rows = results.read_text().splitlines()
    assert read_manifest(saved).metadata["training_iteration"] == len(rows) >= 2
    faults = json.loads(rows[-1])["fault_tolerance"]
    assert faults["num_remote_worker_restarts"] == 0, "no runner hears of it"


def test_a_run_under_nohup_outlives_its_terminal(tmp_path):
    process, terminal = in_terminal(tmp_path, "nohup")
    results = tmp_path / "run" / "results.jsonl"
    assert wait_until(lambda: results.exists() and results.read_text().count("\n") >= 1)
    os.close(terminal)
    num_rows = results.read_text().count("\n")
    assert wait_until(lambda: results.read_text().count("\n") >= num_rows + 3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130


@pytest.mark.parametrize(
    ("env", "number"),
    [
        ("StuckWhenMade", signal.SIGINT),
        pytest.param("StuckWhenMade", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("StuckInClose", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("StuckInClose", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_signal_before_or_after_the_run_is_one_word(env, number, tmp_path):
    process = once_there(started(tmp_path, env, "--stop-iterations", 1), tmp_path)
    found = ended(process, number)
    assert found.code == 130
    assert found.errors == "Stopped.\n"
    assert found.lasted_s < LIMIT_S
    has_begun = env == "StuckInClose"
    assert (tmp_path / "run").exists() == has_begun
    assert (latest_checkpoint(tmp_path / "run" / "checkpoints") is not None) == has_begun


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_signal_at_any_moment_ends_in_time(seed, tmp_path):
    rng = np.random.default_rng(seed)
    number = signal.Signals(rng.choice([signal.SIGINT, signal.SIGTERM]))
    words = ["--stop-iterations", 1000, "--checkpoint-every", 1, "--set", "evaluation_interval=1"]
    process = started(tmp_path, "Obedient", *words)
    is_running = wait_until(lambda: (tmp_path / "run").exists(), within_s=30)
    assert is_running, "while Python imports, it ends as any program in Python does"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=rng.uniform(0.0, 2.0))
    found = ended(process, number)
    assert found.code == 130
    assert found.errors in ("", "Stopped.\n")
    assert found.lasted_s < LIMIT_S
    saved = latest_checkpoint(tmp_path / "run" / "checkpoints")
    if saved is not None:
        verify(saved)
        rows = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
        assert read_manifest(saved).metadata["training_iteration"] == len(rows)
    else:
        assert found.errors == "Stopped.\n"

"""Tuner and trials are killed at any moment: the experiment ends as if none had been."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from tests.faults.killed_runs import PROJECT
from tests.faults.tuned_runs import EXPERIMENT
from trainer.testing import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="kills processes"),
]

JOURNAL = EXPERIMENT / "journal.jsonl"
DEADLINE_S = 100.0


def script(kind, trainable):
    return [sys.executable, "-m", "tests.faults.tuned_runs", kind, trainable]


def environment():
    return {**os.environ, "PYTHONPATH": str(PROJECT)}


@functools.cache
def undisturbed(kind, trainable):
    """What an experiment comes to that is not killed, and the size of its journal in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            script(kind, trainable), cwd=folder, env=environment(), check=True, capture_output=True
        )
        return json.loads(done.stdout), (Path(folder) / JOURNAL).stat().st_size


VICTIMS = ("trial", "tuner", "all")
"""The process of a trial; that of the tuner; the tuner and everything that it has started."""


class Killed:
    """An experiment whose processes are killed when its journal has grown to some size.

    Attributes:
        kills: victims, in order.
        warnings: what all attempts wrote to stderr.
    """

    def __init__(self, kind, trainable, folder, seed):
        self.line, self.folder = script(kind, trainable), folder
        _, self.full_size = undisturbed(kind, trainable)
        self.rng = np.random.default_rng(seed)
        self.kills = []
        self.warnings = ""

    def run(self, num_kills):
        """Kills so often, goes on each time, and lets the experiment come to its end."""
        while True:
            out = self.attempt(num_kills)
            if out is not None:
                return json.loads(out)

    def attempt(self, num_kills):
        """Begins or goes on until the tuner is killed; what it printed if it came to its end."""
        with subprocess.Popen(
            self.line, cwd=self.folder, env=environment(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            while len(self.kills) < num_kills and process.poll() is None:
                self.wait_for_a_moment(process, num_kills - len(self.kills))
                self.strike(process)
            out, err = process.communicate(timeout=DEADLINE_S)
            self.warnings += err.decode()
            if process.returncode == -signal.SIGKILL:
                return None
            assert process.returncode == 0, err.decode()
            return out

    def wait_for_a_moment(self, process, num_left):
        """Waits until the journal has grown by a random part of what is missing, and a bit more."""
        here = self.size()
        most = max(2, 2 * (self.full_size - here) // (num_left + 1))
        target = here + int(self.rng.integers(1, most))
        until = time.monotonic() + self.rng.exponential(0.03)
        wait_until(
            lambda: (
                process.poll() is not None or (self.size() >= target and time.monotonic() > until)
            ),
            within_s=DEADLINE_S,
        )

    def strike(self, process):
        """Kills one of the victims."""
        victim = VICTIMS[int(self.rng.integers(len(VICTIMS)))]
        below = descendants(process.pid)
        share = self.rng.random()
        if process.poll() is not None:
            return
        if victim == "trial":
            # What has no children: trials, and runners of theirs; not the fork servers.
            leaves = [pid for pid in below if not descendants(pid)]
            hit = leaves[int(share * len(leaves)) :][:1]
        else:
            hit = [process.pid, *(below if victim == "all" else ())]
        for pid in hit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if hit:
            self.kills.append(victim)

    def size(self):
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / JOURNAL).stat().st_size
        return 0


def descendants(pid):
    """The processes below one, which were started by copies of it or by their copies."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found = [pid]
    for parent in found:
        found += [child for child, above in pairs if above == parent]
    return found[1:]


def check(kind, trainable, folder, seed, num_kills):
    """An experiment that is killed so often comes to what an undisturbed one does.

    Returns:
        how often it was killed before it came to its end.
    """
    expected, _ = undisturbed(kind, trainable)
    assert expected["exact"] == []
    for trial in expected["trials"]:
        numbers = [float(number) for number in range(1, len(trial["rows"]) + 1)]
        assert trial["followed"] == [True, numbers]
    folder.mkdir(exist_ok=True)
    killed = Killed(kind, trainable, folder, seed)
    found = killed.run(num_kills)
    told = f"{kind} of {trainable}, seed {seed}, {killed.kills}\n{killed.warnings}"
    for old, new in zip(expected["trials"], found["trials"], strict=True):
        assert new == old, told
    assert found == expected, told
    assert "made again after a repair and is another one" not in killed.warnings, told
    return len(killed.kills)


def campaign(kind, trainable, folder, seed):
    """Experiments that are killed five times and gone on with, until there were so many kills."""
    done = run = 0
    while done < 5:
        done += check(kind, trainable, folder / str(run), 100 * run + seed, 5 - done)
        run += 1


def test_an_experiment_is_killed_and_comes_to_the_same(tmp_path):
    assert check("ASHA", "function", tmp_path, 1, num_kills=1)


SEEDS = range(5)
"""Five kills for each: 25 per kind."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["FIFO", "ASHA", "HYPERBAND", "POPULATION", "OPTUNA"])
def test_experiments_of_functions_are_killed_at_25_moments(kind, seed, tmp_path):
    campaign(kind, "function", tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["FIFO", "ASHA", "POPULATION", "OPTUNA"])
def test_experiments_of_16_algorithms_are_killed_at_25_moments(kind, seed, tmp_path):
    campaign(kind, "PPO", tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FIFO", "POPULATION"])
def test_experiments_of_algorithms_with_runners_are_killed(kind, tmp_path):
    campaign(kind, "PPO with runners", tmp_path, 1)

"""Tuner and trials are killed at any moment: the experiment ends as if nobody had been."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.faults.killed_runs import PROJECT
from tests.faults.tuned_runs import EXPERIMENT, PIDS
from trainer.testing import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="kills processes"),
]

JOURNAL: Final = EXPERIMENT / "journal.jsonl"
DEADLINE_S: Final = 100.0


def script(kind: str, trainable: str) -> list[str]:
    return [sys.executable, "-m", "tests.faults.tuned_runs", kind, trainable]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROJECT)}


@functools.cache
def undisturbed(kind: str, trainable: str) -> tuple[dict[str, Any], int]:
    """What an experiment comes to that nobody kills, and the size of its journal in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            script(kind, trainable), cwd=folder, env=environment(), check=True, capture_output=True
        )
        return json.loads(done.stdout), (Path(folder) / JOURNAL).stat().st_size


class Killed:
    """An experiment whose processes are killed when its journal has grown to some size."""

    def __init__(self, kind: str, trainable: str, folder: Path, seed: int) -> None:
        self.line, self.folder = script(kind, trainable), folder
        _, self.full_size = undisturbed(kind, trainable)
        self.rng = np.random.default_rng(seed)
        self.num_tuners_killed = self.num_trials_killed = 0

    def run(self, *, kill_tuner: int, kill_trials: int) -> dict[str, Any]:
        """Kills so many tuners and processes of trials, and then lets it come to its end."""
        for _ in range(kill_tuner):
            self.attempt(kill_trials=kill_trials // (kill_tuner + 1), is_killed=True)
        return self.attempt(kill_trials=kill_trials // (kill_tuner + 1), is_killed=False)

    def attempt(self, *, kill_trials: int, is_killed: bool) -> dict[str, Any]:
        with subprocess.Popen(
            self.line, cwd=self.folder, env=environment(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            for _ in range(kill_trials):
                self.wait_for_growth(process)
                self.num_trials_killed += self.kill_a_trial()
            if is_killed:
                self.wait_for_growth(process)
                self.num_tuners_killed += process.poll() is None
                process.kill()
            out, err = process.communicate(timeout=DEADLINE_S)
            if is_killed:
                return {}
            assert process.returncode == 0, err.decode()
            return json.loads(out)  # type: ignore[no-any-return]

    def wait_for_growth(self, process: subprocess.Popen[bytes]) -> None:
        """Waits until the journal has grown by a random part of what is missing."""
        here = self.size()
        target = here + int(self.rng.integers(1, max(2, (self.full_size - here) // 3)))
        wait_until(
            lambda: self.size() >= target or process.poll() is not None,
            within_s=DEADLINE_S,
        )

    def size(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / JOURNAL).stat().st_size
        return 0

    def kill_a_trial(self) -> bool:
        """Kills the process of some trial that has told of itself and lives."""
        told = sorted(int(each.name) for each in (self.folder / PIDS).glob("*"))
        for pid in self.rng.permutation(told).tolist():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                (self.folder / PIDS / str(pid)).unlink()
                return True
        return False


def check(kind: str, trainable: str, folder: Path, seed: int, *, tuner: int, trials: int) -> None:
    """An experiment that is killed so often comes to what an undisturbed one does."""
    expected, _ = undisturbed(kind, trainable)
    killed = Killed(kind, trainable, folder, seed)
    found = killed.run(kill_tuner=tuner, kill_trials=trials)
    for old, new in zip(expected["trials"], found["trials"], strict=True):
        assert new == old
    assert found == expected
    assert expected["exact"] == []
    assert killed.num_tuners_killed + killed.num_trials_killed > 0


def test_an_experiment_is_killed_and_comes_to_the_same(tmp_path: Path) -> None:
    check("ASHA", "function", tmp_path, 1, tuner=1, trials=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["FIFO", "ASHA", "HYPERBAND", "POPULATION", "OPTUNA"])
def test_experiments_of_functions_are_killed_at_many_moments(
    kind: str, seed: int, tmp_path: Path
) -> None:
    check(kind, "function", tmp_path, seed, tuner=2, trials=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["FIFO", "ASHA", "POPULATION", "OPTUNA"])
def test_experiments_of_algorithms_are_killed_at_many_moments(
    kind: str, seed: int, tmp_path: Path
) -> None:
    check(kind, "PPO", tmp_path, seed, tuner=2, trials=3)

"""The demonstration of the promise: it shows what it claims, and would show the contrary."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ENV = "trainer.testing.CountdownEnv"
ROOT = Path(__file__).parents[2]


def shown(*words, code):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "kill_demo.py", "--iterations", "8", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True, text=True, encoding="utf-8", timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def states(told):
    return [line.split()[-1] for line in told.splitlines() if "final state" in line]


def test_a_run_that_is_killed_ends_with_the_same_state():
    told = shown("--env", ENV, "--kills", "1", "--chance", "159", code=0)
    assert "✗ main process" in told
    first, second = states(told)
    assert first == second
    assert "Equal" in told


@pytest.mark.slow
def test_another_seed_ends_with_another_state():
    told = shown("--env", ENV, "--kills", "0", "--second-seed", "1", code=1)
    first, second = states(told)
    assert first != second
    assert "They differ." in told


@pytest.mark.slow
def test_an_env_that_no_seed_determines_differs():
    told = shown("--env", "trainer.testing.UnseededEnv", "--kills", "1", code=1)
    assert "They differ." in told


def test_training_that_fails_is_no_equality():
    shown("--env", "no_such_env", code=1)

"""Ctrl-C ends an experiment in order and says how to go on; what goes on comes to the same."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.faults.test_killed_experiments import descendants, environment, script, undisturbed
from tests.faults.tuned_runs import EXPERIMENT
from trainer.testing import wait_until
from trainer.testing.processes import is_process_alive

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="sends signals"),
]

ENDLESS = """
import sys, time
from pathlib import Path
from trainer import tune

def train(config):
    try:
        tune.report(x=1)
        Path("at-work").touch()
        while True:
            time.sleep(0.01)
    finally:
        Path("cleaned-up").touch()

tune.Tuner(
    train,
    tune_config=tune.TuneConfig(num_samples=2, max_concurrent_trials=2, in_process=IN_PROCESS),
    run_config=tune.RunConfig(name="endless"),
).fit()
"""


@pytest.mark.parametrize("in_process", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_trials_that_never_come_to_a_row_do_not_keep_an_experiment(tmp_path, in_process):
    code = ENDLESS.replace("IN_PROCESS", str(in_process))
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert wait_until(lambda: (tmp_path / "at-work").exists(), within_s=60)
    below = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert b"Ending in order" in out
    assert b"Tuner.restore(" in err
    assert b"ended in order" in err
    assert wait_until(lambda: not any(map(is_process_alive, below)))


def interrupted(kind, trainable, folder, seed):
    """What comes of an experiment that is interrupted now and then; and how long each took."""
    rng = np.random.default_rng(seed)
    took_s = []
    _, full_size = undisturbed(kind, trainable)
    journal = folder / EXPERIMENT / "journal.jsonl"
    while True:
        before = journal.stat().st_size if journal.exists() else 0
        target = before + int(rng.integers(1, full_size // 2))
        process = subprocess.Popen(
            script(kind, trainable), cwd=folder, env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        wait_until(
            lambda at=target, one=process: (
                one.poll() is not None or (journal.exists() and journal.stat().st_size >= at)
            ),
            within_s=100,
        )
        process.send_signal(signal.SIGINT)
        began_at = time.monotonic()
        out, err = process.communicate(timeout=60)
        if process.returncode == 0:
            return json.loads(out), took_s
        assert process.returncode == -signal.SIGINT, err.decode()
        took_s.append(time.monotonic() - began_at)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "trainable"), [("ASHA", "function"), ("OPTUNA", "function")])
def test_an_interrupted_experiment_goes_on_to_the_same_end(kind, trainable, tmp_path):
    found, took_s = interrupted(kind, trainable, tmp_path, 1)
    assert found == undisturbed(kind, trainable)[0]
    print(f"{kind} of {trainable}: ends took {', '.join(f'{each:.1f}' for each in took_s)} s")

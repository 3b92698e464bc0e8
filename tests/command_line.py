"""The command line as tests use it, with a small run in the folder `run`.

In the process of the tests, which saves the start of an interpreter, unless a process of its own is
what a test is about.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

from trainer.cli import main

ENV = "trainer.testing.envs.CountdownEnv"
SMALL = [
    "--set", "train_batch_size=40", "--set", "minibatch_size=20", "--set", "num_epochs=1",
    "--set", 'model={"fcnet_hiddens": [8]}', "--num-envs-per-env-runner", "2", "--seed", "5",
]  # fmt: skip


def command(*words):
    return [sys.executable, "-m", "trainer.cli", *map(str, words)]


def run(*words, folder, code=0):
    """Runs a command here, as if it had been typed in that folder."""
    arguments, out, errors = [str(word) for word in words], io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            found = main(arguments)
    except SystemExit as end:  # argparse's way to refuse words
        found = int(end.code or 0)
    finally:
        os.chdir(before)
    assert found == code, f"{out.getvalue()}\n{errors.getvalue()}"
    return subprocess.CompletedProcess(arguments, found, out.getvalue(), errors.getvalue())


def run_in_process(*words, folder, code=0):
    """Runs a command in a process of its own."""
    paths = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command(*words), cwd=folder, env={**os.environ, **paths},
        capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done


def train(folder, *words, env=ENV, runners=0, in_process=False):
    return (run_in_process if in_process else run)(
        "train", "--env", env, *SMALL, "--num-env-runners", runners, "--run-dir", "run", *words,
        folder=folder,
    ).stdout  # fmt: skip


def rows(folder, *, name="run"):
    """The results so far; the last row may be half written while a run is going on."""
    text = (folder / name / "results.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

"""The command line as tests use it: in its own process, with a small run in the folder `run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ENV = "trainer.testing.debug_envs.CountdownEnv"
SMALL = [
    "--set", "train_batch_size=40", "--set", "minibatch_size=20", "--set", "num_epochs=1",
    "--set", 'model={"fcnet_hiddens": [8]}', "--num-envs-per-env-runner", "2", "--seed", "5",
]  # fmt: skip


def command(*words: Any) -> list[str]:
    return [sys.executable, "-m", "trainer.cli", *map(str, words)]


def run(*words: Any, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command(*words), cwd=folder, env={**os.environ, **paths},
        capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done


def train(folder: Path, *words: Any, env: str = ENV, runners: int = 0) -> str:
    return run(
        "train", "--env", env, *SMALL, "--num-env-runners", runners, "--run-dir", "run", *words,
        folder=folder,
    ).stdout  # fmt: skip


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "run" / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]

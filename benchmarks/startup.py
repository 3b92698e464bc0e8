"""Time from nothing to the first result.

That is the import, the build with two runners, and the first `train()` of 2048 steps.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, report

_SCRIPT = """
import time
started_at = time.perf_counter()
from trainer import PPOConfig
imported_at = time.perf_counter()
algo = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=2, num_envs_per_env_runner=4)
    .training(train_batch_size=2048, minibatch_size=64, num_epochs=10, lr=3e-4,
              model={"fcnet_hiddens": [64, 64]})
    .debugging(seed=0)
    .build_algo()
)
built_at = time.perf_counter()
algo.train()
trained_at = time.perf_counter()
print(imported_at - started_at, built_at - imported_at, trained_at - built_at)
algo.stop()
"""


def seconds(*, has_bytecode: bool) -> float:
    """From nothing to the first result, in a fresh process.

    Args:
        has_bytecode: our packages were compiled before; those of others always were.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if not has_bytecode:
            for package in ("trainer", "trainer_toolkit", "callbacks", "checkpoints"):
                source = Path(__file__).parents[1] / package
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, Path(folder) / package, ignore=ignored)
            environment |= {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", _SCRIPT]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, cwd=folder
        )
    return sum(float(word) for word in done.stdout.split())


def main() -> None:
    """Prints the parts and their sum, each in a fresh process."""
    print("start: PPO, CartPole-v1, 2 env runners × 4 envs, seed 0")
    rows = []
    for _ in range(6):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
        )
        rows.append([float(word) for word in done.stdout.split()])
    rows = rows[1:]  # the first one fills the file system's cache
    for index, name in enumerate(("import trainer", "build with 2 runners", "first train()")):
        report(name, Figure([row[index] for row in rows], "s"))
    report("all three", Figure([sum(row) for row in rows], "s"), target="≤ 1.0")

"""How long saving and restoring takes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, report
from trainer import PPOConfig


def main() -> None:
    """Prints the times for PPO's default network (256×256, separate value network)."""
    print("checkpoints: PPO's default network on CartPole-v1, every file synced to the disk")
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.training(train_batch_size=256, minibatch_size=256, num_epochs=1).debugging(seed=0)
    saves, restores = [], []
    with config.build_algo() as algo, tempfile.TemporaryDirectory() as folder:
        algo.train()
        for index in range(12):
            path = Path(folder) / str(index)
            started_at = time.perf_counter()
            algo.save_to_path(path)
            saved_at = time.perf_counter()
            algo.restore_from_path(path)
            saves.append((saved_at - started_at) * 1e3)
            restores.append((time.perf_counter() - saved_at) * 1e3)
    report("save_to_path()", Figure(saves, "ms"))
    report("restore_from_path()", Figure(restores, "ms"))

"""How long saving and restoring takes, and how long training stands still for it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import Figure, alternate, report
from callbacks import PeriodicCheckpoint
from trainer import Algorithm, PPOConfig


def main() -> None:
    """Prints the times for PPO's default network (256×256, separate value network)."""
    print("checkpoints: PPO's default network on CartPole-v1, every file synced to the disk")
    with tempfile.TemporaryDirectory() as folder:
        _save_and_restore(Path(folder))
        _train_and_save(Path(folder))


def _config(num_env_runners: int, *, train_batch_size: int = 256) -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=num_env_runners)
    config.training(train_batch_size=train_batch_size, minibatch_size=256, num_epochs=1)
    return config.debugging(seed=0)


def _save_and_restore(folder: Path) -> None:
    """With the default two runners, in the middle of episodes."""
    saves, calls, waits, restores = [], [], [], []
    with _config(2).build_algo() as algo:
        algo.train()
        for index in range(22):
            saves.append(_ms(lambda: algo.save_to_path(folder / f"{index}")))  # noqa: B023
            calls.append(
                _ms(lambda: algo.save_to_path(folder / f"b{index}", background=True))  # noqa: B023
            )
            waits.append(calls[-1] + _ms(algo.finish_saving))
            restores.append(_ms(lambda: algo.restore_from_path(folder / f"{index}")))  # noqa: B023
    # The first two make directories of modules and caches warm.
    report("save_to_path()", Figure(saves[2:], "ms"), target="≤ 30 ms")
    report("save_to_path(background=True)", Figure(calls[2:], "ms"), target="≤ 5 ms")
    report("the same, and finish_saving()", Figure(waits[2:], "ms"))
    report("restore_from_path()", Figure(restores[2:], "ms"))


def _train_and_save(folder: Path) -> None:
    """Iterations that save, against iterations that do not, in turn."""

    def saving(*, background: bool) -> PeriodicCheckpoint:
        path = folder / f"background={background}"
        return PeriodicCheckpoint(path, every=1, keep_last=2, background=background)

    print("  train() of 2000 steps with PeriodicCheckpoint(every=1, keep_last=2), longer by")
    for background in (False, True):
        with (
            _long().callbacks([saving(background=background)]).build_algo() as ours,
            _long().build_algo() as other,
        ):
            saves, trains = alternate(_training(ours), _training(other), unit="ms", repeats=30)
        differences = [a - b for a, b in zip(saves.values, trains.values, strict=True)]
        target = "≤ 5 ms" if background else ""
        report(f"  background={background}", Figure(differences, "ms"), target=target)


def _long() -> PPOConfig:
    """Iterations longer than a save, so that none waits for the one before."""
    return _config(0, train_batch_size=2000)


def _training(algo: Algorithm) -> Callable[[], float]:
    return lambda: _ms(algo.train)


def _ms(act: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    act()
    return (time.perf_counter() - started_at) * 1e3

"""How long it takes until a killed runner works again, beyond the work that was lost with it."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable

from benchmarks.figures import Figure, report
from trainer import PPOConfig
from trainer.runtime.process_start import choose_start_method
from trainer.testing.processes import is_process_alive, wait_until

NUM_REPEATS = 15


def main() -> None:
    """Prints the times of undisturbed and of repaired requests, and their difference."""
    print(
        f"repair: CartPole-v1, 2 env runners × 4 envs, started by {choose_start_method()}, seed 0"
    )
    logging.disable(logging.WARNING)
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4)
        .training(train_batch_size=512, minibatch_size=512, num_epochs=1)
        .debugging(seed=0)
    )
    undisturbed, repaired = [], []
    with config.build_algo() as algo:
        group = algo.env_runner_group
        for _ in range(3):
            algo.train()
        for _ in range(NUM_REPEATS):
            undisturbed.append(_timed(lambda: group.sample_env_steps(512)))
            _kill(group.env_runner_pids()[1])
            repaired.append(_timed(lambda: group.sample_env_steps(512)))
    logging.disable(logging.NOTSET)
    report("512 steps, undisturbed", Figure(undisturbed, "s"))
    report("512 steps, a runner was killed before", Figure(repaired, "s"))
    pairs = zip(repaired, undisturbed, strict=True)
    report("repair beyond the work", Figure([a - b for a, b in pairs], "s"), target="≤ 0.1")


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_process_alive(pid))


def _timed(action: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    action()
    return time.perf_counter() - started_at

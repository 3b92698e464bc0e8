"""What callbacks cost: `sample()` with listeners against none, logging, memory over episodes."""

from __future__ import annotations

import gc
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, alternate, ratio, report
from callbacks import EVENTS, RLlibCallback
from trainer import EnvRunner, MetricsLogger, PPOConfig
from trainer.testing.envs import CountdownEnv

NUM_ENVS = 8
NUM_STEPS = 8192
SHORT_EPISODE_STEPS = 3


class ListensToNothingPerStep(RLlibCallback):
    """Hears the events of a run, but none that fires at every step or episode."""

    def on_train_result(self, **kwargs: Any) -> None:
        """Does nothing."""

    def on_environment_created(self, **kwargs: Any) -> None:
        """Does nothing."""


class EmptyStep(RLlibCallback):
    """Hears every step and does nothing."""

    def on_episode_step(self, **kwargs: Any) -> None:
        """Does nothing."""


def main() -> None:
    """Prints ratios and growth."""
    print(f"callbacks: sample() of CartPole-v1, {NUM_ENVS} envs, 64×64 tanh, seed 0")
    none = _sampler()
    for name, callback, target in (
        ("a chain that listens to nothing per step", ListensToNothingPerStep, "≥ 0.98"),
        ("an empty on_episode_step", EmptyStep, "≥ 0.8"),
    ):
        listening, silent = alternate(_sampler(callback), none, unit="steps/s", repeats=15)
        report(f"{name}, against no callbacks", ratio(listening, silent), target=target)
    report(
        "logging a value with a window", Figure(_logging_us(repeats=10), "µs"), target="≤ 1.5 µs"
    )
    report(
        "memory over 10⁵ episodes, all events heard, after the first 10⁴",
        Figure([_memory_growth_mb()], "MB"),
        target="< 5 MB",
    )


def _sampler(callback: Any = None) -> Callable[[], float]:
    config = PPOConfig().environment("CartPole-v1").callbacks(callback).debugging(seed=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=NUM_ENVS)
    runner = _runner(config.training(model={"fcnet_hiddens": [64, 64]}))

    def measure() -> float:
        started_at = time.perf_counter()
        runner.sample(num_timesteps=NUM_STEPS)
        return NUM_STEPS / (time.perf_counter() - started_at)

    return measure


def _logging_us(repeats: int) -> list[float]:
    logger, num_values = MetricsLogger(), 1000

    def log() -> None:
        for _ in range(num_values):
            logger.log_value(("env", "speed"), 0.5, window=50)

    return [seconds / num_values * 1e6 for seconds in timeit.repeat(log, number=1, repeat=repeats)]


def _memory_growth_mb() -> float:
    lengths = {"min_length": SHORT_EPISODE_STEPS, "max_length": SHORT_EPISODE_STEPS}
    config = PPOConfig().environment(CountdownEnv, env_config=lengths)
    config.callbacks(**dict.fromkeys(EVENTS, _hear))
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=NUM_ENVS)
    config.training(train_batch_size=1000 * SHORT_EPISODE_STEPS, minibatch_size=1000, num_epochs=1)
    with config.training(model={"fcnet_hiddens": [8]}).build_algo() as algo:
        for _ in range(10):  # 10⁴ episodes
            algo.train()
        before = _resident_mb()
        for _ in range(90):
            algo.train()
        return _resident_mb() - before


def _hear(**kwargs: Any) -> None:
    """Does nothing."""


def _runner(config: PPOConfig) -> EnvRunner:
    runner = config.build_algo().env_runner
    if runner is None:
        raise RuntimeError("The algorithm has no runner in this process.")
    return runner


def _resident_mb() -> float:
    """Resident memory of this process; after a collection, so that garbage does not count."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20

"""Long runs keep nothing of what is over: a smaller sample of the benchmark over 10⁵ episodes."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import callbacks
import checkpoints
import trainer
from callbacks import EVENTS
from trainer import PPO, PPOConfig
from trainer.testing.envs import CountdownEnv

_OURS = [
    tracemalloc.Filter(True, str(Path(package.__path__[0], "*")))
    for package in (trainer, callbacks, checkpoints, gymnasium, np)
]
"""What they allocate: what runs the tests has threads, which allocate, too."""


def _growth_bytes(hear: Any, *, num_iterations: int) -> int:
    """What 100 episodes of 3 steps per iteration leave allocated, when 200 were played before."""
    config = PPOConfig().environment(CountdownEnv, env_config={"min_length": 3, "max_length": 3})
    config.callbacks(**dict.fromkeys(EVENTS, hear)).debugging(seed=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=4)
    config.training(train_batch_size=300, minibatch_size=300, num_epochs=1)
    with config.training(model={"fcnet_hiddens": [4]}).build_algo() as algo:
        tracemalloc.start()
        try:
            before = _allocated(algo, num_iterations=2)
            return _allocated(algo, num_iterations=num_iterations) - before
        finally:
            tracemalloc.stop()


def _allocated(algo: PPO, *, num_iterations: int) -> int:
    for _ in range(num_iterations):
        algo.train()
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces(_OURS)
    return sum(trace.size for trace in snapshot.traces)


def test_episodes_that_are_over_leave_nothing_behind() -> None:
    assert _growth_bytes(lambda **kwargs: None, num_iterations=2) < 12_000  # 60 bytes per episode


def test_the_measure_sees_a_callback_that_keeps_episodes() -> None:
    kept: list[Any] = []

    def keep(**kwargs: Any) -> None:
        if "episode" in kwargs:
            kept.append(kwargs["episode"])

    assert _growth_bytes(keep, num_iterations=1) > 250_000

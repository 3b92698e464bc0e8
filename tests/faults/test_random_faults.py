"""Kills at random moments, again and again: the bytes stay what they are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import encode
from trainer import PPOConfig
from trainer.testing.debug_envs import CountdownEnv

pytestmark = pytest.mark.process

ITERATIONS = 6
FEW = range(2)
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 40)]


class Counting(RLlibCallback):
    def __init__(self) -> None:
        self.num_steps = 0

    def on_episode_step(self, **kwargs: Any) -> None:
        self.num_steps += 1


def config() -> PPOConfig:
    return (
        PPOConfig()
        .environment(CountdownEnv)
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2)
        .training(
            train_batch_size=200, minibatch_size=50, num_epochs=2, model={"fcnet_hiddens": [8]}
        )
        .evaluation(evaluation_interval=2, evaluation_duration=3, evaluation_num_env_runners=1)
        .callbacks(Counting)
        .debugging(seed=5)
    )


def known(algo: Any) -> bytes:
    return encode({**algo.get_state(), "config": None})


@pytest.fixture(scope="module")
def undisturbed() -> bytes:
    with config().build_algo() as algo:
        for _ in range(ITERATIONS):
            algo.train()
        return known(algo)


@contextmanager
def alarm(action: Callable[[], None], *, after_s: float) -> Iterator[None]:
    """Calls a function in the main thread, in the middle of whatever the block is doing."""
    is_armed = True

    def act(number: int, frame: FrameType | None) -> None:
        if is_armed:
            action()

    before = signal.signal(signal.SIGALRM, act)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def kill_some(algo: Any, rng: np.random.Generator) -> None:
    groups = [algo.env_runner_group, algo.eval_env_runner_group]
    pids = [pid for group in groups for pid in group.env_runner_pids().values()]
    for pid in rng.permutation(pids)[: rng.integers(1, len(pids) + 1)]:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue  # it was replaced a moment ago


@pytest.mark.parametrize("seed", [*FEW, *MANY])
def test_kills_at_any_moment_make_no_difference(seed: int, undisturbed: bytes) -> None:
    rng = np.random.default_rng(seed)
    with config().build_algo() as algo:
        for _ in range(ITERATIONS):
            with alarm(lambda: kill_some(algo, rng), after_s=rng.uniform(0.0005, 0.02)):
                algo.train()
        # A request that killed its runner twice gives its episodes up, but never in silence.
        assert known(algo) == undisturbed or algo.counters.num_episodes_lost

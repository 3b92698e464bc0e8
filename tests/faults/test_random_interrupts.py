"""Ctrl-C at random moments, again and again: the run goes on, and the bytes stay what they are."""

import functools
import gc
import multiprocessing
import signal
from typing import TypeVar

import numpy as np
import pytest

from checkpoints import CheckpointError, read_manifest
from tests.small_runs import Counting, known
from trainer import DQNConfig, PPOConfig
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import wait_until

pytestmark = [
    pytest.mark.process,
    # An interrupt between a file's opening and the block that would close it: it is collected.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ITERATIONS = 4
Made = TypeVar("Made")


class CountingResults(Counting):
    def on_train_result(self, *, metrics_logger, **kwargs):
        self.num_steps += 1000
        metrics_logger.log_value("count", self.num_steps)


def ppo():
    return PPOConfig().training(
        train_batch_size=120, minibatch_size=60, num_epochs=2, model={"fcnet_hiddens": [8]}
    )


def dqn():
    return (
        DQNConfig()
        .training(
            train_batch_size=16,
            num_steps_sampled_before_learning_starts=20,
            model={"fcnet_hiddens": [8]},
            replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 60},
        )
        .reporting(min_sample_timesteps_per_iteration=40)
    )


def config(kind):
    made = {"ppo": ppo, "dqn": dqn}[kind]()
    made.environment(CountdownEnv).callbacks(CountingResults).debugging(seed=5)
    made.env_runners(num_env_runners=2, num_envs_per_env_runner=2)
    return made.evaluation(
        evaluation_interval=1,
        evaluation_duration=3,
        evaluation_num_env_runners=1,
        evaluation_parallel_to_training=kind == "ppo",
    )


@functools.cache
def undisturbed(kind):
    """What is known before the first iteration and after each."""
    with config(kind).build_algo() as algo:
        states = [known(algo)]
        for _ in range(ITERATIONS):
            algo.train()
            states.append(known(algo))
    return tuple(states)


@pytest.fixture(autouse=True)
def alarms_are_interrupts():
    gc.collect()  # what other tests left: an interrupt of its finalizers would be told here
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, before)


def attempt(operation, *, after_s):
    """What the operation returned; None if it was interrupted, or a moment later."""
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        try:
            return operation()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return None


def no_process_is_left():
    gc.collect()  # of an algorithm that was just complete and not taken
    return wait_until(lambda: not multiprocessing.active_children())


def built(kind, after_s):
    algo = attempt(config(kind).build_algo, after_s=after_s)
    if algo is None:
        assert no_process_is_left()
        return config(kind).build_algo()
    return algo


def moment(rng, *, is_first):
    """Seconds: within an undisturbed iteration, or one in which processes are made first."""
    return float(rng.uniform(0.0005, 0.012 if is_first else rng.choice([0.02, 0.12])))


def train_with_interrupts(algo, expected, rng):
    """Trains to the end; how often it was interrupted."""
    num_interrupts = 0
    while algo.training_iteration < ITERATIONS:
        before = algo.training_iteration
        for is_first in (True, False):
            if attempt(algo.train, after_s=moment(rng, is_first=is_first)) is None:
                num_interrupts += 1
                assert algo.training_iteration - before in (0, 1, 2)
                assert known(algo) == expected[algo.training_iteration]
            if algo.training_iteration == ITERATIONS:
                return num_interrupts
        if algo.training_iteration == before:
            algo.train()
    return num_interrupts


def save_with_an_interrupt(algo, path, after_s):
    if attempt(lambda: algo.save_to_path(path), after_s=after_s) is None:
        try:
            assert read_manifest(path).metadata["training_iteration"] == ITERATIONS
        except CheckpointError:
            algo.save_to_path(path)


def run_with_interrupts(kind, seed, path):
    rng, expected = np.random.default_rng(seed), undisturbed(kind)
    algo = built(kind, rng.uniform(0.0005, 0.25))
    try:
        num_interrupts = train_with_interrupts(algo, expected, rng)
        assert known(algo) == expected[-1]
        save_with_an_interrupt(algo, path, rng.uniform(0.0005, 0.02))
        attempt(algo.stop, after_s=rng.uniform(0.0, 0.02))
        if not algo.is_stopped:  # the interrupt came before its first line
            assert known(algo) == expected[-1]
            algo.stop()
        assert no_process_is_left()
    finally:
        algo.stop()
    return num_interrupts


@pytest.mark.parametrize("kind", ["ppo", pytest.param("dqn", marks=pytest.mark.slow)])
def test_interrupts_at_any_moment_make_no_difference(kind, tmp_path):
    assert run_with_interrupts(kind, 0, tmp_path / "saved") > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ppo", "dqn"])
@pytest.mark.parametrize("seed", range(1, 25))
def test_hundreds_of_interrupts_make_no_difference(kind, seed, tmp_path):
    assert run_with_interrupts(kind, seed, tmp_path / "saved") > 0

"""Kills at random moments, again and again: the bytes stay what they are."""

import functools
import os
import signal

import numpy as np
import pytest

from tests.alarms import alarm
from tests.small_runs import Counting, known
from trainer import DQNConfig, PPOConfig
from trainer.testing.envs import CountdownEnv

pytestmark = pytest.mark.process

ITERATIONS = 4
FEW = range(1)
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20)]


def common(config):
    return (
        config.environment(CountdownEnv)
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2)
        .evaluation(evaluation_interval=2, evaluation_duration=3, evaluation_num_env_runners=1)
        .callbacks(Counting)
        .debugging(seed=5)
    )


def ppo():
    return common(PPOConfig()).training(
        train_batch_size=200, minibatch_size=50, num_epochs=2, model={"fcnet_hiddens": [8]}
    )


def dqn():
    made = common(DQNConfig()).training(
        train_batch_size=16,
        num_steps_sampled_before_learning_starts=40,
        model={"fcnet_hiddens": [8]},
    )
    return made.reporting(min_sample_timesteps_per_iteration=60)


CONFIGS = {"PPO": ppo, "DQN": dqn}


@functools.cache
def undisturbed(name):
    with CONFIGS[name]().build_algo() as algo:
        for _ in range(ITERATIONS):
            algo.train()
        return known(algo)


class Killer:
    """Kills some of the runners, at most so many times."""

    def __init__(self, algo, rng):
        self.num_kills = 0
        self._groups = [algo.env_runner_group, algo.eval_env_runner_group]
        self._rng = rng
        self._left = 0

    def __call__(self):
        pids = [pid for group in self._groups for pid in group.env_runner_pids().values()]
        if self._left == 0 or not pids:
            return
        self._left -= 1
        for pid in self._rng.permutation(pids)[: self._rng.integers(1, len(pids) + 1)]:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue  # it was replaced a moment ago
            self.num_kills += 1

    def load(self, rounds):
        self._left = rounds


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", [*FEW, *MANY])
def test_kills_at_any_moment_make_no_difference(name, seed):
    """Also several in one iteration: while a runner is replaced, or soon after."""
    rng = np.random.default_rng(seed)
    with CONFIGS[name]().build_algo() as algo:
        killer = Killer(algo, rng)
        for _ in range(ITERATIONS):
            killer.load(int(rng.integers(1, 4)))
            first_s, next_s = rng.uniform(0.0005, 0.02), rng.uniform(0.002, 0.05)
            with alarm(killer, after_s=first_s, every_s=next_s):
                algo.train()
        assert killer.num_kills >= ITERATIONS
        assert known(algo) == undisturbed(name)

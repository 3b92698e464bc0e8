"""Envs that fail always, or too often: training ends with the original error, and soon."""

import os
import signal
import time
from contextlib import contextmanager

import pytest

from tests.small_runs import small_ppo
from trainer import RunnerFailedError
from trainer.testing import CountdownEnv, Fault, InjectedFaultError, no_leaks, with_faults

pytestmark = pytest.mark.process


def config(env, **settings):
    return small_ppo(2, env=env, **{"env_config": {"min_length": 6}, **settings})


@contextmanager
def little_work(*, waits_s):
    """Fails if the main process waits shorter than that, or computes while it should wait."""
    begun, cpu_begun = time.monotonic(), time.process_time()
    yield
    assert time.monotonic() - begun >= waits_s
    assert time.process_time() - cpu_begun < 0.5 + waits_s / 4


def test_an_env_that_always_fails_at_its_first_step_ends_training_after_three_tries():
    fault = Fault("step", at_step=0, worker_index=2, times="always")
    with (
        no_leaks(),
        config(with_faults(CountdownEnv, fault)).build_algo() as algo,
        little_work(waits_s=0.05),
        pytest.raises(InjectedFaultError) as raised,
    ):
        algo.train()
    assert fault.num_fired == 3
    assert isinstance(raised.value.__cause__, RunnerFailedError)
    assert "Env runner 2 failed 3 times in a row" in str(raised.value.__cause__)


def test_an_env_that_fails_always_from_some_day_on_gets_the_tries_that_are_configured():
    fault = Fault("step", worker_index=1, times="always")
    fault.disarm()
    made = config(with_faults(CountdownEnv, fault), num_consecutive_env_runner_failures_tolerance=4)
    with no_leaks(), made.build_algo() as algo:
        algo.train()
        fault.arm()
        with little_work(waits_s=0.35), pytest.raises(InjectedFaultError) as raised:
            algo.train()
        assert fault.num_fired == 5
        assert "Env runner 1 failed 5 times in a row" in str(raised.value.__cause__)
        with pytest.raises(InjectedFaultError):  # as many tries again, if one tries again
            algo.train()
        assert fault.num_fired == 10
        fault.disarm()
        assert algo.train()["training_iteration"] == 2


def train(algo, *, iterations):
    return [algo.train() for _ in range(iterations)][-1]


class FailsInSomeEpisodes(CountdownEnv):
    """Raises in the second step of an episode, with a probability that its seed decides.

    Only while a file exists: a runner that has never answered gets three tries.
    """

    def __init__(self, env_config):
        super().__init__(env_config)
        self._probability = env_config["probability"]
        self._file = env_config["file"]
        self._fails = False

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed, options=options)
        self._fails = float(self.np_random.random()) < self._probability and self._file.exists()
        return answer

    def step(self, action):
        if self.steps == 1 and self._fails:
            raise InjectedFaultError("this episode is a bad one")
        return super().step(action)


def test_an_env_that_fails_more_often_than_its_runner_answers_ends_training(tmp_path):
    made = config(
        FailsInSomeEpisodes,
        env_config={"min_length": 6, "probability": 0.1, "file": tmp_path / "bad"},
        num_consecutive_env_runner_failures_tolerance=4,
    )
    with made.build_algo() as algo:
        algo.train()
        (tmp_path / "bad").touch()
        with pytest.raises(InjectedFaultError, match="a bad one") as raised:
            train(algo, iterations=50)
        assert 1 < algo.training_iteration < 20
    assert "It has failed 5 times more often than it has answered" in str(raised.value.__cause__)


def test_a_runner_that_is_lost_in_every_request_and_answers_all_is_replaced_without_end():
    made = config(CountdownEnv, num_consecutive_env_runner_failures_tolerance=1)
    with made.build_algo() as algo:
        for _ in range(6):
            os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
            result = algo.train()
    assert result["fault_tolerance/num_remote_worker_restarts"] == 6

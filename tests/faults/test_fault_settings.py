"""Every setting of `fault_tolerance()` does what it says, by its new name and by its old one."""

import logging
import os
import signal
import time
from pathlib import Path

import pytest

from tests.small_runs import small_ppo
from trainer import PPOConfig, RunnerLostError
from trainer.config.algorithm_config import restart_policy
from trainer.runtime.restart_policy import RestartPolicy
from trainer.testing import CountdownEnv, FailingEnv, InjectedFaultError
from trainer.testing.processes import wait_until

OLD_NAMES = {
    "recreate_failed_env_runners": ("restart_failed_env_runners", False),
    "ignore_worker_failures": ("ignore_env_runner_failures", True),
    "max_num_worker_restarts": ("max_num_env_runner_restarts", 3),
    "delay_between_worker_restarts_s": ("delay_between_env_runner_restarts_s", 0.5),
    "num_consecutive_worker_failures_tolerance": (
        "num_consecutive_env_runner_failures_tolerance",
        2,
    ),
    "worker_health_probe_timeout_s": ("env_runner_health_probe_timeout_s", 4.0),
    "worker_restore_timeout_s": ("env_runner_restore_timeout_s", 5.0),
}


def config(**settings):
    made = small_ppo(1, num_slots=1, batch=20, env_config={"min_length": 6}, seed=1)
    return made.update_from_dict(settings)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_old_names_are_the_same_settings(old):
    new, value = OLD_NAMES[old]
    given = {old: value}
    assert PPOConfig().fault_tolerance(**given)[new] == value
    assert PPOConfig().update_from_dict({old: value})[new] == value
    assert PPOConfig()[old] == PPOConfig()[new] != value


def test_the_settings_become_the_policy():
    made = config(**{old: value for old, (_, value) in OLD_NAMES.items()})
    assert restart_policy(made) == RestartPolicy(
        should_restart=False,
        should_ignore=True,
        max_restarts=3,
        delay_s=0.5,
        tolerance=2,
        stall_limit_s=made.sample_timeout_s,
        start_limit_s=made.env_runner_restore_timeout_s,
    )


def test_the_probe_has_nothing_to_do_and_changes_nothing():
    with config(env_runner_health_probe_timeout_s=0.001).build_algo() as algo:
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        assert algo.train()["fault_tolerance/num_remote_worker_restarts"] == 1


class SlowToMake(CountdownEnv):
    """Hangs when it is made again."""

    def __init__(self, env_config):
        super().__init__(env_config)
        while env_config.recreated_worker:
            time.sleep(60.0)


def test_a_runner_that_does_not_come_up_again_is_ended_after_the_restore_timeout():
    settings = {
        "env_runner_restore_timeout_s": 0.5,
        "num_consecutive_env_runner_failures_tolerance": 1,
    }
    with config(env=SlowToMake, **settings).build_algo() as algo:
        algo.train()
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        with pytest.raises(
            RunnerLostError, match=r"failed 2 times.*made no progress for \d+\.\d s"
        ):
            algo.train()


class HangsWhenReplayed(CountdownEnv):
    """Hangs for good in a call, told by its number, of the first one that replaces another."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.context, self._calls = env_config, 0

    def reset(self, **options):
        self._hang_if_due()
        return super().reset(**options)

    def step(self, action):
        self._hang_if_due()
        return super().step(action)

    def _hang_if_due(self):
        marker = Path(self.context["marker"])
        is_due = self.context.recreated_worker and self._calls == self.context["hangs_in_call"]
        self._calls += 1
        if is_due and not marker.exists():
            marker.touch()
            wait_until(lambda: False, within_s=3600)


@pytest.mark.parametrize("call", [0, 1, 2], ids=["reset", "first step", "second step"])
def test_a_hang_while_an_episode_is_put_back_is_ended_after_the_limit_of_a_step(
    call, tmp_path, caplog
):
    settings = {"env_runner_restore_timeout_s": 600.0, "sample_timeout_s": 0.5}
    lengths = {"min_length": 200, "max_length": 200}
    env_config = {"marker": str(tmp_path / "marker"), "hangs_in_call": call, **lengths}
    begun = time.monotonic()
    with config(env=HangsWhenReplayed, env_config=env_config, **settings).build_algo() as algo:
        algo.train()
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        algo.train()
        assert algo.env_runner_group.num_restarts == 2
    assert time.monotonic() - begun < 60.0
    assert "was killed (sample_timeout_s=0.5) (during putting its episodes back" in caplog.text


class Slow(CountdownEnv):
    """Takes its time, but steps."""

    def step(self, action):
        time.sleep(0.03)
        return super().step(action)


def test_a_slow_env_that_steps_is_never_ended_however_long_a_request_takes():
    with config(env=Slow, sample_timeout_s=0.4).build_algo() as algo:
        started_at = time.monotonic()
        told = algo.train()["fault_tolerance"]
        assert time.monotonic() - started_at > 0.5
    assert told["num_remote_worker_restarts"] == 0


def test_the_waiting_time_comes_before_every_replacement(caplog):
    fault = {"where": "step", "how": "raise"}
    settings = {"delay_between_env_runner_restarts_s": 0.1}
    with (
        caplog.at_level(logging.WARNING),
        config(env=FailingEnv, env_config=fault, **settings).build_algo() as algo,
        pytest.raises(InjectedFaultError),
    ):
        algo.train()
    waits = [r.getMessage().partition("it is replaced in ")[2][:6] for r in caplog.records]
    assert waits == ["0.10 s", "0.15 s"]

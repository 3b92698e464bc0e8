"""Env runners whose env fails, in every place and way: repaired with the same bytes, or told."""

import logging
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from checkpoints import encode
from tests.small_runs import small_ppo, told_and_known
from trainer import EnvCreationError, RunnerFailedError, RunnerLostError
from trainer.testing.envs import FailingEnv, UnseededEnv
from trainer.testing.faults import InjectedFaultError
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = pytest.mark.process

# Long enough for a process to start and be told from one that hangs.
STALL_LIMIT_S = 1.5


def config(fault=None, *, env=FailingEnv, num_env_runners=2, **settings):
    settings |= {"num_envs_per_env_runner": 2, "env_config": {"min_length": 6, **(fault or {})}}
    return small_ppo(num_env_runners, env=env, **settings)


def outcome(algo, iterations=2):
    """The next results and everything the algorithm knows after them, but the settings."""
    return told_and_known(algo, [algo.train() for _ in range(iterations)])


def numbers_of(slots):
    return [slot["episode_number"] for slot in slots]


@pytest.fixture(scope="module")
def undisturbed():
    with config().build_algo() as algo:
        return outcome(algo)


ENDINGS = {
    "raise": "raised trainer.testing.faults.InjectedFaultError: this fails on purpose at",
    "exit": "ended with exit code 7",
    "kill": "was killed by signal 9",
    "segfault": "was killed by signal 11",
    "hang": "made no progress for",
}


@pytest.mark.parametrize("where", [pytest.param("reset", marks=pytest.mark.slow), "step"])
@pytest.mark.parametrize("how", ENDINGS)
def test_what_fails_once_is_repaired_with_the_same_bytes(where, how, undisturbed, tmp_path, caplog):
    armed = tmp_path / "armed"
    fault = {"where": where, "how": how, "armed_file": str(armed)}
    with config(fault, sample_timeout_s=STALL_LIMIT_S).build_algo() as algo:
        armed.touch()
        with caplog.at_level(logging.WARNING):
            repaired = outcome(algo)
        assert algo.env_runner_group.num_remote_worker_restarts() == 1
    assert not armed.exists()
    assert repaired == undisturbed
    assert ENDINGS[how] in caplog.text
    assert "it is replaced" in caplog.text


@pytest.mark.parametrize(("where", "how"), [("reset", "raise"), ("step", "kill")])
def test_what_always_fails_is_an_error_after_three_tries(where, how, caplog):
    fault = {"where": where, "how": how, "worker_index": 2}
    with config(fault).build_algo() as algo:
        expected = InjectedFaultError if how == "raise" else RunnerLostError
        with pytest.raises(expected) as raised:
            algo.train()
        assert algo.training_iteration == 0
    told = str(raised.value.__cause__ if how == "raise" else raised.value)
    # A kill may come from outside until another one comes at the same place.
    times = 3 if how == "raise" else 4
    assert f"Env runner 2 failed {times} times in a row" in told
    assert caplog.text.count("it is replaced") == times - 1
    assert ENDINGS[how] in told
    assert "A runner that has never made 10 env steps gets 3 tries" in told
    assert "max_num_env_runner_restarts" not in told, "a setting that did not decide"
    if how == "raise":
        assert isinstance(raised.value.__cause__, RunnerFailedError)
        assert "in _fail_at" in told, "the remote traceback"
        assert "sub-env 0, episode training-2-" in told, "where to find the episode"


def test_a_hang_that_comes_again_is_told_with_its_time():
    fault = {"where": "step", "how": "hang", "worker_index": 1}
    settings = {
        "sample_timeout_s": STALL_LIMIT_S,
        "num_consecutive_env_runner_failures_tolerance": 0,
    }
    with (
        config(fault, **settings).build_algo() as algo,
        pytest.raises(RunnerLostError, match=r"Env runner 1 failed once.*made no") as raised,
    ):
        algo.train()
    (told_s,) = re.findall(r"no progress for (\d+\.\d) s", str(raised.value))
    assert STALL_LIMIT_S <= float(told_s) < 20.0


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_without_restarts_the_first_failure_is_the_error(how):
    fault = {"where": "step", "how": how, "worker_index": 1}
    with config(fault, restart_failed_env_runners=False).build_algo() as algo:
        with pytest.raises((InjectedFaultError, RunnerLostError)) as raised:
            algo.train()
        assert algo.env_runner_group.num_remote_worker_restarts() == 0
    told = str(raised.value.__cause__ if how == "raise" else raised.value)
    assert "failed once" in told
    assert "restart_failed_env_runners=False" in told


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_ignored_failures_leave_the_others_to_go_on(how, caplog):
    fault = {"where": "step", "how": how, "worker_index": 1}
    settings = {"restart_failed_env_runners": False, "ignore_env_runner_failures": True}
    with config(fault, **settings).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
        assert algo.env_runner_group.healthy_env_runner_ids() == [2]
        assert algo.env_runner_group.foreach_env_runner(lambda r: r.worker_index) == [None, 2]
    assert [r["env_runners/num_env_steps_sampled"] for r in results] == [30, 30]
    assert [r["fault_tolerance/num_healthy_workers"] for r in results] == [1, 1]
    assert "training goes on without it" in caplog.text


def test_when_all_are_given_up_training_says_so():
    settings = {"restart_failed_env_runners": False, "ignore_env_runner_failures": True}
    with (
        config({"where": "step"}, **settings).build_algo() as algo,
        pytest.raises(RunnerLostError, match="All 2 env runners failed and were given up"),
    ):
        algo.train()


def test_the_maximum_of_restarts_counts_over_iterations():
    with config(max_num_env_runner_restarts=2).build_algo() as algo:
        for iteration in range(2):
            os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
            assert algo.train()["fault_tolerance/num_remote_worker_restarts"] == iteration + 1
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        with pytest.raises(RunnerLostError, match="max_num_env_runner_restarts=2"):
            algo.train()


class KillsThrice(FailingEnv):
    """Kills its process as long as there are files to remove."""

    def __init__(self, env_config):
        super().__init__({"min_length": 6, "max_length": 20})
        self._files = sorted(Path(env_config["folder"]).iterdir())
        self._is_meant = env_config.worker_index == 1

    def step(self, action):
        if self._files and self._is_meant and self.steps == 3:
            self._files[0].unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_a_request_that_kills_at_one_place_three_times_gives_its_episodes_up(tmp_path):
    made = config({"folder": str(tmp_path)}, env=KillsThrice)
    with made.build_algo() as algo:
        algo.train()
        slots = algo.get_state()["env_runners"]["slots"]
        running = [slot for slot in slots[:2] if slot["env_seed"] is not None]
        steps = sum(len(np.concatenate(slot["actions"])) for slot in running)
        for name in ("1", "2", "3"):
            (tmp_path / name).touch()
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)  # reads the folder
        result = algo.train()
        after = algo.get_state()["env_runners"]["slots"]
    assert running
    told = result["fault_tolerance"]
    assert (told["num_episodes_lost"], told["num_env_steps_lost"]) == (len(running), steps)
    assert told["num_episodes_lost_lifetime"] == len(running)
    assert result["env_runners/num_env_steps_sampled"] == 60, "the batch is whole all the same"
    # No number is used twice: as many are skipped as could have been started.
    assert min(numbers_of(after)[:2]) >= max(numbers_of(slots)[:2]) + 15


def test_an_env_that_cannot_be_repeated_is_said_to_be_so_and_counted(caplog):
    with config(env=UnseededEnv).build_algo() as algo:
        algo.train()
        slots = algo.get_state()["env_runners"]["slots"]
        running = [slot for slot in slots[:2] if slot["env_seed"] is not None]
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        told = algo.train()["fault_tolerance"]
        after = algo.train()["fault_tolerance"]
    assert running
    assert "Env 'UnseededEnv' does not repeat an episode from its seed and actions" in caplog.text
    assert told["num_episodes_lost"] == len(running)
    assert told["num_env_steps_lost"] == sum(len(np.concatenate(s["actions"])) for s in running)
    assert (after["num_episodes_lost"], after["num_episodes_lost_lifetime"]) == (0, len(running))


@pytest.mark.parametrize("killed", [(1,), (1, 2)])
def test_runners_killed_between_two_iterations_make_no_difference(killed, undisturbed):
    with config().build_algo() as algo:
        pids = [algo.env_runner_group.env_runner_pids()[index] for index in killed]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(map(is_process_alive, pids)))
        assert outcome(algo) == undisturbed
        assert algo.env_runner_group.num_remote_worker_restarts() == len(killed)


def test_a_runner_killed_while_it_starts_makes_no_difference(undisturbed, tmp_path):
    armed = tmp_path / "armed"
    armed.touch()
    fault = {"where": "init", "how": "kill", "armed_file": str(armed)}
    with config(fault).build_algo() as algo:
        assert outcome(algo) == undisturbed


def test_an_env_that_cannot_be_made_is_told_at_once():
    with pytest.raises(EnvCreationError, match="Could not make env 'FailingEnv' of env runner 2"):
        config({"where": "init", "worker_index": 2}).build_algo()


def test_an_env_that_kills_every_process_it_is_made_in_is_told_with_the_rule():
    with pytest.raises(RunnerLostError, match=r"Env runner 2 failed 3 times.*exit code 7") as told:
        config({"where": "init", "how": "exit", "worker_index": 2}).build_algo()
    assert "has never made 10 env steps gets 3 tries" in str(told.value)


def test_the_time_of_a_repair_includes_the_wait_before_it():
    with config(delay_between_env_runner_restarts_s=0.3).build_algo() as algo:
        algo.train()
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        assert algo.train()["fault_tolerance/repair_time_s"] >= 0.3


def test_failures_to_start_are_not_held_against_a_function_that_dies_once(tmp_path):
    armed, fatal = tmp_path / "armed", tmp_path / "fatal"

    def dies_once(env_runner):
        if env_runner.worker_index == 1 and fatal.exists():
            fatal.unlink()
            os._exit(9)
        return int(env_runner.worker_index)

    fault = {"where": "init", "how": "kill", "worker_index": 1, "armed_file": str(armed)}
    with config(fault).build_algo() as algo:
        algo.train()
        algo.env_runner_group.set_root_seed(6)  # all are made anew
        armed.touch()
        fatal.touch()
        assert algo.env_runner_group.foreach_env_runner(dies_once) == [1, 2]
        assert algo.env_runner_group.num_remote_worker_restarts() == 2


class DoesNotClose(FailingEnv):
    """Raises when it is closed, and notes each call in a file."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self._file = Path(env_config["folder"]) / f"{env_config.vector_index}"

    def close(self):
        self._file.touch()
        raise OSError("the simulator is gone")


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_an_env_that_cannot_be_closed_is_a_warning_and_the_others_are_closed(
    num_env_runners, tmp_path, caplog
):
    fault = {"folder": str(tmp_path)}
    with config(fault, env=DoesNotClose, num_env_runners=num_env_runners).build_algo() as algo:
        algo.train()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0", "1"]
    (told,) = [record.getMessage() for record in caplog.records]
    name = f"Env runner {num_env_runners}"
    assert told.startswith(f"{name} was stopped, but closing it raised builtins.OSError: the simul")
    assert "in close" in told


def test_an_answer_made_with_other_weights_is_not_taken():
    def spoil(env_runner, **_):
        env_runner.weights_version = 99

    with config(num_env_runners=0).callbacks(on_sample_end=spoil).build_algo() as algo:
        before = encode(algo.env_runner_group.get_state())
        with pytest.raises(RuntimeError, match="weights of version 99, but was sent version 0"):
            algo.train()
        assert encode(algo.env_runner_group.get_state()) == before

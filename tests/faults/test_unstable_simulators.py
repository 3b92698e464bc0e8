"""Simulators that fail at random, from the first iteration on: all of it is repaired exactly.

The moments of failure follow from a seed, the sub-env and how often it was made before, so neither
from the episode nor from its seed: an env that plays a step again may fail at another one. Nor do
they follow from which process is first: the same attempt fails at the same step in every run.
"""

import functools
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from checkpoints import encode
from tests.small_runs import told_and_known
from trainer import PPOConfig, RunnerLostError
from trainer.metrics import comparable
from trainer.runtime import restart_policy
from trainer.testing import CountdownEnv, InjectedFaultError, RandomKiller, no_leaks
from trainer.testing.processes import wait_until

pytestmark = pytest.mark.process

STALL_LIMIT_S = 1.5
WAYS = ("raise", "exit", "hang")
MODES = ("fresh", "restored")


class Unstable(CountdownEnv):
    """Fails with some probability in each step, and at no reset.

    Settings: folder, where the makings of each sub-env are counted; seed; probability; way. Without
    a folder it is stable.
    """

    def __init__(self, env_config):
        super().__init__(env_config)
        self._rng, self._way = None, env_config.get("way")
        self._probability = env_config.get("probability", 0.0)
        self._file = Path(env_config.get("folder", "")) / "failures"
        # With 0 runners an exit would be that of the test.
        if "folder" in env_config and env_config.worker_index:
            number = _count(Path(env_config["folder"]) / f"made-{env_config.unique_index}")
            place = f"{env_config['seed']} {env_config.unique_index} {number}"
            self._rng = random.Random(place)

    def step(self, action):
        if self._rng is not None and self._rng.random() < self._probability:
            _count(self._file)
            if self._way == "raise":
                raise InjectedFaultError("the simulator crashed")
            if self._way == "exit":
                os._exit(3)
            wait_until(lambda: False, within_s=3600)
        return super().step(action)


def _count(file):
    """Counts over all processes; how often it was counted."""
    with file.open("ab", buffering=0) as stream:
        stream.write(b".")
        return stream.tell()


def config(env_config, *, batch, **settings):
    return (
        PPOConfig()
        .environment(Unstable, env_config={"min_length": 10, "max_length": 60, **env_config})
        .env_runners(num_env_runners=3, sample_timeout_s=STALL_LIMIT_S, num_envs_per_env_runner=2)
        .training(train_batch_size=batch, minibatch_size=batch // 2, num_epochs=1)
        .training(model={"fcnet_hiddens": [8]})
        .evaluation(
            evaluation_interval=2,
            evaluation_num_env_runners=1,
            evaluation_duration=10,
            evaluation_sample_timeout_s=STALL_LIMIT_S,
        )
        .debugging(seed=5)
        .update_from_dict(settings)
    )


def outcome(algo, iterations):
    return told_and_known(algo, [algo.train() for _ in range(iterations)])


@functools.cache
def undisturbed(batch, iterations, **settings):
    with config({}, batch=batch, **settings).build_algo() as algo:
        return outcome(algo, iterations)


def unstable(folder, *, seed, way, probability, mode, batch, iterations):
    """What comes out, how many failures there were, and how many repairs were counted."""
    faults = {"folder": str(folder), "seed": seed, "way": way, "probability": probability}
    made = config(faults, batch=batch)
    with no_leaks(), made.build_algo() as algo:
        if mode == "restored":
            with config({}, batch=batch).build_algo() as stable:
                stable.train()
                algo.set_state(stable.get_state())
        found = outcome(algo, iterations)
        groups = (algo.env_runner_group, algo.eval_env_runner_group)
        repaired = sum(group.num_remote_worker_restarts() for group in groups)
    return found, (folder / "failures").stat().st_size, repaired


@functools.cache
def restored(batch, iterations):
    with (
        config({}, batch=batch).build_algo() as stable,
        config({}, batch=batch).build_algo() as algo,
    ):
        stable.train()
        algo.set_state(stable.get_state())
        return outcome(algo, iterations)


def expected(mode, *, batch, iterations):
    return (restored if mode == "restored" else undisturbed)(batch, iterations)


@pytest.mark.parametrize(
    ("way", "mode"),
    [
        ("raise", "fresh"),
        ("exit", "restored"),
        pytest.param("raise", "restored", marks=pytest.mark.slow),
        pytest.param("exit", "fresh", marks=pytest.mark.slow),
    ],
)
def test_an_unstable_simulator_is_repaired_from_the_first_iteration_on(way, mode, tmp_path):
    size = {"batch": 240, "iterations": 2}
    found, failures, repaired = unstable(
        tmp_path, seed=1, way=way, probability=1 / 120, mode=mode, **size
    )
    assert failures >= 3
    assert repaired == failures
    assert found == expected(mode, **size)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
def test_thirty_iterations_of_an_unstable_simulator(way, mode, seed, tmp_path):
    size = {"batch": 3000, "iterations": 30}
    found, failures, repaired = unstable(
        tmp_path, seed=seed, way=way, probability=1 / 1000, mode=mode, **size
    )
    print(f"campaign: {way} {mode} seed {seed}: {failures} failures, {repaired} repairs")
    assert failures > 50
    assert repaired == failures
    assert found == expected(mode, **size)


def pids(algo):
    groups = algo.env_runner_group, algo.eval_env_runner_group
    return [pid for group in groups if group for pid in group.env_runner_pids().values()]


@pytest.mark.slow
def test_thirty_iterations_with_kills_from_outside():
    """The same run as above, spread over other processes and hit at other moments."""
    size = {"batch": 3000, "iterations": 30}
    made = config({}, batch=3000, num_env_runners=2, num_envs_per_env_runner=3)
    with (
        no_leaks(),
        made.build_algo() as algo,
        RandomKiller(lambda: pids(algo), seed=3, mean_delay_s=0.1, most_kills=60) as killer,
    ):
        assert outcome(algo, 30) == expected("fresh", **size)
    assert len(killer.kills) > 20


# ---- evaluation


def evaluation_of(algo):
    return encode(comparable({"evaluation": algo.evaluate()}))


def test_an_evaluation_runner_may_be_killed_from_outside_however_often():
    def kill_each_new_process():
        group = algo.eval_env_runner_group
        for pid in group.env_runner_pids().values() if group else ():
            if pid not in killed:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)
        return len(killed) == 5

    killed = [None]
    made = config({}, batch=240, num_consecutive_env_runner_failures_tolerance=9)
    with made.build_algo() as algo:
        algo.train()
        undisturbed = evaluation_of(algo)
        killer = threading.Thread(target=wait_until, args=(kill_each_new_process,))
        killer.start()
        while killer.is_alive():
            assert evaluation_of(algo) == undisturbed
        killer.join()
    assert len(killed) == 5


class FailsAlwaysAt(CountdownEnv):
    """Raises or exits at one step of every episode, once a file is there."""

    def __init__(self, env_config):
        super().__init__({"min_length": 30, "max_length": 60})
        self._file, self._step = Path(env_config["file"]), env_config["step"]
        self._way = env_config["way"]

    def step(self, action):
        if self.steps == self._step and self._file.exists():
            if self._way == "exit":
                os._exit(3)
            raise InjectedFaultError("always")
        return super().step(action)


@pytest.mark.parametrize(("way", "step"), [("raise", 0), ("raise", 25), ("exit", 0)])
def test_an_env_that_worked_and_then_always_fails_is_told_within_seconds(
    way, step, tmp_path, monkeypatch, caplog
):
    if way == "exit" or step:  # one of the cases waits as long as users do
        monkeypatch.setattr(restart_policy, "_LONGEST_BACK_OFF_S", 0.05)
    file = tmp_path / "broken"
    faults = {"file": str(file), "step": step, "way": way}
    made = config(faults, batch=240, num_env_runners=1).environment(FailsAlwaysAt)
    made.evaluation(evaluation_interval=None)
    with made.build_algo() as algo:
        algo.train()
        file.touch()
        begun = time.monotonic()
        with pytest.raises((InjectedFaultError, RunnerLostError)) as raised:
            algo.train()
        assert time.monotonic() - begun < 20.0
        # The group counts the repairs of rounds that end well; the log has those of all.
        assert 7 <= caplog.text.count("; it is replaced") < 16
        file.unlink()
        assert algo.train()["training_iteration"] == 2
    told = str(raised.value.__cause__ if way == "raise" else raised.value)
    assert "It made no progress in 8 tries" in told
    assert "delay_between_env_runner_restarts_s=0.0" in told


class FailsInFirstTries(CountdownEnv):
    """The first sub-env of a runner raises after given numbers of steps, one for each of its tries.

    Settings: folder, where tries and failures are counted; steps: of each runner that is to fail.
    """

    def __init__(self, env_config):
        super().__init__(env_config)
        self._failures, self._num_steps, self._fails_after = None, 0, 0
        steps = env_config.get("steps", {}).get(env_config.worker_index, ())
        if steps and env_config.vector_index == 0:
            self._failures = Path(env_config["folder"]) / "failures"
            tries = _count(Path(env_config["folder"]) / f"tries-{env_config.worker_index}")
            self._fails_after = steps[tries - 1] if tries <= len(steps) else 0

    def step(self, action):
        self._num_steps += 1
        if self._failures is not None and self._num_steps == self._fails_after:
            _count(self._failures)
            raise InjectedFaultError("the simulator crashed")
        return super().step(action)


def test_a_function_that_lets_unstable_envs_play_is_called_again(tmp_path):
    def play(env_runner):
        _count(tmp_path / f"calls-{env_runner.worker_index}")
        return sum(len(episode) for episode in env_runner.sample(num_timesteps=200))

    # Each try gets further than the one before.
    faults = {"folder": str(tmp_path), "steps": {1: (20, 40, 70), 3: (50,)}}
    made = config(faults, batch=240, evaluation_interval=None).environment(FailsInFirstTries)
    with made.build_algo() as algo:
        assert algo.env_runner_group.foreach_env_runner(play) == [200, 200, 200]
        repaired = algo.env_runner_group.num_restarts
    assert [(tmp_path / f"calls-{index}").stat().st_size for index in (1, 2, 3)] == [4, 1, 2]
    assert repaired == (tmp_path / "failures").stat().st_size == 4


def test_a_hang_names_the_setting_that_decides_and_no_other(tmp_path, caplog):
    faults = {"folder": str(tmp_path), "seed": 2, "way": "hang", "probability": 1.0}
    made = config(faults, batch=240, sample_timeout_s=0.3)
    with made.build_algo() as algo, pytest.raises(RunnerLostError) as raised:
        algo.train()
    assert "it is replaced after sample_timeout_s=0.3" in caplog.text
    assert "and was killed (sample_timeout_s=0.3)" in str(raised.value)
    others = ("restart_failed_env_runners", "max_num_env_runner_restarts", "tolerance", "ignore_")
    assert not any(name in str(raised.value) for name in others)

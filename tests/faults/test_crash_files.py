"""What failed is kept in a file, and plays again in the main process: the same episode and step."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import CheckpointCorruptError, encode
from tests import command_line
from tests.small_runs import small_ppo
from trainer import ConfigError, RunnerLostError
from trainer.testing import CountdownEnv, FailingEnv, InjectedFaultError, RestlessEnv

pytestmark = pytest.mark.process


class BadEpisode(CountdownEnv):
    """Fails at the third step of some episodes; which ones follows from their seeds.

    Settings: how, "raise" or "kill"; is_armed, whether it fails at all.
    """

    played = []

    def __init__(self, env_config):
        super().__init__({"min_length": 6})
        self._how = env_config.get("how", "raise")
        self._is_armed = env_config.get("is_armed", True)

    def reset(self, *, seed=None, options=None):
        self.seed = seed or 0
        return super().reset(seed=seed)

    def step(self, action):
        if self.seed % 12 == 1 and self.steps == 2 and self._is_armed:
            type(self).played.append((self.seed, int(action)))
            if self._how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise InjectedFaultError(f"seed {self.seed}, action {action}")
        return super().step(action)


def config(folder, num_env_runners, **settings):
    how = settings.pop("how", "raise")
    made = small_ppo(num_env_runners, env=BadEpisode, batch=24, env_config={"how": how}, seed=3)
    made.env_runners(num_envs_per_env_runner=2, observation_filter="MeanStdFilter")
    made.fault_tolerance(restart_failed_env_runners=False, crash_dir=str(folder))
    return made.update_from_dict(settings)


def train(algo, iterations):
    for _ in range(iterations):
        algo.train()


def train_until_it_fails(algo, error):
    with pytest.raises(error) as raised:
        train(algo, 20)
    assert algo.training_iteration > 0, "weights and running episodes are not the first ones"
    return str(raised.value)


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_what_was_raised_is_raised_again_in_the_main_process(num_env_runners, tmp_path):
    with config(tmp_path, num_env_runners).build_algo() as algo:
        told = train_until_it_fails(algo, InjectedFaultError)
        (file,) = tmp_path.iterdir()
        before = encode(algo.env_runner_group.get_state())
        with pytest.raises(InjectedFaultError) as again:
            algo.replay_episode(file)
        assert str(again.value) == told, "the same episode and the same action"
        assert encode(algo.env_runner_group.get_state()) == before


def test_what_killed_a_process_is_played_again_up_to_there(tmp_path, monkeypatch):
    with config(tmp_path, 1, how="kill", num_envs_per_env_runner=1).build_algo() as algo:
        told = train_until_it_fails(algo, RunnerLostError)
    (file,) = tmp_path.iterdir()
    assert str(file) in told

    def stop(pid, number):
        raise InterruptedError(int(number))

    monkeypatch.setattr(os, "kill", stop)
    BadEpisode.played.clear()
    with (
        config(tmp_path, 0, how="kill").build_algo() as algo,
        pytest.raises(InterruptedError, match=str(int(signal.SIGKILL))),
    ):
        algo.replay_episode(file)
    ((seed, _),) = BadEpisode.played
    assert f"seed {seed}" in told


def test_episodes_given_up_with_their_sub_env_are_kept(tmp_path):
    made = config(tmp_path, 0, restart_failed_sub_environments=True)
    with made.build_algo() as algo:
        while not algo.train()["fault_tolerance/num_episodes_lost"]:
            pass
        file = min(tmp_path.iterdir())
        with pytest.raises(InjectedFaultError):
            algo.replay_episode(file)


def test_an_evaluation_is_played_again_by_an_evaluation_runner(tmp_path):
    made = config(tmp_path, 0, evaluation_duration=30)
    with made.build_algo() as algo:
        with pytest.raises(InjectedFaultError) as told:
            algo.evaluate()
        (file,) = tmp_path.iterdir()
        assert file.name == "evaluation-runner-0-1.crash"
        with pytest.raises(InjectedFaultError) as again:
            algo.replay_episode(file)
        assert str(again.value) == str(told.value)


def test_what_does_not_fail_again_is_handed_out(tmp_path):
    with config(tmp_path, 0).build_algo() as algo:
        train_until_it_fails(algo, InjectedFaultError)
    (file,) = tmp_path.iterdir()
    with config(tmp_path, 0, env_config={"is_armed": False}).build_algo() as algo:
        episodes = algo.replay_episode(file)
    assert sum(map(len, episodes)) == 24


class FailsUnlessItReplaces(CountdownEnv):
    def __init__(self, env_config):
        super().__init__({"min_length": 6})
        self._fails = not env_config.recreated_worker

    def step(self, action):
        if self._fails:
            raise InjectedFaultError("the first one here")
        return super().step(action)


def test_an_env_plays_again_with_what_it_was_told(tmp_path):
    """A runner that is made anew for another seed replaces none; one after a failure does."""
    with config(tmp_path, 1).build_algo() as other:
        state = other.get_state()
    with config(tmp_path, 1, env=FailsUnlessItReplaces, seed=4).build_algo() as algo:
        algo.set_state(state)
        with pytest.raises(InjectedFaultError):
            algo.train()
        (file,) = tmp_path.iterdir()
        with pytest.raises(InjectedFaultError):
            algo.replay_episode(file)


def test_without_the_setting_nothing_is_kept(tmp_path):
    with config(tmp_path, 0, crash_dir=None).build_algo() as algo:
        train_until_it_fails(algo, InjectedFaultError)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").touch()
    with config(tmp_path, 0, crash_dir=str(tmp_path / "file" / "below")).build_algo() as algo:
        train_until_it_fails(algo, InjectedFaultError)
    assert "What env runner 0 was asked could not be kept: " in caplog.text


def test_other_files_are_refused(tmp_path):
    with config(tmp_path, 0).build_algo() as algo:
        with pytest.raises(ConfigError, match="cannot be read: No such file"):
            algo.replay_episode(tmp_path / "nothing")
        (tmp_path / "text").write_text("text")
        with pytest.raises(CheckpointCorruptError):
            algo.replay_episode(tmp_path / "text")
        (tmp_path / "newer").write_bytes(encode({"format_version": 99}))
        with pytest.raises(ConfigError, match="format version 99"):
            algo.replay_episode(tmp_path / "newer")


CONFIG_MODULE = """
from trainer import PPOConfig
from trainer.testing.envs import FailingEnv

def make():
    return (
        PPOConfig()
        .environment(FailingEnv, env_config={"where": "step", "at_step": 3})
        .training(train_batch_size=24, minibatch_size=12, num_epochs=1)
        .training(model={"fcnet_hiddens": [8]})
        .fault_tolerance(crash_dir="crashes")
    )
"""


def run(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "trainer.cli", "replay-episode", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )


def test_the_command_line_raises_it_again_and_says_what_it_needs(tmp_path):
    (tmp_path / "config_of_crashes.py").write_text(CONFIG_MODULE)
    settings = {
        "env_config": {"where": "step", "at_step": 3},
        "crash_dir": str(tmp_path),
    }
    made = config(tmp_path, 0).environment(FailingEnv).update_from_dict(settings)
    made.observation_filter = "NoFilter"
    with made.build_algo() as algo, pytest.raises(InjectedFaultError):
        algo.train()
    (file,) = tmp_path.glob("*.crash")
    without = command_line.run("replay-episode", file.name, folder=tmp_path, code=1)
    assert "holds code, which is not in the file: env" in without.stderr
    assert "--env package.module.MyEnv" in without.stderr
    for code in (
        ("--env", "trainer.testing.envs.FailingEnv"),
        ("--config", "config_of_crashes:make"),
    ):
        found = run(tmp_path, file.name, *code)
        assert found.returncode == 1, found
        assert "env runner 0 of training in env 'FailingEnv'" in found.stdout
        assert "fails on purpose" in found.stderr
        assert "InjectedFaultError: " in found.stderr
    words = ["replay-episode", file.name, "--config", "config_of_crashes:nothing"]
    wrong = command_line.run(*words, folder=tmp_path, code=1)
    told = "--config config_of_crashes:nothing: module 'config_of_crashes' has no attribute"
    assert told in wrong.stderr


def test_the_random_numbers_of_the_process_go_on_as_if_nothing_was_played(tmp_path):
    with config(tmp_path, 0).build_algo() as algo:
        train_until_it_fails(algo, InjectedFaultError)
        (file,) = tmp_path.iterdir()
        random.seed(1)
        expected = random.random()
        random.seed(1)
        with pytest.raises(InjectedFaultError):
            algo.replay_episode(file)
        assert random.random() == expected


class BadState(RestlessEnv):
    """Fails where a number from its own generator says so: only its state leads there again."""

    def step(self, action):
        answer = super().step(action)
        if answer[0][1] > 0.72 and self.steps > 2:
            raise InjectedFaultError(f"step {self.steps}, {answer[0][1]}")
        return answer


def test_an_env_is_put_back_by_its_state_to_fail_again(tmp_path):
    env_config = {"num_envs_per_env_runner": 2, "min_length": 9}
    with config(tmp_path, 0, env=BadState, env_config=env_config).build_algo() as algo:
        told = train_until_it_fails(algo, InjectedFaultError)
    (file,) = tmp_path.iterdir()
    with (
        config(
            tmp_path, 0, env=BadState, env_config=env_config | {"first_seed": 99}
        ).build_algo() as algo,
        pytest.raises(InjectedFaultError) as again,
    ):
        algo.replay_episode(file)
    assert str(again.value) == told

"""Processes of trials: which there are, and that none outlives its owner."""

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from trainer import PPO, PPOConfig, tune
from trainer.algorithms.building import algorithm_class
from trainer.testing import CountdownEnv, wait_until
from trainer.testing.processes import is_process_alive

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="children are listed on Linux"),
]


class Blocking(gym.Env[Any, Any]):
    """An env whose step holds the interpreter lock for ever, once its process was noted."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.folder = Path(config["folder"])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if not (self.folder / "over").exists():
            (self.folder / f"runner-{os.getpid()}").touch()
            ctypes.PyDLL(None).pause()
        return np.zeros(1, np.float32), 1.0, True, False, {}


def blocked(config):
    """Has two runners; the second time, nothing blocks."""
    folder = Path(config["folder"])
    (folder / f"trial-{os.getpid()}").touch()
    algo = (
        PPOConfig()
        .environment(Blocking, env_config={"folder": str(folder)})
        .env_runners(num_env_runners=2)
        .training(train_batch_size=8, minibatch_size=8, num_epochs=1)
        .build_algo()
    )
    algo.train()
    tune.report(done=True)
    algo.stop()


def pids(folder, kind):
    return sorted(int(path.name.split("-")[1]) for path in folder.glob(f"{kind}-*"))


def experiment(trainable, folder):
    return tune.Tuner(
        trainable,
        param_space={"folder": str(folder)},
        tune_config=tune.TuneConfig(seed=0, max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=folder, name="x", verbose=0),
    )


def test_runners_of_a_killed_trial_end_though_they_hold_the_interpreter_lock(tmp_path):
    gone = []

    def kill_the_trial():
        assert wait_until(lambda: len(pids(tmp_path, "runner")) == 2, within_s=60)
        runners = pids(tmp_path, "runner")
        (tmp_path / "over").touch()
        os.kill(pids(tmp_path, "trial")[0], signal.SIGKILL)
        gone.append(wait_until(lambda: not any(map(is_process_alive, runners)), within_s=5))

    killer = threading.Thread(target=kill_the_trial)
    killer.start()
    grid = experiment(blocked, tmp_path).fit()
    killer.join()
    assert gone == [True]
    assert not grid.errors
    left = [*pids(tmp_path, "runner"), *pids(tmp_path, "trial")]
    assert wait_until(lambda: not any(map(is_process_alive, left)))


def test_a_trial_without_runners_has_no_fork_server(tmp_path):
    class Noting(tune.Callback):
        servers = ""

        def on_trial_result(self, trial, result, **info):
            pid = result["pid"]
            self.servers = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")

    noting = Noting()
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(train_batch_size=32, minibatch_size=32, num_epochs=1)
    )
    tune.Tuner(
        "PPO",
        param_space=config,
        run_config=tune.RunConfig(
            storage_path=tmp_path, name="x", verbose=0, stop={"training_iteration": 2},
            callbacks=[noting],
        ),
    ).fit()  # fmt: skip
    assert noting.servers == ""


SMALL = {
    "train_batch_size": 16,
    "minibatch_size": 8,
    "num_epochs": 1,
    "num_env_runners": 1,
}


def trained_by_name(config):
    algorithm = algorithm_class(config["algorithm"])
    algo = algorithm.get_default_config().update_from_dict({**SMALL, "env": config["env"]}).build()
    result = algo.train()
    algo.stop()
    tune.report({"num": result["num_env_steps_sampled_lifetime"]})


@pytest.mark.parametrize("kind", ["an algorithm", "a function"])
def test_a_name_that_the_program_registered_is_known_in_every_trial(tmp_path, kind):
    class MyPPOConfig(PPOConfig):
        """A config of the program's own."""

    class MyPPO(PPO):
        """An algorithm that has its name in this process only."""

        config_class = MyPPOConfig

    tune.register_env("a countdown of mine", lambda config: CountdownEnv())
    trainable = "PPO"
    space = {**SMALL, "env": "a countdown of mine"}
    if kind == "a function":
        trainable = trained_by_name
        space = {"algorithm": "MyPPO", "env": tune.choice(["a countdown of mine"])}
    grid = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(num_samples=2, max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name="x", storage_path=tmp_path, verbose=0, stop={"training_iteration": 1}
        ),
    ).fit()
    assert not grid.errors
    assert [len(result.rows()) for result in grid] == [1, 1]

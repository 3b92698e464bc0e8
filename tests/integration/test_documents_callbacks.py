"""The callback examples of RLlib's documents run with nothing but their import lines changed.

Some lines are added around them to keep the runs short and to look at what came out.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from callbacks import RLlibCallback
from trainer import PPOConfig

pytestmark = pytest.mark.process


_LAMBDA_EXAMPLE = """
from trainer import PPOConfig

ppo = config = (
    PPOConfig()
    .environment("CartPole-v1")
    .callbacks(
        on_episode_end=(
            lambda episode, **kw: print(f"Episode done. R={episode.get_return()}")
        )
    )
    .training(train_batch_size=400, num_epochs=1)  # not in the document
    .build()
)
ppo.train()
ppo.stop()
"""


def test_the_lambda_prints_returns() -> None:
    # As a script without a guard, with the default of two processes, whose output is the script's.
    done = subprocess.run(
        [sys.executable, "-c", _LAMBDA_EXAMPLE], capture_output=True, text=True, check=True
    )
    # Two processes share the output, so the ends of lines may fall between each other's.
    assert len(re.findall(r"Episode done\. R=\d", done.stdout)) > 5


class EpisodeReturn(RLlibCallback):
    def __init__(self) -> None:
        # Keep some global state in between individual callback events.
        self.overall_sum_of_rewards = 0.0

    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        self.overall_sum_of_rewards += episode.get_return()
        print(f"Episode done. R={episode.get_return()} Global SUM={self.overall_sum_of_rewards}")


class EpisodeReturnWithSuper(EpisodeReturn):
    def __init__(self) -> None:
        super().__init__()
        self.overall_sum_of_rewards = 0.0


@pytest.mark.parametrize("callback", [EpisodeReturn, EpisodeReturnWithSuper])
def test_the_stateful_class_adds_up(callback: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ppo = (
        PPOConfig()
        .environment("CartPole-v1")
        .callbacks(callback)
        .training(train_batch_size=400, num_epochs=1)  # not in the document
        .env_runners(num_env_runners=0)  # one runner, so that there is one sum
        .build()
    )
    ppo.train()
    ppo.stop()
    total = 0.0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    for line in lines:
        words = line.split("=")
        total += float(words[1].split()[0])
        assert float(words[2]) == total


def test_the_chain_calls_classes_then_functions(capsys: pytest.CaptureFixture[str]) -> None:
    class MyCallbacks(RLlibCallback):
        def on_train_result(
            self, *, algorithm: Any, metrics_logger: Any, result: Any, **kwargs: Any
        ) -> None:
            print("RLlibCallback subclass")

    class MyDebugCallbacks(RLlibCallback):
        def on_train_result(
            self, *, algorithm: Any, metrics_logger: Any, result: Any, **kwargs: Any
        ) -> None:
            print("debug subclass")

    config = PPOConfig().environment("CartPole-v1")
    config.env_runners(num_env_runners=0).training(train_batch_size=200, num_epochs=1)
    # Define the callbacks order through the config.
    # Subclasses first, then individual `on_train_result` (or other events) callables:
    config.callbacks(
        callbacks_class=[MyDebugCallbacks, MyCallbacks],  # <- note: debug class first
        on_train_result=[
            lambda algorithm, **kw: print("lambda 1"),
            lambda algorithm, **kw: print("lambda 2"),
        ],
    )
    with config.build() as algo:
        algo.train()
    expected = ["debug subclass", "RLlibCallback subclass", "lambda 1", "lambda 2"]
    assert capsys.readouterr().out.splitlines() == expected


class LogAcrobotAngleTemporarily(RLlibCallback):
    def on_episode_step(self, *, episode: Any, env: Any, **kwargs: Any) -> None:
        # First get the angle from the env (note that `env` is a VectorEnv).
        cos_theta1, sin_theta1 = env.envs[0].unwrapped.state[0], env.envs[0].unwrapped.state[1]
        # Convert cos/sin/tan into degree.
        deg_theta1 = math.degrees(math.atan2(sin_theta1, cos_theta1))

        # Log the theta1 degree value in the episode object, temporarily.
        episode.add_temporary_timestep_data("theta1", deg_theta1)

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        # Get all the logged theta1 degree values and average them.
        theta1s = episode.get_temporary_timestep_data("theta1")
        avg_theta1 = np.mean(theta1s)

        # Log the final result - per episode - to the MetricsLogger.
        # Report with a sliding/smoothing window of 50.
        metrics_logger.log_value("theta1_mean", avg_theta1, reduce="mean", window=50)
        assert len(theta1s) == episode.t  # not in the document: one value per step, cuts or not


class LogAcrobotAngle(RLlibCallback):
    def on_episode_created(self, *, episode: Any, **kwargs: Any) -> None:
        # Initialize an empty list in the `custom_data` property of `episode`.
        episode.custom_data["theta1"] = []

    def on_episode_step(self, *, episode: Any, env: Any, **kwargs: Any) -> None:
        cos_theta1, sin_theta1 = env.envs[0].unwrapped.state[0], env.envs[0].unwrapped.state[1]
        deg_theta1 = math.degrees(math.atan2(sin_theta1, cos_theta1))

        # Log the theta1 degree value in the episode object, temporarily.
        episode.custom_data["theta1"].append(deg_theta1)

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        # Get all the logged theta1 degree values and average them.
        theta1s = episode.custom_data["theta1"]
        avg_theta1 = np.mean(theta1s)

        # Log the final result - per episode - to the MetricsLogger.
        # Report with a sliding/smoothing window of 50.
        metrics_logger.log_value("theta1_mean", avg_theta1, reduce="mean", window=50)
        assert len(theta1s) == episode.t  # not in the document


def test_both_ways_to_log_acrobots_angle_give_the_same_means() -> None:
    means = []
    for callback in (LogAcrobotAngleTemporarily, LogAcrobotAngle):
        config = (
            PPOConfig()
            .environment("Acrobot-v1")
            .callbacks(
                callbacks_class=callback,
            )
        )
        # Not in the document: episodes of 500 steps, cut into pieces of 300.
        config.training(train_batch_size=600, num_epochs=1).debugging(seed=0)
        ppo = config.build()

        # Train n times. Expect to find `theta1_mean` in the results under:
        # `env_runners/theta1_mean`
        for i in range(4):
            results = ppo.train()
            if i >= 1:  # an episode has ended by then
                print(
                    f"iter={i} "
                    f"theta1_mean={results['env_runners']['theta1_mean']} "
                    f"R={results['env_runners']['episode_return_mean']}"
                )
        means.append(results["env_runners"]["theta1_mean"])
        ppo.stop()
    assert means[0] == means[1]
    assert -180.0 <= means[0] <= 180.0

"""What evaluation costs training: after its step, beside it, and with an env that hangs."""

from __future__ import annotations

import logging
import time
from typing import Any

from benchmarks.figures import Figure, report
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

NUM_REPEATS = 9


def main() -> None:
    """Prints times of iterations and their ratios."""
    print("evaluation: PPO on CartPole-v1, main process, 4 envs; 1 evaluation runner, seed 0")
    logging.disable(logging.WARNING)
    duration = _duration_as_long_as_training()
    training, sequential, parallel, ratios = [], [], [], []
    with (
        _config().build_algo() as alone,
        _config(**_evaluation(duration)).build_algo() as after,
        _config(
            **_evaluation(duration), evaluation_parallel_to_training=True
        ).build_algo() as beside,
    ):
        for algo in (alone, after, beside):
            algo.train()
        for _ in range(NUM_REPEATS):
            training.append(_timed(alone.train))
            sequential.append(_timed(after.train))
            parallel.append(_timed(beside.train))
            ratios.append(parallel[-1] / sequential[-1])
    report("training alone", Figure(training, "s"))
    report(f"… and evaluation of {duration} steps after it", Figure(sequential, "s"))
    report("… and the same evaluation beside it", Figure(parallel, "s"))
    report("beside / after", Figure(ratios, ""), target="≤ 0.75")
    _print_hanging()
    logging.disable(logging.NOTSET)


def _config(**settings: Any) -> PPOConfig:
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size=4096, minibatch_size=128, num_epochs=5, lr=0.0)
        .debugging(seed=0)
    )
    return config.update_from_dict(settings)


def _evaluation(num_env_steps: int) -> dict[str, Any]:
    return {
        "evaluation_interval": 1,
        "evaluation_num_env_runners": 1,
        "evaluation_duration": num_env_steps,
        "evaluation_duration_unit": "timesteps",
        "evaluation_config": {"num_envs_per_env_runner": 4},
    }


def _duration_as_long_as_training() -> int:
    """Env steps of an evaluation that alone takes as long as a training iteration."""
    num_env_steps = 10_000
    for _ in range(3):
        with _config(**_evaluation(num_env_steps)).build_algo() as algo:
            algo.evaluate()
            ratio = _timed(algo.train) / max(_timed(algo.evaluate), 1e-3) - 1
        num_env_steps = round(num_env_steps * ratio)
    return num_env_steps


class HangingEnv(CountdownEnv):
    """Hangs in the first step of every episode in an evaluation process."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._hangs = config.worker_index > 0

    def step(self, action: int) -> Any:
        """Hangs for ever, or steps."""
        while self._hangs:
            time.sleep(3600)
        return super().step(action)


def _print_hanging() -> None:
    settings = {
        "evaluation_interval": 1,
        "evaluation_num_env_runners": 2,
        "enable_async_evaluation": True,
        "evaluation_sample_timeout_s": 2.0,
    }
    undisturbed, disturbed, ratios = [], [], []
    with (
        _config(env=HangingEnv).build_algo() as alone,
        _config(env=HangingEnv, **settings).build_algo() as beside,
    ):
        for algo in (alone, beside):
            algo.train()
        for _ in range(4 * NUM_REPEATS):
            undisturbed.append(_timed(alone.train))
            disturbed.append(_timed(beside.train))
            ratios.append(disturbed[-1] / undisturbed[-1])
    report("training alone", Figure(undisturbed, "s"))
    report("… beside an evaluation that hangs, asynchronous", Figure(disturbed, "s"))
    report("with / without", Figure(ratios, ""), target="≤ 1.1")


def _timed(action: Any) -> float:
    started_at = time.perf_counter()
    action()
    return time.perf_counter() - started_at

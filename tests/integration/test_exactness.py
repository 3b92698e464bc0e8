"""The promise for PPO, beyond `tests/contract/test_algorithms.py`: statistics, forgotten parts."""

from __future__ import annotations

from typing import Any

import pytest

from callbacks import RLlibCallback
from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import Algorithm, PPOConfig
from trainer.metrics import comparable

pytestmark = pytest.mark.process


class Counting(RLlibCallback):
    """Callback state on runners and driver, which has to survive everything, too."""

    def __init__(self) -> None:
        self.episodes = 0
        self.returns: list[float] = []

    def on_episode_created(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_data["steps"] = 0

    def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_data["steps"] += 1

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        self.episodes += 1
        self.returns = [*self.returns[-5:], float(episode.get_return())]
        assert episode.custom_data["steps"] == episode.get_return(), "CartPole pays 1 per step"
        metrics_logger.log_value("steps_by_callback", episode.custom_data["steps"], window=20)
        metrics_logger.log_value("runner_episodes", self.episodes, reduce="max")

    def on_train_result(self, *, result: Any, **kwargs: Any) -> None:
        self.episodes += result["env_runners"]["num_episodes"]


def config(
    num_env_runners: int, *, env: Any = "CartPole-v1", num_envs: int = 4, **settings: Any
) -> PPOConfig:
    made = small_ppo(num_env_runners, env=env, num_slots=num_envs, seed=11)
    made.training(
        # 202 steps on 4 slots leave a remainder, and episodes are cut wherever they stand.
        train_batch_size=202,
        minibatch_size=64,
        num_epochs=2,
        lr=[[0, 1e-3], [2000, 1e-4]],
        entropy_coeff=0.01,
        model={"fcnet_hiddens": [16, 16]},
    )
    return made.callbacks(Counting).update_from_dict(settings)


def fingerprint(algo: Algorithm) -> bytes:
    """Everything an algorithm knows, as bytes."""
    return encode(without_settings(algo.get_state()))


def without_settings(state: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in state.items() if name != "config"}


def run(algo: Algorithm, iterations: int) -> list[bytes]:
    return [encode(result_without_settings(algo.train())) for _ in range(iterations)]


def result_without_settings(result: Any) -> dict[str, Any]:
    return {key: value for key, value in comparable(result).items() if key != "config"}


def learnt(algo: Algorithm) -> bytes:
    return encode(algo.get_state()["learner"])


def test_episode_statistics_are_those_of_the_same_episodes_however_envs_are_spread() -> None:
    outcomes = []
    for num_env_runners in (0, 1, 2, 4):
        # A full window, so that it matters which episodes are the last ones.
        settings: dict[str, Any] = {"metrics_num_episodes_for_smoothing": 3}
        with config(num_env_runners, **settings).build_algo() as algo:
            results = [algo.train()["env_runners"] for _ in range(3)]
        names = ("episode_return_mean", "episode_len_mean", "episode_return_max", "hist_stats")
        outcomes.append([[result[name] for name in names] for result in results])
        assert results[-1]["num_episodes"] > 3
    assert outcomes[0] == outcomes[1] == outcomes[2] == outcomes[3]


def test_no_runner_and_one_runner_give_the_same_results() -> None:
    outcomes = []
    for num_env_runners in (0, 1):
        with config(num_env_runners).build_algo() as algo:
            outcomes.append((run(algo, 4), fingerprint(algo)))
    assert outcomes[0] == outcomes[1]

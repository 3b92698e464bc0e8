"""Classes and functions of a user that golden checkpoints name; they must stay where they are."""

from __future__ import annotations

from typing import Any

from trainer import RLlibCallback


class CountingEpisodes(RLlibCallback):
    """A callback with a state, which shows in results."""

    def __init__(self) -> None:
        self.num_episodes = 0
        self.returns: list[float] = []

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
        self.num_episodes += 1
        self.returns = [*self.returns[-3:], float(episode.get_return())]
        metrics_logger.log_value("of_runner", self.num_episodes, reduce="max")
        metrics_logger.log_value("lately", sum(self.returns), ema_coeff=0.1)

    def on_train_result(self, *, result: Any, metrics_logger: Any, **_: Any) -> None:
        self.num_episodes += result["env_runners"]["num_episodes"]
        metrics_logger.log_value("episodes_seen", self.num_episodes, reduce="sum")


def harder_task(train_results: Any, task_settable_env: Any, env_ctx: Any) -> int:
    """A curriculum: the number of the iteration."""
    del task_settable_env, env_ctx
    return int(train_results["training_iteration"])

"""For custom evaluation functions: the episodes that were played, and what they come to.

def evaluate(algorithm, workers):
workers.foreach_worker(lambda worker: worker.sample(num_episodes=5))
return {**summarize_episodes(collect_episodes(workers)), "foo": 1}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from checkpoints.arguments import checked_arguments
from trainer.env_runners import EnvRunnerGroup
from trainer.metrics import EpisodeRecord, EpisodeStatistics

_OLD_NAMES: Final = {
    "episode_reward_mean": "episode_return_mean",
    "episode_reward_min": "episode_return_min",
    "episode_reward_max": "episode_return_max",
    "episode_len_mean": "episode_len_mean",
    "episodes_this_iter": "num_episodes",
    "custom_metrics": "custom_metrics",
    "hist_stats": "hist_stats",
}


@checked_arguments
def collect_episodes(
    workers: EnvRunnerGroup,
    remote_worker_ids: Sequence[int] | None = None,
    timeout_seconds: float | None = None,
) -> list[EpisodeRecord]:
    """What is left of the episodes that evaluation runners have ended since this was last called.

    Args:
        workers: the group that a custom evaluation function is given.
        remote_worker_ids: no effect: records are in the main process already.
        timeout_seconds: no effect, likewise.

    Returns:
        a record per episode, ordered by call of `foreach_env_runner`, then runner, then time.
    """
    del remote_worker_ids, timeout_seconds
    return workers.take_records()


@checked_arguments
def summarize_episodes(
    episodes: Iterable[EpisodeRecord],
    new_episodes: Iterable[EpisodeRecord] | None = None,
    keep_custom_metrics: bool = False,
) -> dict[str, Any]:
    """Mean, smallest and largest return of some episodes, and more, under RLlib's old names.

    Args:
        episodes: from `collect_episodes`.
        new_episodes: those to count in `episodes_this_iter`; None counts all.
        keep_custom_metrics: give custom metrics as lists instead of mean, min and max.

    Returns:
        `episode_reward_mean`, `episode_reward_min`, `episode_reward_max`, `episode_len_mean`,
        `episodes_this_iter`, `custom_metrics`, `hist_stats`; NaN where there is no episode.
    """
    statistics = EpisodeStatistics(
        smoothing=None, keep_per_episode_custom_metrics=keep_custom_metrics
    )
    statistics.add(episodes)
    found = statistics.result()
    summary = {old: found[name] for old, name in _OLD_NAMES.items()}
    if new_episodes is not None:
        summary["episodes_this_iter"] = len(list(new_episodes))
    return summary

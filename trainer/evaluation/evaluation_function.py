"""A user's own evaluation: checked when it is configured, called instead of playing tickets.

For custom evaluation functions: the episodes that were played, and what they come to.
def evaluate(algorithm, workers):
workers.foreach_worker(lambda worker: worker.sample(num_episodes=5))
return {**summarize_episodes(collect_episodes(workers)), "foo": 1}
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from checkpoints import StateError, encode
from checkpoints.arguments import checked_arguments
from trainer.errors import EvaluationError
from trainer.metrics import EpisodeRecord, EpisodeStatistics
from trainer.runner_group import EnvRunnerGroup

# ---- evaluation function

_EXPECTED = (
    "Return a dict of metrics with at least one entry, or such a dict, the number of env steps and "
    "the number of agent steps."
)


def call_evaluation_function(
    function: Callable[..., Any], algorithm: Any, group: Any
) -> Mapping[str, Any]:
    """Lets a user's function evaluate.

    Args:
        function: called as `function(algorithm, group)`.
        algorithm: whose weights the group's runners hold.
        group: the evaluation runners.

    Returns:
        the metrics; step counts that the function gave are added as `num_env_steps_sampled` and
        `num_agent_steps_sampled`.

    Raises:
        EvaluationError: it returned something else.
        Exception: what the function raised.
    """
    returned = function(algorithm, group)
    name = getattr(function, "__qualname__", repr(function))
    metrics, counts = returned, {}
    if isinstance(returned, tuple):
        if len(returned) != 3:
            raise EvaluationError(
                f"custom_evaluation_function {name} returned a tuple of {len(returned)}. "
                f"{_EXPECTED}"
            )
        metrics, num_env_steps, num_agent_steps = returned
        counts = {
            "num_env_steps_sampled": num_env_steps,
            "num_agent_steps_sampled": num_agent_steps,
        }
        for what, count in counts.items():
            if not isinstance(count, numbers.Integral) or count < 0:
                raise EvaluationError(
                    f"custom_evaluation_function {name} returned {count!r:.80} as {what}. "
                    f"{_EXPECTED}"
                )
    if not isinstance(metrics, Mapping) or not metrics:
        raise EvaluationError(
            f"custom_evaluation_function {name} returned {metrics!r:.80}, a "
            f"{type(metrics).__name__}. {_EXPECTED}"
        )
    try:
        encode(metrics, name="it")
    except StateError as error:
        raise EvaluationError(
            f"custom_evaluation_function {name} returned something that no checkpoint can hold: "
            f"{error}"
        ) from error
    return {**counts, **metrics}


# ---- collecting

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

"""Statistics of finished episodes by the task that their env was to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from callbacks.task_names import task_name
from trainer.metrics.exact_sum import rounded_sum


class EpisodeOfTask(Protocol):
    """What is needed of an episode; `EpisodeRecord` has it."""

    @property
    def task(self) -> Any:
        """The task at its first step; None if there was none."""

    @property
    def episode_return(self) -> float:
        """The sum of all its rewards."""

    @property
    def length(self) -> int:
        """Env steps of the whole episode."""


def task_statistics(episodes: Iterable[EpisodeOfTask]) -> Mapping[str, Mapping[str, float]]:
    """Numbers and means by the name of the task, in the order in which tasks were first met.

    Tasks of the same name are counted together.

    Args:
        episodes: finished ones; those without a task are left out.
    """
    by_name: dict[str, list[EpisodeOfTask]] = {}
    for episode in episodes:
        if episode.task is not None:
            by_name.setdefault(task_name(episode.task), []).append(episode)
    return {
        name: {
            "num_episodes": len(of_task),
            "episode_return_mean": rounded_sum([one.episode_return for one in of_task])
            / len(of_task),
            "episode_len_mean": rounded_sum([one.length for one in of_task]) / len(of_task),
        }
        for name, of_task in by_name.items()
    }

"""The short printed form of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FIRST: Final = (
    "training_iteration",
    "time_total_s",
    "num_env_steps_sampled_lifetime",
    "env_runners/episode_return_mean",
    "env_runners/episode_return_min",
    "env_runners/episode_return_max",
    "env_runners/episode_len_mean",
    "env_runners/num_episodes",
    "env_runners/num_episodes_lifetime",
    "env_runners/num_env_steps_sampled_lifetime_throughput",
    "evaluation/evaluated_at_iteration",
    "evaluation/env_runners/episode_return_mean",
    "evaluation/env_runners/num_episodes",
)
"""The rows everybody looks at, in this order."""

_AFTER_USERS: Final = ("learners/", "fault_tolerance/")
"""What comes behind the metrics of users, as far as there is room."""

_HIDDEN: Final = (
    *("config/", "timers/", "perf/", "evaluation/", "env_runner_group/"),
    *("env_runners/hist_stats/", "env_runners/episode_media/", "env_runners/episode_"),
    *("env_runners/num_", "env_runners/agent_", "env_runners/module_", "time_", "num_"),
    *("date", "timestamp", "pid", "hostname", "node_ip", "trial_id", "done", "iterations_since_"),
)
"""Beginnings of keys that are in the result but not in its short form."""


def summary(flat: Mapping[str, Any], *, num_rows: int) -> str:
    """Lines of "key  value", the important ones first.

    Args:
        flat: {slash path: value}.
        num_rows: how many at most; a last line tells what is left out.
    """
    chosen = [key for key in _FIRST if key in flat]
    others = [
        key for key in flat if key not in _FIRST and _is_number(flat[key]) and not _is_hidden(key)
    ]
    others.sort(key=_rank)
    chosen = (chosen + others)[:num_rows]
    width = max(map(len, chosen), default=0)
    lines = [f"{key:<{width}}  {_format(flat[key])}" for key in chosen]
    if len(chosen) < len(flat):
        lines.append(f"… and {len(flat) - len(chosen)} more in result.flat()")
    return "\n".join(lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_hidden(key: str) -> bool:
    return key.startswith(_HIDDEN)


def _rank(key: str) -> int:
    """Users' metrics before all others; sorting keeps the order within a rank."""
    ranks = [number for number, start in enumerate(_AFTER_USERS, 1) if key.startswith(start)]
    return ranks[0] if ranks else 0


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

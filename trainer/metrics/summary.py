"""The short printed form of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trainer.metrics.keys import describe

_FIRST: Final = (
    "training_iteration",
    "stop_reason",
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

_LAST: Final = ("learners/", "fault_tolerance/")
"""Standard keys that come behind the metrics of users, as far as there is room."""

_OF_USERS: Final = "/custom_metrics/"
"""What lies below this is the users', although the key itself is a standard one."""


def summary(flat: Mapping[str, Any], *, num_rows: int) -> str:
    """Lines of "key  value", the important ones first.

    Args:
        flat: {slash path: value}.
        num_rows: how many at most; a last line tells what is left out.
    """
    chosen = [key for key in _FIRST if key in flat]
    numbers = [key for key in flat if key not in _FIRST and _is_number(flat[key])]
    users = [key for key in numbers if _OF_USERS in key or describe(key) is None]
    last = [key for start in _LAST for key in numbers if key.startswith(start)]
    chosen = list(dict.fromkeys(chosen + users + last))[:num_rows]
    width = max(map(len, chosen), default=0)
    lines = [f"{key:<{width}}  {_format(flat[key])}" for key in chosen]
    if len(chosen) < len(flat):
        lines.append(f"… and {len(flat) - len(chosen)} more in result.flat()")
    return "\n".join(lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

"""What a run can be measured in: iterations, env steps, episodes, seconds.

One table for all who count: when to save, when to stop, how long still. Every count is read from a
result, together with what it was before the iteration. So nobody has to remember it, and a restored
run counts on by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from callbacks.ready_made.metric_values import number_at

Unit = Literal["iterations", "env_steps", "episodes", "seconds"]
"""The units, by name."""


@dataclass(frozen=True)
class Count:
    """One way to measure a run.

    Attributes:
        lifetime: slash path of the count of the whole run.
        of_iteration: slash path of what this iteration added; None adds 1.
    """

    lifetime: str
    of_iteration: str | None

    def now(self, result: Mapping[str, Any]) -> float:
        """The count at the end of the iteration; 0 where a result does not tell."""
        return number_at(result, self.lifetime) or 0.0

    def before(self, result: Mapping[str, Any]) -> float:
        """The count at the beginning of the iteration."""
        added = 1.0 if self.of_iteration is None else number_at(result, self.of_iteration) or 0.0
        return max(0.0, self.now(result) - added)

    def has_passed_multiple(self, result: Mapping[str, Any], every: float) -> bool:
        """Whether a multiple of `every` was reached in this iteration."""
        return math.floor(self.now(result) / every) > math.floor(self.before(result) / every)


COUNTS: Final[Mapping[str, Count]] = MappingProxyType(
    {
        "iterations": Count("training_iteration", None),
        "env_steps": Count("num_env_steps_sampled_lifetime", "env_runners/num_env_steps_sampled"),
        "episodes": Count("env_runners/num_episodes_lifetime", "env_runners/num_episodes"),
        "seconds": Count("time_total_s", "time_this_iter_s"),
    }
)
"""All of them, by unit."""

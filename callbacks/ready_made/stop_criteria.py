"""When a run is over: a goal that is reached, a plateau, a budget that is used up.

Pure: it judges results and remembers what a plateau needs. It does not end anything;
`EarlyStopping` and the command line do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from callbacks.ready_made.choices import choice_problems, count_problems, number_problems
from callbacks.ready_made.counts import COUNTS
from callbacks.ready_made.metric_values import RETURN, path_problems

Mode = Literal["max", "min"]
"""Whether more or less is better."""


@dataclass(frozen=True, kw_only=True)
class StopCriteria:
    """Goals and budgets; None never ends a run. The first one that is met does.

    Attributes:
        metric: slash path of the number that the goals are about.
        at_least: the run is over when the metric is at least this.
        at_most: the run is over when the metric is at most this.
        max_iterations: iterations of the whole run, restored parts included.
        max_env_steps: env steps of the whole run.
        max_episodes: finished training episodes of the whole run.
        max_time_s: seconds spent in `train()` in the whole run.
    """

    metric: str = RETURN
    at_least: float | None = None
    at_most: float | None = None
    max_iterations: int | None = None
    max_env_steps: int | None = None
    max_episodes: int | None = None
    max_time_s: float | None = None

    def problems(self) -> list[str]:
        """What is wrong with the values, one sentence each."""
        return [
            *path_problems("metric", self.metric),
            *number_problems("at_least", self.at_least, none="no such goal"),
            *number_problems("at_most", self.at_most, none="no such goal"),
            *count_problems("max_iterations", self.max_iterations, none="no such limit"),
            *count_problems("max_env_steps", self.max_env_steps, none="no such limit"),
            *count_problems("max_episodes", self.max_episodes, none="no such limit"),
            *number_problems("max_time_s", self.max_time_s, above=0.0, none="no such limit"),
        ]

    @property
    def has_goal(self) -> bool:
        """Whether a value of the metric can end the run."""
        return self.at_least is not None or self.at_most is not None

    def budgets(self) -> dict[str, float]:
        """The limits that are set, by unit (see `COUNTS`)."""
        limits = {
            "iterations": self.max_iterations,
            "env_steps": self.max_env_steps,
            "episodes": self.max_episodes,
            "seconds": self.max_time_s,
        }
        return {unit: limit for unit, limit in limits.items() if limit is not None}

    def goal_text(self) -> str:
        """The goals in words, such as "return ≥ 450"; empty if there is none."""
        name = "return" if self.metric == RETURN else self.metric.rpartition("/")[2]
        goals = [("≥", self.at_least), ("≤", self.at_most)]
        return " or ".join(f"{name} {sign} {goal:g}" for sign, goal in goals if goal is not None)

    def reason(self, result: Mapping[str, Any], *, value: float | None) -> str | None:
        """Why the run is over with this result, as a sentence; None if it goes on.

        Args:
            result: of `train()`.
            value: the metric, if it was measured in this iteration.
        """
        if value is not None:
            steps = COUNTS["env_steps"].now(result)
            reached = f"Goal reached after {steps:,.0f} env steps: {self.metric} is {value:.6g}"
            if self.at_least is not None and value >= self.at_least:
                return f"{reached}, at least {self.at_least:g}."
            if self.at_most is not None and value <= self.at_most:
                return f"{reached}, at most {self.at_most:g}."
        for unit, limit in self.budgets().items():
            now = COUNTS[unit].now(result)
            if now >= limit:
                words = unit.replace("_", " ")
                return f"Stopped after {now:,.0f} {words if now != 1 else words[:-1]}."
        return None


class Plateau:
    """Notices that a number has not become better for some time.

    Attributes:
        best: the best value so far; None before the first.
        num_values_without_progress: how many values came since.

    Args:
        patience: so many values in a row without progress are a plateau.
        min_delta: progress is a value that is better than the best by more than this.
        mode: whether "max" or "min" is better.
    """

    def __init__(self, *, patience: int, min_delta: float, mode: Mode) -> None:
        self._patience = patience
        self._min_delta = min_delta
        self._sign = 1.0 if mode == "max" else -1.0
        self.best: float | None = None
        self.num_values_without_progress = 0

    @staticmethod
    def problems(patience: Any, min_delta: Any, mode: Any) -> list[str]:
        """What is wrong with the arguments, one sentence each."""
        found = [*count_problems("patience", patience), *choice_problems("mode", mode, _MODES)]
        if number_problems("min_delta", min_delta) or min_delta < 0:
            found.append(f"`min_delta={min_delta!r}` must be a finite number of at least 0")
        return found

    def add(self, value: float) -> None:
        """Takes the next value."""
        if self.best is None or self._sign * (value - self.best) > self._min_delta:
            self.best = value
            self.num_values_without_progress = 0
        else:
            self.num_values_without_progress += 1

    @property
    def is_reached(self) -> bool:
        """Whether the last `patience` values brought no progress."""
        return self.num_values_without_progress >= self._patience

    def get_state(self) -> dict[str, Any]:
        """What was seen so far; the settings are not part of it."""
        return {
            "best": self.best,
            "num_values_without_progress": self.num_values_without_progress,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what `get_state` gave."""
        self.best = state["best"]
        self.num_values_without_progress = state["num_values_without_progress"]


_MODES = ("max", "min")

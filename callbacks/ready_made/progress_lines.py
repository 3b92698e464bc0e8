"""One line per iteration: how far, how fast, how good, how long still."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callbacks.ready_made.counts import COUNTS
from callbacks.ready_made.metric_values import RETURN, number_at
from callbacks.ready_made.stop_criteria import StopCriteria

_NOT_YET = "–"


class ProgressLines:
    """Formats results as lines.

    The remaining time follows from the budgets and from the speed since the first line. A run that
    ends only at a goal has no such time; its lines name the goal instead.

    Args:
        criteria: when the run is over.
    """

    def __init__(self, criteria: StopCriteria) -> None:
        self._criteria = criteria
        self._elapsed_s = 0.0
        self._last_iteration = 0.0
        self._start: dict[str, float] = {}

    def line(self, result: Mapping[str, Any], *, elapsed_s: float) -> str:
        """The line for one result.

        Args:
            result: of `train()`.
            elapsed_s: seconds since the last one, saving and logging included.
        """
        iteration = COUNTS["iterations"].now(result)
        if not self._start or iteration <= self._last_iteration:  # the first line, or a restore
            self._start = {unit: count.before(result) for unit, count in COUNTS.items()}
            self._elapsed_s = 0.0
        self._last_iteration = iteration
        self._elapsed_s += elapsed_s
        sampled = number_at(result, "env_runners/num_env_steps_sampled") or 0.0
        mean = number_at(result, RETURN)
        columns = [
            f"iter {iteration:4.0f}",
            f"{COUNTS['env_steps'].now(result):>10,.0f} steps",
            f"{sampled / elapsed_s if elapsed_s > 0 else 0.0:>7,.0f} steps/s",
            f"return {_NOT_YET if mean is None else f'{mean:.1f}':>6}",
            f"{COUNTS['episodes'].now(result):>6,.0f} episodes",
            duration(COUNTS["seconds"].now(result)),
            self._end(result),
        ]
        return " │ ".join(columns)

    def _end(self, result: Mapping[str, Any]) -> str:
        remaining = [
            self._remaining_s(unit, limit, result)
            for unit, limit in self._criteria.budgets().items()
        ]
        known = [seconds for seconds in remaining if seconds is not None]
        goal = self._criteria.goal_text()
        if known:
            return f"ETA {duration(min(known))}" + (f" or {goal}" if goal else "")
        return f"until {goal}" if goal else "no end set"

    def _remaining_s(self, unit: str, limit: float, result: Mapping[str, Any]) -> float | None:
        """Seconds until a budget is used up at the speed so far; None if nothing was done yet."""
        now = COUNTS[unit].now(result)
        done = now - self._start[unit]
        return max(0.0, limit - now) * self._elapsed_s / done if done > 0 else None


def duration(seconds: float) -> str:
    """1:02:03 for hours, minutes, seconds; 2:03 for less than an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

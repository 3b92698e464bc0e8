"""One line per iteration: how far, how fast, how good, how long still."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol


class _Stops(Protocol):
    @property
    def env_steps(self) -> int | None: ...
    @property
    def iterations(self) -> int | None: ...
    @property
    def episode_return(self) -> float | None: ...


class ProgressLines:
    """Formats results as lines.

    The remaining time follows from the number of steps or iterations where one is given as an end,
    and is an estimate then; a run that ends at a return tells the distance to it instead.
    """

    def __init__(self, stops: _Stops, *, start_iteration: int) -> None:
        self._stops = stops
        self._start_iteration = start_iteration
        self._total_s = 0.0

    def line(self, result: Mapping[str, Any], *, elapsed_s: float) -> str:
        """The line for one result.

        Args:
            result: of `train()`.
            elapsed_s: seconds of this iteration, saving and logging included.
        """
        self._total_s += elapsed_s
        runners = result["env_runners"]
        steps = result["num_env_steps_sampled_lifetime"]
        per_second = runners["num_env_steps_sampled"] / elapsed_s if elapsed_s > 0 else 0.0
        mean = runners["episode_return_mean"]
        shown = "     –" if math.isnan(mean) else f"{mean:6.1f}"
        return (
            f"iter {result['training_iteration']:4d} │ {steps:>10,} steps │ "
            f"{per_second:>7,.0f} steps/s │ "
            f"return {shown} │ {runners['num_episodes_lifetime']:>6,} episodes │ "
            f"{_duration(result['time_total_s'])} │ ETA {self._eta(result, steps)}"
        )

    def _eta(self, result: Mapping[str, Any], steps: int) -> str:
        iteration = result["training_iteration"]
        per_iteration_s = self._total_s / max(1, iteration - self._start_iteration)
        candidates = []
        if self._stops.iterations is not None:
            candidates.append(self._stops.iterations - iteration)
        if self._stops.env_steps is not None:
            per_iteration = max(1, result["env_runners"]["num_env_steps_sampled"])
            candidates.append(math.ceil((self._stops.env_steps - steps) / per_iteration))
        if candidates:
            return _duration(max(0, min(candidates)) * per_iteration_s)
        if self._stops.episode_return is not None:
            return f"at return {self._stops.episode_return:g}"
        return "none (Ctrl-C stops)"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

"""When a run is over: a goal, a plateau, a budget, a NaN; and the callbacks that end it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from callbacks.callback import RLlibCallback
from callbacks.errors import NonFiniteError
from callbacks.ready_made.metric_values import (
    RETURN,
    WatchedMetric,
    as_number,
    choice_problems,
    count_problems,
    has_no_episodes,
    is_word,
    number_at,
    number_problems,
    path_problems,
    raise_if_any,
    value_at,
)
from callbacks.views import AlgorithmView

# ---- counts
#
# What a run can be measured in: iterations, env steps, episodes, seconds. One table for all who
# count: when to save, when to stop, how long still. Every count is read from a result, together
# with what it was before the iteration. So nothing has to remember it, and a restored run counts
# on by itself.

Unit = Literal["iterations", "env_steps", "episodes", "seconds"]
"""The units, by name."""


@dataclass(frozen=True)
class Count:
    """One way to measure a run.

    Attributes:
        lifetime: slash path of the count of the whole run.
        of_iteration: slash paths of what this iteration added, those that are there; none adds 1.
    """

    lifetime: str
    of_iteration: tuple[str, ...] = ()

    def now(self, result: Mapping[str, Any]) -> float:
        """The count at the end of the iteration; 0 where a result does not tell."""
        return number_at(result, self.lifetime) or 0.0

    def before(self, result: Mapping[str, Any]) -> float:
        """The count at the beginning of the iteration."""
        return max(0.0, self.now(result) - self.added(result))

    def added(self, result: Mapping[str, Any]) -> float:
        """What the iteration has added."""
        if not self.of_iteration:
            return 1.0
        return sum(number_at(result, path) or 0.0 for path in self.of_iteration)

    def has_passed_multiple(self, result: Mapping[str, Any], every: float) -> bool:
        """Whether a multiple of `every` was reached in this iteration."""
        return math.floor(self.now(result) / every) > math.floor(self.before(result) / every)


COUNTS: Final[Mapping[str, Count]] = MappingProxyType(
    {
        "iterations": Count("training_iteration"),
        "env_steps": Count(
            "num_env_steps_sampled_lifetime",
            ("env_runners/num_env_steps_sampled", "recordings/num_env_steps_read"),
        ),
        "episodes": Count("env_runners/num_episodes_lifetime", ("env_runners/num_episodes",)),
        "seconds": Count("time_total_s", ("time_this_iter_s",)),
    }
)
"""All of them, by unit."""


# ---- stop criteria

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

        `value` is the metric, if it was measured in this iteration.
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
        self.best = state["best"]
        self.num_values_without_progress = state["num_values_without_progress"]


_MODES = ("max", "min")


# ---- early stopping


class EarlyStopping(RLlibCallback):
    """Says in the result that training is over, and why.

        config.callbacks([EarlyStopping(at_least=450, patience=50, max_env_steps=1_000_000)])
        while not result["done"]:
            result = algo.train()
        print(result["stop_reason"])

    The first criterion that is met counts. A metric that was not measured in an iteration (NaN, or
    an evaluation made earlier) is not judged in that iteration, neither as a goal nor for the
    plateau. Several objects can watch several metrics. What the plateau has seen is in checkpoints.

    Attributes:
        criteria: goals and budgets.

    Args:
        metric: slash path of the number that goals and plateau are about.
        at_least: goal: the metric is at least this.
        at_most: goal: the metric is at most this.
        patience: plateau: so many measurements in a row that were no better than the best one.
        min_delta: how much better, at least, counts as better; for the plateau.
        mode: whether "max" or "min" is better; for the plateau.
        max_iterations: budget: iterations of the whole run, restored parts included.
        max_env_steps: budget: env steps of the whole run.
        max_episodes: budget: finished training episodes of the whole run.
        max_time_s: budget: seconds spent in `train()` in the whole run.

    Raises:
        CallbackConfigError: no criterion is given, or a value makes no sense; lists all problems.
    """

    def __init__(
        self,
        metric: str = RETURN,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        patience: int | None = None,
        min_delta: float = 0.0,
        mode: Mode = "max",
        max_iterations: int | None = None,
        max_env_steps: int | None = None,
        max_episodes: int | None = None,
        max_time_s: float | None = None,
    ) -> None:
        self.criteria = StopCriteria(
            metric=metric,
            at_least=at_least,
            at_most=at_most,
            max_iterations=max_iterations,
            max_env_steps=max_env_steps,
            max_episodes=max_episodes,
            max_time_s=max_time_s,
        )
        problems = self.criteria.problems()
        if patience is not None or as_number(min_delta) != 0.0 or not is_word(mode, "max"):
            problems += Plateau.problems(patience, min_delta, mode)
        if not problems and patience is None and self.criteria == StopCriteria(metric=metric):
            problems.append(
                "no criterion is given, so it would never stop; give for example `at_least=450`, "
                "`patience=50` or `max_env_steps=1_000_000`"
            )
        raise_if_any("EarlyStopping", problems)
        self._plateau = (
            None if patience is None else Plateau(patience=patience, min_delta=min_delta, mode=mode)
        )
        self._metric = WatchedMetric(metric)

    def on_train_result(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Judges the result once it is complete."""
        algorithm.after_train_result(partial(self._judge, algorithm.config))

    def get_state(self) -> dict[str, Any]:
        """What the plateau has seen, and whether the metric was ever there."""
        plateau = None if self._plateau is None else self._plateau.get_state()
        return {"plateau": plateau, **self._metric.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; the criteria stay those of the config.

        What a plateau has seen of another metric counts for nothing.
        """
        is_of_metric = self._metric.set_state(state)
        if is_of_metric and self._plateau is not None and state["plateau"] is not None:
            self._plateau.set_state(state["plateau"])

    def _judge(self, config: Any, result: dict[str, Any]) -> None:
        needs_metric = self._plateau is not None or self.criteria.has_goal
        value = self._metric.read(result, config=config) if needs_metric else None
        reason = self.criteria.reason(result, value=value)
        if self._plateau is not None and value is not None:
            self._plateau.add(value)
            if self._plateau.is_reached:
                reason = reason or self._plateau_text(self._plateau, result)
        if reason is not None:
            stop(result, reason)

    def _plateau_text(self, plateau: Plateau, result: Mapping[str, Any]) -> str:
        return (
            f"Stopped at a plateau in iteration {result['training_iteration']}: the last "
            f"{plateau.num_values_without_progress} values of {self.criteria.metric} were no "
            f"better than {plateau.best:.6g}."
        )


def stop(result: dict[str, Any], reason: str) -> None:
    """Notes in a result that training is over; the first reason that was given stays."""
    result["done"] = True
    result.setdefault("stop_reason", reason)


# ---- non finite guard

OnFound = Literal["raise", "stop"]
"""What happens when something is found."""

_STANDARD_METRICS: Final = (RETURN, f"evaluation/{RETURN}")
_MOST_PLACES_NAMED: Final = 10


class NonFiniteGuard(RLlibCallback):
    """Looks for NaN and infinite numbers in learner metrics, weights and named metrics.

    It looks when the result is complete and before anything is saved. A mean that is NaN because no
    episode has ended yet is no alarm.

    - `on_found="raise"`: `train()` raises `NonFiniteError`, which names every place. The iteration
      is undone, so the algorithm holds the weights from before it.
    - `on_found="stop"`: the result says `done`, `stop_reason`, and the places in `non_finite`. The
      algorithm keeps the broken numbers; the checkpoint callbacks do not save it.

    Args:
        metrics: slash paths of further metrics to look at; None for the mean returns of training
            and evaluation.
        on_found: "raise" or "stop".

    Raises:
        CallbackConfigError: an argument makes no sense; lists all problems.
    """

    def __init__(
        self, metrics: Sequence[str] | None = None, *, on_found: OnFound = "raise"
    ) -> None:
        paths: Any = _STANDARD_METRICS if metrics is None else metrics
        problems = choice_problems("on_found", on_found, ("raise", "stop"))
        if isinstance(paths, str):
            problems.append(f"`metrics={paths!r}` must be a list of paths: write [{paths!r}]")
        elif not isinstance(paths, Collection):
            problems.append(f"`metrics={paths!r}` must be a list of paths, such as [{RETURN!r}]")
        else:
            problems += [text for path in paths for text in path_problems("metrics", path)]
        raise_if_any("NonFiniteGuard", problems)
        self._metrics = tuple(paths)
        # The standard ones may be missing: not every run is evaluated.
        self._watched = [] if metrics is None else [WatchedMetric(path) for path in paths]
        self._on_found = on_found

    def get_state(self) -> dict[str, Any]:
        """Which of the metrics were ever there; every result is looked at for itself."""
        return {"found": [metric.path for metric in self._watched if metric.was_found]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; the metrics stay those of the config."""
        for metric in self._watched:
            metric.was_found = metric.path in state["found"]

    def on_train_result(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Looks at the result once it is complete."""
        algorithm.after_train_result(partial(self._look, algorithm))

    def _look(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        for metric in self._watched:
            metric.check(result, config=algorithm.config)
        places = [
            *_places_in(result.get("learners", {}), "learners"),
            *_places_in(algorithm.get_weights(), "weights"),
            *(place for path in self._metrics for place in _places_of_metric(result, path)),
        ]
        if not places:
            return
        named = "; ".join(places[:_MOST_PLACES_NAMED])
        more = len(places) - _MOST_PLACES_NAMED
        text = (
            f"Numbers that are not finite after iteration {algorithm.training_iteration}: {named}"
            f"{f'; and {more} more places' if more > 0 else ''}."
        )
        advice = (
            "Look for rewards or observations that are not finite or very large; a smaller `lr` or "
            "a `grad_clip` may help."
        )
        if self._on_found == "raise":
            raise NonFiniteError(
                f"{text} train() has undone this iteration: the algorithm holds the weights from "
                "before it and can be saved or evaluated. Calling train() again makes the same "
                f"iteration again. {advice}",
                places,
            )
        result["non_finite"] = places
        stop(result, f"{text} The algorithm holds these numbers; restore a checkpoint. {advice}")


def _places_of_metric(result: Mapping[str, Any], path: str) -> Iterator[str]:
    value = value_at(result, path)
    number = as_number(value)
    is_nan = number is not None and math.isnan(number)
    if not (is_nan and has_no_episodes(result, path.rpartition("/")[0])):
        yield from _places_in(value, path)


def _places_in(value: Any, path: str) -> Iterator[str]:
    """The places in nested dicts and lists with numbers that are not finite, in words."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _places_in(item, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _places_in(item, f"{path}/{index}")
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "fc":
            yield from _places_in_array(value, path)
    elif (number := as_number(value)) is not None and not math.isfinite(number):
        yield f"{path} is {number}"


def _places_in_array(array: np.ndarray[Any, Any], path: str) -> Iterator[str]:
    is_bad = ~np.isfinite(array)
    num_bad = int(is_bad.sum())
    if num_bad:
        first = tuple(int(index) for index in np.argwhere(is_bad)[0])
        yield f"{path}: {num_bad} of {array.size} numbers, first {array[first]} at {list(first)}"

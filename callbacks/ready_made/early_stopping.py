"""`EarlyStopping`: ends a run at a goal, on a plateau, or when a budget is used up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.ready_made.choices import is_word, raise_if_any
from callbacks.ready_made.metric_values import RETURN, WatchedMetric, as_number
from callbacks.ready_made.stop_criteria import Mode, Plateau, StopCriteria
from callbacks.views import AlgorithmView


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
        return {"plateau": plateau, "metric_was_found": self._metric.was_found}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; the criteria stay those of the config."""
        self._metric.was_found = state["metric_was_found"]
        if self._plateau is not None and state["plateau"] is not None:
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

"""`NonFiniteGuard`: notices NaN and infinite numbers before they are saved or trained on."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import numpy as np

from callbacks.callback import RLlibCallback
from callbacks.errors import NonFiniteError
from callbacks.ready_made.metric_values import (
    RETURN,
    WatchedMetric,
    as_number,
    choice_problems,
    path_problems,
    raise_if_any,
    value_at,
)
from callbacks.ready_made.stopping import stop
from callbacks.views import AlgorithmView

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
    if number is not None and math.isnan(number) and _has_no_episodes(result, path):
        return
    yield from _places_in(value, path)


def _has_no_episodes(result: Mapping[str, Any], path: str) -> bool:
    """Whether the section of a metric has not seen the end of an episode yet."""
    section = path.rpartition("/")[0]
    counts = ("num_episodes_lifetime", "num_episodes")  # evaluations have only the second
    return 0 in [value_at(result, f"{section}/{count}") for count in counts]


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

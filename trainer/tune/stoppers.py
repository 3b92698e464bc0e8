"""Stop criteria: of single trials and of the whole experiment, over rows in the decided order.

The criteria are those of Ray Tune, with two directions for numbers, and errors for keys that never
appear. What a stopper remembers is rebuilt by showing it the same rows again (`Controller.replay`).
"""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from trainer.errors import TuneError, TuneSettingError
from trainer.tune.parts import Part, keys_of
from trainer.tune.rows import AppearingKeys, Mode, Row, is_of_clock, number_at
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import integer, number, one_of, optional, shown
from trainer_toolkit.trees import copied_if_possible, leaves

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
}


class Stopper(Part):
    """Decides when trials end, and when the experiment does; users subclass it.

    Attributes:
        keys: of the rows that it looks at; None: it may look at anything, so whole rows are read
            again when an experiment is restored.
        is_of_trial: what it says of a trial never depends on other trials.
        is_exact: it follows from the rows alone, and from no clock.
    """

    keys: tuple[str, ...] | None = None
    is_of_trial = False
    is_exact = True

    def __call__(self, trial_id: str, result: Row) -> bool:
        """Whether the trial ends with this row."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Whether all trials end now; asked after every row."""
        return False

    def reason(self) -> str:
        """What is told as the reason of a stop."""
        return type(self).__name__


class NoopStopper(Stopper):
    """Never stops."""

    keys = ()
    is_of_trial = True

    def __call__(self, trial_id: str, result: Row) -> bool:
        """False."""
        return False


class FunctionStopper(Stopper):
    """Stops a trial when `function(trial_id, result)` is true."""

    def __init__(self, function: Callable[[str, Row], bool]) -> None:
        """Checks that it is a function of two arguments.

        Raises:
            TuneError: it cannot be called with a trial's id and a row.
        """
        try:
            inspect.signature(function).bind("00000", {})
        except (TypeError, ValueError) as error:
            raise TuneSettingError(
                f"stop={shown(function)} cannot be called as function(trial_id, result): {error}. "
                "Give it these two arguments."
            ) from error
        self._function = function

    def __call__(self, trial_id: str, result: Row) -> bool:
        """What the function says."""
        return bool(self._function(trial_id, result))

    def reason(self) -> str:
        """The name of the function."""
        return f"{getattr(self._function, '__name__', type(self._function).__name__)}()"


class MaximumIterationStopper(Stopper):
    """Stops a trial at `training_iteration >= max_iter`; rows made again do not count twice."""

    keys = ("training_iteration",)
    is_of_trial = True

    @takes(max_iter=integer())
    def __init__(self, max_iter: int) -> None:
        """Takes the bound.

        Raises:
            TuneError: it is less than 1.
        """
        if max_iter < 1:
            raise TuneSettingError(f"MaximumIterationStopper({max_iter}): expected at least 1.")
        self._max_iter = max_iter

    def __call__(self, trial_id: str, result: Row) -> bool:
        """Whether the iteration is reached."""
        return number_at(result, "training_iteration") >= self._max_iter

    def reason(self) -> str:
        """The bound."""
        return f"training_iteration >= {self._max_iter}"


class TrialPlateauStopper(Stopper):
    """Stops a trial whose metric has not changed for some rows.

    Args:
        metric: path into the row.
        std: the standard deviation of the newest rows at which it counts as a plateau.
        num_results: rows that are looked at.
        grace_period: rows of a trial before it may be stopped.
        metric_threshold: stops only beyond it: with mode "min" at metrics ≤ it, with "max" ≥ it.
        mode: "min" or "max", needed with a threshold.

    Rows in which the metric is missing or NaN make no plateau.
    """

    is_of_trial = True

    @takes(
        std=number(infinite=True),
        num_results=integer(),
        grace_period=integer(),
        metric_threshold=optional(number(infinite=True)),
        mode=one_of(None, "min", "max"),
    )
    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: Mode | None = None,
    ) -> None:
        if not std > 0:
            raise TuneSettingError(
                f"TrialPlateauStopper({metric!r}, std={std!r}): no standard deviation is below it; "
                "expected std > 0, such as 1e-9 for values that are equal."
            )
        if metric_threshold is not None and mode not in ("min", "max"):
            raise TuneSettingError(
                f"TrialPlateauStopper(metric_threshold={metric_threshold!r}, mode={mode!r}): a "
                "threshold needs a direction; expected mode='min' or mode='max'."
            )
        self.keys = (metric,)
        self._metric, self._std, self._num_results = metric, std, num_results
        self._grace_period, self._threshold, self._mode = grace_period, metric_threshold, mode
        self._num_rows: dict[str, int] = {}
        self._newest: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: Row) -> bool:
        """Whether the newest rows of the trial are a plateau."""
        value = number_at(result, self._metric)
        newest = self._newest.setdefault(trial_id, deque(maxlen=self._num_results))
        newest.append(value)
        self._num_rows[trial_id] = self._num_rows.get(trial_id, 0) + 1
        if self._num_rows[trial_id] < self._grace_period or len(newest) < self._num_results:
            return False
        if self._threshold is not None:
            is_beyond = (
                value <= self._threshold if self._mode == "min" else value >= self._threshold
            )
            if not is_beyond:
                return False
        return bool(np.std(newest) < self._std) if all(map(math.isfinite, newest)) else False

    def reason(self) -> str:
        """The metric."""
        return f"plateau of {self._metric}"


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when the best values of all rows have not changed for some time.

    Args:
        metric: path into the row.
        std: the standard deviation of the best values at which it counts as a plateau.
        top: how many best values are looked at.
        mode: which values are the best.
        patience: rows for which the plateau must last; 0 is 1.
    """

    @takes(
        std=number(infinite=True),
        top=integer(),
        patience=integer(),
    )
    def __init__(
        self,
        metric: str,
        std: float = 0.001,
        top: int = 10,
        mode: Mode = "min",
        patience: int = 0,
    ) -> None:
        if mode not in ("min", "max") or top < 2 or patience < 0 or not std > 0:
            raise TuneSettingError(
                f"ExperimentPlateauStopper({metric!r}, std={std!r}, top={top!r}, mode={mode!r}, "
                f"patience={patience!r}): expected mode 'min' or 'max', top ≥ 2, patience ≥ 0 and "
                "std > 0."
            )
        self.keys = (metric,)
        self._metric, self._std, self._top, self._mode = metric, std, top, mode
        self._patience, self._num_calm = patience, 0
        self._best: list[float] = []

    def __call__(self, trial_id: str, result: Row) -> bool:
        """Whether the plateau has lasted."""
        value = number_at(result, self._metric)
        if not math.isnan(value):
            best = sorted([*self._best, value], reverse=self._mode == "max")
            self._best = best[: self._top]
        if len(self._best) == self._top and float(np.std(self._best)) <= self._std:
            self._num_calm += 1
        else:
            self._num_calm = 0
        return self.stop_all()

    def stop_all(self) -> bool:
        """Whether the plateau has lasted."""
        return self._num_calm >= max(self._patience, 1)

    def reason(self) -> str:
        """The metric."""
        return f"plateau of {self._metric} over all trials"


class TimeoutStopper(Stopper):
    """Ends the experiment after a running time, counted over restores; makes it inexact.

    In a stopper of yours that asks it, it counts from when it is first asked, and copies go on from
    there; such a stopper says `is_exact = False`.

    Args:
        timeout: seconds, or a `datetime.timedelta`.
    """

    keys = ()
    is_exact = False

    def __init__(self, timeout: Any) -> None:
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise TuneSettingError(
                f"TimeoutStopper({shown(timeout)}): expected seconds > 0 or a datetime.timedelta."
            )
        self.deadline_s = float(seconds)
        self.is_of_experiment = False
        self._elapsed_s, self._since = 0.0, math.nan

    def __call__(self, trial_id: str, result: Row) -> bool:
        """False: it is about all trials."""
        return False

    def stop_all(self) -> bool:
        """Whether the time is over; False in an experiment, which counts it (`deadline_s`)."""
        if self.is_of_experiment:
            return False
        now = time.monotonic()
        self._elapsed_s += 0.0 if math.isnan(self._since) else now - self._since
        self._since = now
        return self._elapsed_s >= self.deadline_s

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_since": math.nan}


class CombinedStopper(Stopper):
    """Stops when any of some stoppers does."""

    def __init__(self, *stoppers: Stopper) -> None:
        """Takes the stoppers.

        Raises:
            TuneError: one is none.
        """
        for each in stoppers:
            if not isinstance(each, Stopper):
                raise TuneSettingError(
                    f"CombinedStopper() got {shown(each)}; expected stoppers, such as "
                    "MaximumIterationStopper(20). RunConfig(stop=[…]) combines dicts and functions."
                )
        self.stoppers = stoppers
        self.is_of_trial = all(each.is_of_trial for each in stoppers)
        self.is_exact = all(each.is_exact for each in stoppers)
        self.keys = _all_keys(stoppers)
        self._newest: Stopper | None = None

    def __call__(self, trial_id: str, result: Row) -> bool:
        """Whether any says so; all are asked, because they count rows."""
        saying = [each for each in self.stoppers if each(trial_id, result)]
        self._newest = saying[0] if saying else None
        return bool(saying)

    def stop_all(self) -> bool:
        """Whether any says so."""
        ending = [each for each in self.stoppers if each.stop_all()]
        self._newest = ending[0] if ending else self._newest
        return bool(ending)

    def reason(self) -> str:
        """The reason of the one that stopped last."""
        return "CombinedStopper" if self._newest is None else self._newest.reason()


class Bounds(Stopper):
    """`stop={"training_iteration": 20, "loss": ("<=", 0.1)}`: at any of the bounds.

    A dict inside is a path: `{"env_runners": {"episode_return_mean": 100}}`.
    """

    is_of_trial = True

    def __init__(self, bounds: Mapping[str, Any]) -> None:
        """Takes the bounds by key.

        Raises:
            TuneError: one is no number and no pair of a sign and a number.
        """
        self.bounds: list[tuple[str, str, float]] = []
        for path, written in leaves(bounds, keep_empty=True):
            key = "/".join(map(str, path))
            sign, bound = written if isinstance(written, tuple | list) else (">=", written)
            is_number = isinstance(bound, int | float | np.number) and bound == bound
            is_text = all(isinstance(part, str) for part in path)
            if not is_text or sign not in _OPERATORS or not is_number:
                raise TuneSettingError(
                    f"stop={{{key!r}: {written!r}}}: expected a key of the rows and a number, at "
                    "which a trial stops if it is reached or passed, or a pair such as "
                    "('<=', 0.1) for what shall become small."
                )
            self.bounds.append((key, sign, bound))
        self.keys = tuple(key for key, _, _ in self.bounds)
        self.is_exact = not any(map(is_of_clock, self.keys))
        self._reached = ""

    def __call__(self, trial_id: str, result: Row) -> bool:
        """Whether one is reached."""
        for key, sign, bound in self.bounds:
            if _OPERATORS[sign](number_at(result, key), bound):
                self._reached = f"{key} {sign} {bound}"
                return True
        return False

    def reason(self) -> str:
        """The one that is reached."""
        return self._reached


class StopCriteria:
    """All that `RunConfig.stop` and a time budget say, as one thing to ask.

    Args:
        stop: a dict of bounds, a function `(trial_id, result) -> bool`, a `Stopper`, a list of
            these, or None.
        time_budget_s: seconds of running time for the experiment.

    Attributes:
        stoppers: one for each that was given.
        keys: of the rows that it looks at; None: any.
        deadline_s: running time at which the experiment ends; None: never.

    Raises:
        TuneError: it is something else.
    """

    def __init__(self, stop: Any = None, *, time_budget_s: float | None = None) -> None:
        given = stop if isinstance(stop, list | tuple) else [] if stop is None else [stop]
        self.stoppers = [copied_if_possible(_as_stopper(each)) for each in given]
        self.keys = _all_keys(self.stoppers)
        bounds = [each for each in self.stoppers if isinstance(each, Bounds)]
        self._appearing = AppearingKeys(key for each in bounds for key in each.keys or ())
        times = [*_timeouts(self.stoppers), *([time_budget_s] if time_budget_s else [])]
        self.deadline_s: float | None = min(times, default=None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would ever stop a trial."""
        return not self.stoppers and self.deadline_s is None

    @property
    def is_of_trial(self) -> bool:
        """Whether no trial's end depends on another trial."""
        return all(each.is_of_trial for each in self.stoppers)

    @property
    def is_exact(self) -> bool:
        """Whether no clock decides."""
        return self.deadline_s is None and all(each.is_exact for each in self.stoppers)

    def stops_trial(self, trial_id: str, row: Row, *, is_past: bool = False) -> str | None:
        """Why the trial ends with this row; None: it goes on. Every criterion sees the row.

        A past row was decided on by other criteria; these have to know it all the same.

        Raises:
            TuneError: a key of a dict is in none of the first rows; or a criterion raised.
        """
        problem = None if is_past else self._appearing.look(row)
        if problem is not None:
            raise TuneError(
                f"A stop criterion would never be met. {problem} Correct the keys of `stop`."
            )
        reasons = []
        for each in self.stoppers:
            with _naming(each, f"asked about trial {trial_id}, whose row has {_keys_of(row)}"):
                reasons += [each.reason()] if each(trial_id, row) else []
        return reasons[0] if reasons else None

    def stops_all(self) -> str | None:
        """Why all trials end now; None: they go on.

        Raises:
            TuneError: a criterion raised.
        """
        for each in self.stoppers:
            with _naming(each, "asked whether all trials end (`stop_all`)"):
                if each.stop_all():
                    return each.reason()
        return None


@contextlib.contextmanager
def _naming(stopper: Stopper, occasion: str) -> Iterator[None]:
    """Says of what code of the user raises that it is a stop criterion's."""
    try:
        yield
    except TuneError:
        raise
    except Exception as error:
        function = stopper.reason() if isinstance(stopper, FunctionStopper) else ""
        raise TuneError(
            f"The stop criterion {function or type(stopper).__name__} raised "
            f"{type(error).__name__}: {error}, {occasion}. Correct it; Tuner.restore() goes on "
            "with what was decided by then."
        ) from error


def _keys_of(row: Row) -> str:
    return ", ".join(map(str, row))


def _all_keys(stoppers: Iterable[Stopper]) -> tuple[str, ...] | None:
    """The keys that any of them looks at; None if one may look at anything."""
    keys = [keys_of(each) for each in stoppers]
    return None if None in keys else tuple(key for each in keys for key in each or ())


def _as_stopper(given: Any) -> Stopper:
    if isinstance(given, Stopper):
        return given
    if isinstance(given, Mapping):
        return Bounds(given)
    if callable(given) and not isinstance(given, type):
        return FunctionStopper(given)
    raise TuneSettingError(
        f"stop={shown(given)} is a {type(given).__name__}; expected a dict such as "
        "{'training_iteration': 20}, a function (trial_id, result) -> bool, a Stopper, or a list."
    )


def _timeouts(stoppers: Sequence[Stopper]) -> list[float]:
    """The times of all timeouts, which the experiment counts from now on."""
    found = []
    for each in stoppers:
        if isinstance(each, TimeoutStopper):
            each.is_of_experiment = True
            found.append(each.deadline_s)
        elif isinstance(each, CombinedStopper):
            found += _timeouts(each.stoppers)
    return found

"""`ProgressPrinter`: one line per iteration, for people who watch."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from callbacks.callback import RLlibCallback
from callbacks.ready_made.choices import raise_if_any
from callbacks.ready_made.early_stopping import EarlyStopping
from callbacks.ready_made.line_output import LineOutput
from callbacks.ready_made.metric_values import number_at
from callbacks.ready_made.progress_lines import ProgressLines
from callbacks.ready_made.siblings import objects_beside
from callbacks.ready_made.stop_criteria import StopCriteria
from callbacks.views import AlgorithmView


class ProgressPrinter(RLlibCallback):
    """Prints how far a run is, how fast, how good, and how long it will still take.

        config.callbacks([EarlyStopping(max_env_steps=100_000), ProgressPrinter()])

        iter   12 │     24,576 steps │   8,123 steps/s │ return  101.5 │    411 episodes │ 0:03 │ …

    The remaining time (ETA) follows from the budgets given here or, if none is given, from those of
    the first `EarlyStopping` of the same run. Output that fails is dropped, with one warning:
    nobody's terminal stops a run.

    Args:
        max_iterations: the run ends after so many iterations.
        max_env_steps: the run ends after so many env steps.
        max_episodes: the run ends after so many episodes.
        max_time_s: the run ends after so many seconds of training.
        stream: where to print; None is standard output. It stays in the main process, and is not
            saved in checkpoints.
        clock: gives seconds; for tests.

    Raises:
        CallbackConfigError: a budget makes no sense; lists all problems.
    """

    def __init__(
        self,
        *,
        max_iterations: int | None = None,
        max_env_steps: int | None = None,
        max_episodes: int | None = None,
        max_time_s: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._criteria = StopCriteria(
            max_iterations=max_iterations,
            max_env_steps=max_env_steps,
            max_episodes=max_episodes,
            max_time_s=max_time_s,
        )
        problems = self._criteria.problems()
        if stream is not None and not callable(getattr(stream, "write", None)):
            problems.append(f"`stream={stream!r}` cannot be written to; expected an open text file")
        raise_if_any("ProgressPrinter", problems)
        self._stream = stream
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._output = LineOutput(self._stream)
        self._lines: ProgressLines | None = None
        self._last_line_at: float | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgressPrinter:
        # Each run gets a copy of the pattern. The stream is the same: it is where the user looks.
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._begin()
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # Streams cannot leave the process, and only the main process prints.
        return {**self.__dict__, "_stream": None, "_output": None}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self.__dict__.update(parts)
        self._begin()

    def get_state(self) -> dict[str, Any]:
        """Nothing: speeds are those of this process."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Nothing to take back."""

    def on_train_result(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Prints a line when all other callbacks have decided whether training is over."""
        algorithm.after_train_result(partial(self._wait, algorithm))

    def _wait(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        del result  # whether it is the last one may be decided after this
        algorithm.after_train_result(partial(self._print, algorithm))

    def _print(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        if self._lines is None:
            self._lines = ProgressLines(self._find_criteria(algorithm))
        now = self._clock()
        elapsed_s = number_at(result, "time_this_iter_s") or 0.0  # a callback may have removed it
        if self._last_line_at is not None:
            elapsed_s = now - self._last_line_at
        self._last_line_at = now
        self._output.write(self._lines.line(result, elapsed_s=elapsed_s))
        if result.get("done") and result.get("stop_reason"):
            self._output.write(result["stop_reason"])

    def _find_criteria(self, algorithm: AlgorithmView) -> StopCriteria:
        if self._criteria.budgets():
            return self._criteria
        stopping = objects_beside(algorithm, EarlyStopping)
        return stopping[0].criteria if stopping else self._criteria

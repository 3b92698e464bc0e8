"""One line per iteration, for people who watch: how far, how fast, how good, how long still."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TextIO

from callbacks.callback import RLlibCallback
from callbacks.ready_made.metric_values import RETURN, number_at, raise_if_any
from callbacks.ready_made.result_loggers import objects_beside
from callbacks.ready_made.stopping import COUNTS, EarlyStopping, StopCriteria
from callbacks.views import AlgorithmView

# ---- progress lines
#
# One line per iteration: how far, how fast, how good, how long still.

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


# ---- line output
#
# Writing lines for people to read, so that nothing that reads them can disturb a run.

_LOGGER: Final = logging.getLogger(__name__)


def printable(text: str) -> str:
    """Return the text with everything escaped that is no visible character, but ends of lines.

    Texts of files may hold sequences that steer a terminal, and marks that turn the direction of
    writing.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class LineOutput:
    """Writes lines to a stream, flushed at once, and falls silent when the stream is gone.

    A pipe without a reader, a closed file, a full disk: the first failure is logged, and
    further lines are dropped. Characters that the stream cannot encode are replaced, and those that
    could steer a terminal are escaped.

    Args:
        stream: where to write; None is standard output, whatever that is when a line is written.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self.is_silent = False

    def write(self, line: str) -> None:
        """Writes one line; never raises."""
        if self.is_silent:
            return
        line = printable(line)
        stream = sys.stdout if self._stream is None else self._stream
        if stream is None:  # a process without a console
            self.is_silent = True
            return
        try:
            try:
                stream.write(f"{line}\n")
            except UnicodeEncodeError:
                stream.write(f"{line.encode('ascii', 'replace').decode()}\n")
            stream.flush()
        except RuntimeError:
            return  # the handler of a signal, in the middle of another line
        except Exception as error:  # noqa: BLE001  streams of users raise anything; it is logged
            self.is_silent = True
            _LOGGER.warning(
                "Progress is not shown any more, because its stream failed (%s: %s). Training goes "
                "on.",
                type(error).__name__,
                error,
            )


# ---- progress printer
#
# `ProgressPrinter`: one line per iteration, for people who watch.


class ProgressPrinter(RLlibCallback):
    """Prints how far a run is, how fast, how good, and how long it will still take.

        config.callbacks([EarlyStopping(max_env_steps=100_000), ProgressPrinter()])

        iter   12 │     24,576 steps │   8,123 steps/s │ return  101.5 │    411 episodes │ 0:03 │ …

    The remaining time (ETA) follows from the budgets given here or, if none is given, from those of
    the first `EarlyStopping` of the same run. Output that fails is dropped, with one warning:
    no terminal stops a run.

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

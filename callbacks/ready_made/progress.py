"""What people see of a run who watch: how far, how fast, how good, how long still.

One line per iteration; or, where text can be redrawn in place, one block with the course of the
returns and what failed.
"""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TextIO

from callbacks.callback import RLlibCallback
from callbacks.ready_made.display import LineOutput, Surface, live_surface, sparkline
from callbacks.ready_made.metric_values import RETURN, number_at, numbers_in, raise_if_any
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

        `elapsed_s` are the seconds since the last one, saving and logging included.
        """
        return " │ ".join(self.columns(result, elapsed_s=elapsed_s))

    def columns(self, result: Mapping[str, Any], *, elapsed_s: float) -> list[str]:
        """The parts of the line for one result; see `line`, and call one of the two."""
        iteration = COUNTS["iterations"].now(result)
        if not self._start or iteration <= self._last_iteration:  # the first line, or a restore
            self._start = {unit: count.before(result) for unit, count in COUNTS.items()}
            self._elapsed_s = 0.0
        self._last_iteration = iteration
        self._elapsed_s += elapsed_s
        steps, mean = COUNTS["env_steps"], _mean_return(result)
        recorded = number_at(result, "recordings/num_env_steps")
        return [
            f"iter {iteration:4.0f}",
            f"{steps.now(result):>10,.0f} steps",
            f"{steps.added(result) / elapsed_s if elapsed_s > 0 else 0.0:>7,.0f} steps/s",
            f"return {_NOT_YET if mean is None else f'{mean:.1f}':>6}",
            f"{steps.now(result) / recorded:>6,.1f} passes"
            if recorded
            else f"{COUNTS['episodes'].now(result):>6,.0f} episodes",
            duration(COUNTS["seconds"].now(result)),
            self._end(result),
        ]

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


def _mean_return(result: Mapping[str, Any]) -> float | None:
    """Of episodes of training; where recordings are learnt from, of the last evaluation."""
    return number_at(result, f"evaluation/{RETURN}" if "recordings" in result else RETURN)


def duration(seconds: float) -> str:
    """1:02:03 for hours, minutes, seconds; 2:03 for less than an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# ---- a block that is redrawn
#
# The same numbers, with the course of the returns and what failed.

_MOST_RETURNS: Final = 10_000
_NOT_FAULTS: Final = (
    "num_healthy_workers", "num_episodes_lost", "num_env_steps_lost", "repair_time_s"
)  # fmt: skip
"""Parts of `fault_tolerance` that are no faults, or are of one iteration only."""


class TrainingBlock:
    """What is shown of a run: how far, how fast, how good over time, how long still, what failed.

    Args:
        lines: formats the numbers of the newest result.
        title: of the block.
    """

    def __init__(self, lines: ProgressLines, *, title: str) -> None:
        self._lines = lines
        self._title = title
        self._columns: list[str] = []
        self._returns: deque[float] = deque(maxlen=_MOST_RETURNS)
        self._faults: list[str] = []
        self._best: tuple[float, float] | None = None

    def add(self, result: Mapping[str, Any], *, elapsed_s: float) -> None:
        """Takes a result of `train()`, and the seconds since the one before."""
        self._columns = self._lines.columns(result, elapsed_s=elapsed_s)
        mean = _mean_return(result)
        if mean is not None:
            self._returns.append(mean)
            if self._best is None or mean > self._best[0]:
                self._best = mean, number_at(result, "training_iteration") or 0.0
        self._faults = list(_faults_of(result))

    def text(self, width: int) -> str:
        """The block, in lines of at most so many characters."""
        rows = [self._title, *_filled(self._columns, width), *self._curve(width)]
        rows.append(f"faults   {', '.join(self._faults) or 'none'}")
        return "\n".join(row[:width] for row in rows)

    def _curve(self, width: int) -> list[str]:
        if self._best is None:
            return ["returns  no episode has ended yet"]
        best, iteration = self._best
        end = f"  best {best:.1f} at iteration {iteration:.0f}"
        room = max(8, min(60, width - len("returns  ") - len(end)))
        return [f"returns  {sparkline(list(self._returns), width=room)}{end}"]


def _faults_of(result: Mapping[str, Any]) -> Iterable[str]:
    section = result.get("fault_tolerance")
    for path, count in numbers_in(section) if isinstance(section, Mapping) else ():
        if count and path not in _NOT_FAULTS:
            name = path.removeprefix("num_").removesuffix("_lifetime").replace("_", " ")
            yield f"{name} {count:g}"


def _filled(columns: Sequence[str], width: int) -> list[str]:
    """The columns in as few rows as they fit into."""
    rows: list[str] = []
    for column in columns:
        longer = f"{rows[-1]} │ {column}" if rows else column
        if rows and len(longer) <= width:
            rows[-1] = longer
        else:
            rows.append(column)
    return rows


class TrainingProgress:
    """Shows results as they come: a line each, or one block that is redrawn in place.

    Args:
        criteria: when the run is over.
        title: of the block.
        output: where lines go.
        surface: where the block is drawn; None writes lines.
        clock: gives seconds; for tests.
    """

    def __init__(
        self,
        criteria: StopCriteria,
        *,
        title: str,
        output: LineOutput,
        surface: Surface | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = ProgressLines(criteria)
        self._block = TrainingBlock(self._lines, title=title)
        self._output, self._surface, self._clock = output, surface, clock
        self._drawn_at = -float("inf")
        self._is_drawn = True

    def show(self, result: Mapping[str, Any], *, elapsed_s: float) -> None:
        """Shows a result.

        `elapsed_s` are the seconds since the last one, saving and logging included.
        """
        if self._surface is None:
            self._output.write(self._lines.line(result, elapsed_s=elapsed_s))
            return
        self._block.add(result, elapsed_s=elapsed_s)
        self._is_drawn = False
        if self._clock() - self._drawn_at >= self._surface.interval_s:
            self._draw(self._surface)

    def close(self) -> None:
        """Draws what is not drawn yet, and gives the terminal back."""
        surface, self._surface = self._surface, None
        if surface is not None:
            if not self._is_drawn:
                self._draw(surface)
            surface.close()

    def _draw(self, surface: Surface) -> None:
        self._drawn_at, self._is_drawn = self._clock(), True
        surface.draw(self._block.text(surface.width))


# ---- progress printer


class ProgressPrinter(RLlibCallback):
    """Prints how far a run is, how fast, how good, and how long it will still take.

        config.callbacks([EarlyStopping(max_env_steps=100_000), ProgressPrinter()])

        iter   12 │     24,576 steps │   8,123 steps/s │ return  101.5 │    411 episodes │ 0:03 │ …

    The remaining time (ETA) follows from the budgets given here or, if none is given, from those of
    the first `EarlyStopping` of the same run. Output that fails is dropped, with one warning:
    no terminal stops a run. In a notebook it is one cell that is updated, with the course of the
    returns.

    Args:
        max_iterations: the run ends after so many iterations.
        max_env_steps: the run ends after so many env steps.
        max_episodes: the run ends after so many episodes.
        max_time_s: the run ends after so many seconds of training.
        stream: where to print; None is standard output. It stays in the main process, and is not
            saved in checkpoints.
        live: True redraws one block in place at a terminal, too, until the result says `done`; it
            needs `pip install 'local-trainer[live]'`, and prints lines elsewhere. False prints
            lines in notebooks, too.
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
        live: bool | None = None,
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
        if type(live) not in (bool, type(None)):  # 1 and 0 are numbers
            problems.append(f"`live={live!r}` is neither True, False nor None")
        raise_if_any("ProgressPrinter", problems)
        self._stream = stream
        self._live = live
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._output = LineOutput(self._stream)
        self._progress: TrainingProgress | None = None
        self._last_line_at: float | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgressPrinter:
        # Each run gets a copy of the pattern. The stream is the same: it is where the user looks.
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._begin()
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # Streams cannot leave the process, and only the main process prints.
        return {**self.__dict__, "_stream": None, "_output": None, "_progress": None}

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
        algorithm.after_train_result(partial(self._print, algorithm), phase="report")

    def _print(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        if self._progress is None:
            self._progress = self._begun(algorithm)
        now = self._clock()
        elapsed_s = number_at(result, "time_this_iter_s") or 0.0  # a callback may have removed it
        if self._last_line_at is not None:
            elapsed_s = now - self._last_line_at
        self._last_line_at = now
        self._progress.show(result, elapsed_s=elapsed_s)
        if result.get("done"):
            self._progress.close()
            atexit.unregister(self._progress.close)
            if result.get("stop_reason"):
                self._output.write(result["stop_reason"])

    def _begun(self, algorithm: AlgorithmView) -> TrainingProgress:
        surface = None
        if self._live is not False and self._stream is None:
            surface = live_surface(at_terminals=bool(self._live))
        progress = TrainingProgress(
            self._find_criteria(algorithm),
            title=type(algorithm).__name__,
            output=self._output,
            surface=surface,
            clock=self._clock,
        )
        if surface is not None:
            # A run that ends without `done` has its last block to draw, and has hidden the cursor.
            atexit.register(progress.close)
        return progress

    def _find_criteria(self, algorithm: AlgorithmView) -> StopCriteria:
        if self._criteria.budgets():
            return self._criteria
        stopping = objects_beside(algorithm, EarlyStopping)
        return stopping[0].criteria if stopping else self._criteria

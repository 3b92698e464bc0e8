"""What people see while an experiment runs, and tables of its trials.

At a terminal one table, redrawn in place with rich and reprinted now and then without it; in a
notebook one display; anywhere else a line per change of state.
"""

from __future__ import annotations

import inspect
import logging
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from callbacks.ready_made.display import LineOutput, Surface, live_surface
from callbacks.ready_made.progress import duration
from trainer.errors import TuneSettingError
from trainer.tune.controller import Controller
from trainer.tune.events import Trial, TrialStatus
from trainer.tune.parts import Part
from trainer.tune.rows import MISSING, Mode, number_at, ranking_key, score_at, value_at
from trainer_toolkit import checks
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import shown
from trainer_toolkit.nearest_names import did_you_mean

_LOGGER = logging.getLogger(__name__)
_WIDEST_NAME: Final = 24
_COLUMNS: Final = checks.optional(checks.either(checks.several(checks.text()), checks.mapping()))
_OF_RAY: Final = frozenset(
    {
        "total_samples",
        "max_error_rows",
        "max_column_length",
        "infer_limit",
        "print_intermediate_tables",
    }
)
_STEPS: Final = "num_env_steps_sampled_lifetime"


# ---- tables


def shown_value(value: Any) -> str:
    """A value in few characters: numbers with four digits."""
    if value is None or isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating):
        return "nan" if math.isnan(value) else f"{value:.4g}"
    text = str(value)
    return text if len(text) <= _WIDEST_NAME else f"{text[: _WIDEST_NAME - 1]}…"


def short_name(path: str) -> str:
    """A path shortened from the left: its end says more."""
    return path if len(path) <= _WIDEST_NAME else f"…{path[1 - _WIDEST_NAME :]}"


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = 0) -> str:
    """A table as plain text; columns that do not fit are left out from the middle.

    Width 0 is any.
    """
    names = [short_name(name) for name in columns]
    widths = [
        max([len(name), *(len(row[index]) for row in rows)]) for index, name in enumerate(names)
    ]
    shown = list(range(len(names)))
    while width and len(shown) > 2 and sum(widths[i] for i in shown) + 2 * len(shown) - 2 > width:
        del shown[-2]
    lines = [names, *rows]
    texts = ["  ".join(line[i].ljust(widths[i]) for i in shown).rstrip() for line in lines]
    return "\n".join(text[:width] if width else text for text in texts)


# ---- reporters


class ProgressReporter(Part):
    """Decides what the table shows; derive from it to write `report` yourself.

    Args:
        metric_columns: paths into the row, or a dict of path to heading; None: the experiment's
            metric.
        parameter_columns: paths of settings, or a dict; None: those that are searched.
        max_progress_rows: trials at most.
        max_report_frequency: seconds between two tables that are printed anew.
        sort_by_metric: the best trials first, instead of the newest.
        metric: path of the experiment's metric; None: that of `TuneConfig`.
        mode: "min" or "max".
        of_ray: other arguments of Ray Tune's reporters, which have no effect here.

    Raises:
        TuneError: an argument is unknown, or a number makes no sense.
        ArgumentError: an argument is of another kind.
    """

    @takes(
        metric_columns=_COLUMNS,
        parameter_columns=_COLUMNS,
        max_progress_rows=checks.integer(),
        max_report_frequency=checks.number(infinite=True),
        sort_by_metric=checks.boolean(),
    )
    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        max_progress_rows: int = 20,
        max_report_frequency: float = 5,
        sort_by_metric: bool = False,
        metric: str | None = None,
        mode: Mode | None = None,
        **of_ray: Any,
    ) -> None:
        if unknown := sorted(of_ray.keys() - _OF_RAY):
            names = inspect.signature(ProgressReporter).parameters
            raise TuneSettingError(
                f"{type(self).__name__}() does not know {unknown[0]}={shown(of_ray[unknown[0]])}."
                f"{did_you_mean(unknown[0], names)} It knows {', '.join([*names][:-1])}."
            )
        if max_progress_rows < 1 or max_report_frequency < 0:
            raise TuneSettingError(
                f"{type(self).__name__}(max_progress_rows={max_progress_rows}, "
                f"max_report_frequency={max_report_frequency}): expected at least one row, and "
                "seconds of at least 0."
            )
        self.metric_columns = metric_columns
        self.parameter_columns = parameter_columns
        self.max_progress_rows = max_progress_rows
        self.max_report_frequency = max_report_frequency
        self.sort_by_metric = sort_by_metric
        self.metric, self.mode = metric, mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Shows one more metric.

        Args:
            metric: path into the row.
            representation: its heading; None: its name.

        Raises:
            TuneSettingError: it is shown already.
        """
        self.metric_columns = _with_column(self.metric_columns, metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Shows one more setting, as `add_metric_column`."""
        self.parameter_columns = _with_column(self.parameter_columns, parameter, representation)

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Whether a table is due; asked after every change."""
        del trials, done
        return True

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> str | None:
        """The text to show; None for the table.

        `sys_info` is the line above the table.
        """
        del trials, done, sys_info
        return None

    def table(self, trials: Sequence[Trial], *, width: int = 0, height: int = 0) -> str:
        """The table of the trials that matter most now."""
        metrics = _headings(self.metric_columns, [self.metric] if self.metric else [])
        searched = dict.fromkeys(path for trial in trials for path in trial.params)
        params = _headings(self.parameter_columns, list(searched))
        chosen = self._chosen(trials, min(self.max_progress_rows, height or 10**6))
        columns = ["trial", "status", *params.values(), "iter", "steps", *metrics.values()]
        rows = [
            [
                trial.trial_id,
                trial.status.value,
                *(shown_value(trial.params.get(path)) for path in params),
                str(trial.num_rows),
                _cell(trial, _STEPS),
                *(_cell(trial, path) for path in metrics),
            ]
            for trial in chosen
        ]
        more = len(trials) - len(chosen)
        text = table_text(columns, rows, width=width)
        return f"{text}\n… {more} more trials" if more else text

    def _chosen(self, trials: Sequence[Trial], number: int) -> list[Trial]:
        metric, mode = self.metric, self.mode
        if self.sort_by_metric and metric and mode:
            ranked = sorted(trials, key=lambda trial: _rank(trial, metric, mode))
        else:
            ranked = sorted(trials, key=lambda trial: (trial.status.is_over, -trial.number))
        return ranked[: max(1, number)]


def _with_column(
    columns: Sequence[str] | Mapping[str, str] | None, path: str, heading: str | None
) -> dict[str, str]:
    headings = _headings(columns, [])
    if path in headings:
        raise TuneSettingError(f"{path!r} is a column already: {', '.join(headings)}.")
    return {**headings, path: heading or path}


class CLIReporter(ProgressReporter):
    """The table at a terminal."""


class JupyterNotebookReporter(ProgressReporter):
    """The table in a notebook: one display that is updated.

    Args:
        overwrite: of no effect: the display is always updated in place.
        settings: see `ProgressReporter`.
    """

    def __init__(self, overwrite: bool = True, **settings: Any) -> None:
        del overwrite
        super().__init__(**settings)


def _headings(
    given: Sequence[str] | Mapping[str, str] | None, default: Sequence[str]
) -> dict[str, str]:
    if isinstance(given, Mapping):
        return {path: str(heading) for path, heading in given.items()}
    return {path: path for path in (default if given is None else given)}


def _cell(trial: Trial, path: str) -> str:
    value = value_at(trial.last_row or {}, path)
    return "" if value is MISSING else shown_value(value)


def _rank(trial: Trial, metric: str, mode: Mode) -> tuple[bool, float, int]:
    return ranking_key(score_at(trial.last_row or {}, metric, mode), trial.number)


# ---- where it goes


class Progress:
    """Shows an experiment while it runs.

    Args:
        verbose: 0 nothing; 1 the table or changes of state; 2 rows, too.
        reporter: what the table shows.
        title: how the experiment begins, in words.
    """

    def __init__(
        self, verbose: int, reporter: ProgressReporter, *, title: str, output: Any = None
    ) -> None:
        self._verbose = verbose
        self._reporter = reporter
        self._title = title
        self._lines = LineOutput() if output is None else output
        self._surface = _surface(verbose)
        self._num_printed = 0
        self._changed = True
        self._shown_at = -math.inf
        self._last_row_at: dict[int, float] = {}
        self._printed_at: dict[int, float] = {}
        self._has_begun = False

    def begin(self) -> None:
        """Prints the title, once."""
        if self._verbose and not self._has_begun:
            self._has_begun = True
            self._lines.write(self._title)

    def say(self, text: str) -> None:
        """Prints a line, whatever there is besides."""
        if self._verbose:
            self._lines.write(text)

    def row(self, controller: Controller, number: int) -> None:
        """A row counts."""
        self._changed = True
        self._last_row_at[number] = time.monotonic()
        if self._verbose >= 2:
            trial = controller.trials[number]
            metric = self._reporter.metric
            value = f" {metric} {_cell(trial, metric)}" if metric else ""
            self._lines.write(f"{trial.trial_id} report {trial.num_rows}{value}")

    def ended(self, controller: Controller, number: int) -> None:
        """A trial is over."""
        self._changed = True
        self._last_row_at.pop(number, None)
        if not self._is_line_by_line:
            return
        trial = controller.trials[number]
        metric = self._reporter.metric
        value = f", {metric} {_cell(trial, metric)}" if metric else ""
        first_line = (trial.error or trial.stop_reason or "").splitlines()[:1]
        self._lines.write(
            f"{trial.trial_id} {trial.status.value} after {trial.num_rows} reports{value}: "
            f"{''.join(first_line)}"
        )

    @property
    def _is_line_by_line(self) -> bool:
        return self._verbose >= 2 or (self._verbose == 1 and self._surface is None)

    def show(self, controller: Controller, *, elapsed_s: float) -> None:
        """Draws the table if it is due; called all the time."""
        if not self._verbose:
            return
        self.begin()
        if self._is_line_by_line:
            self._log_starts(controller)
        if self._surface is None or not self._changed:
            return
        interval_s = self._surface.interval_s or self._reporter.max_report_frequency
        if time.monotonic() - self._shown_at < interval_s:
            return
        if self._reporter.should_report(controller.trials):
            self._draw(controller, elapsed_s, done=False)

    def _log_starts(self, controller: Controller) -> None:
        for trial in controller.trials[self._num_printed :]:
            self._num_printed += 1
            if not trial.status.is_over:
                params = ", ".join(
                    f"{short_name(path)}={shown_value(value)}"
                    for path, value in trial.params.items()
                )
                self._lines.write(f"{trial.trial_id} started{': ' if params else ''}{params}")

    def _draw(self, controller: Controller, elapsed_s: float, *, done: bool) -> None:
        self._shown_at, self._changed = time.monotonic(), False
        size = shutil.get_terminal_size()
        head = self._head(controller, elapsed_s)
        text = self._reporter.report(controller.trials, done, head)
        if text is None:
            width = size.columns - 1
            table = self._reporter.table(
                controller.trials, width=width, height=max(3, size.lines - 4)
            )
            text = f"{head[:width]}\n{table}"
        assert self._surface is not None  # noqa: S101 - asked before
        self._surface.draw(text)

    def _head(self, controller: Controller, elapsed_s: float) -> str:
        statuses = [trial.status for trial in controller.trials]
        total = controller.num_trials_expected
        num_over = sum(status.is_over for status in statuses)
        parts = [
            f"{num_over}/{'?' if total is None else total} trials done",
            f"{statuses.count(TrialStatus.RUNNING)} running",
        ]
        if num_failed := statuses.count(TrialStatus.ERROR):
            parts.append(f"{num_failed} failed")
        if best := self._best(controller.trials):
            parts.append(best)
        parts.append(duration(int(elapsed_s)))
        if controller.inexact_reasons:
            parts.append("not exact")
        return ", ".join(parts)

    def _best(self, trials: Sequence[Trial]) -> str:
        metric, mode = self._reporter.metric, self._reporter.mode
        if metric is None or mode is None:
            return ""
        best = min(trials, key=lambda trial: _rank(trial, metric, mode), default=None)
        if best is None or math.isnan(number_at(best.last_row or {}, metric)):
            return ""
        return f"best {best.trial_id}: {_cell(best, metric)}"

    def log_silent(self, running: Mapping[int, int], *, after_s: float) -> None:
        """Says which trials have been at a row for long, and again after as long.

        `running` has the trials that are at work, with the numbers of the rows that they make.
        """
        now = time.monotonic()
        for number in self._last_row_at.keys() - running.keys():
            del self._last_row_at[number]
        for number, row in running.items():
            began_at = self._last_row_at.setdefault(number, now)
            printed_at = self._printed_at.get(number, began_at)
            if now - max(began_at, printed_at) >= after_s:
                self._printed_at[number] = now
                self.say(f"waiting for report {row} of trial {number:05d}, {now - began_at:.0f} s")

    def end(self, controller: Controller, *, elapsed_s: float = 0.0) -> None:
        """Draws what there is at the end."""
        if not self._verbose or not self._has_begun:
            return
        if self._surface is not None:
            self._draw(controller, elapsed_s, done=True)
            self._surface.close()
        else:
            self._lines.write(self._head(controller, elapsed_s))


def _surface(verbose: int) -> Surface | None:
    """A notebook's display, rich's, or the terminal; None without a viewer."""
    if verbose != 1:
        return None
    surface = live_surface()
    if surface is not None or not sys.stdout.isatty():
        return surface
    lines = LineOutput()
    return Surface(lambda text: lines.write(f"\n{text}"), lambda: None, interval_s=0.0)

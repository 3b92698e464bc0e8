"""What an experiment gave: a grid of results, one per trial, in the order of their numbers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from callbacks.optional_import import optional_module
from checkpoints.links import check_links
from trainer.errors import TrialError, TuneError, TuneSettingError
from trainer.metrics import ResultDict
from trainer.tune.checkpoint import Checkpoint
from trainer.tune.events import Trial, TrialStatus
from trainer.tune.output import shown_value, table_text
from trainer.tune.own_errors import as_cause_too
from trainer.tune.rows import MISSING, Mode, Row, number_at, ranking_key, value_at
from trainer.tune.search_space import SearchSpace
from trainer.tune.trial_files import (
    SavedCheckpoint,
    TrialFiles,
    checkpoint_folder_name,
    read_trial_facts,
)
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.trees import named_leaves

_SCOPES: Final = ("last", "all", "avg", "last-5-avg", "last-10-avg")


@dataclass(frozen=True)
class Result:
    """What one trial gave.

    Attributes:
        number: of the trial.
        config_of: makes `config` when it is asked for.
        params: the values that were searched, by path.
        status: "RUNNING", "PAUSED", "TERMINATED" or "ERROR".
        stop_reason: why it ended, in words; None while it has not.
        error: why it failed; None if it did not. From `fit()` it is an instance of the class of the
            trial's own error, too, which is its `__cause__`.
        num_failures: errors that it survived, and the last one.
        path: its folder.
        saved: the checkpoints that count, by row.
        num_rows: how many rows count; None: all that are there.
        trainable_name: of what was tuned.
        trial_name: what the trial is called.
    """

    number: int
    config_of: Callable[[], Any] = field(repr=False, compare=False)
    params: Mapping[str, Any]
    status: str
    stop_reason: str | None
    error: TrialError | None
    num_failures: int
    path: str
    saved: tuple[SavedCheckpoint, ...] = ()
    num_rows: int | None = None
    trainable_name: str = ""
    trial_name: str = ""

    @classmethod
    def from_path(cls, path: str | Path) -> Result:
        """The result of a trial's folder; its config is as `trial.json` prints it.

        Raises:
            TuneError: it is no trial's folder.
            LinkError: a link in it leads out of it.
        """
        folder = Path(path).expanduser().resolve()
        check_links(folder)
        return cls.of_folder(folder)

    @classmethod
    def of_folder(cls, folder: Path) -> Result:
        """The result of a trial's folder whose links were looked at; see `from_path`."""
        facts = read_trial_facts(folder)
        files = TrialFiles(folder)
        num_rows = facts.get("num_rows")  # None while it runs
        folders = files.checkpoints.iterdir() if files.checkpoints.is_dir() else ()
        names = [entry.name for entry in folders if entry.is_dir()]
        names = [name for name in names if name.isascii() and name.isdecimal()]
        names = [name for name in names if num_rows is None or int(name) <= num_rows]
        error = facts.get("error")
        return cls(
            number=int(facts.get("number", -1)),
            config_of=functools.partial(facts.get, "config"),
            params=facts.get("params") or {},
            status=str(facts.get("status")),
            stop_reason=facts.get("stop_reason"),
            error=None if error is None else TrialError(str(error)),
            num_failures=int(facts.get("num_failures") or 0),
            path=str(folder),
            saved=tuple(SavedCheckpoint(int(name), name, "") for name in sorted(names)),
            num_rows=num_rows,
            trainable_name=str(facts.get("trainable") or ""),
            trial_name=str(facts.get("name") or ""),
        )

    @functools.cached_property
    def config(self) -> Any:
        """What the trainable was given; also of trials that failed before their first row."""
        return self.config_of()

    @property
    def trial_id(self) -> str:
        """The number as text, such as `00003`."""
        return f"{self.number:05d}"

    def rows(self) -> list[ResultDict]:
        """All rows that count, in order."""
        return list(itertools.islice(TrialFiles(Path(self.path)).rows(), self.num_rows))

    @property
    def last_row(self) -> ResultDict | None:
        """The last row that counts; None before the first."""
        last = TrialFiles(Path(self.path)).last_row()
        if last is None or self.num_rows in (None, last.get("training_iteration")):
            return last
        rows = self.rows()  # behind it stand rows of a process that was killed, or of `resume`
        return rows[-1] if rows else None

    @property
    def metrics(self) -> ResultDict | None:
        """The last row, with the config in it, read like an algorithm's result; None before it."""
        last = self.last_row
        if last is not None:
            last["config"] = self.config
        return last

    @property
    def metrics_dataframe(self) -> Any:
        """All rows as a pandas DataFrame, one column per path.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = optional_module("pandas", user="Result.metrics_dataframe", extra="pandas")
        return pandas.DataFrame([dict(named_leaves(row)) for row in self.rows()])

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest one; see `best_checkpoints` for others."""
        return self._checkpoint(self.saved[-1]) if self.saved else None

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """All that were kept, each with its row, oldest first."""
        rows = self.rows()
        return [
            (self._checkpoint(saved), rows[saved.row_number - 1])
            for saved in self.saved
            if saved.row_number <= len(rows)
        ]

    def get_best_checkpoint(self, metric: str, mode: Mode) -> Checkpoint | None:
        """The one whose row is best; of equals the newer. None if no row has a number there.

        Raises:
            TuneError: `mode` is neither "min" nor "max"; no row has such a key, names the nearest.
        """
        sign = _sign(mode)
        rows = self.rows()
        if rows and all(value_at(row, metric) is MISSING for row in rows):
            keys = {path for row in rows for path, _ in named_leaves(row)}
            raise TuneError(
                f"No checkpoint is the best by {metric!r}: none of the {len(rows)} rows of trial "
                f"{self.number:05d} has it.{did_you_mean(metric, keys)}"
            )
        scored = [
            (sign * number_at(row, metric), index)
            for index, (_, row) in enumerate(self.best_checkpoints)
        ]
        scored = [entry for entry in scored if not math.isnan(entry[0])]
        return self.best_checkpoints[max(scored)[1]][0] if scored else None

    def _checkpoint(self, saved: SavedCheckpoint) -> Checkpoint:
        return Checkpoint(TrialFiles(Path(self.path)).checkpoint(saved.name))

    def __repr__(self) -> str:
        params = ", ".join(f"{path}={shown_value(value)}" for path, value in self.params.items())
        return f"Result(number={self.number}, status={self.status}, {params})"


class ResultGrid(Sequence[Result]):
    """The results of an experiment, by number of the trial.

    Args:
        results: one per trial.
        folder: of the experiment.
        metric: of `TuneConfig`.
        mode: of `TuneConfig`.
        seed: of the experiment.
        num_lanes: trials that ran at the same time at most.
        inexact_reasons: why the experiment is no function of what was written; empty if it is.
        space: that was searched, for `to_optuna`.
        stop_reason: why the experiment ended.
        unsaved: trials with a state that was to be saved and is not: a restore saves it.
    """

    def __init__(
        self,
        results: Sequence[Result],
        *,
        folder: Path,
        metric: str | None = None,
        mode: Mode | None = None,
        seed: int = 0,
        num_lanes: int = 1,
        inexact_reasons: Sequence[str] = (),
        space: SearchSpace | None = None,
        stop_reason: str = "",
        unsaved: Iterable[int] = (),
    ) -> None:
        self._results = tuple(results)
        self._metric, self._mode = metric, mode
        self._space = space
        self.experiment_path = str(folder)
        self.seed = seed
        self.num_lanes = num_lanes
        self.inexact_reasons = tuple(inexact_reasons)
        self.stop_reason = stop_reason
        self.unsaved = tuple(unsaved)

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: Any) -> Any:
        return self._results[index]

    def __repr__(self) -> str:
        return f"<ResultGrid of {len(self)} trials in {self.experiment_path}>"

    @property
    def is_exact(self) -> bool:
        """Whether the same would have come of it, whatever was killed and however fast it ran."""
        return not self.inexact_reasons

    @property
    def errors(self) -> list[TrialError]:
        """Of the trials that failed."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """Trials that failed."""
        return len(self.errors)

    @property
    def num_terminated(self) -> int:
        """Trials that came to an end without an error."""
        return sum(result.status == TrialStatus.TERMINATED.value for result in self._results)

    def rows(self) -> list[dict[str, Any]]:
        """The last row of each trial, flat, with its number, status and parameters."""
        found = []
        for result in self._results:
            last: Mapping[str, Any] = result.last_row or {}
            params = {f"config/{path}": value for path, value in result.params.items()}
            head = {"number": result.number, "status": result.status}
            found.append({**head, **dict(named_leaves(last)), **params})
        return found

    def table(self, columns: Sequence[str] | None = None) -> str:
        """A table of the trials as text.

        Args:
            columns: paths into the last row, or parameters; None: parameters and the metric.
        """
        names = list(columns or [])
        if columns is None:
            names = list(dict.fromkeys(path for each in self._results for path in each.params))
            names += ["training_iteration", *([self._metric] if self._metric else [])]
        lines = []
        for result in self._results:
            row: Mapping[str, Any] = result.last_row or {}
            cells = [_cell(result, row, name) for name in names]
            lines.append([f"{result.number:05d}", result.status, *cells])
        return table_text(["trial", "status", *names], lines)

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: Mode | None = None
    ) -> Any:
        """A pandas DataFrame with a row per trial.

        Args:
            filter_metric: take the row with the best value of it, instead of the last.
            filter_mode: "min" or "max".

        Raises:
            ImportError: pandas is not installed; `rows()` needs nothing.
        """
        pandas = optional_module("pandas", user="ResultGrid.get_dataframe", extra="pandas")
        if filter_metric is None:
            return pandas.DataFrame(self.rows())
        sign, found = _sign(filter_mode), []
        for result, last in zip(self._results, self.rows(), strict=True):
            scored = [
                (sign * value, -index, row)
                for index, row in enumerate(result.rows())
                if not math.isnan(value := number_at(row, filter_metric))
            ]
            best = max(scored, key=lambda entry: entry[:2])[2] if scored else {}
            found.append({**last, **dict(named_leaves(best))})
        return pandas.DataFrame(found)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The trial with the best value of the metric; of equals the smaller number.

        Args:
            metric: path into the rows; None: that of `TuneConfig`.
            mode: "min" or "max"; None: that of `TuneConfig`.
            scope: "last" row, best of "all", mean of all ("avg") or of the newest ("last-5-avg",
                "last-10-avg").
            filter_nan_and_inf: leave out values that are not finite; else NaN ranks last.

        Raises:
            TuneError: no metric or mode is known and there are several trials, no trial has it, or
                `scope` is something else.
        """
        best = self._best(metric, mode, scope, filter_nan_and_inf)
        if isinstance(best, TuneError):
            raise best
        return best

    def _best(
        self, metric: str | None, mode: Mode | None, scope: str, filter_nan_and_inf: bool
    ) -> Result | TuneError:
        """The best trial; else why there is none, for older names that only log it."""
        metric, mode = metric or self._metric, mode or self._mode
        if metric is None and mode is None and len(self) == 1:
            return self._results[0]
        if metric is None or mode is None:
            raise TuneSettingError(
                f"get_best_result(metric={metric!r}, mode={mode!r}): expected both, here or in "
                'TuneConfig, such as metric="loss", mode="min".'
            )
        sign = _sign(mode)
        if scope not in _SCOPES:
            raise TuneSettingError(f"scope={scope!r}: expected one of {', '.join(_SCOPES)}.")
        ranked = []
        for result in self._results:
            value = _scoped(result, metric, sign, scope)
            has_it = value_at(result.last_row or {}, metric) is not MISSING
            if math.isfinite(value) or (has_it and not filter_nan_and_inf):
                ranked.append((ranking_key(sign * value, result.number), result))
        if not ranked:
            return self._no_best(metric)
        return min(ranked, key=lambda entry: entry[0])[1]

    def _no_best(self, metric: str) -> TuneError:
        keys: set[str] = set()
        have = []
        for result in self._results:
            last: Mapping[str, Any] = result.last_row or {}
            keys |= {path for path, _ in named_leaves(last)}
            if value_at(last, metric) is not MISSING:
                have.append(f"{result.number:05d}")
        hint = did_you_mean(metric, keys)
        what = (
            f"Trials {', '.join(have[:10])} have it, but no finite number."
            if have
            else f"None of the {len(self)} trials has it in its last row.{hint}"
        )
        return TuneError(f"No trial is the best by {metric!r}. {what}")

    def to_optuna(self) -> Any:
        """An Optuna study of the trials, for its plots and its dashboard.

        Raises:
            ImportError: Optuna is not installed.
        """
        optuna = optional_module("optuna", user="ResultGrid.to_optuna", extra="tune")
        direction = "minimize" if self._mode == "min" else "maximize"
        study = optuna.create_study(direction=direction)
        for result in self._results:
            study.add_trial(self._optuna_trial(optuna, result))
        return study

    def _optuna_trial(self, optuna: Any, result: Result) -> Any:
        rows = result.rows()
        values = {
            index: value
            for index, row in enumerate(rows, 1)
            if self._metric and not math.isnan(value := number_at(row, self._metric))
        }
        states = optuna.trial.TrialState
        state = states.COMPLETE if values else states.FAIL
        if result.error is not None:
            state = states.FAIL
        elif values and result.stop_reason and "Scheduler" in result.stop_reason:
            state = states.PRUNED
        params = {
            path: value
            for path, value in result.params.items()
            if value is None or isinstance(value, bool | int | float | str)
        }
        categorical = optuna.distributions.CategoricalDistribution
        seen = {
            path: list(dict.fromkeys(r.params[path] for r in self._results if path in r.params))
            for path in params
        }
        return optuna.trial.create_trial(
            state=state,
            params=params,
            distributions={path: categorical(seen[path]) for path in params},
            value=values[max(values)] if values and state is states.COMPLETE else None,
            intermediate_values=values,
            user_attrs={"number": result.number},
        )


def result_of(
    trial: Trial,
    config_of: Callable[[], Any],
    path: Path,
    saved: Sequence[SavedCheckpoint],
    *,
    trainable_name: str,
    trial_name: str,
    cause: BaseException | None = None,
) -> Result:
    """The result of a trial.

    Checkpoints for repairs alone are no part of `saved`. `cause` is the error of its code, if this
    process has seen it.
    """
    error = trial.error if trial.status is TrialStatus.ERROR else None
    return Result(
        number=trial.number,
        config_of=config_of,
        params=trial.params,
        status=trial.status.value,
        stop_reason=trial.stop_reason,
        error=None if error is None else as_cause_too(TrialError(error), cause),
        num_failures=trial.num_failures,
        path=str(path),
        saved=tuple(
            entry for entry in saved if entry.name == checkpoint_folder_name(entry.row_number)
        ),
        num_rows=trial.num_rows,
        trainable_name=trainable_name,
        trial_name=trial_name,
    )


def _sign(mode: Mode | None) -> float:
    if mode not in ("min", "max"):
        raise TuneSettingError(f'mode={mode!r}: expected "min" or "max".')
    return 1.0 if mode == "max" else -1.0


def _scoped(result: Result, metric: str, sign: float, scope: str) -> float:
    if scope == "last":
        last: Row | None = result.last_row
        return math.nan if last is None else number_at(last, metric)
    values = [number_at(row, metric) for row in result.rows()]
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return math.nan
    if scope == "all":
        return max(values, key=lambda value: sign * value)
    if scope != "avg":
        values = values[-int(scope.split("-")[1]) :]
    return math.fsum(values) / len(values)


def _cell(result: Result, row: Row, name: str) -> str:
    if name in result.params:
        return shown_value(result.params[name])
    value = value_at(row, name)
    return "" if value is MISSING else shown_value(value)

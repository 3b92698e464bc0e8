"""What users write besides trainable and space: how trials are tuned, run, saved and forgiven.

Frozen values with the names of Ray Tune and Ray AIR. Each checks what it can see alone and tells
all problems at once; what depends on several of them is checked when the `Tuner` is made.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from trainer.errors import TuneSettingError
from trainer.runtime.engine import ENGINES, Engine
from trainer.tune.parts import Part
from trainer_toolkit.checks import (
    Check,
    boolean,
    function,
    integer,
    number,
    one_of,
    optional,
    path,
    shown,
    text,
)

_URI: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+://")
_MODES: Final = one_of(None, "min", "max")
_HOW_TO_RESUME: Final = one_of("skip", "resume", "restart")


def _raise(owner: object, problems: Sequence[str]) -> None:
    if problems:
        raise TuneSettingError(f"{type(owner).__name__}: " + "\n".join(problems))


def _problems(owner: object, checks: dict[str, Check]) -> list[str]:
    """What is wrong with the fields of a config that have a check."""
    return [
        f"`{name}={shown(getattr(owner, name))}`: expected {check.expected}."
        for name, check in checks.items()
        if not check.accepts(getattr(owner, name))
    ]


def _seconds(owner: object, name: str) -> None:
    """Turns a timedelta into seconds."""
    value = getattr(owner, name)
    if isinstance(value, dt.timedelta):
        object.__setattr__(owner, name, value.total_seconds())


@dataclass(frozen=True)
class TuneConfig(Part):
    """How an experiment searches.

    Attributes:
        metric: path into the rows that is compared, such as "env_runners/episode_return_mean".
        mode: whether it shall be "min" or "max".
        search_alg: a `Searcher`, or its name for `create_searcher`; None: random values and grids.
        scheduler: a `TrialScheduler`, or its name for `create_scheduler`; None: all trials run to
            their end.
        num_samples: draws per point of the grids; -1: until something stops it.
        max_concurrent_trials: number of lanes; None: declared CPUs divided by what trial 0 asks
            for. It is part of the experiment: a restore keeps it.
        time_budget_s: seconds of running time (or a `timedelta`) after which the experiment ends;
            makes it inexact.
        reuse_actors: keep a lane's process for its next trial (`reset_config`); of no effect for
            functions.
        trial_name_creator: function of a trial that gives its name; None: the trainable's name and
            the number, `train_00003`. Names must be unique.
        trial_dirname_creator: function of a trial that gives the name of its folder; one that
            another trial has is followed by the number.
        seed: of the experiment; None: one is drawn, reported and recorded.
        order: "turns": decisions do not depend on time; "arrival": as rows come.
        max_run_ahead: rows that a trial may be ahead of decisions; None: chosen. Changes speed
            only.
        in_process: all trials in this process, one row after the other, for debuggers.
        seed_globals: set NumPy's and Python's global generators by position in trial processes.
        engine: "local"; "ray": on a Ray cluster (docs/scale-out.md), where each lane reserves what
            trial 0 asks for; or an engine of your own. It is no part of the experiment.
        chdir_to_trial_dir: make the trial's folder the working directory of its process.

    Raises:
        TuneError: fields are wrong; names all of them.
    """

    metric: Any = None
    mode: Any = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | dt.timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    seed: int | None = None
    order: Literal["turns", "arrival"] = "turns"
    max_run_ahead: int | None = None
    in_process: bool = False
    seed_globals: bool = True
    engine: str | Engine = "local"
    chdir_to_trial_dir: bool = False

    _CHECKS: ClassVar[dict[str, Check]] = {
        "num_samples": integer(-1),
        "max_concurrent_trials": optional(integer(0)),
        "time_budget_s": optional(number(above=0)),
        "reuse_actors": boolean(),
        "trial_name_creator": optional(function()),
        "trial_dirname_creator": optional(function()),
        "seed": optional(integer(0, 2**63 - 1)),
        "order": one_of("turns", "arrival"),
        "max_run_ahead": optional(integer(0)),
        "in_process": boolean(),
        "seed_globals": boolean(),
        "chdir_to_trial_dir": boolean(),
    }

    def __post_init__(self) -> None:
        _seconds(self, "time_budget_s")
        problems = _problems(self, self._CHECKS)
        if self.num_samples == 0:
            problems.append("`num_samples=0`: expected at least 1, or -1 for no end.")
        problems += self._problems_of_metrics()
        if isinstance(self.engine, str) and self.engine not in ENGINES:
            expected = ", ".join(map(repr, ENGINES))
            problems.append(f"`engine={self.engine!r}`: expected one of {expected}, or an engine.")
        if self.in_process and self.engine != "local":
            problems.append("`engine` and `in_process=True`: give one of them.")
        _raise(self, problems)
        if not self.max_concurrent_trials:  # 0 means the default, as in Ray Tune
            object.__setattr__(self, "max_concurrent_trials", None)

    def leaves_out(self, name: str) -> bool:
        """Whether a field has its default."""
        return bool(getattr(self, name) == getattr(_PLAIN_TUNING, name))

    def _problems_of_metrics(self) -> list[str]:
        if isinstance(self.metric, list | tuple):
            modes = self.mode if isinstance(self.mode, list | tuple) else []
            is_right = len(modes) == len(self.metric) and all(
                isinstance(each, str) for each in self.metric
            )
            if is_right and all(each in ("min", "max") for each in modes):
                return []
            return [
                f"`metric={shown(self.metric)}, mode={shown(self.mode)}`: expected as many modes "
                "as metrics."
            ]
        return _problems(self, {"metric": optional(text()), "mode": _MODES})


@dataclass(frozen=True)
class CheckpointConfig(Part):
    """When trials are saved, and which checkpoints are kept.

    Attributes:
        num_to_keep: per trial; None: all. What decisions still need is kept beyond it.
        checkpoint_score_attribute: path into the row by which the best are kept; None: the newest.
        checkpoint_score_order: "max" or "min". Rows without the attribute, or NaN, rank last; of
            equals the newer is kept.
        checkpoint_frequency: saves every so many rows; 0: never. Not for functions, which report
            their checkpoints.
        checkpoint_at_end: saves when a trial ends; None: True for classes and algorithms.

    Raises:
        TuneError: fields are wrong; names all of them.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        problems = _problems(
            self,
            {
                "num_to_keep": optional(integer(1)),
                "checkpoint_score_attribute": optional(text()),
                "checkpoint_score_order": one_of("max", "min"),
                "checkpoint_frequency": integer(0),
                "checkpoint_at_end": optional(boolean()),
            },
        )
        if problems and self.num_to_keep == 0:
            problems.append("To keep no checkpoints, save none: checkpoint_frequency=0.")
        _raise(self, problems)


@dataclass(frozen=True)
class FailureConfig(Part):
    """What happens when code of a trial raises.

    Attributes:
        max_failures: errors that a trial survives, going on from its newest checkpoint; -1: any
            number. Deaths of processes are repaired and do not count.
        fail_fast: True: the first failed trial ends the experiment in order; "raise": and its error
            is raised. The others can be gone on with by `Tuner.restore`.

    Raises:
        TuneError: fields are wrong, or exclude each other.
    """

    max_failures: int = 0
    fail_fast: bool | Literal["raise"] = False

    def __post_init__(self) -> None:
        checks = {"max_failures": integer(-1), "fail_fast": one_of(True, False, "raise")}
        problems = _problems(self, checks)
        if not problems and self.fail_fast and self.max_failures != 0:
            problems.append(
                f"`fail_fast={self.fail_fast!r}` ends the experiment at the first failure, and "
                f"`max_failures={self.max_failures}` goes on after it. Leave one of them out."
            )
        _raise(self, problems)


@dataclass(frozen=True)
class ResumeConfig:
    """What a restored experiment does with its trials: "skip", "resume" or "restart" them.

    Attributes:
        finished: those that came to their end.
        unfinished: those that were running or waiting.
        errored: those that failed.

    Raises:
        TuneError: a field is something else.
    """

    finished: Literal["skip", "resume", "restart"] = "skip"
    unfinished: Literal["skip", "resume", "restart"] = "resume"
    errored: Literal["skip", "resume", "restart"] = "skip"

    def __post_init__(self) -> None:
        _raise(self, _problems(self, {each.name: _HOW_TO_RESUME for each in fields(self)}))


class SyncConfig:
    """Accepted so that scripts run; experiments are on the local disk and are not synchronised.

    Raises:
        TuneError: something is to be synchronised.
    """

    def __init__(self, **settings: Any) -> None:
        given = {name: value for name, value in settings.items() if value not in (None, False)}
        harmless = {"sync_period", "sync_timeout", "sync_artifacts", "sync_artifacts_on_checkpoint"}
        if unwanted := sorted(given.keys() - harmless):
            raise TuneSettingError(
                f"SyncConfig({unwanted[0]}={shown(given[unwanted[0]])}): experiments are kept on "
                "the local disk only. Give RunConfig(storage_path=) a mounted folder, or copy the "
                "experiment's folder afterwards."
            )


@dataclass(frozen=True)
class RunConfig(Part):
    """Where an experiment is kept, when it stops, and who is told.

    Attributes:
        name: of its folder; None: trainable, date and time of the start.
        storage_path: the folder that experiments are in.
        failure_config: see `FailureConfig`.
        checkpoint_config: see `CheckpointConfig`.
        stop: a dict of bounds, a function `(trial_id, result) -> bool`, a `Stopper`, or a list.
        callbacks: `Callback` objects.
        verbose: 0 or False: silent; 1 or True: the table, and changes of status; 2: every row.
        progress_reporter: see `CLIReporter`.
        log_to_file: True: `stdout.txt` and `stderr.txt` in each trial's folder; a name: both into
            it; two names.
        num_cpus: logical CPUs that trials share; None: those that this process may use.
        recovery_interval_s: seconds between checkpoints for repairs; None: none.
        trial_timeout_s: a trial that makes no progress for so long is killed and repaired, given up
            the third time; None: never. Reports are progress, env steps and minibatches of an
            algorithm in it, and `get_context().heartbeat()`.
        sync_config: see `SyncConfig`.
        storage_filesystem: refused.

    Raises:
        TuneError: fields are wrong; names all of them.
    """

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = "runs"
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    stop: Any = None
    callbacks: Sequence[Any] | None = None
    verbose: int = 1
    progress_reporter: Any = None
    log_to_file: bool | str | Sequence[str] = False
    num_cpus: float | None = None
    recovery_interval_s: float | None = 30.0
    trial_timeout_s: float | None = None
    sync_config: SyncConfig | None = None
    storage_filesystem: Any = None
    local_dir: str | None = None

    _left_out: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        problems = _problems(
            self,
            {
                "name": optional(text()),
                "storage_path": optional(path()),
                "verbose": one_of(0, 1, 2, 3, False, True),
                "num_cpus": optional(number(above=0)),
                "recovery_interval_s": optional(number(0)),
                "trial_timeout_s": optional(number(above=0)),
            },
        )
        problems += self._problems_of_places()
        problems += self._problems_of_parts()
        _raise(self, problems)
        self._fill_in()

    def leaves_out(self, name: str) -> bool:
        """Whether a field was not given: the defaults of parts may be given, too."""
        is_part = name in ("failure_config", "checkpoint_config")
        same = bool(getattr(self, name) == getattr(_PLAIN, name))
        return name in self._left_out if is_part else same

    @property
    def output_files(self) -> tuple[str, str] | None:
        """The names of the files for stdout and stderr of a trial; None: they go nowhere else."""
        files = self.log_to_file
        if isinstance(files, bool):
            return ("stdout.txt", "stderr.txt") if files else None
        stdout, stderr = (files, files) if isinstance(files, str) else files
        return (stdout, stderr) if files else None

    def _problems_of_places(self) -> list[str]:
        problems = []
        if _URI.match(str(self.storage_path)) or self.storage_filesystem is not None:
            problems.append(
                f"`storage_path={str(self.storage_path)!r}`: experiments are kept on the local "
                "disk only; expected a folder. Mount the storage, or copy the experiment's folder "
                "afterwards."
            )
        if self.local_dir is not None:
            problems.append(f"`local_dir={self.local_dir!r}` is called storage_path now.")
        if isinstance(self.name, str) and (Path(self.name).name != self.name or self.name == ".."):
            problems.append(f"`name={self.name!r}`: expected a folder's name without slashes.")
        return problems

    def _problems_of_parts(self) -> list[str]:
        problems = []
        parts = {
            "failure_config": FailureConfig,
            "checkpoint_config": CheckpointConfig,
            "sync_config": SyncConfig,
        }
        for name, kind in parts.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                problems.append(f"`{name}={shown(value)}`: expected a {kind.__name__}.")
        if self.callbacks is not None and not isinstance(self.callbacks, list | tuple):
            problems.append(f"`callbacks={shown(self.callbacks)}`: expected a list.")
        files = self.log_to_file
        is_pair = isinstance(files, list | tuple) and len(files) == 2
        names = list(files) if is_pair and not isinstance(files, bool | str) else [files]
        if not isinstance(files, bool) and not all(isinstance(each, str) for each in names):
            problems.append(
                f"`log_to_file={shown(files)}`: expected True, a file's name, or two names."
            )
        return problems

    def _fill_in(self) -> None:
        """Puts defaults in the place of None where a part has them."""
        defaults: dict[str, Any] = {
            "storage_path": "runs",
            "failure_config": FailureConfig(),
            "checkpoint_config": CheckpointConfig(),
            "callbacks": (),
        }
        left_out = [name for name in defaults if getattr(self, name) is None]
        for name in left_out:
            object.__setattr__(self, name, defaults[name])
        object.__setattr__(self, "_left_out", frozenset(left_out))
        object.__setattr__(self, "callbacks", tuple(self.callbacks or ()))


_PLAIN: Final = RunConfig()
_PLAIN_TUNING: Final = TuneConfig()


def default_num_lanes(cpus: float, request: float, num_trials: int | None) -> int:
    """How many trials run at the same time, if the user does not say."""
    fitting = max(1, math.floor(cpus / request + 1e-9)) if request > 0 else 1
    return fitting if num_trials is None else max(1, min(fitting, num_trials))

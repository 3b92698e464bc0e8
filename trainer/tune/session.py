"""What a trainable talks to while it runs: `report` of functions, `get_checkpoint`, `get_context`.

A trial's function runs in a thread of the trial's process. `report` hands a row over and waits
until the tuner wants the next one, so a function never runs ahead of what it was asked for, and is
stopped there: `report` then raises `TrialStopped`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NoReturn

import numpy as np

from callbacks.ready_made.rows_file import jsonable
from trainer.errors import TuneError
from trainer.metrics import ResultDict
from trainer.runtime.engine import beat
from trainer.seeding import Role, position_rng
from trainer.tune.checkpoint import Checkpoint
from trainer_toolkit.checks import plain_scalar
from trainer_toolkit.interrupts import ArrivalFlag

_LOGGER = logging.getLogger(__name__)
_NOT_IN_ROWS: Final = frozenset({"config"})
UNNAMED_METRIC: Final = "_metric"
"""The key of numbers that a function returns or yields without one."""

_USER_POSITIONS: Final = 1 << 16
"""Positions from here on are the user's own (`TuneContext.rng`)."""


class TrialStopped(BaseException):
    """Ends a function trainable at `report()`: the trial was stopped.

    A `BaseException`, so that `except Exception` around user code does not swallow it; `finally`
    blocks run.
    """


@dataclass(frozen=True)
class TuneContext:
    """Who and where a trial is; None everywhere outside of a trial.

    Attributes:
        trial_number: from 0.
        seed: the trial's own seed, in [0, 2**31); a function of the experiment's seed and number.
        trial_id: the number as text, `00003`.
        trial_name: what the trial is called.
        trial_dir: its folder.
        experiment_name: the name of the experiment's folder.
        resources: what the trial was given, such as `{"CPU": 1.0}`.
    """

    trial_number: int | None = None
    seed: int | None = None
    trial_id: str | None = None
    trial_name: str | None = None
    trial_dir: str | None = None
    experiment_name: str | None = None
    resources: Mapping[str, float] | None = None

    def get_trial_id(self) -> str | None:
        """The trial's number as text, such as `00003`."""
        return self.trial_id

    def get_trial_name(self) -> str | None:
        """What the trial is called."""
        return self.trial_name

    def get_trial_dir(self) -> str | None:
        """The trial's folder."""
        return self.trial_dir

    def get_trial_resources(self) -> Mapping[str, float] | None:
        """What the trial was given, such as `{"CPU": 1.0}`."""
        return self.resources

    def get_experiment_name(self) -> str | None:
        """The name of the experiment's folder."""
        return self.experiment_name

    def get_world_size(self) -> int:
        """1: a trial is one process of a function."""
        return 1

    def get_world_rank(self) -> int:
        """0: the only one."""
        return 0

    def get_local_rank(self) -> int:
        """0: the only one."""
        return 0

    def heartbeat(self) -> None:
        """Shows that a row that takes long is worked at (`RunConfig.trial_timeout_s`)."""
        beat()

    def rng(self, *position: int) -> np.random.Generator:
        """A generator for a position of the user's own: the same numbers after every repair.

        Args:
            position: non-negative integers, such as the number of the report.

        Raises:
            TuneError: there is no trial, so there is no seed.
        """
        if self.seed is None:
            raise TuneError(
                "get_context().rng() was called outside of a trial, where there is no seed. Use "
                "numpy.random.default_rng(seed) there."
            )
        return position_rng(self.seed, Role.TUNE, _USER_POSITIONS, *position)


@dataclass(frozen=True)
class ReportedRow:
    """One row as the function reported it.

    Attributes:
        row: plain data.
        checkpoint: the directory that was reported with it.
    """

    row: dict[str, Any]
    checkpoint: Path | None = None


@dataclass
class Session:
    """The two ends between a function's thread and the trial's process.

    Attributes:
        context: of the trial.
        checkpoint: to go on from; None at the beginning.
        reported: rows, the end or an error, from the function; for `put` and `take`.
        wanted: an item per row that is wanted; False stops the function.
        logged: keys of values that were left out of rows, each logged once.
        on_resumable: called in the function's thread after a row that came with a checkpoint.
        is_of_class: there is no function's thread: the rows are what `step` returns.
    """

    context: TuneContext
    checkpoint: Checkpoint | None
    reported: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    wanted: SimpleQueue[bool] = field(default_factory=SimpleQueue)
    logged: set[str] = field(default_factory=set)
    on_resumable: Callable[[], None] = lambda: None
    is_of_class: bool = False
    _arrival: ArrivalFlag = field(default_factory=ArrivalFlag)

    def put(self, item: Any) -> None:
        """Hands something to the trial's process."""
        self.reported.put(item)
        self._arrival.put()

    def take(self, timeout_s: float) -> Any:
        """The next of what was handed over; `queue.Empty` if nothing came in time, or sooner."""
        if self.reported.empty():
            self._arrival.wait(timeout_s)
        return self.reported.get_nowait()

    def report(self, row: dict[str, Any], checkpoint: Path | None) -> None:
        """Hands a row over and waits until the next one is wanted.

        Raises:
            TrialStopped: no further one is.
        """
        self.put(ReportedRow(row, checkpoint))
        self.wait()
        if checkpoint is not None:
            self.on_resumable()

    def wait(self) -> None:
        """Waits until a row is wanted.

        Raises:
            TrialStopped: none is.
        """
        if not self.wanted.get():
            raise TrialStopped


class _Sessions(threading.local):
    """The session of this thread; a trial's function, or a call of its class, runs in one."""

    current: Session | None = None


_SESSIONS: Final = _Sessions()
_OF_PROCESS: Final[list[Session]] = []
"""The only session of a trial's process: threads that the function starts may report, too."""


def enter_session(session: Session, *, for_process: bool) -> None:
    """From now on, `report` in this thread goes to this session.

    `for_process`: also in threads that have none of their own.
    """
    _SESSIONS.current = session
    if for_process:
        _OF_PROCESS[:] = [session]


@contextlib.contextmanager
def in_session(session: Session, *, for_process: bool) -> Iterator[None]:
    """As `enter_session`, for the time of one call in a thread that is not the trial's own."""
    before = _SESSIONS.current
    enter_session(session, for_process=for_process)
    try:
        yield
    finally:
        _SESSIONS.current = before


def current_session() -> Session | None:
    """The session of this thread, or of this process; None outside of a trial."""
    return _SESSIONS.current or (_OF_PROCESS[0] if _OF_PROCESS else None)


def report(
    metrics: Mapping[str, Any] | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    **more: Any,
) -> None:
    """Reports one row, and waits until the tuner wants the trial to go on.

        tune.report({"score": 1.0})
        tune.report(score=1.0)                          # the old writing, the same row
        tune.report({"score": 1.0}, checkpoint=checkpoint)

    Args:
        metrics: numbers, texts, None, truth values and nested dicts of them; or what
            `algo.train()` returned. Arrays and objects are left out, with one warning.
        checkpoint: to go on from; it counts if and only if the row does.
        more: the old writing.

    Raises:
        TuneError: there is no trial here, or these are no metrics.
    """
    session = current_session()
    if session is None:
        raise TuneError(
            "tune.report() was called outside of a trial, where rows go nowhere. Give the "
            "function to a tuner: tune.Tuner(function, param_space={…}).fit()."
        )
    if session.is_of_class:
        raise TuneError(
            "tune.report() was called in a trial of a class, whose rows are what step() returns; "
            "those of an algorithm are its results. Put the values there: in on_train_result, "
            "result['mine'] = value."
        )
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TuneError(
            f"tune.report() got a {type(checkpoint).__name__} as its checkpoint; expected "
            "tune.Checkpoint.from_directory(path)."
        )
    session.report(
        reported_row(metrics, more, logged=session.logged),
        None if checkpoint is None else Path(checkpoint.path),
    )


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to go on from after a restart, repair or exploit; None at the beginning."""
    session = current_session()
    return None if session is None else session.checkpoint


def get_context() -> TuneContext:
    """Who and where this trial is; a context of None everywhere outside of one."""
    session = current_session()
    return TuneContext() if session is None else session.context


def reported_row(
    metrics: Mapping[str, Any] | None,
    more: Mapping[str, Any],
    *,
    logged: set[str],
    takes_arrays: bool = False,
) -> dict[str, Any]:
    """The row of what was reported, as plain data; what no row can hold is left out and told once.

    Args:
        metrics: the mapping, if there is one.
        more: keyword arguments.
        logged: keys that were logged already; grows.
        takes_arrays: turn them into lists, as in results of algorithms.

    Raises:
        TuneError: `metrics` is no mapping.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise TuneError(
            f"tune.report() got {metrics!r:.80}, a {type(metrics).__name__}; expected a dict such "
            'as {"score": 1.0}, or keyword arguments.'
        )
    everything = {**(metrics or {}), **more}
    left_out: list[str] = []
    takes_arrays = takes_arrays or isinstance(metrics, ResultDict)
    row = _plain(everything, "", left_out, takes_arrays=takes_arrays)
    for key in left_out:
        if key not in logged:
            logged.add(key)
            _LOGGER.warning(
                "The reported value %r is an array or object, which a row cannot hold; it is left "
                "out. Report numbers, texts or truth values, and save the rest in a checkpoint.",
                key,
            )
    return row


def _plain(
    value: Mapping[Any, Any], path: str, left_out: list[str], *, takes_arrays: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, entry in value.items():
        key = f"{path}{name}"
        if not path and name in _NOT_IN_ROWS:
            continue
        if isinstance(entry, Mapping):
            row[str(name)] = _plain(entry, f"{key}/", left_out, takes_arrays=takes_arrays)
        elif isinstance(entry, np.generic):
            row[str(name)] = entry.item()
        elif _is_scalar(entry):
            row[str(name)] = entry
        elif _is_list(entry):
            row[str(name)] = [plain_scalar(part) for part in entry]
        elif takes_arrays:
            row[str(name)] = jsonable(entry)
        else:
            left_out.append(key)
    return row


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        _is_scalar(entry) or isinstance(entry, np.generic) for entry in value
    )


def refuse_old_checkpoints() -> NoReturn:
    """Raises a TuneError that says what stands in the place of `checkpoint_dir` arguments."""
    raise TuneError(
        "The trainable takes `checkpoint_dir`, the old way to go on from a checkpoint. Write "
        "def train(config): checkpoint = tune.get_checkpoint(), and report with "
        "tune.report({…}, checkpoint=tune.Checkpoint.from_directory(path))."
    )


def old_reporter(*arguments: Mapping[str, Any], **metrics: Any) -> None:
    """The old `reporter(metric=1.0, …)`: the same as `report`."""
    report(*arguments[:1], **metrics)

"""A trial in its process: makes rows when asked, saves when asked, stops when asked.

    boot = TrialBootstrap(…)            # a value; calling it in a worker process gives the handler
    handler.make_row()                  # Made: a row, or that the trial is over
    handler.save(folder)                # the state of the newest row; of functions, as reported
    handler.stop()                      # cleanup, `finally` blocks of functions

A function runs in a thread of its own, because its flow is its own; it works only while a row is
being made. A class works in the thread that asks. Nothing here decides anything.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any, Final

import numpy as np

from callbacks.packing import unpack_object
from trainer.envs import take_over_registrations
from trainer.errors import TuneError
from trainer.runtime.worker import CallSignals
from trainer.tune.checkpoint import (
    Checkpoint,
    cleared_for,
    digest_of,
    sync_and_digest,
    take_in,
)
from trainer.tune.positions import Kind, rng_at
from trainer.tune.rows import is_number
from trainer.tune.session import (
    UNNAMED_METRIC,
    ReportedRow,
    Session,
    TrialStopped,
    TuneContext,
    enter_session,
    in_session,
    old_reporter,
    reported_row,
)
from trainer.tune.trainables import (
    AlgorithmTrainable,
    Trainable,
    TrainableSpec,
    take_over_names,
)
from trainer_toolkit.checks import plain_scalar
from trainer_toolkit.interrupts import signals_deferred

STOP_GRACE_S: Final = 5.0
"""Seconds that a function may take to end after it was stopped."""

TOTALS: Final[Mapping[str, str]] = {
    "timesteps_total": "timesteps_this_iter",
    "episodes_total": "episodes_this_iter",
}
"""Sums that rows get where a trainable reports what it counted since the row before."""

_LOOK_EVERY_S: Final = 0.05
PENDING: Final = ".pending-"


def pending_name(row_number: int) -> str:
    """The name of a reported checkpoint's folder until its row counts."""
    return f"{PENDING}{row_number:06d}"


@dataclass(frozen=True)
class Made:
    """What came of asking for a row.

    Attributes:
        row: plain data; None if the trial is over, or was told to end before there was one.
        is_over: the function returned.
        has_checkpoint: it came with a checkpoint, which lies in the folder `pending_name`.
        is_done: `done: True` is in the row.
        wants_checkpoint: `should_checkpoint: True` is in the row.
    """

    row: dict[str, Any] | None
    is_over: bool = False
    has_checkpoint: bool = False
    is_done: bool = False
    wants_checkpoint: bool = False


@dataclass(frozen=True)
class TrialBootstrap:
    """All that makes a trial in its process, the first time and every time after.

    Attributes:
        trainable: the `TrainableSpec`, packed if it travels.
        config: of the trial, packed if it travels.
        context: who and where the trial is.
        checkpoint: to go on from; None at the beginning.
        row_number: rows made by then.
        new_seed: of a clone that begins at another trial's checkpoint; else None.
        experiment_tag: for rows.
        experiment_seed: NumPy's and Python's global generators are set by it and the position;
            None leaves them alone.
        output: files that take what is printed (stdout, stderr); None leaves it where it goes.
        changes_directory: work in the trial's folder.
        registrations: envs that are registered in the tuner's process.
        names: algorithms and trainables that have names there.
        is_own_process: False in the tuner's process.
        time_total_s: seconds that earlier processes took.
        totals: sums of `TOTALS` by then.
    """

    trainable: bytes | TrainableSpec
    config: Any
    context: TuneContext
    checkpoint: Path | None = None
    row_number: int = 0
    new_seed: int | None = None
    experiment_tag: str = ""
    experiment_seed: int | None = None
    output: tuple[Path, Path] | None = None
    changes_directory: bool = False
    registrations: bytes = b""
    names: Sequence[bytes] = ()
    is_own_process: bool = True
    time_total_s: float = 0.0
    totals: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, signals: CallSignals | None) -> TrialHandler:
        """Makes the trial."""
        self.settle()
        return TrialHandler(self, signals)

    def settle(self) -> None:
        """Makes the process that of the trial: its folder, its output, its registrations.

        Raises:
            TuneError: the trial's folder is not there.
        """
        if not self.is_own_process:
            return
        folder = self.context.trial_dir
        if folder is not None and not Path(folder).is_dir():
            raise TuneError(
                f"The trial's folder {folder} is not there on the machine {socket.gethostname()}. "
                'Trials read and write their files there: with engine="ray", storage_path must '
                "be a folder that all machines share, such as a network file system."
            )
        if self.registrations:
            take_over_registrations(self.registrations)
        take_over_names(self.names)
        if self.output is not None:
            _redirect_output(*self.output, is_repair=self.row_number > 0)
        if self.changes_directory and self.context.trial_dir is not None:
            os.chdir(self.context.trial_dir)


def _redirect_output(stdout: Path, stderr: Path, *, is_repair: bool) -> None:
    for path, stream, descriptor in ((stdout, sys.stdout, 1), (stderr, sys.stderr, 2)):
        with contextlib.suppress(Exception):  # the stream may be closed or missing
            stream.flush()
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if is_repair:
            os.write(opened, b"--- the trial's process was started again ---\n")
        os.dup2(opened, descriptor)
        os.close(opened)


class TrialHandler:
    """Answers what the tuner asks of one trial."""

    def __init__(self, boot: TrialBootstrap, signals: CallSignals | None) -> None:
        """Makes the trainable and brings it to where it goes on."""
        self._boot = boot
        self._signals = signals
        self._row_number = boot.row_number
        self._since_restore_s, self._num_since_restore = 0.0, 0
        self._totals = dict(boot.totals)
        spec: TrainableSpec = _unpacked(boot.trainable, "the trainable")
        config = _unpacked(boot.config, "the config")
        self._seed_globals(self._row_number)
        self._beat()
        run = _FunctionRun if spec.kind == "function" else _ClassRun
        self._run: _FunctionRun | _ClassRun = run(self, spec, config)
        self._beat()

    @property
    def boot(self) -> TrialBootstrap:
        """What the trial was made from."""
        return self._boot

    def report(self) -> dict[str, Any]:
        """What the tuner is told when the trial is there."""
        return {"pid": os.getpid()}

    def failure_context(self) -> dict[str, Any]:
        """Where the trial was, for errors."""
        return {"trial": self._boot.context.trial_id, "report": self._row_number + 1}

    def make_row(self) -> Made:
        """Makes the next row."""
        began_at = time.monotonic()
        made = None if self.must_end() else self._run.next_row()
        if made is None:
            return Made(row=None)
        if isinstance(made, _Over):
            return Made(row=None, is_over=True)
        self._row_number += 1
        self._beat()
        elapsed_s = time.monotonic() - began_at
        self._since_restore_s += elapsed_s
        self._num_since_restore += 1
        row = self._filled(made.row, elapsed_s)
        if made.checkpoint is not None:
            self._take_checkpoint(made.checkpoint)
        return Made(
            row,
            has_checkpoint=made.checkpoint is not None,
            is_done=bool(row["done"]),
            wants_checkpoint=bool(row.get("should_checkpoint")),
        )

    def save(self, folder: str) -> str | None:
        """Has the state of the newest row in a folder, and returns the digest of its files.

        A folder of that name is whole whenever it is there. None: a function reported no checkpoint
        with that row.
        """
        return self._run.save(Path(folder))

    def reset(self, boot: TrialBootstrap) -> dict[str, Any]:
        """Becomes another trial (`reuse_actors`); a TuneError unless `reset_config` says True."""
        config = _unpacked(boot.config, "the config")
        boot.settle()
        self._boot, self._row_number = boot, boot.row_number
        self._since_restore_s, self._num_since_restore = 0.0, 0
        self._totals = dict(boot.totals)
        self._seed_globals(self._row_number)
        self._run.reset(config)
        return self.report()

    def stop(self) -> bool:
        """Ends the trainable in order; returns whether it ended in time."""
        return self._run.stop()

    def close(self) -> None:
        """Ends the trainable; called when the process ends in order."""
        self._run.stop()

    def must_end(self) -> bool:
        """Whether the tuner does not want the row any more."""
        return self._signals is not None and bool(self._signals.must_end)

    def seed_row(self) -> None:
        """Sets the global generators for what comes after the newest row."""
        self._seed_globals(self._row_number)

    def _beat(self) -> None:
        if self._signals is not None:
            self._signals.num_heartbeats += 1

    def _seed_globals(self, row_number: int) -> None:
        seed = self._boot.experiment_seed
        number = self._boot.context.trial_number
        if seed is not None and number is not None:
            rng = rng_at(seed, Kind.GLOBAL, number, row_number)
            random.seed(int(rng.integers(2**63)))
            np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002 - the one that others use

    def _take_checkpoint(self, source: Path) -> None:
        folder = Path(str(self._boot.context.trial_dir)) / "checkpoints"
        target = folder / pending_name(self._row_number)
        take_in(source, target)

    def _filled(self, row: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
        """The row with what every row has; the user's own entries win, except `trial_id`."""
        now = dt.datetime.now(dt.timezone.utc).astimezone()
        hostname = socket.gethostname()
        return {
            "training_iteration": self._row_number,
            "time_this_iter_s": elapsed_s,
            "time_total_s": self._boot.time_total_s + self._since_restore_s,
            "time_since_restore": self._since_restore_s,
            "iterations_since_restore": self._num_since_restore,
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(time.time()),
            "pid": os.getpid(),
            "hostname": hostname,
            "node_ip": "127.0.0.1",
            "done": False,
            "experiment_tag": self._boot.experiment_tag,
            **self._new_totals(row),
            **row,
            "trial_id": self._boot.context.trial_id,
        }

    def _new_totals(self, row: Mapping[str, Any]) -> dict[str, float]:
        for name, part in TOTALS.items():
            total, more = row.get(name), row.get(part)
            if is_number(total):
                self._totals[name] = total
            elif is_number(more):
                self._totals[name] = self._totals.get(name, 0) + more
        return {name: total for name, total in self._totals.items() if TOTALS[name] in row}


def _unpacked(thing: Any, name: str) -> Any:
    return unpack_object(thing, name=name) if isinstance(thing, bytes) else thing


class _Over:
    """The trainable has nothing more to report."""


class _ClassRun:
    """A class trainable: works in the thread that asks."""

    def __init__(self, handler: TrialHandler, spec: TrainableSpec, config: Any) -> None:
        boot = handler.boot
        self._handler = handler
        self._logged: set[str] = set()
        self._session = self._new_session()  # now: the tuner may remove the checkpoint later
        cls = type(spec.target.__name__, (spec.target,), {"_context": boot.context})
        with self._in_trial():
            self._trainable: Trainable = cls(config, **spec.loaded_parameters())
            if boot.checkpoint is not None:
                self._trainable.restore(boot.checkpoint, iteration=boot.row_number)
                if boot.new_seed is not None and isinstance(self._trainable, AlgorithmTrainable):
                    self._trainable.adopt_seed(boot.new_seed)

    def _new_session(self) -> Session:
        boot = self._handler.boot
        checkpoint = None if boot.checkpoint is None else Checkpoint(boot.checkpoint)
        return Session(boot.context, checkpoint, is_of_class=True)

    def _in_trial(self) -> AbstractContextManager[None]:
        """What the trainable and its callbacks do in here finds the trial's context."""
        return in_session(self._session, for_process=self._handler.boot.is_own_process)

    def next_row(self) -> ReportedRow:
        """A row."""
        self._handler.seed_row()
        with self._in_trial():
            row = self._trainable.train()
        is_result = isinstance(self._trainable, AlgorithmTrainable)
        metrics = {key: value for key, value in row.items() if key != "config"}
        plain = reported_row(metrics, {}, logged=self._logged, takes_arrays=is_result)
        return ReportedRow(plain)

    def save(self, folder: Path) -> str:
        """Saves the state of the newest row into a new folder."""
        unfinished = cleared_for(folder)
        unfinished.mkdir()
        with self._in_trial():
            self._trainable.save(unfinished)
        digest = sync_and_digest(unfinished)
        unfinished.rename(folder)
        return digest

    def reset(self, config: Any) -> None:
        """Becomes another trial."""
        name = type(self._trainable).__name__
        self._session = self._new_session()
        with self._in_trial():
            is_reset = self._trainable.reset_config(config)
        if not is_reset:
            raise TuneError(
                f"{name}.reset_config() did not return True, so the object could not be reused "
                "for the next trial. Make it return True, or leave reuse_actors=False."
            )
        self._trainable.config = config
        self._trainable._trial = self._handler.boot.context
        self._trainable._iteration = 0

    def stop(self) -> bool:
        """Calls `cleanup`, once."""
        trainable, self._trainable = self._trainable, _STOPPED
        with self._in_trial():
            trainable.stop()
        return True


class _Stopped(Trainable):
    """Stands in the place of a trainable that was cleaned up."""


_STOPPED: Final = _Stopped()


class _FunctionRun:
    """A function trainable: a thread that works only while a row is being made."""

    def __init__(self, handler: TrialHandler, spec: TrainableSpec, config: Any) -> None:
        boot = handler.boot
        self._handler = handler
        self._call = _call_of(spec, config)
        checkpoint = None if boot.checkpoint is None else Checkpoint(boot.checkpoint)
        self._session = Session(boot.context, checkpoint, on_resumable=handler.seed_row)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="trainable", daemon=True)

    def next_row(self) -> ReportedRow | _Over | None:
        """A row, or the end; None if the tuner does not want it any more."""
        if self._thread.ident is None:
            with signals_deferred():
                self._thread.start()
        self._session.wanted.put(True)
        while not self._handler.must_end():
            with contextlib.suppress(Empty):
                found = self._session.take(_LOOK_EVERY_S)
                if self._error is not None:
                    raise self._error
                return found if isinstance(found, ReportedRow) else _Over()
        return None

    def save(self, folder: Path) -> str | None:
        """A function's state is what it reported, which lies there already."""
        return digest_of(folder)

    def reset(self, config: Any) -> None:
        """A function cannot become another trial."""
        del config
        raise TuneError("A function trainable cannot be reused; leave reuse_actors=False.")

    def stop(self) -> bool:
        """Lets `report` raise, and waits a while for the function to end."""
        if self._thread.ident is None:
            return True
        self._session.wanted.put(False)
        self._session.wanted.put(False)  # one that it swallowed, and one for the next report
        self._thread.join(STOP_GRACE_S)
        return not self._thread.is_alive()

    def _work(self) -> None:
        enter_session(self._session, for_process=self._handler.boot.is_own_process)
        try:
            self._session.wait()
            _report_all(self._call(), self._session)
        except TrialStopped:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by `next_row` in the other thread
            self._error = error
        finally:
            self._session.put(None)


def _report_all(returned: Any, session: Session) -> None:
    """Reports what a function returned or yields."""
    if inspect.isgenerator(returned):
        try:
            for item in returned:
                _report_value(item, session)
        finally:
            returned.close()
    else:
        _report_value(returned, session)


def _report_value(value: Any, session: Session) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        number = plain_scalar(value)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TuneError(
                f"The trainable returned or yielded {value!r:.60}, a {type(value).__name__}; "
                "expected a row (a dict), a number, or nothing."
            )
        value = {UNNAMED_METRIC: number}
    session.report(reported_row(value, {}, logged=session.logged), None)


def _call_of(spec: TrainableSpec, config: Any) -> Callable[[], Any]:
    given = spec.loaded_parameters()
    if spec.takes_reporter:
        return lambda: spec.target(config, old_reporter, **given)
    return lambda: spec.target(config, **given)

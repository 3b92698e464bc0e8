"""Callbacks that write every result somewhere, in the background and after all other callbacks.

What is written, and in which form, is the business of the `ResultSink`: a file of this package, or
whatever else a user has. What this module adds is when: after all listeners of `on_train_result`,
on a thread whose failures training does not notice, and never behind a checkpoint.

Why rows are exact although a process may be killed at any moment: a row is handed over before the
checkpoint that counts its iteration is complete (unless that is saved right inside
`on_train_result`, before there is a result), and `train()` waits for the row to be written, which
takes about a millisecond. Its turn is after all ready-made callbacks have saved, so that what
failed there is counted in it; but a save asks for the logger's state, and that hands the row over
first (`get_state`). If the kill comes between row and checkpoint, the resumed run
makes the iteration again and its row replaces the old one. So a file can only be ahead of the
newest checkpoint, which the next row puts right. Only a writer that is slower than the time it is
given can be behind; its rows that were not written when the process was killed are missing.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from callbacks.callback import RLlibCallback
from callbacks.chain import CallbackGroup
from callbacks.errors import CallbackConfigError
from callbacks.ready_made.checkpoint_directory import claim_path
from callbacks.ready_made.metric_values import NUM_LOST_ROWS, count_fault
from callbacks.ready_made.result_files import (
    CSVResults,
    JSONLinesResults,
    TensorBoardResults,
    is_file_or_pipe,
    jsonable,
    row_of,
)
from callbacks.spec import name_of
from callbacks.views import AlgorithmView
from trainer_toolkit.interrupts import ArrivalFlag, signals_deferred

# ---- background writer
#
# Writes things one after another, in order, on a thread that no caller waits for. Why a thread
# of its own: a disk that hangs, a full pipe or a tracker on the network must not stop the
# training. Why the thread ends whenever nothing is left to write: then nothing has to be stopped,
# nothing is left behind by a run that was never stopped, and an idle writer is plain data.
# Starting a thread costs about a tenth of a millisecond. It is a daemon, so that a write which
# never returns cannot keep the process from ending.

_LOGGER = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 0.1

EXIT_PATIENCE_S: Final = 5.0
"""How long the end of the process waits for what is not written yet, per writer."""


class BackgroundWriter:
    """Hands items to a function, on a thread, in the order in which they were given.

        writer = BackgroundWriter(results.append, name="results.csv", max_waiting=1000)
        writer.submit(row)              # returns at once
        writer.flush(timeout_s=5)       # True when everything is written

    Nothing that `write` raises gets out: the first error is logged, all are counted.

    Attributes:
        num_lost: How many items could not be written.
        is_behind: Whether a `flush` was in vain and there are still items that are not written.
        is_awaited: Whether the end of the process waits for what is not written yet.

    Args:
        write: Called with each item.
        name: What is written to, for messages.
        max_waiting: So many items wait at most; more are lost.
        is_awaited: The end of the process waits for what is not written yet; else its owner does.
        same: Says what an item is. If the next one is the same, it takes the place of the one
            before: both together are lost once, or not at all. None: no two are the same.
    """

    def __init__(
        self,
        write: Callable[[Any], object],
        *,
        name: str,
        max_waiting: int,
        is_awaited: bool = True,
        same: Callable[[Any], object] | None = None,
    ) -> None:
        self._write = write
        self._name = name
        self._max_waiting = max_waiting
        self._waiting: deque[Any] = deque()  # the item that is being written stays the first
        self._lock = threading.RLock()
        self._written = ArrivalFlag()
        self._thread: threading.Thread | None = None
        self.is_behind = False
        self.num_lost = 0
        self._has_logged = False
        self._same = same
        self._newest_lost: object = None
        self.is_awaited = is_awaited
        if is_awaited:
            atexit.register(_write_the_rest, weakref.ref(self))
        _WRITERS.add(self)

    def _begin_anew(self) -> None:
        """In a forked copy of the process: what waits is written by the original's thread."""
        self._waiting = deque()
        self._lock = threading.RLock()
        self._written = ArrivalFlag()
        self._thread = None
        self.is_behind = False

    @property
    def num_waiting(self) -> int:
        """How many items are not written yet."""
        return len(self._waiting)

    def submit(self, item: Any, *, has_limit: bool = True) -> None:
        """Takes an item; never waits, never raises.

        With `has_limit=False` even if `max_waiting` are waiting.
        """
        reason = self._take(item, has_limit=has_limit)
        if reason:
            self.lose(reason, item)

    def has_lost(self, item: Any) -> bool:
        """Whether the newest that was lost is the same."""
        is_known = self._same is not None and self._newest_lost is not None
        return is_known and self._newest_lost == self._what(item)

    def _what(self, item: Any) -> object:
        return None if self._same is None else self._same(item)

    def forget_newest(self) -> None:
        """What comes next is not the same as anything before."""
        with self._lock:
            self._newest_lost = None

    def _take(self, item: Any, *, has_limit: bool) -> object:
        """Takes an item, or gives the reason why not."""
        with signals_deferred(), self._lock:
            if has_limit and len(self._waiting) >= self._max_waiting:
                return f"{self._max_waiting} results are waiting already"
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name=f"writes {self._name}", daemon=True
                )
                try:
                    thread.start()  # it needs the lock, so it finds the item
                except RuntimeError as error:  # the interpreter is shutting down
                    return error
                self._thread = thread
            self._waiting.append(item)
        return None

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything is written; False if that takes longer."""
        until = time.monotonic() + timeout_s
        self._written.clear()
        while self._waiting and (left_s := until - time.monotonic()) > 0:
            self._written.wait(min(left_s, _LOOK_AGAIN_S))  # what is told, another flush may take
        with self._lock:
            self.is_behind = bool(self._waiting)
            return not self._waiting

    def lose(self, reason: object, item: Any) -> None:
        """Counts an item that cannot be written; the first one is logged with the reason."""
        with self._lock:
            if not self.has_lost(item):
                self.num_lost += 1
                self._newest_lost = self._what(item)
            is_first, self._has_logged = not self._has_logged, True
        if is_first:
            text = repr(reason) if isinstance(reason, BaseException) else reason
            _LOGGER.warning(
                "A result could not be written to %s (%s). Training goes on; the results that are "
                "missing there are counted, and no further warning is given.",
                self._name,
                text,
            )

    def take_back_loss(self) -> None:
        """An item that was counted as lost is written after all."""
        with self._lock:
            self.num_lost -= 1

    def _note_written(self, item: Any) -> None:
        with self._lock:
            if self.has_lost(item):
                self.num_lost -= 1
                self._newest_lost = None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    self.is_behind = False
                    return
                item = self._waiting[0]
            try:
                self._write(item)
            except BaseException as error:  # noqa: BLE001  nothing could catch it on this thread
                self.lose(error, item)
            else:
                self._note_written(item)
            del item
            with self._lock:
                self._waiting.popleft()
            if not self._waiting:
                self._written.put()


# Global because a fork copies all of them; weak, so that it keeps none alive.
_WRITERS: Final[weakref.WeakSet[BackgroundWriter]] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    for writer in list(_WRITERS):
        writer._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_after_fork)


def flush_all(timeout_s: float) -> None:
    """Waits for each writer that the end of the process waits for, so long at most."""
    for writer in list(_WRITERS):
        if writer.is_awaited:
            writer.flush(timeout_s)


def _write_the_rest(reference: weakref.ref[BackgroundWriter]) -> None:
    """What the end of the process does for each writer."""
    writer = reference()
    if writer is not None and not writer.flush(EXIT_PATIENCE_S):
        _LOGGER.warning(
            "%d results could not be written to %s before the process ended. A resumed run makes "
            "those after its checkpoint again.",
            writer.num_waiting,
            writer._name,
        )


# ---- siblings

CallbackT = TypeVar("CallbackT")


def objects_beside(algorithm: AlgorithmView, kind: type[CallbackT]) -> list[CallbackT]:
    """The callback objects of an algorithm that are of one kind, those in groups included.

    Stand-ins for algorithms in tests may have no chain of callbacks; they have none beside.
    """
    chain = getattr(algorithm, "callbacks", None)
    return list(_of_kind(getattr(chain, "objects", ()), kind))


def _of_kind(objects: Iterable[object], kind: type[CallbackT]) -> Iterator[CallbackT]:
    for instance in objects:
        if isinstance(instance, CallbackGroup):
            yield from _of_kind(instance.chain.objects, kind)
        elif isinstance(instance, kind):
            yield instance


# ---- result logging

ROW_PATIENCE_S: Final = 1.0
"""Seconds that all waiting for rows together may cost a run …"""

ROW_PATIENCE_SHARE: Final = 0.01
"""… and the share of the run's time that it may cost besides."""

CHECKPOINT_PATIENCE_S: Final = 5.0
"""Seconds a checkpoint waits for the rows before it, unless it is known that this is in vain."""


class ResultSink(Protocol):
    """Where rows go. It is copied and pickled before its first use, so open nothing before."""

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one row: a nested dict without the config, for the sink to keep.

        A row of an iteration that was written already takes its place, and later rows are void.
        """

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Called before the first row of a run that goes on with no checkpoint.

        What an earlier run has written there must not be lost.
        """


class ResultLogger(RLlibCallback):
    """Writes every result to a sink; the files of this package, or a tracker of your own.

        class Tracker:                                  # a sink of your own
            def append(self, row): some_library.log(row, step=row["training_iteration"])
            def start_anew(self, row): some_library.init()

        config.callbacks([ResultLogger(Tracker())])

    Whatever the sink does, training goes on: what it raises is logged once and counted, and if it
    hangs, up to `max_waiting` rows wait and later ones are lost. `train()` waits for the row to be
    written, but never longer than a second and one per cent of the time altogether.

    Args:
        sink: Where rows go; it is only ever called by one thread at a time.
        max_waiting: How many rows wait for a sink that is slow.
    """

    def __init__(self, sink: ResultSink, *, max_waiting: int = 1000) -> None:
        self.sink = sink
        self._max_waiting = max_waiting
        self._must_start_anew = True
        self._has_new_evaluation = True
        self._is_refused: bool | None = None  # None: not known before the first row
        self._num_lost_before = 0
        self._num_lost_logged = 0
        self._unwritten: Mapping[str, Any] | None = None
        self._written_early: Any = None
        self._writer: BackgroundWriter | None = None
        self._began_at = 0.0
        self._waited_s = 0.0

    @property
    def num_rows_lost(self) -> int:
        """How many results could not be written in this run, restored parts included."""
        return max(0, self._num_lost_before + self._num_lost_here)

    @property
    def _num_lost_here(self) -> int:
        return 0 if self._writer is None else self._writer.num_lost

    @property
    def _is_behind(self) -> bool:
        return self._writer is not None and self._writer.is_behind

    def flush(self, timeout_s: float = CHECKPOINT_PATIENCE_S) -> bool:
        """Waits until all rows are written, or lost; False if that takes longer."""
        return self._writer is None or self._writer.flush(timeout_s)

    # ---- events

    def on_algorithm_init(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Refuses to share a file: two loggers would take each other's rows for damage."""
        path = getattr(self.sink, "path", None)
        loggers = objects_beside(algorithm, ResultLogger)
        shared = [other for other in loggers if getattr(other.sink, "path", None) == path]
        if path is not None and len(shared) > 1:
            names = " and ".join(name_of(type(other)) for other in shared)
            raise CallbackConfigError(
                [f"{names} write to the same place, {path}. Give each a path of its own"]
            )

    def on_train_result(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Writes when the result is complete, after all who may still change it by then."""
        algorithm.after_train_result(partial(self._on_complete, algorithm))
        # By then checkpoints are saved: a row is to say whether that failed.
        algorithm.after_train_result(self._on_saved, phase="report")

    def _on_complete(self, algorithm: AlgorithmView, result: Mapping[str, Any]) -> None:
        self._num_lost_logged = self.num_rows_lost
        count_fault(result, NUM_LOST_ROWS, self._num_lost_logged)
        self._refuse_path_of_others(algorithm)
        self._has_new_evaluation = getattr(algorithm, "has_new_evaluation", True)
        self._unwritten = result

    def _on_saved(self, result: Mapping[str, Any]) -> None:
        self._write(result)
        # Since the result got its count, so that a row that was written early counts as well.
        count_fault(result, NUM_LOST_ROWS, self.num_rows_lost - self._num_lost_logged)

    def _refuse_path_of_others(self, algorithm: AlgorithmView) -> None:
        """Keeps a new run away from where another algorithm of this process still writes."""
        path = getattr(self.sink, "path", None)
        if self._is_refused is None and isinstance(path, Path):
            self._is_refused = not claim_path(path, algorithm, takes_over=not self._must_start_anew)

    def on_checkpoint_loaded(self, **_: Any) -> None:
        """From now on, rows replace those that are there.

        Nothing is dropped yet: who loads a checkpoint to look at it or to evaluate loses no rows.
        """
        self._unwritten = self._written_early = None
        self._must_start_anew = False
        self._is_refused = None

    def on_checkpoint_saved(self, **_: Any) -> None:
        """Waits for the rows that the checkpoint counts, as far as that is not in vain."""
        if not self._is_behind:
            self.flush(CHECKPOINT_PATIENCE_S)

    # ---- state

    def get_state(self) -> dict[str, Any]:
        """How many rows were lost; what is written, the file itself knows.

        A checkpoint that is saved by a callback before this one in the list gets here while the
        newest result is not written yet. It is written now, or a kill after that checkpoint would
        lose it for ever; when the result is complete, it is written again if it has changed.
        """
        if self._unwritten is not None:
            self._write(self._unwritten, is_early=True)
        return {"num_rows_lost": self.num_rows_lost}

    def set_state(self, state: dict[str, Any]) -> None:
        """The iteration under way is void: it was undone, or a checkpoint was loaded."""
        if self._writer is not None:
            self._writer.forget_newest()
        self._num_lost_before = state.get("num_rows_lost", 0) - self._num_lost_here
        self._unwritten = self._written_early = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy, such as that for an env runner, begins without a thread."""
        started = {"_writer": None, "_unwritten": None, "_written_early": None}
        return {**self.__dict__, **started, "_num_lost_before": self.num_rows_lost}

    # ---- writing

    def _write(self, result: Mapping[str, Any], *, is_early: bool = False) -> None:
        """Hands a result over, and waits for it as long as that is affordable.

        A row that was written early and has not changed since is not written again.
        """
        if self._writer is None:
            name = str(getattr(self.sink, "path", type(self.sink).__name__))
            self._writer = BackgroundWriter(
                self._write_item,
                name=name,
                max_waiting=self._max_waiting,
                same=_iteration,
            )
            self._began_at = time.monotonic()
        early, self._unwritten, self._written_early = self._written_early, None, None
        if self._is_refused:
            self._writer.lose(
                "another algorithm of this process writes there; stop() it before the next one "
                "begins, or give every run a path of its own",
                result,
            )
            return
        try:
            row = row_of(result)
            if not self._has_new_evaluation and getattr(self.sink, "holds_points", False):
                row.pop("evaluation", None)
            content = jsonable(row) if is_early or early is not None else None
        except Exception as error:  # noqa: BLE001  a value of the user may raise; it is reported
            self._writer.lose(error, result)
            return
        self._written_early = content if is_early else None
        if early is None or content != early or self._writer.has_lost(row):
            self._writer.submit(row)
            self._wait(self._writer)

    def _wait(self, writer: BackgroundWriter) -> None:
        began_at = time.monotonic()
        allowed_s = ROW_PATIENCE_S + ROW_PATIENCE_SHARE * (began_at - self._began_at)
        if allowed_s > self._waited_s and not writer.is_behind:
            writer.flush(allowed_s - self._waited_s)
            self._waited_s += time.monotonic() - began_at

    def _follow_rows(self, action: Callable[[], object]) -> None:
        """Does something on the rows' thread, behind those handed over; nothing before the first.

        An action is never refused, so hand over few while the thread is behind.
        """
        if self._writer is not None:
            self._writer.submit(action, has_limit=False)

    def _write_item(self, item: _Item) -> None:
        """Runs on the thread."""
        if callable(item):
            if not self._must_start_anew:
                item()
            return
        if self._must_start_anew:
            self.sink.start_anew(item)
            self._must_start_anew = False  # not before it worked: nothing may be written over
        self.sink.append(item)


_Item = Mapping[str, Any] | Callable[[], object]
"""A row, or what is done behind the rows before it."""


def _iteration(item: _Item) -> object:
    return None if callable(item) else item.get("training_iteration")


class JSONLinesLogger(ResultLogger):
    """Writes every result as a line of JSON; RLlib's `JsonLoggerCallback`.

    Args:
        path: The file, `results.jsonl` in the current folder by default. A run that goes on with a
            checkpoint goes on with the file; one that begins gives an older file another name.
    """

    def __init__(self, path: str | Path = "results.jsonl") -> None:
        _check_path("JSONLinesLogger", path, is_directory=False)
        super().__init__(JSONLinesResults(path))


class CSVLogger(ResultLogger):
    """Writes every result as a line of a table; RLlib's `CSVLoggerCallback`.

    A metric that appears late gets its column then, and the earlier rows stay.

    Args:
        path: The file, `results.csv` in the current folder by default; see `JSONLinesLogger`.
    """

    def __init__(self, path: str | Path = "results.csv") -> None:
        _check_path("CSVLogger", path, is_directory=False)
        super().__init__(CSVResults(path))


class TensorBoardLogger(ResultLogger):
    """Writes the numbers of every result for TensorBoard, over env steps.

    RLlib's `TBXLoggerCallback`. Needs `pip install 'local-trainer[tensorboard]'`.

    Args:
        directory: Where the event files go, `tensorboard` in the current folder by default.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self, directory: str | Path = "tensorboard") -> None:
        _check_path("TensorBoardLogger", directory, is_directory=True)
        super().__init__(TensorBoardResults(directory))


def _check_path(user: str, path: object, *, is_directory: bool) -> None:
    """Refuses what can never be written to, when the run is configured."""
    kind = "directory" if is_directory else "file"
    if not isinstance(path, str | Path) or str(path) in ("", "."):
        raise CallbackConfigError(
            [f"{user} got {path!r}; expected the path of a {kind}, as text or pathlib.Path"]
        )
    there = Path(path).expanduser()
    if there.exists() and not (there.is_dir() if is_directory else is_file_or_pipe(there)):
        raise CallbackConfigError(
            [f"{user} got {str(path)!r}, which is no {kind}; give the path of a {kind}"]
        )

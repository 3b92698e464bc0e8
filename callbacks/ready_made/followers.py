"""Followers: each brings one sink to where the rows of its run are, in the background.

    rows file  →  `Follower`  →  `Sink`: a table, curves, a tracker, or an object of the user

A follower reads the rows behind its bookmark and hands them on. Where it is lies beside the sink's
output, so it goes on there in another process, too. Whatever happens to the sink, the rows are
kept: it may hang, fail or not be there for a while, and gets what it lacks when it is back. A
sink's output may be ahead of the bookmark (a kill between the two), or of the rows (they were taken
back). So before the first row, and after a failure, the sink is asked to drop what it has from
there on; see `Sink.begin`.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - see "the end of the process"
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary

from callbacks.ready_made.rows_file import START, Bookmark, Line, RowsFile
from checkpoints.code import moved_path
from trainer_toolkit.files import replacing
from trainer_toolkit.interrupts import ArrivalFlag, signals_deferred
from trainer_toolkit.trees import at_path

_LOGGER = logging.getLogger(__name__)
_EVALUATED_AT: Final = "evaluation/evaluated_at_iteration"

EXIT_PATIENCE_S: Final = 5.0
"""How long a follower that is awaited may go without getting on."""

SERVICE_PATIENCE_S: Final = 300.0
"""The same while a service opens or closes its run."""

_LOOK_EVERY_S: Final = 0.25
_TOLD_AFTER_S: Final = 2.0


class Sink:
    """Where rows go. All methods are called by one thread at a time, and may raise.

    Args:
        path: what it writes. Its other paths follow from it, and so they move with it when a
            project is copied.

    Attributes:
        path: the same, absolute.
        rows_path: the file of the rows, where they are not elsewhere anyway.
        bookmark: the file that says how far it is; None: it is nothing but the rows.
        name: what it is, for messages.
        holds_points: an evaluation that a row only repeats is left out: it was never measured.
        num_lost: what it could not take, and will not be given again.
        must_end: the end of the process ends it, even if nothing else refers to it any more.
        is_at_ends: it opens or closes something, which may take minutes.
        num_steps: grows with all that it gets done besides rows.
        later: how it gets later what it lacks at the end.
    """

    rows_path: Path
    bookmark: Path | None
    holds_points = True
    num_lost = 0
    must_end = False
    is_at_ends = False
    num_steps = 0
    later = "a run that goes on brings it up to date"

    def __init__(self, path: str | Path) -> None:
        self._place(Path(path).expanduser().resolve())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._place(moved_path(state["path"]))

    def _place(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def begin(self, number: int) -> int:
        """Drops what it has from this row on; returns the newest that is left.

        If rows before are missing, they come first. Once before the first row, and whenever
        something went wrong or rows were taken back.
        """
        return number - 1

    def append(self, number: int, row: dict[str, Any]) -> None:
        """Takes the next row, to keep; it is given again if it raises anything."""
        raise NotImplementedError

    def rest(self) -> None:
        """Called when it has all rows that there are."""

    def end(self, *, failed: bool) -> None:
        """Called when there will be no more, which may turn out to be wrong."""

    def set_aside(self) -> None:
        """Makes room for a new run: what is there is another one's. On the thread of the run."""

    def get_state(self) -> dict[str, Any]:
        """What it needs to go on, as JSON; kept with the bookmark."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave; {} before the first time."""


class Follower:
    """Hands the rows of one file to one sink, from where it was.

    Attributes:
        sink: what gets the rows.
        is_behind: the last attempt failed, so rows may be missing.
        is_open: it was woken since its end.
        until: the number of the last row to hand over; None: of all.

    Args:
        rows: what is followed.
        sink: where rows go.
        thread: on which it catches up.
    """

    def __init__(self, rows: RowsFile, sink: Sink, thread: FollowerThread) -> None:
        assert sink.bookmark is not None  # noqa: S101 - else there is nothing to follow
        self.rows, self.sink, self.thread = rows, sink, thread
        self.is_behind = self.is_open = False
        self.until: int | None = None
        self._num_taken = 0
        self._file = sink.bookmark
        self._noted = ""
        self._bookmarks: list[Bookmark] = []
        self._has_looked, self._must_begin = False, True
        self._evaluated_at: Any = None
        self._ending: bool | None = None
        self._has_taken_over = self._is_leaving = self._is_over = False
        self._before: Follower | None = None
        self._read()

    # ---- on the thread of the run

    def wake(self) -> None:
        """Has it catch up; never waits, never raises."""
        self._take_over()  # here, so that the one that was woken last goes on
        self.thread.wake(self)

    def set_aside(self) -> None:
        """Begins anew: what the sink and the bookmark hold is of another run."""
        self._take_over()
        if self._before is not None:
            self._before._is_over = True
        self.sink.set_aside()
        self._bookmarks = []
        self._file.unlink(missing_ok=True)
        self.sink.set_state({})

    def end(self, *, failed: bool = False) -> None:
        """Has the sink ended behind the rows that are there; a further row opens it again."""
        self._ending = failed or bool(self._ending)

    @property
    def number(self) -> int:
        """Of the newest row that was handed over; 0 before the first."""
        return self._at.number

    @property
    def progress(self) -> int:
        """Grows with all that the sink gets done."""
        return self._num_taken + self.sink.num_steps

    # ---- following

    def catch_up(self) -> None:
        """Hands over the rows that the sink lacks; raises what the sink raises."""
        self._take_over()
        self._await_before()
        try:
            for line in self._lines():
                self._take(line)
            self._rest()
        except BaseException:
            self.is_behind = self._must_begin = True
            raise
        self.is_behind = False

    def _take_over(self) -> None:
        """Has the follower that this process had for the sink before hand over no further row."""
        if self._has_taken_over:
            return
        self._has_taken_over = True
        before, _FOLLOWERS[self._file] = _FOLLOWERS.get(self._file), self
        if before is not None:
            self._before, before._is_leaving = before, True

    def _await_before(self) -> None:
        """Has that follower end the sink; if it hangs for longer, nothing it does counts then."""
        before, self._before = self._before, None
        if before is not None:
            if before.is_open and before.thread is not self.thread:
                before.end()
                before.wake()
                before.thread.flush(EXIT_PATIENCE_S)
            before._is_over = True
            self._read()

    def _lines(self) -> Iterator[Line]:
        """The lines that the sink lacks."""
        self._go_back()
        while not self._is_leaving:
            for line in self.rows.lines(self._at):
                if self.until is not None and line.end.number > self.until:
                    return
                if self._is_leaving or not self._has_begun(line.end.number):
                    break
                yield line
            else:
                # Rows that were taken back go, even if no others have come yet.
                if not self._bookmarks or self._has_begun(self._at.number + 1):
                    return

    def _go_back(self) -> None:
        """Goes back to where the rows are as they were when they were followed.

        Whoever takes rows back changes the newest, so that is looked at each time.
        """
        *_, before, newest = (START, START, *self._bookmarks)
        if not self._has_looked or not self.rows.agreed([newest], since=before):
            self._bookmarks = self.rows.agreed(self._bookmarks)
            self._has_looked = self._must_begin = True

    def _has_begun(self, number: int) -> bool:
        """Whether the sink goes on with this row; else it lacks some before."""
        if not self._must_begin:
            return True
        newest = self.sink.begin(number)
        if newest < self._at.number:
            self._bookmarks = [each for each in self._bookmarks if each.number <= newest]
            return False
        self._must_begin = False
        before = self.rows.last_row(until=self._at.offset) if self.sink.holds_points else None
        self._evaluated_at = at_path(before or {}, _EVALUATED_AT)
        self._note()
        return True

    def _take(self, line: Line) -> None:
        row = line.row or {}
        evaluated_at = at_path(row, _EVALUATED_AT)
        if self.sink.holds_points and evaluated_at is not None:
            if evaluated_at == self._evaluated_at:
                row = {key: value for key, value in row.items() if key != "evaluation"}
            self._evaluated_at = evaluated_at
        self.sink.append(line.end.number, row)
        self._num_taken += 1
        self._bookmarks = [*_thinned(self._bookmarks, line.end.number), line.end]
        self._note()

    def _rest(self) -> None:
        self.sink.rest()
        failed, self._ending = self._ending, None
        if failed is not None:
            self.sink.end(failed=failed)
            self.is_open = False
        if self._noted:
            self._note()

    # ---- bookmark

    @property
    def _at(self) -> Bookmark:
        return self._bookmarks[-1] if self._bookmarks else START

    def _note(self) -> None:
        places = [[each.number, each.offset, each.crc32] for each in self._bookmarks]
        text = json.dumps({**self.sink.get_state(), "bookmarks": places}) + "\n"
        if text == self._noted or self._is_over:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_name(f".{self._file.name}.tmp")
        with replacing(self._file, draft, must_sync=False) as file:
            file.write(text.encode())
        self._noted = text

    def _read(self) -> None:
        known = read_bookmark(self._file)
        try:
            self._bookmarks = [Bookmark(*map(int, each)) for each in known.pop("bookmarks", ())]
            self.sink.set_state(known)
        except (TypeError, ValueError) as error:
            _log_unreadable(self._file, error)
            self._bookmarks = []
            self.sink.set_state({})


def read_bookmark(file: Path) -> dict[str, Any]:
    """What a follower has written down; {} if there is nothing, or it cannot be read."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        _log_unreadable(file, error)
        return {}
    return known if isinstance(known, dict) else {}


def _log_unreadable(file: Path, error: Exception) -> None:
    _LOGGER.warning(
        "%s, which says how far rows were followed, cannot be read (%s). All of them are followed "
        "again; a tracker gets a new run.",
        file,
        error,
    )


def _thinned(bookmarks: Sequence[Bookmark], number: int) -> list[Bookmark]:
    """Some of them, the denser the newer: rows are taken back to a place not far behind."""
    return [each for each in bookmarks if number - each.number <= 4 * (each.number & -each.number)]


# Weak, so that it keeps none alive; the newest of each file.
_FOLLOWERS: Final[WeakValueDictionary[Path, Follower]] = WeakValueDictionary()


# ---- thread


class FollowerThread:
    """Has followers catch up, one after the other, on a thread.

        thread = FollowerThread("results.csv")
        follower.wake()                 # returns at once
        thread.flush(timeout_s=5)       # True when it has caught up, or failed

    The thread ends whenever nothing is to be done: then nothing has to be stopped, nothing is left
    behind by a run that was never stopped, and who owns it is plain data. To start one costs about
    a tenth of a millisecond. It is a daemon, so that a sink that hangs cannot keep the process from
    ending.
    """

    def __init__(self, name: str) -> None:
        self._name, self._has_logged = name, False
        self._begin_anew()
        _THREADS.add(self)

    def _begin_anew(self) -> None:
        """Also in a forked copy of the process: what is to be done is done by the original."""
        self._awake: dict[Follower, object] = {}
        self._open: dict[Follower, None] = {}
        self._lock = threading.RLock()
        self._done = ArrivalFlag()
        self._thread: threading.Thread | None = None

    def wake(self, follower: Follower) -> None:
        """Has a follower catch up; never waits, never raises."""
        follower.is_open = True
        with signals_deferred(), self._lock:
            self._awake[follower] = object()  # another time, if it is at work
            self._open[follower] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"follows {self._name}", daemon=True
                )
                try:
                    self._thread.start()  # it needs the lock, so it finds the follower
                except RuntimeError:  # the interpreter is shutting down
                    self._thread, follower.is_behind = None, True
                    self._awake.clear()
        if follower.sink.must_end:
            _UNFINISHED.add(self)
        _finish_before_threads_end()

    def flush(self, timeout_s: float) -> bool:
        """Waits until followers that were woken have caught up or failed; False if it is longer."""
        until = time.monotonic() + timeout_s
        self._done.clear()
        while self._awake and (left_s := until - time.monotonic()) > 0:
            self._done.wait(min(left_s, _LOOK_EVERY_S))  # what is put, another flush may take
        return not self._awake

    def end(self) -> None:
        """Has all sinks ended behind the rows that are there."""
        for follower in list(self._open):
            follower.end()
            follower.wake()

    def abandon(self) -> None:
        """The end of the process does not wait for it."""
        self._open.clear()
        _UNFINISHED.discard(self)

    def await_end(self) -> bool:
        """Waits for what `end` has begun, as long as sinks get on.

        A service that is starting or ending may take five minutes: on a busy machine MLflow takes
        more than one to make its database. Anything else may take 5 s.

        Returns:
            whether nothing is left to do; else a warning says what to do.
        """
        sinks = [follower.sink for follower in list(self._open)]
        begun_at = changed_at = time.monotonic()
        before, has_logged = self._progress(), False
        while not self.flush(_LOOK_EVERY_S):
            now = time.monotonic()
            if (progress := self._progress()) != before:
                before, changed_at = progress, now
            is_at_ends = any(sink.is_at_ends for sink in sinks)
            patience_s = SERVICE_PATIENCE_S if is_at_ends else EXIT_PATIENCE_S
            if now - changed_at >= patience_s:
                self._warn(f"has not answered for {patience_s:.0f} s, and gets nothing more")
                return False
            if not has_logged and now - begun_at >= _TOLD_AFTER_S:
                has_logged = True
                _LOGGER.warning(
                    "%s is still busy; the end waits while it gets on. Ctrl-C ends the wait.",
                    self._name,
                )
        if any(follower.is_behind for follower in self._open):
            self._warn("did not get everything")
        return True

    def _progress(self) -> tuple[int, int]:
        open_ones = list(self._open)
        num_at_ends = sum(follower.sink.is_at_ends for follower in open_ones)
        return sum(follower.progress for follower in open_ones), num_at_ends

    def _warn(self, what: str) -> None:
        for follower in list(self._open)[:1]:
            _LOGGER.warning(
                "%s %s. Rows are kept in %s: %s.",
                self._name,
                what,
                follower.rows.path,
                follower.sink.later,
            )

    def _log_failure(self, follower: Follower, error: BaseException) -> None:
        if not self._has_logged:
            self._has_logged = True
            _LOGGER.warning(
                "%s could not be brought up to date (%r). Training goes on. Its rows are kept in "
                "%s, and it gets them when it works again; no further warning is given.",
                follower.sink.name,
                error,
                follower.rows.path,
            )

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._awake:
                    self._thread = None
                    return
                follower, ticket = next(iter(self._awake.items()))
            try:
                follower.catch_up()
            except BaseException as error:  # noqa: BLE001 - nothing could catch it on this thread
                self._log_failure(follower, error)
            with self._lock:
                if self._awake.get(follower) is ticket:
                    del self._awake[follower]
                if not follower.is_open:
                    self._open.pop(follower, None)
            if not self._open:
                _UNFINISHED.discard(self)
            if not self._awake:
                self._done.put()


# Global because a fork copies all of them, and a process ends once; weak, so that it keeps none
# alive whose sinks need no end.
_THREADS: Final[WeakSet[FollowerThread]] = WeakSet()
_UNFINISHED: Final[set[FollowerThread]] = set()


def _after_fork() -> None:
    for thread in list(_THREADS):
        thread._begin_anew()
    _UNFINISHED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---- the end of the process
#
# Services start threads, also to end a run, and none can be started once the interpreter ends its
# own. So they are ended before, where only a private hook comes to; and before the executors of
# `concurrent.futures`, which are ended there, too: the hook that was registered last comes first,
# so theirs is registered by the import above.


class _Exit:
    """What this process does at its end; global because a process ends once."""

    is_registered = False


def _finish_before_threads_end() -> None:
    if not _Exit.is_registered:
        _Exit.is_registered = True
        register = getattr(threading, "_register_atexit", atexit.register)
        with contextlib.suppress(RuntimeError):  # the interpreter is ending already
            register(_finish_at_exit)


def _finish_at_exit() -> None:
    finish_all([*_UNFINISHED, *(thread for thread in _THREADS if thread not in _UNFINISHED)])


def finish_all(threads: Sequence[FollowerThread]) -> bool:
    """Ends the sinks of threads and waits for all; Ctrl-C ends the wait. False if one gave up."""
    try:
        for thread in threads:
            thread.end()
        return all([thread.await_end() for thread in threads])  # noqa: C419 - each is awaited
    except KeyboardInterrupt:
        for thread in threads:
            thread.abandon()
        _LOGGER.warning(
            "Ctrl-C has ended the wait for trackers and files of results. Rows are kept, and can "
            "be sent to trackers later: local-trainer track --help."
        )
        return False

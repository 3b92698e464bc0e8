"""Writes things one after another, in order, on a thread that nobody has to wait for.

Why a thread of its own: a disk that hangs, a full pipe or a tracker on the network must not stop
the training. Why the thread ends whenever nothing is left to write: then nothing has to be stopped,
nothing is left behind by a run that was never stopped, and an idle writer is plain data. Starting a
thread costs about a tenth of a millisecond. It is a daemon, so that a write which never returns
cannot keep the process from ending.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_LOGGER = logging.getLogger(__name__)

EXIT_PATIENCE_S: Final = 5.0
"""How long the end of the process waits for what is not written yet, per writer."""


class BackgroundWriter:
    """Hands items to a function, on a thread, in the order in which they were given.

        writer = BackgroundWriter(results.append, name="results.csv", max_waiting=1000)
        writer.submit(row)              # returns at once
        writer.flush(timeout_s=5)       # True when everything is written

    Nothing that `write` raises gets out: the first error is logged, all are counted.

    Args:
        write: Called with each item.
        name: What is written to, for messages.
        max_waiting: So many items wait at most; more are lost.
        same: Says what an item is. If the next one is the same, it takes the place of the one
            before: both together are lost once, or not at all. None: no two are the same.
    """

    def __init__(
        self,
        write: Callable[[Any], object],
        *,
        name: str,
        max_waiting: int,
        same: Callable[[Any], object] | None = None,
    ) -> None:
        self._write = write
        self._name = name
        self._max_waiting = max_waiting
        self._waiting: deque[Any] = deque()  # the item that is being written stays the first
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_behind = False
        self._num_lost = 0
        self._has_told = False
        self._same = same
        self._newest_lost: object = None
        atexit.register(_write_the_rest, weakref.ref(self))
        _WRITERS.add(self)

    def _begin_anew(self) -> None:
        """In a forked copy of the process: what waits is written by the original's thread."""
        self._waiting = deque()
        self._changed = threading.Condition()
        self._thread = None
        self._is_behind = False

    @property
    def num_lost(self) -> int:
        """How many items could not be written."""
        return self._num_lost

    @property
    def num_waiting(self) -> int:
        """How many items are not written yet."""
        return len(self._waiting)

    @property
    def is_behind(self) -> bool:
        """Whether a `flush` was in vain and there are still items that are not written."""
        return self._is_behind

    def submit(self, item: Any) -> None:
        """Takes an item; never waits, never raises."""
        reason = self._take(item)
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
        with self._changed:
            self._newest_lost = None

    def _take(self, item: Any) -> object:
        """Takes an item, or gives the reason why not."""
        with self._changed:
            if len(self._waiting) >= self._max_waiting:
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
        """Waits until everything is written; False if that takes longer.

        Args:
            timeout_s: In seconds, at least 0.
        """
        with self._changed:
            is_done = self._changed.wait_for(lambda: not self._waiting, timeout_s)
            self._is_behind = not is_done
        return is_done

    def lose(self, reason: object, item: Any) -> None:
        """Counts an item that cannot be written; the first one is logged with the reason.

        Args:
            reason: An exception, or a text.
            item: What is lost.
        """
        with self._changed:
            if not self.has_lost(item):
                self._num_lost += 1
                self._newest_lost = self._what(item)
            is_first, self._has_told = not self._has_told, True
        if is_first:
            text = repr(reason) if isinstance(reason, BaseException) else reason
            _LOGGER.warning(
                "A result could not be written to %s (%s). Training goes on; the results that are "
                "missing there are counted, and no further warning is given.",
                self._name,
                text,
            )

    def _note_written(self, item: Any) -> None:
        with self._changed:
            if self.has_lost(item):
                self._num_lost -= 1
                self._newest_lost = None

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._is_behind = False
                    self._changed.notify_all()
                    return
                item = self._waiting[0]
            try:
                self._write(item)
            except BaseException as error:  # noqa: BLE001  nobody could catch it on this thread
                self.lose(error, item)
            else:
                self._note_written(item)
            del item
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()


# Global because a fork copies all of them; weak, so that it keeps none alive.
_WRITERS: Final[weakref.WeakSet[BackgroundWriter]] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    for writer in list(_WRITERS):
        writer._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_after_fork)


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

"""Two computations at once, one of them in a thread of its own.

NumPy lets go of Python's lock while it computes, so two large matrix products really run at the
same time. Each computation is done by one thread from beginning to end, so that the bits of its
result do not depend on whether there was a second thread.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import NamedTuple

import numpy as np

from trainer.runtime.deferred_signals import signals_deferred

_LOGGER = logging.getLogger(__name__)

Task = Callable[[], object]


class _Helper(NamedTuple):
    thread: threading.Thread
    tasks: SimpleQueue[Task | None]
    outcomes: SimpleQueue[BaseException | None]


class SideBySide:
    """Runs pairs of computations, at once inside of its `with` block, else one after the other.

        side_by_side = SideBySide()
        with side_by_side:                      the thread lives in here, from the first pair on
            side_by_side.run(first, second)

    A pair costs about 30 µs more than its longer half (measured), starting the thread 80 µs. With
    one core there is no thread.
    """

    def __init__(self) -> None:
        self._is_open = False
        self._helper: _Helper | None = None

    def __enter__(self) -> SideBySide:
        self._is_open = _num_cores() > 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with signals_deferred():  # what was interrupted ends first: nobody computes behind our back
            self._is_open = False
            helper, self._helper = self._helper, None
            if helper is not None:
                helper.tasks.put(None)
                helper.thread.join()

    def run(self, first: Task, second: Task) -> None:
        """Returns when both are done; what the first raises goes before what the second raises.

        Args:
            first: is run in this thread.
            second: must not touch what the first one changes, nor the other way round.
        """
        if not self._is_open:
            first()
            second()
            return
        if self._helper is None:
            with signals_deferred():
                self._helper = _started()
        if self._helper is None:
            self._is_open = False
            self.run(first, second)
            return
        self._helper.tasks.put(second)
        try:
            first()
        finally:
            error = self._helper.outcomes.get()
        if error is not None:
            raise error


def _started() -> _Helper | None:
    tasks: SimpleQueue[Task | None] = SimpleQueue()
    outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
    # A daemon: an interrupted main thread must be able to end the process.
    thread = threading.Thread(
        target=_work, args=(tasks, outcomes), name="side by side", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as error:  # so many threads are not allowed; the result is the same
        _LOGGER.info("No second thread computes: %s", error)
        return None
    return _Helper(thread, tasks, outcomes)


def _work(tasks: SimpleQueue[Task | None], outcomes: SimpleQueue[BaseException | None]) -> None:
    # NumPy's error handling belongs to a thread; learners look for what is not finite themselves.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        while (task := tasks.get()) is not None:
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - `run` raises it for who asked
                outcomes.put(error)
            else:
                outcomes.put(None)


def _num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""What an interrupt leaves whole: blocks that it waits for, and waits that it may end anywhere.

A Python signal handler may raise anywhere in the main thread. So this thread enters no
`threading.Condition` outside `signals_deferred`, nor what is made of one (`Event`, `Semaphore`,
`queue.Queue`, `Future`, `Thread.start`): an interrupt between the taking of its lock and the `with`
block that would release it leaves it locked, and another thread waits for it for ever. A `Lock`'s
own `with` is one step, and so are `queue.SimpleQueue.put` and its `get` without a limit.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

# ---- signals
#
# Ctrl-C at a moment of our choosing: signals wait while a thread is started, and while a worker is
# started, asked or ended. Inside multiprocessing and concurrent.futures an interrupt would leave
# processes half way that could not be ended any more.

_Handler = Callable[[int, "FrameType | None"], object]

_NUMBERS: Final = tuple(
    int(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
)
_PATIENCE_S: Final = 1.0

# What `signal` is made from: without its conversion of numbers to enums, five times as fast.
_SIGNAL: Final[Any] = sys.modules.get("_signal", signal)
_get_handler: Final[Callable[[int], Any]] = _SIGNAL.getsignal
_set_handler: Final[Callable[[int, _Handler], object]] = _SIGNAL.signal


class signals_deferred:  # noqa: N801 - reads as a verb: `with signals_deferred():`
    """Lets handlers of SIGINT, SIGTERM, SIGHUP, SIGALRM run when the block is left, not inside it.

        with signals_deferred():
            …                    # short, and never waits for a worker without limit

    Only handlers that are Python functions can raise, so only they are put off; each is called as
    often as its signal came. A signal that comes again after a second is delivered at once: a block
    that hangs can be ended. Blocks may be nested; the outermost counts. In other threads than the
    main one, where handlers never run, the block does nothing. It costs about 4 µs.
    """

    __slots__ = ("_handlers", "_is_active", "_noted", "_noted_at")

    def __init__(self) -> None:
        self._handlers: dict[int, _Handler] = {}
        self._noted: list[tuple[int, FrameType | None]] = []
        self._noted_at: dict[int, float] = {}
        self._is_active = False

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        for number in _NUMBERS:
            handler = _get_handler(number)
            # One that was itself interrupted while it was left passes signals on; it may go.
            while isinstance(handler, signals_deferred) and not handler._is_active:
                handler = handler._handlers[number]
            if callable(handler) and not isinstance(handler, signals_deferred):
                self._handlers[number] = handler
                _set_handler(number, self)
        # Not before all are in place: until then an interrupt leaves nothing behind that swallows.
        self._is_active = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Takes a signal: the handler that Python calls inside the block."""
        now = time.monotonic()
        if self._is_active and now - self._noted_at.setdefault(number, now) < _PATIENCE_S:
            self._noted.append((number, frame))
        else:
            self._handlers[number](number, frame)

    def __exit__(self, *_: object) -> None:
        self._is_active = False
        try:
            for number, handler in self._handlers.items():
                if _get_handler(number) is self:  # else another one was set inside the block
                    _set_handler(number, handler)
        finally:
            self._deliver()

    def _deliver(self) -> None:
        if not self._noted:
            return
        number, frame = self._noted.pop(0)
        try:
            self._handlers[number](number, frame)
        finally:
            self._deliver()


# ---- waits

_SLICE_S: Final = 0.25
"""Waits are made of such pieces: Python calls the handler of a signal that comes right before the
system begins to wait only when that is over, so Ctrl-C could have to wait for a worker."""


class ArrivalFlag:
    """How one thread tells another that something has come.

    A lock that is free once something was put, since signals do a wait for it no harm.
    `concurrent.futures.wait` holds locks that an interrupt would leave locked. And
    `queue.SimpleQueue.get(timeout=…)` waits for ever if a signal's handler is at work when the time
    is up (CPython up to 3.12: what is left of the time is negative then).
    """

    def __init__(self) -> None:
        self._empty = threading.Lock()
        self._empty.acquire()

    def put(self) -> None:
        """Tells it; from any thread."""
        with contextlib.suppress(RuntimeError):  # it was told already
            self._empty.release()

    def clear(self) -> None:
        """Forgets what was put so far."""
        self._empty.acquire(blocking=False)

    def wait(self, timeout_s: float) -> None:
        """Waits until something is put, or so many seconds; one wait takes what was put."""
        until = time.monotonic() + timeout_s
        left_s = timeout_s
        while not self._empty.acquire(timeout=min(max(0.0, left_s), _SLICE_S)):
            left_s = until - time.monotonic()
            if left_s <= 0.0:
                return

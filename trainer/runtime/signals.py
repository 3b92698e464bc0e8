"""Signals of the operating system: put off to a good moment, and what they ask of a run."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

# ---- signals
#
# Ctrl-C at a moment of our choosing: signals wait while a worker is started, asked or ended. A
# Python signal handler may raise anywhere in the main thread, also in the middle of
# multiprocessing and concurrent.futures, whose locks and processes would then be left half way.
# Such a process could not be ended any more, and such a lock would never be released.

_Handler = Callable[[int, "FrameType | None"], object]

_NUMBERS: Final = tuple(
    int(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
)
_PATIENCE_S: Final = 1.0

FOR_MAIN_PROCESS: Final = frozenset({signal.SIGINT, signal.SIGHUP})
"""What a terminal sends to all its processes, and workers leave to the main process."""

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


# ---- graceful shutdown
#
# What Ctrl-C, SIGTERM and SIGHUP mean to a run: the first asks it to end, a second does at once.
# SIGHUP is what a closed terminal or a lost connection sends, often twice: by the kernel and by
# the shell. So it asks, but never ends at once.


class CutShort(KeyboardInterrupt):
    """Something took too long after the end was asked for."""


class OrderlyEnd:
    """Takes Ctrl-C, SIGTERM and SIGHUP inside its block.

        with OrderlyEnd(on_asked=say_so) as end:
            with end.limited(1.5):        # raises CutShort 1.5 s after the first signal
                algo.train()
            if end.was_asked: …

    The first signal is noted, a second one raises KeyboardInterrupt. A signal that the program was
    started to ignore, as shells do for programs in the background and `nohup` for all, stays
    ignored. In other threads than the main one the block does nothing.

    Attributes:
        was_asked: a signal has come.
    """

    def __init__(self, on_asked: Callable[[], None]) -> None:
        """`on_asked` is called once, by the handler of the first signal."""
        self.was_asked = False
        self._on_asked = on_asked
        self._limit: tuple[float, float] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> OrderlyEnd:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._take)
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            is_late = self.was_asked and number == signal.SIGHUP
            signal.signal(number, signal.SIG_IGN if is_late else handler)
        self._before.clear()

    @contextlib.contextmanager
    def limited(self, seconds: float, *, again_s: float = 0.0) -> Iterator[None]:
        """Raises CutShort if the block lasts that long after the end was asked for.

        Args:
            seconds: counted from the signal, or from the block's beginning if that was later.
            again_s: raises it again and again, at this interval; 0 raises once.
        """
        self._limit = seconds, again_s
        if self.was_asked:
            self._set_alarm()
        try:
            yield
        finally:
            self._limit = None
            if self._before:
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _set_alarm(self) -> None:
        if self._limit is not None and self._before:
            signal.setitimer(signal.ITIMER_REAL, *self._limit)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.was_asked:
            if number != signal.SIGHUP:
                signal.default_int_handler(number, frame)
            return
        self.was_asked = True
        self._set_alarm()
        self._on_asked()

    def _ring(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's
        if self._limit is not None:
            raise CutShort

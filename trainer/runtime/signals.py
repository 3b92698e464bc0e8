"""What signals of the operating system ask of a run, and which ones workers leave to it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

FOR_MAIN_PROCESS: Final = frozenset({signal.SIGINT, signal.SIGHUP})
"""What a terminal sends to all its processes, and workers leave to the main process."""


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

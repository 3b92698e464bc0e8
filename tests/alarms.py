"""Functions that are called in the main thread at some moment of a block, by a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarm(action: Callable[[], None], *, after_s: float, every_s: float = 0.0) -> Iterator[None]:
    """Calls a function in the main thread, in the middle of whatever the block is doing.

    Once after some time, and then, if that is not 0, again and again.
    """
    is_armed = True

    def act(number: int, frame: FrameType | None) -> None:
        if is_armed:
            action()

    before = signal.signal(signal.SIGALRM, act)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s, every_s)
        yield
    finally:
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

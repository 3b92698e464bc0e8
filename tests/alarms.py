"""Functions that are called in the main thread at some moment of a block, by a signal."""

import signal
from contextlib import contextmanager


@contextmanager
def alarm(action, *, after_s, every_s=0.0):
    """Calls a function in the main thread, in the middle of whatever the block is doing.

    Once after some time, and then, if that is not 0, again and again.
    """
    is_armed = True

    def act(number, frame):
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

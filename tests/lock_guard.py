"""Sees where our code enters a condition of `threading` that an interrupt could leave locked.

An interrupt at just that moment is too rare to wait for: a hang that one of ten thousand Ctrl-C
causes. So every test looks at every such moment instead; see `trainer_toolkit.interrupts`.
"""

import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from trainer_toolkit.interrupts import signals_deferred

_ROOT = Path(__file__).resolve().parents[1]
_OURS = tuple(
    str(_ROOT / name) for name in ("trainer_toolkit", "checkpoints", "callbacks", "trainer")
)
_FOR_TESTS = str(_ROOT / "trainer" / "testing")
_LIBRARY = str(Path(threading.__file__).parent)

unguarded = []
"""The lines of our code that did so, since the last look."""


@contextmanager
def guarded_conditions():
    """Notes in `unguarded` what the main thread does inside the block."""
    condition = threading.Condition
    enter = condition.__enter__

    def note_and_enter(self):
        if threading.get_ident() == threading.main_thread().ident:
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler) and not isinstance(handler, signals_deferred):
                _note(sys._getframe(1))
        return enter(self)

    condition.__enter__ = note_and_enter
    try:
        yield
    finally:
        condition.__enter__ = enter


def _note(frame):
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        if "site-packages" in frame.f_code.co_filename:
            return
        frame = frame.f_back
    if frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) and not file.startswith(_FOR_TESTS):
            unguarded.append(f"{file}:{frame.f_lineno} in {frame.f_code.co_name}()")

"""Sees where our code enters a condition of `threading` that an interrupt could leave locked.

An interrupt at just that moment is too rare to wait for: a hang that one of ten thousand Ctrl-C
causes. So every test looks at every such moment instead; see `trainer_toolkit.interrupts`.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from trainer_toolkit.interrupts import signals_deferred

_ROOT: Final = Path(__file__).resolve().parents[1]
_OURS: Final = tuple(
    str(_ROOT / name) for name in ("trainer_toolkit", "checkpoints", "callbacks", "trainer")
)
_FOR_TESTS: Final = str(_ROOT / "trainer" / "testing")
_LIBRARY: Final = str(Path(threading.__file__).parent)

unguarded: Final[list[str]] = []
"""The lines of our code that did so, since the last look."""


@contextmanager
def guarded_conditions() -> Iterator[None]:
    """Notes in `unguarded` what the main thread does inside the block."""
    condition: Any = threading.Condition
    enter: Callable[[threading.Condition], bool] = condition.__enter__

    def note_and_enter(self: threading.Condition) -> bool:
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


def _note(frame: FrameType | None) -> None:
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        if "site-packages" in frame.f_code.co_filename:
            return
        frame = frame.f_back
    if frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) and not file.startswith(_FOR_TESTS):
            unguarded.append(f"{file}:{frame.f_lineno} in {frame.f_code.co_name}()")

"""Ctrl-C while Python still imports this library for the command line: one line, not a traceback.

Only the command line's: in a program of the user's, Ctrl-C raises KeyboardInterrupt as always.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

_STOPPED = 130
_MODULE = "trainer.cli"
_SCRIPT = "local-trainer"


def end_quietly_while_importing() -> None:
    """Until `importing_is_over`, Ctrl-C ends the process, if it is one of the command line."""
    is_module = sys.argv[:1] == ["-m"] and _MODULE in sys.orig_argv
    is_script = bool(sys.argv) and Path(sys.argv[0]).stem == _SCRIPT
    if not (is_module or is_script):
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def importing_is_over() -> None:
    """Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_: int, __: object) -> None:
    os.write(2, b"Stopped.\n")
    os._exit(_STOPPED)

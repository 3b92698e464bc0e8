"""Waiting for what other processes do, in tests.

By looking again until a deadline, never by sleeping and hoping.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PATIENCE_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.005
_PROCESSES: Final = Path("/proc")


def wait_until(condition: Callable[[], bool], *, within_s: float = _PATIENCE_S) -> bool:
    """Looks again and again until the condition holds.

    Args:
        condition: called about 200 times per second.
        within_s: seconds until it gives up.

    Returns:
        whether the condition held in time.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def is_process_alive(pid: int) -> bool:
    """Whether a process exists and has not ended.

    One that has ended but was not collected by its parent counts as ended.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state = _state_of(pid)
    return bool(state) and not state.startswith("Z")


def _state_of(pid: int) -> str:
    """The letter of a process' state; empty if there is none."""
    if (_PROCESSES / "self").exists():  # Linux; a hundredth of the time of `ps`
        try:
            status = (_PROCESSES / f"{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
        # "number (name) state …", and the name may hold anything.
        return status.rpartition(")")[2].strip()[:1]
    shown = subprocess.run(  # noqa: S603 - a fixed program and a number
        ["ps", "-o", "stat=", "-p", str(pid)],  # noqa: S607 - its folder differs between systems
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.stdout.strip()[:1]

"""How often the kernel ended a process for lack of memory: evidence for what a SIGKILL means."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_COUNTERS: Final = Path("/proc/vmstat")


def num_oom_kills(counters: Path = _COUNTERS) -> int | None:
    """Processes of this machine that were ended so since it was started.

    The kernel counts before it sends the signal, so whoever sees a process dead sees the count.
    Processes that exceed the limit of a container count as well.

    Args:
        counters: Linux' file of them.

    Returns:
        None where there is no such count.
    """
    try:
        lines = counters.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    found = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(found[0]) if found and found[0].isdigit() else None

"""Wall-clock time of a run: the part of a result that no two runs share."""

from __future__ import annotations

import datetime as dt
import os
import socket
import time
from typing import Any


class RunClock:
    """Adds up the time of iterations.

    Attributes:
        total_s: seconds spent in iterations of the whole run, restored parts included.
        since_restore_s: the same since this object was built or restored.
        iterations_since_restore: iterations since then.
    """

    def __init__(self) -> None:
        self.total_s = 0.0
        self.since_restore_s = 0.0
        self.iterations_since_restore = 0

    def add(self, elapsed_s: float) -> None:
        """Counts one iteration."""
        self.total_s += elapsed_s
        self.since_restore_s += elapsed_s
        self.iterations_since_restore += 1

    def restore(self, total_s: float) -> None:
        """Goes on from the time that a checkpoint tells."""
        self.total_s = total_s
        self.since_restore_s = 0.0
        self.iterations_since_restore = 0

    def entries(self, elapsed_s: float) -> dict[str, Any]:
        """What a result says about time and place.

        Args:
            elapsed_s: seconds of this iteration.
        """
        now = dt.datetime.now(dt.timezone.utc).astimezone()
        return {
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(time.time()),
            "time_this_iter_s": elapsed_s,
            "time_total_s": self.total_s,
            "time_since_restore": self.since_restore_s,
            "iterations_since_restore": self.iterations_since_restore,
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
        }

"""How much a process may have under way with one actor, so that nobody's memory fills with calls.

    room.enter(label, num_bytes)     waits while it is full, until half of it is free again
    room.leave(num_bytes)            an answer is there
    room.open()                      the actor is gone: nobody needs to wait any more

Calls that actors make do not wait for room: two actors that call each other could wait for each
other for ever. No actor waits for a process that is none, so the others' waiting closes no circle.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

_LOGGER: Final = logging.getLogger(__name__)

MOST_CALLS: Final = 10_000
MOST_BYTES: Final = 64 * 2**20
PATIENCE_S: Final = 10.0


class Room:
    """How much one process may have under way with one actor."""

    def __init__(
        self,
        subject: str,
        *,
        is_bounded: bool = True,
        most_calls: int = MOST_CALLS,
        most_bytes: int = MOST_BYTES,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Nothing is under way.

        Args:
            subject: which actor it is, for messages.
            is_bounded: whether calls wait at all.
            most_calls: so many calls are full.
            most_bytes: so many bytes are full; a call that is larger goes alone.
            patience_s: seconds of waiting after which a warning says so, once.
        """
        self._subject = subject
        self._is_open = not is_bounded
        self._most_calls = most_calls
        self._most_bytes = most_bytes
        self.patience_s: Final = patience_s
        self._was_told = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._num_waiting = 0
        self.num_calls = 0
        self.num_bytes = 0

    def enter(self, num_bytes: int) -> None:
        """Counts a call as under way, as soon as there is room for it."""
        with self._lock:  # a condition's own `with` takes twice the time
            if self._is_full(num_bytes):
                self._wait()
            self.num_calls += 1
            self.num_bytes += num_bytes

    def leave(self, num_bytes: int) -> None:
        """Counts a call as done."""
        with self._lock:
            self.num_calls -= 1
            self.num_bytes -= num_bytes
            if self._num_waiting and self._has_emptied():
                self._changed.notify_all()

    def grow(self, num_bytes: int) -> None:
        """Counts bytes of a call that were not known when it entered."""
        with self._lock:
            self.num_bytes += num_bytes

    def open(self) -> None:
        """Lets everybody in, from now on."""
        with self._lock:
            self._is_open = True
            self._changed.notify_all()

    def tell(self, reason: str) -> None:
        """Warns that somebody waits, once."""
        if self._was_told:
            return
        self._was_told = True
        _LOGGER.warning(
            "A call to the %s has waited for %g s to be sent, because %s: %d calls with %.3g MB. "
            "It goes on when the actor has answered some. If the actor is stuck, "
            "`actors.kill(handle)` ends the wait; if it is only slow, call it less often.",
            self._subject,
            self.patience_s,
            reason,
            self.num_calls,
            self.num_bytes / 1e6,
        )

    def _wait(self) -> None:
        self._num_waiting += 1
        try:
            while not self._changed.wait_for(self._has_emptied, self.patience_s):
                self.tell("much is under way")
        finally:
            self._num_waiting -= 1

    def _is_full(self, num_bytes: int) -> bool:
        has_room = (
            self.num_calls < self._most_calls and self.num_bytes + num_bytes <= self._most_bytes
        )
        return not (self._is_open or has_room or self.num_calls == 0)

    def _has_emptied(self) -> bool:
        # Half, and not one: so that a caller and an actor do not wake each other for every call.
        return self._is_open or (
            self.num_calls <= self._most_calls // 2 and self.num_bytes <= self._most_bytes // 2
        )

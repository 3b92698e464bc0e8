"""A `with` block that reports how long it took."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class BlockTimer:
    """Calls `report` with the seconds of every block, also when it ends with an exception.

    One object may be entered by several threads at once, and again within itself.
    """

    def __init__(self, report: Callable[[float], None], *, clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._starts = threading.local()

    def __enter__(self) -> BlockTimer:
        self._starts.stack = [*getattr(self._starts, "stack", []), self._clock()]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._report(self._clock() - self._starts.stack.pop())

"""Calls per second to one actor: one caller that waits, one that does not, four that wait.

python -m benchmarks.actors
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

from trainer import actors

CALLS = 10_000
REPEATS = 5


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def inc(self, n: int) -> int:
        self.count += n
        return self.count


class _Caller:
    def call(self, counter: Any, times: int) -> None:
        for _ in range(times):
            actors.get(counter.inc.remote(1))


def rates(work: Callable[[], object]) -> str:
    """Median and range of calls per second."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        found.append(CALLS / (time.perf_counter() - start))
    found.sort()
    return f"{found[REPEATS // 2]:8,.0f}  ({found[0]:,.0f} to {found[-1]:,.0f})"


def main() -> None:
    counter = actors.remote(_Counter).remote()
    callers = [actors.remote(_Caller).remote() for _ in range(4)]
    actors.get([caller.call.remote(counter, 1) for caller in callers])
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")

    def waiting() -> None:
        for _ in range(CALLS):
            actors.get(counter.inc.remote(1))

    print("one caller that waits     ", rates(waiting))
    print(
        "one that does not wait    ",
        rates(lambda: actors.get([counter.inc.remote(1) for _ in range(CALLS)])),
    )
    print(
        "four processes that wait  ",
        rates(lambda: actors.get([caller.call.remote(counter, CALLS // 4) for caller in callers])),
    )
    actors.shutdown()


if __name__ == "__main__":
    main()

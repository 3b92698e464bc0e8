"""Calls per second to one actor: a caller that waits, one that does not, four processes that do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Figure, report
from trainer import actors
from trainer.runtime.process_start import choose_start_method

NUM_CALLS = 10_000
NUM_REPEATS = 5


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


def main() -> None:
    """Prints the rates; raises if a call was lost."""
    print(f"actors: {NUM_CALLS:,} calls of inc(1), processes started by {choose_start_method()}")
    counter = actors.remote(_Counter).remote()
    callers = [actors.remote(_Caller).remote() for _ in range(4)]
    actors.get([caller.call.remote(counter, 1) for caller in callers])

    def waiting() -> None:
        for _ in range(NUM_CALLS):
            actors.get(counter.inc.remote(1))

    def together() -> None:
        actors.get([caller.call.remote(counter, NUM_CALLS // 4) for caller in callers])

    report("one caller that waits for each answer", _rate(waiting), target="≥ 5,000")
    report(
        "one caller that does not wait",
        _rate(lambda: actors.get([counter.inc.remote(1) for _ in range(NUM_CALLS)])),
    )
    report("four processes that wait, together", _rate(together), target="≥ 5,000")
    count = actors.get(counter.inc.remote(0))
    actors.shutdown()
    if count != 3 * NUM_REPEATS * NUM_CALLS + 4:
        raise RuntimeError(f"calls were lost: the counter is at {count}")


def _rate(work: Callable[[], object]) -> Figure:
    rates = []
    for _ in range(NUM_REPEATS):
        start = time.perf_counter()
        work()
        rates.append(NUM_CALLS / (time.perf_counter() - start))
    return Figure(rates, "calls/s")

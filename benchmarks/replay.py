"""How long adding to a replay buffer and sampling from it take."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.figures import Figure, report
from trainer.episodes import SingleAgentEpisode
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer

NUM_STEPS = 10**6
BATCH = 256
GROUP = 100
"""Calls per measurement: one alone would be shorter than what disturbs it."""


def main() -> None:
    """Prints the times for 10⁶ transitions of 8 floats."""
    print(f"replay: {NUM_STEPS:,} transitions of 8 floats; batches of {BATCH}")
    _measure("uniform", ReplayBuffer(NUM_STEPS), target="≤ 50")
    _measure("prioritized", PrioritizedReplayBuffer(NUM_STEPS), target="≤ 300")


def _measure(name: str, buffer: ReplayBuffer, *, target: str) -> None:
    for number in range(NUM_STEPS // 1000):
        buffer.add(_chunk(number, 1000, is_done=True))
    rng = np.random.default_rng(0)
    _report(f"{name}: sample", lambda: buffer.sample(BATCH, rng=rng), target=target)
    _report(f"{name}: sample, n_step=3", lambda: buffer.sample(BATCH, rng=rng, n_step=3))
    if isinstance(buffer, PrioritizedReplayBuffer):
        prioritized, td_errors = buffer, rng.normal(size=BATCH)
        rows = buffer.sample(BATCH, rng=rng).rows
        _report(f"{name}: priorities", lambda: prioritized.update_priorities(rows, td_errors))
    chunks = [_chunk(NUM_STEPS + number, 4, is_done=False) for number in range(8)]
    _report(f"{name}: add 8 chunks of 4 steps", lambda: buffer.add(chunks))


def _chunk(number: int, num_steps: int, *, is_done: bool) -> SingleAgentEpisode:
    observations = np.random.default_rng(number).random((num_steps + 1, 8), np.float32)
    return SingleAgentEpisode(
        str(number),
        observations=observations,
        actions=np.zeros(num_steps, np.int64),
        rewards=np.ones(num_steps),
        truncated=is_done,
        len_lookback_buffer=0,
    )


def _report(name: str, call: Callable[[], object], *, target: str = "") -> None:
    times = []
    for _ in range(31):
        started_at = time.perf_counter()
        for _ in range(GROUP):
            call()
        times.append((time.perf_counter() - started_at) / GROUP * 1e6)
    report(name, Figure(times[1:], "µs"), target=target)

"""How long adding to a replay buffer and sampling take; how much memory stacked pictures take."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.figures import Figure, report
from benchmarks.large_checkpoints import AnonymousMemory, Owner
from trainer.episodes import SingleAgentEpisode
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer

NUM_STEPS = 10**6
BATCH = 256
NUM_PICTURES = 10**5
GROUP = 100
"""Calls per measurement: one alone would be shorter than what disturbs it."""


def main() -> None:
    """Prints the times for 10⁶ transitions of 8 floats."""
    print(f"replay: {NUM_STEPS:,} transitions of 8 floats; batches of {BATCH}")
    _measure("uniform", ReplayBuffer(NUM_STEPS), target="≤ 50")
    _measure("prioritized", PrioritizedReplayBuffer(NUM_STEPS), target="≤ 300")
    _measure_pictures()


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


def _measure_pictures() -> None:
    print(f"replay: {NUM_PICTURES:,} steps of four stacked pictures of 84 x 84")
    buffer, seconds = ReplayBuffer(NUM_PICTURES), 0.0
    with AnonymousMemory() as memory:
        for chunk in _stacked_pictures():
            started_at = time.perf_counter()
            buffer.add(chunk)
            seconds += time.perf_counter() - started_at
    grown = Figure([(memory.after - memory.before) / 1e9], "GB")
    report("pictures: memory", grown, target="≤ 0.9")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder) / "c"
        Owner(buffer).save_to_path(path)
        num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    report("pictures: checkpoint", Figure([num_bytes / 1e9], "GB"), target="≤ 0.9")
    report("pictures: add, per step", Figure([seconds / NUM_PICTURES * 1e6], "µs"))
    rng = np.random.default_rng(0)
    _report("pictures: sample 32", lambda: buffer.sample(32, rng=rng))


def _stacked_pictures() -> Iterator[SingleAgentEpisode]:
    """Chunks of 4 steps, of episodes of 1,000; no picture is like another."""
    rng = np.random.default_rng(0)
    for number in range(NUM_PICTURES // 1000):
        last = deque([rng.integers(0, 256, (84, 84), np.uint8)] * 4, maxlen=4)
        observations = [np.stack(last, axis=-1)]
        for t in range(0, 1000, 4):
            for _ in range(4):
                last.append(rng.integers(0, 256, (84, 84), np.uint8))
                observations.append(np.stack(last, axis=-1))
            yield SingleAgentEpisode(
                str(number),
                observations=np.stack(observations),
                actions=np.zeros(4, np.int64),
                rewards=np.ones(4),
                truncated=t == 996,
                t_started=t,
                len_lookback_buffer=0,
            )
            observations = [observations[-1]]


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

"""Requests without an end of their own: chunk after chunk, until the main process says so.

An evaluation that lasts as long as a training step (`evaluation_duration="auto"`) cannot know how
long that is. The flag is in shared memory, so the main process need not look after its runners
while it learns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from trainer.env_runners.shares import share_out
from trainer.env_runners.spec import SampleRequest
from trainer.runtime.worker_main import CallSignals

_CHUNK_S: Final = 0.05
"""How long a chunk should take: what training waits for at most, if the env is fast enough."""


def chunks_until_told(
    request: SampleRequest, *, num_envs: int, signals: CallSignals | None
) -> Iterator[SampleRequest]:
    """The chunks of a request; at least one.

    Args:
        request: has `steps_per_chunk` and an assignment for every sub-env.
        num_envs: sub-envs of the runner.
        signals: where the end is told; None is told already.

    Yields:
        requests with env steps, which the same episodes run through.
    """
    least, most = request.steps_per_chunk or (1, 1)
    num_steps, assignments = least, request.assignments
    force_reset = request.force_reset
    while True:
        shares = share_out(max(num_steps, num_envs), num_envs)
        started_at = time.perf_counter()
        yield replace(
            request,
            assignments=tuple(
                replace(slot, num_env_steps=share)
                for slot, share in zip(assignments, shares, strict=True)
            ),
            force_reset=force_reset,
        )
        if signals is None or signals.must_end:
            return
        took_s = max(time.perf_counter() - started_at, 1e-6)
        num_steps = min(max(int(num_steps * _CHUNK_S / took_s), least), max(most, least))
        assignments = tuple(replace(slot, ticket=None) for slot in assignments)
        force_reset = False

"""Several worker slots: ask many, take answers as they come, notice who makes no progress.

The pool holds no policy: what to do about a lost worker is decided by its caller (see
`restart_policy`).
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Final

from trainer.runtime.messages import Outcome
from trainer.runtime.process_start import choose_start_method, end_stopped_fork_server, preload
from trainer.runtime.signals import signals_deferred
from trainer.runtime.worker import refuse_while_unpacking
from trainer.runtime.worker_slot import Inherit, WorkerSlot, nothing

_LONGEST_POLL_S: Final = 0.5
SUSPICIOUS_S = 5.0
"""After so many seconds without progress the fork server is looked at: it tells who has died."""


class WorkerPool:
    """Worker slots with the numbers 1 … n; number 0 is the main process and has no slot."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        preload_modules: Sequence[str] = (),
        inherit: Inherit = nothing,
    ) -> None:
        """Makes empty slots, one per name.

        Args:
            names: what the workers are called in messages.
            preload_modules: modules that a fork server imports once for all workers to come.
            inherit: called whenever a worker is started; the function that it returns is sent along
                and is the first one that the worker calls. So rooms above this one bring along what
                a process must know, such as where actors are found.
        """
        refuse_while_unpacking("Workers")
        start_method = choose_start_method()
        preload(preload_modules, start_method)
        self._arrivals: SimpleQueue[object] = SimpleQueue()
        self.slots: dict[int, WorkerSlot] = {
            index: WorkerSlot(
                name, start_method=start_method, arrivals=self._arrivals, inherit=inherit
            )
            for index, name in enumerate(names, start=1)
        }
        # An algorithm that is dropped without stop() must not leave processes behind.
        self._finalizer = weakref.finalize(self, _kill_all, list(self.slots.values()))

    def pending(self) -> list[int]:
        """The numbers of the workers that owe an answer, ascending."""
        return [index for index, slot in self.slots.items() if slot.pending is not None]

    def next_outcome(self) -> tuple[int, Outcome]:
        """Waits until one pending call has ended; see `outcome_within`."""
        while True:
            found = self.outcome_within(math.inf)
            if found is not None:
                return found

    def outcome_within(self, timeout_s: float) -> tuple[int, Outcome] | None:
        """Waits for a while until one pending call has ended.

        A worker that makes no progress for as long as its call allows is killed and counts as lost;
        after half of that time a warning is logged.

        Args:
            timeout_s: how long to wait at most; 0 looks only.

        Returns:
            the worker's number and how its call ended; the smallest number where several ended.
            None if none ended in time.
        """
        indices = self.pending()
        if not indices:
            raise RuntimeError("No worker owes an answer.")
        limits = [self.slots[index].stall_limit_s for index in indices]
        poll_s = min([_LONGEST_POLL_S, *[limit / 10 for limit in limits if limit is not None]])
        until = time.monotonic() + timeout_s
        while True:
            found = self._first_answer(indices)
            if found is not None:
                return found
            for index in indices:
                stalled = self.slots[index].kill_if_stalled()
                if stalled is not None:
                    return index, stalled
            if any(self.slots[index].idle_s() >= SUSPICIOUS_S for index in indices):
                end_stopped_fork_server()
            remaining_s = until - time.monotonic()
            if remaining_s <= 0:
                return None
            # `concurrent.futures.wait` holds locks that an interrupt would leave locked.
            with contextlib.suppress(Empty):
                self._arrivals.get(timeout=min(poll_s, remaining_s))

    def _first_answer(self, indices: Sequence[int]) -> tuple[int, Outcome] | None:
        with contextlib.suppress(Empty):
            while True:  # of answers that were seen already, or are found in a moment
                self._arrivals.get_nowait()
        # Signals are not deferred: an answer is unpacked here, which runs code that may hang.
        for index in indices:
            if self.slots[index].has_answer:
                return index, self.slots[index].take()
        return None

    def kill_busy(self) -> list[int]:
        """Ends every worker that is in the middle of a call; returns their numbers."""
        busy = [index for index, slot in self.slots.items() if slot.is_busy]
        for index in busy:
            self.slots[index].kill()
        return busy

    def stop(self, *, grace_s: float = 2.0) -> None:
        """Lets idle servants close, ends busy ones at once; idempotent, leaves no process.

        An interrupt ends all at once.
        """
        deadline = time.monotonic() + grace_s
        try:
            for slot in self.slots.values():
                slot.tell_to_close()
            for slot in self.slots.values():
                slot.stop(grace_s=max(0.1, deadline - time.monotonic()))
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends all workers at once."""
        _kill_all(list(self.slots.values()))


def _kill_all(slots: list[WorkerSlot]) -> None:
    with signals_deferred():
        for slot in slots:
            slot.kill()

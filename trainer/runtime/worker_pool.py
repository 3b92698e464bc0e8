"""Several places of one engine: ask many, take answers as they come, notice who makes no progress.

The pool holds no policy: what to do about a lost worker is decided by its caller (see
`restart_policy`).
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final, TypeVar, cast

from trainer.errors import AlgorithmStoppedError
from trainer.runtime.engine import Arrivals, Engine, Inherit, Place, beat, nothing
from trainer.runtime.inline_engine import InlinePlace
from trainer.runtime.local_engine import LocalEngine
from trainer.runtime.messages import Outcome, Published
from trainer_toolkit.interrupts import signals_deferred

_LONGEST_POLL_S = 0.5

T = TypeVar("T")

_MOST_PUBLISHED: Final = 4
"""Values of a kind that are kept packed: of a lag of 3."""


class WorkerPool:
    """Places with the numbers 1 … n, or 0 for the worker of the main process itself.

        pool = WorkerPool(["env runner 1", "env runner 2"])
        pool[1].start(packed_factory)
        index, outcome = pool.next_outcome()

    Attributes:
        places: by number; `pool[1]` is the first.
        engine: where they are.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        engine: Engine | None = None,
        preload_modules: Sequence[str] = (),
        inherit: Inherit = nothing,
        first: int = 1,
    ) -> None:
        """Makes empty places, one per name.

        Args:
            names: what the workers are called in messages.
            engine: where they run; None is for processes of this machine.
            preload_modules: modules that are imported once for all workers to come, where that is
                possible.
            inherit: called whenever a worker is started; the function that it returns is sent along
                and is the first one that the worker calls. So rooms above this one bring along what
                a process must know, such as where actors are found.
            first: number of the first place.
        """
        self.engine: Engine = LocalEngine() if engine is None else engine
        self.engine.preload(preload_modules)
        self._num_heartbeats_seen = 0
        self._is_cancelled = False
        self._published: defaultdict[str, deque[tuple[object, Published]]] = defaultdict(
            lambda: deque(maxlen=_MOST_PUBLISHED)
        )
        self._arrivals: Arrivals = self.engine.make_arrivals()
        self.places: dict[int, Place] = {
            index: self.engine.make_place(name, arrivals=self._arrivals, inherit=inherit)
            for index, name in enumerate(names, start=first)
        }
        # An algorithm that is dropped without stop() must not leave workers behind. One of this
        # process goes along with it, unless it is held here.
        apart = [place for place in self.places.values() if not isinstance(place, InlinePlace)]
        self._finalizer = weakref.finalize(self, _kill_all, apart)

    def __getitem__(self, index: int) -> Place:
        return self.places[index]

    def publish(self, kind: str, value: T) -> T:
        """Packs a value once for all workers that will be sent it.

        Args:
            kind: what messages call it; of each kind the newest few are kept, as samples ahead are
                played with several.
            value: the same object as long as it is the same value; None stays None.

        Returns:
            what to send in its place: unpacked, it is the value.

        Raises:
            SerializationError: it cannot be pickled.
        """
        if value is None:
            return value
        known = self._published[kind]
        found = next((packed for one, packed in known if one is value), None)
        if found is None:
            found = self.engine.publish(value, name=kind)
            known.append((value, found))
        return cast(T, found)

    def now_s(self) -> float:
        """The engine's clock in seconds; only differences mean something."""
        return self.engine.now_s()

    def pids(self) -> dict[int, int]:
        """Process ids of the workers that run in a process of their own, by number."""
        identities = {index: place.identity for index, place in self.places.items()}
        return {
            index: identity.pid
            for index, identity in identities.items()
            if identity is not None and identity.pid is not None
        }

    def pending(self) -> list[int]:
        """The numbers of the workers that owe an answer, ascending."""
        return [index for index, place in self.places.items() if place.owes_answer]

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

        Raises:
            AlgorithmStoppedError: another thread called `cancel_waits()`.
        """
        indices = self.pending()
        if not indices:
            raise RuntimeError("No worker owes an answer.")
        until = self.now_s() + timeout_s
        while True:
            self._refuse_if_cancelled()
            found = self._first_answer(indices)
            if found is not None:
                return found
            for index in indices:
                stalled = self[index].kill_if_stalled()
                if stalled is not None:
                    return index, stalled
            remaining_s = until - self.now_s()
            if remaining_s <= 0:
                return None
            self._show_progress(indices)
            limits = [
                limit for index in indices if (limit := self[index].stall_limit_s) is not None
            ]
            self._arrivals.wait(
                min([_LONGEST_POLL_S, remaining_s, *[each / 10 for each in limits]])
            )

    def _show_progress(self, indices: Sequence[int]) -> None:
        """While workers make progress, so does the call of a process that waits for them."""
        num_heartbeats = sum(self[index].num_heartbeats for index in indices)
        if num_heartbeats != self._num_heartbeats_seen:
            self._num_heartbeats_seen = num_heartbeats
            beat()

    def _first_answer(self, indices: Sequence[int]) -> tuple[int, Outcome] | None:
        self._arrivals.clear()  # of answers that were seen already, or are found in a moment
        # Signals are not deferred: an answer is unpacked here, which runs code that may hang.
        for index in indices:
            if self[index].has_answer:
                return index, self[index].take()
        return None

    def sleep(self, timeout_s: float) -> None:
        """Waits by the engine's clock while no worker owes an answer; may return earlier."""
        self._arrivals.clear()
        self._refuse_if_cancelled()
        self._arrivals.wait(timeout_s)
        self._refuse_if_cancelled()

    def cancel_waits(self) -> None:
        """Ends the wait of another thread for workers, and all later ones: it is about to stop.

        Workers that were killed behind the back of who waits for them would never answer.
        """
        self._is_cancelled = True
        self._arrivals.put()

    def _refuse_if_cancelled(self) -> None:
        if self._is_cancelled:
            raise AlgorithmStoppedError(
                "stop() was called in another thread while this one waited for worker processes, "
                "which are gone. What was begun is undone. Build a new algorithm, or restore one "
                "with from_checkpoint()."
            )

    def kill_busy(self) -> list[int]:
        """Ends every worker that is in the middle of a call; returns their numbers."""
        busy = [index for index, place in self.places.items() if place.is_busy]
        for index in busy:
            self[index].kill()
        return busy

    def stop(self, *, grace_s: float = 2.0) -> None:
        """Lets idle handlers close, ends busy ones at once, for good; idempotent.

        An interrupt ends all at once.
        """
        deadline = self.now_s() + grace_s
        try:
            for place in self.places.values():
                place.request_close()
            for place in self.places.values():
                place.stop(grace_s=max(0.1, deadline - self.now_s()))
        except BaseException:
            self.kill()
            raise
        # Python drops an interrupt that arrives while a finalizer is called: no call for nothing.
        self._finalizer.detach()

    def kill(self) -> None:
        """Ends all workers at once."""
        _kill_all(list(self.places.values()))


def _kill_all(places: list[Place]) -> None:
    with signals_deferred():
        for place in places:
            place.kill()

"""What an engine must give: places in which workers run, flags during a call, news of deaths.

    engine      where workers run: local processes (`local_engine`), this process itself
                (`inline_engine`), or a scripted stand-in for tests (`trainer.testing.fake_engine`)
    place       runs one worker at a time: start, ask, kill, start again
    handler     the object inside a worker that answers calls; a packed factory makes it
    signals     what both sides say to each other while a call is under way

The life of a place:

    place = engine.make_place("env runner 1", arrivals=arrivals)
    place.start(packed_factory)         # returns at once; the answer is the handler's report
    place.take()                        # Success(report) | Failed | Lost
    place.submit("sample", (request,))  # one call at a time
    place.take()                        # a dead worker answers Lost, once
    place.stop(grace_s=2.0)

What callers rely on, whichever engine has workers apart from this process
(`tests/contract/test_engines.py` checks each line):

- Bytes go in and bytes come out. What cannot be pickled is refused before the worker is asked;
  what cannot be unpickled is a `Failed`, on either side.
- One call at a time. An engine never repeats a call: what to do about a failure is its caller's
  business, and a worker that may have run a call is not asked for it again.
- A worker that is gone answers `Lost` exactly once, soon, with what was known of its last moments:
  its last heartbeat and notes. A worker that died while it was idle answers the next call so.
- `kill` is final: no answer of a killed worker is ever taken for one of its successor.
- Heartbeats and notes of a call are seen while it is under way, and stay when the worker dies. A
  call without an end of its own ends when it is told to.
- Workers compute with one BLAS thread, find the modules that their owner finds, leave interrupts to
  it, and end with it. What they print appears in whole lines.
- An interrupt may come at any moment in the owner: a place is then asked, or it is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from trainer.runtime.machine_facts import MachineFacts
from trainer.runtime.messages import Lost, Outcome, Published

_LOGGER = logging.getLogger(__name__)

NUM_NOTES: Final = 6
"""How many numbers a handler can note in `Signals.notes`."""

ENGINES: Final = ("local", "ray")
"""The engines that settings can name."""

NO_NOTES: Final = (0,) * NUM_NOTES
"""The notes of a call before its handler has noted anything."""

TakeOver = Callable[[], object]
"""What a new worker calls first: it brings something of its owner along."""

Inherit = Callable[[], TakeOver | None]
"""Called in the owner at each start of a worker; gives what the worker calls first, or None."""


def nothing() -> None:
    """Workers bring nothing along."""


@dataclass(frozen=True)
class StallLimit:
    """How long a call may go without progress.

    Attributes:
        seconds: without a heartbeat; None is for ever.
        setting: that says so, for messages.
        at_work: what counts from the call's first heartbeat on; the same if None.
    """

    seconds: float | None = None
    setting: str = ""
    at_work: StallLimit | None = None

    @property
    def text(self) -> str:
        """The setting and its value; empty if there is none."""
        return f"{self.setting}={self.seconds}" if self.setting else ""


UNLIMITED: Final = StallLimit()


class Signals(Protocol):
    """What a worker and its owner say to each other while a call is under way; the worker's side.

    Attributes:
        num_heartbeats: the heartbeat: the handler raises it while it makes progress. It only grows.
        must_end: the owner sets it: a call without an end of its own is to end now.
        notes: `NUM_NOTES` numbers that the owner is to know if the worker dies; what they mean is
            the handler's own. All are 0 when a call begins.
    """

    num_heartbeats: int
    must_end: bool
    notes: MutableSequence[int]


class _Watched:
    """By what this process shows its owner that it makes progress; None if it is no worker.

    Global, because a process has one owner.
    """

    signals: Signals | None = None


def show_progress_by(signals: Signals | None) -> None:
    """From now on, `beat` raises the heartbeat of these signals: those of this worker process."""
    _Watched.signals = signals


def beat() -> None:
    """Shows the owner of this process that its call makes progress, if it is a worker.

    For work that a handler calls without knowing it: a trial's algorithm, its learner.
    """
    signals = _Watched.signals
    if signals is not None:
        signals.num_heartbeats += 1


class HeardSignals:
    """Signals of a handler in this process: each heartbeat calls a function.

    Attributes:
        must_end: see `Signals`.
        notes: see `Signals`.
    """

    def __init__(self, on_heartbeat: Callable[[], None], *, must_end: bool = False) -> None:
        """Has no notes yet."""
        self.must_end = must_end
        self.notes: MutableSequence[int] = list(NO_NOTES)
        self._num_heartbeats = 0
        self._on_heartbeat = on_heartbeat

    @property
    def num_heartbeats(self) -> int:
        """Heartbeats so far."""
        return self._num_heartbeats

    @num_heartbeats.setter
    def num_heartbeats(self, number: int) -> None:
        self._num_heartbeats = number
        self._on_heartbeat()


def own_heartbeat() -> HeardSignals | None:
    """Signals for a runner in this process, if it is a worker; None if it is not.

    Each of its heartbeats is a `beat`. Nothing could tell it to end later: it is told so already.
    """
    return None if _Watched.signals is None else HeardSignals(beat, must_end=True)


@dataclass(frozen=True)
class PlaceIdentity:
    """Where the worker of a place runs.

    Attributes:
        host: the name of the machine.
        pid: its process id there; None if it has no process of its own.
    """

    host: str
    pid: int | None


class Arrivals(Protocol):
    """How places say that a call has ended; all places of a pool share one."""

    def put(self) -> None:
        """Says that a call has ended; from any thread."""

    def clear(self) -> None:
        """Forgets what was put so far."""

    def wait(self, timeout_s: float) -> None:
        """Waits until something is put, or so many seconds by the engine's clock.

        It may return earlier. An interrupt ends it, and leaves no lock behind.
        """


class Place(Protocol):
    """A place for one worker; at most one call is under way at a time."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def is_running(self) -> bool:
        """Whether a worker was started and not yet found dead or stopped."""

    @property
    def is_busy(self) -> bool:
        """Whether it may be working.

        Noted before it is asked, so that an interrupt in between does not make it look idle.
        """

    @property
    def owes_answer(self) -> bool:
        """Whether something was asked whose outcome was not taken yet."""

    @property
    def has_answer(self) -> bool:
        """Whether `take` will not wait."""

    @property
    def identity(self) -> PlaceIdentity | None:
        """Where its worker runs; None if there is none."""

    @property
    def stall_limit_s(self) -> float | None:
        """How long the pending call may go without progress; None is for ever."""

    @property
    def num_heartbeats(self) -> int:
        """Heartbeats in the call that was made last; they stay when its worker dies."""

    @property
    def notes(self) -> tuple[int, ...]:
        """What the handler noted last; it stays when its worker dies."""

    def start(self, factory: Any, /, limit: StallLimit = UNLIMITED) -> None:
        """Ends the worker that there is and starts another; the answer is the handler's report.

        Args:
            factory: pickled callable that makes the handler from the worker's `Signals`. It is
                unpickled in the worker. A place of this process takes the callable itself.
            limit: how long it may go without progress.
        """

    def submit(
        self, method: str, arguments: Sequence[object], limit: StallLimit = UNLIMITED
    ) -> None:
        """Calls a method of the handler; returns at once.

        Args:
            method: its name.
            arguments: what it is given.
            limit: how long it may go without progress.

        Raises:
            SerializationError: the arguments cannot be pickled; the worker is untouched.
        """

    def take(self) -> Outcome:
        """Waits for the pending answer; returns how the call ended.

        A dead worker is cleared away.
        """

    def request_end(self) -> None:
        """Tells a call that has no end of its own to come to one."""

    def idle_s(self) -> float:
        """Seconds without progress, as far as it was looked at."""

    def kill_if_stalled(self) -> Lost | None:
        """Ends a worker that made no progress for as long as its call allows.

        After half of that time a warning is logged.
        """

    def kill(self) -> None:
        """Ends the worker at once, whatever it is doing; nothing happens if there is none."""

    def request_close(self) -> None:
        """Lets the handler close and the worker end in order, if it is idle; `stop` waits."""

    def stop(self, grace_s: float) -> None:
        """Lets the worker end in order, then ends it; an interrupt ends it at once.

        Args:
            grace_s: seconds that the handler's `close()` and the `atexit` handlers of code in the
                worker may take.
        """


class Engine(Protocol):
    """Where workers run."""

    @property
    def name(self) -> str:
        """What settings and messages call it, such as "local"."""

    def now_s(self) -> float:
        """The engine's clock in seconds; only differences mean something."""

    def make_arrivals(self) -> Arrivals:
        """What a new pool of places waits with."""

    def make_place(self, name: str, *, arrivals: Arrivals, inherit: Inherit = nothing) -> Place:
        """Makes an empty place.

        Args:
            name: what messages call it.
            arrivals: is notified whenever an answer has come in.
            inherit: see `WorkerPool`.
        """

    def preload(self, modules: Sequence[str]) -> None:
        """Imports modules once for all workers to come, where that makes their start faster."""

    def publish(self, value: object, *, name: str) -> Published:
        """Packs a value that many workers are to be sent, once for all of them.

        Give what it returns as an argument, or as a part of one: the handler gets the value. It is
        a copy of its own.

        Args:
            value: any that can travel.
            name: what messages call it.

        Raises:
            SerializationError: it cannot be pickled.
        """

    def machines(self) -> Sequence[MachineFacts]:
        """What is known of the machines of its workers, this one included."""

    def close(self) -> None:
        """Gives back what it holds besides places, if none of them has a worker.

        It may be used again, and closed again.
        """


class StallWatch:
    """How long a call goes without progress: the one rule for the places of all engines.

    Attributes:
        limit: of the call; `at_work` replaces it at the first heartbeat.
    """

    def __init__(self, name: str, now_s: Callable[[], float]) -> None:
        """Watches no call yet; messages call the worker `name`, `now_s` is the engine's clock."""
        self.limit = UNLIMITED
        self._name = name
        self._now_s = now_s
        self._num_seen = 0
        self._seen_at = 0.0
        self._has_warned = False

    def begin(self, num_heartbeats: int, limit: StallLimit) -> None:
        """Begins to watch a call; the worker had that many heartbeats before it was asked."""
        self.limit = limit
        self._has_warned = False
        self._num_seen = num_heartbeats
        self._seen_at = self._now_s()

    def idle_s(self, num_heartbeats: int) -> float:
        """Seconds since another number of heartbeats was seen, in which it was looked at."""
        if num_heartbeats != self._num_seen:
            self._num_seen = num_heartbeats
            self._seen_at = self._now_s()
            self.limit = self.limit.at_work or self.limit
        return self._now_s() - self._seen_at

    def stalled_s(self, num_heartbeats: int) -> float | None:
        """The seconds without progress if they are too many; None if they are not.

        Half of that time is worth a warning.
        """
        idle_s = self.idle_s(num_heartbeats)
        limit_s = self.limit.seconds
        if limit_s is None or idle_s < limit_s / 2:
            return None
        if idle_s >= limit_s:
            return idle_s
        if not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "%s has made no progress for %.1f s; it is replaced after %s.",
                self._name,
                idle_s,
                self.limit.text or f"{limit_s:.1f} s",
            )
        return None


class WatchedPlace:
    """What places have in common that read the signals of their workers at any time.

    Attributes:
        name: see `Place`.
        is_busy: see `Place`.
    """

    _signals: Signals

    def __init__(self, name: str, now_s: Callable[[], float]) -> None:
        """Has been asked nothing yet; messages call it `name`, `now_s` is the engine's clock."""
        self.name = name
        self.is_busy = False
        self._watch = StallWatch(name, now_s)
        self._heartbeats_before = 0

    def _begin_call(self) -> None:
        """Notes where the signals stand, before the worker is asked: it may be at work at once."""
        self.is_busy = True
        self._signals.notes[:] = NO_NOTES
        self._heartbeats_before = self._signals.num_heartbeats

    @property
    def stall_limit_s(self) -> float | None:
        """How long the pending call may go without progress; None is for ever."""
        return self._watch.limit.seconds

    @property
    def num_heartbeats(self) -> int:
        """Heartbeats in the call that was made last; they stay when its worker dies."""
        return self._signals.num_heartbeats - self._heartbeats_before

    @property
    def notes(self) -> tuple[int, ...]:
        """What the handler noted last; it stays when its worker dies."""
        return tuple(self._signals.notes)

    def request_end(self) -> None:
        """Tells a call that has no end of its own to come to one."""
        self._signals.must_end = True

    def idle_s(self) -> float:
        """Seconds without progress, as far as it was looked at."""
        return self._watch.idle_s(self._signals.num_heartbeats)

"""An engine for tests: workers in this process, a clock of its own, and faults by script.

    engine = FakeEngine(
        ScriptedFault("die", place="env runner 1", method="sample", at_sign=7),
        ScriptedFault("lose_answer", place="env runner 2", call=3),
    )
    group = EnvRunnerGroup(config=config, num_env_runners=2, engine=engine)

No process is started, and nothing waits: the clock moves when its owner waits, to whatever comes
next. So a worker that hangs for ten minutes is killed within a millisecond, and the same script
always strikes the same call at the same heartbeat.

Handlers are made from bytes and answer with bytes, as in a process; each has the global random
generators to itself, and computes with one BLAS thread. What else is global in a process they
share. A call runs in a thread of its own, but only while the owner stands still: one of them runs
at any time. A scripted death unwinds the stack of the call, where that of a process just ends:
`finally` blocks in it are run.
"""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from trainer.runtime.engine import (
    UNLIMITED,
    Arrivals,
    HeardSignals,
    Inherit,
    PlaceIdentity,
    StallLimit,
    WatchedPlace,
    nothing,
)
from trainer.runtime.machine_facts import MachineFacts, facts_of_this_machine
from trainer.runtime.messages import (
    Failed,
    Lost,
    Outcome,
    Published,
    outcome_of,
    pack,
    pack_arguments,
    published,
    warn_of_close,
)
from trainer.runtime.threads import single_threaded_blas
from trainer.runtime.worker import HandlerHost
from trainer.seeding import GlobalGenerators
from trainer_toolkit.interrupts import signals_deferred

_START_S: Final = 0.02
_CALL_S: Final = 0.001
_HEARTBEAT_S: Final = 0.0001
_HEARTBEATS_PER_TURN: Final = 200
_FOREVER_S: Final = 24 * 3600.0
_BROKEN_ANSWER: Final = b"no pickle"

Kind = Literal[
    "die", "hang", "delay", "lose_answer", "break_answer", "answer_after_kill", "not_start"
]


@dataclass(frozen=True)
class ScriptedFault:
    """Something that happens to one call of a worker.

    Attributes:
        kind: "die": the worker is gone; "hang": it makes no progress any more; "delay": it makes
            none for `seconds`, then goes on; "lose_answer": the call runs to its end, then the
            worker is gone; "break_answer": the answer cannot be unpickled; "answer_after_kill": if
            the worker is killed in this call, its answer comes all the same, `seconds` later;
            "not_start": there is no worker, the call is its start.
        place: name of the worker's place; empty for any.
        method: of the handler, or "start"; empty for any.
        call: which call of that place, counted from 0 over all of its workers, starts included;
            None for any.
        at_sign: "die", "hang", "delay": after so many heartbeats in the call; 0 is before
            the handler does anything.
        seconds: see `kind`.
        exit_code: of a worker that is gone; None if it is not known.
        times: how often it happens.
    """

    kind: Kind
    place: str = ""
    method: str = ""
    call: int | None = None
    at_sign: int = 0
    seconds: float = 1.0
    exit_code: int | None = -signal.SIGKILL
    times: int = 1

    def is_about(self, place: str, method: str, call: int) -> bool:
        """Whether it happens to this call."""
        return (
            self.place in ("", place)
            and self.method in ("", method)
            and self.call in (None, call)
            and (self.kind != "not_start" or method == "start")
        )


class _KilledError(BaseException):
    """Unwinds the call of a worker that is gone; a BaseException, as no code is to survive it."""


class _Turns:
    """Runs a call in a thread of its own, turn by turn: while it runs, its owner waits.

    Attributes:
        is_over: the call has ended; there is no thread any more.
        answer: what it returned; None before that, and if it was ended.
    """

    def __init__(self, work: Callable[[], bytes]) -> None:
        self.is_over = False
        self.answer: bytes | None = None
        self._is_ended = False
        self._handlers_turn, self._owners_turn = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="fake worker", daemon=True
        )
        self._thread.start()

    def go_on(self) -> None:
        """Lets the call run until it pauses or ends. Must not be interrupted."""
        self._handlers_turn.release()
        self._owners_turn.acquire()
        if self.is_over:
            self._thread.join()

    def pause(self) -> None:
        """In the call: lets the owner go on, until the next turn."""
        if not self._is_ended:
            self._owners_turn.release()
            self._handlers_turn.acquire()
        if self._is_ended:
            raise _KilledError

    def end(self) -> None:
        """Ends the call where it stands."""
        self._is_ended = True
        if not self.is_over:
            self.go_on()

    def _run(self, work: Callable[[], bytes]) -> None:
        self._handlers_turn.acquire()
        try:
            answer = None if self._is_ended else work()
            self.answer = None if self._is_ended else answer
        except _KilledError:
            pass
        finally:
            self.is_over = True
            self._owners_turn.release()


@dataclass
class _Call:
    """A call that is under way.

    Attributes:
        number: of the call in its place.
        turns: runs it.
        fault: what happens to it; None if nothing does.
        goes_on_at_s: when it has its next turn, or its answer arrives; infinite if never.
        num_heartbeats: made in it so far.
        has_struck: the fault has happened.
        answer: how it ends; None while it runs.
        has_arrived: the answer is there.
    """

    number: int
    turns: _Turns
    fault: ScriptedFault | None
    goes_on_at_s: float
    num_heartbeats: int = 0
    has_struck: bool = False
    answer: bytes | Lost | None = None
    has_arrived: bool = False

    def is_struck_by(self, *kinds: Kind) -> bool:
        """Whether a fault of such a kind is to happen to it, and has not yet."""
        return self.fault is not None and self.fault.kind in kinds and not self.has_struck


class FakePlace(WatchedPlace):
    """A place for a worker in this process; see `Place`.

    Attributes:
        name: what messages call it.
        is_busy: it may be working.
        num_calls: calls so far, starts included.
        incarnation: workers started here so far; answers of others than the last are not taken.
    """

    def __init__(
        self, name: str, *, engine: FakeEngine, arrivals: Arrivals, inherit: Inherit
    ) -> None:
        super().__init__(name, engine.now_s)
        self.num_calls = 0
        self.incarnation = 0
        self._engine = engine
        self._arrivals = arrivals
        self._inherit = inherit
        self._signals = HeardSignals(self._note_heartbeat)
        self._host: HandlerHost | None = None
        self._call: _Call | None = None
        self._exit_code: int | None = None
        self._is_dead = False
        self._generators = GlobalGenerators()

    # ---- what it is doing

    @property
    def is_running(self) -> bool:
        """Whether a worker was started and not yet found dead or stopped."""
        return self._host is not None

    @property
    def owes_answer(self) -> bool:
        """Whether something was asked whose outcome was not taken yet."""
        return self._call is not None

    @property
    def has_answer(self) -> bool:
        """Whether `take` will not wait."""
        return self._call is not None and self._call.has_arrived

    @property
    def identity(self) -> PlaceIdentity | None:
        """That it has no process of its own; None if there is no worker."""
        return None if self._host is None else PlaceIdentity("this process", None)

    # ---- asking

    def start(self, packed_factory: bytes, /, limit: StallLimit = UNLIMITED) -> None:
        """Makes another handler from bytes; see `Place`."""
        self.kill()
        self._inherit()  # what it gives is for other processes
        self.incarnation += 1
        self._is_dead, self._exit_code = False, None
        self._generators = GlobalGenerators()
        self._host = host = HandlerHost(self._signals)
        self._begin("start", partial(host.construct, packed_factory), limit)

    def submit(
        self, method: str, arguments: Sequence[object], limit: StallLimit = UNLIMITED
    ) -> None:
        """Calls a method of the handler; see `Place`."""
        packed = pack_arguments(self.name, method, arguments)
        if self._host is None:
            raise RuntimeError(f"{self.name} has no worker: start it first.")
        self._signals.must_end = False
        self._begin(method, partial(self._host.call, method, packed), limit)

    def _begin(self, method: str, work: Callable[[], bytes], limit: StallLimit) -> None:
        if self._call is not None:
            raise RuntimeError(f"{self.name} is asked while it owes an answer.")
        number, self.num_calls = self.num_calls, self.num_calls + 1
        with signals_deferred():
            self._begin_call()
            takes_s = _START_S if method == "start" else 0.0
            fault = self._engine.take_fault(self.name, method, number)
            now_s = self._engine.now_s()
            self._call = _Call(number, _Turns(work), fault, now_s + takes_s)
            self._watch.begin(self._heartbeats_before, limit)
            if self._is_dead:
                self._end_call(self._lost(self._exit_code))

    def take(self) -> Outcome:
        """Waits for the pending answer; returns how the call ended."""
        if self._call is None:
            raise RuntimeError(f"{self.name} was not asked anything.")
        while not self.has_answer:
            self._engine.advance(math.inf, until=lambda: self.has_answer)
        with signals_deferred():
            answer, self._call = self._call.answer, None
            self.is_busy = False
            if isinstance(answer, Lost):
                self._host = None
                return answer
        assert answer is not None  # noqa: S101 - it has arrived
        return outcome_of(answer)

    # ---- ending

    def kill_if_stalled(self) -> Lost | None:
        """Ends a worker that made no progress for as long as its call allows."""
        if self._call is None:
            return None
        stalled_s = self._watch.stalled_s(self._signals.num_heartbeats)
        if stalled_s is None:
            return None
        lost = dataclasses.replace(
            self._lost(None), stalled_s=stalled_s, stall_limit=self._watch.limit.text
        )
        self.kill()
        return lost

    def kill(self) -> None:
        """Ends the worker at once."""
        with signals_deferred():
            call, self._call = self._call, None
            if call is not None and call.is_struck_by("answer_after_kill"):
                self._let_answer_come(call)
            elif call is not None:
                call.turns.end()
            self._host = None
            self.is_busy = False

    def request_close(self) -> None:
        """Does nothing yet: a worker of this process closes as soon as `stop` waits for it."""

    def stop(self, grace_s: float) -> None:  # noqa: ARG002 - it closes at once
        """Lets an idle handler close, then ends it."""
        try:
            if self._host is not None and not self.is_busy and not self._is_dead:
                outcome = outcome_of(self._as_worker(partial(self._host.call, "close", pack(()))))
                if isinstance(outcome, Failed):
                    warn_of_close(self.name, outcome.failure)
        finally:
            self.kill()

    def lose(self, exit_code: int | None = -signal.SIGKILL) -> None:
        """The worker is gone now, as if something outside had ended its process."""
        self._is_dead, self._exit_code = True, exit_code
        if self._call is not None:
            self._end_call(self._lost(exit_code))

    def _let_answer_come(self, call: _Call) -> None:
        """Runs a call of a killed worker to its end, and lets its answer arrive some time."""
        fault, incarnation = call.fault, self.incarnation
        assert fault is not None  # noqa: S101 - it is about to strike
        call.has_struck = True
        while not call.turns.is_over:
            self._as_worker(call.turns.go_on)
        answer = call.turns.answer or b""
        self._engine.do_at(
            self._engine.now_s() + fault.seconds,
            lambda: self._receive(answer, incarnation=incarnation),
        )

    def _receive(self, answer: bytes | Lost, *, incarnation: int) -> None:
        """Takes an answer that arrives, unless it is that of an earlier worker."""
        call = self._call
        if call is None or call.has_arrived or incarnation != self.incarnation:
            return
        call.turns.end()
        call.answer, call.has_arrived = answer, True
        call.goes_on_at_s = math.inf
        self._arrivals.put()

    # ---- what the engine lets it do

    @property
    def goes_on_at_s(self) -> float:
        """When it has something to do; infinite if it waits for its owner, or hangs."""
        return math.inf if self._call is None else self._call.goes_on_at_s

    def go_on(self) -> None:
        """Runs the call for a turn, or hands out the answer."""
        call = self._call
        assert call is not None  # noqa: S101 - else it never goes on
        if call.answer is not None:
            self._receive(call.answer, incarnation=self.incarnation)
            return
        if call.is_struck_by("not_start"):
            error = Lost(None, start_error="as the script says")
            self._strike(call)
            self._end_call(error)
            return
        if call.is_struck_by("die", "hang", "delay") and call.fault and not call.fault.at_sign:
            self._strike(call)
            return
        num_before = call.num_heartbeats
        self._as_worker(call.turns.go_on)
        call.goes_on_at_s += (call.num_heartbeats - num_before) * _HEARTBEAT_S
        if call.turns.is_over:
            self._answer(call)
        elif call.is_struck_by("die", "hang", "delay") and self._is_at_heartbeat(call):
            self._strike(call)

    def _note_heartbeat(self) -> None:
        """In the handler: it has shown progress; the call pauses now and then."""
        call = self._call
        if call is None:
            raise _KilledError
        call.num_heartbeats += 1
        if call.num_heartbeats % _HEARTBEATS_PER_TURN == 0 or self._is_at_heartbeat(call):
            call.turns.pause()

    def _is_at_heartbeat(self, call: _Call) -> bool:
        is_to_strike = call.is_struck_by("die", "hang", "delay")
        return is_to_strike and call.fault is not None and call.fault.at_sign == call.num_heartbeats

    def _strike(self, call: _Call) -> None:
        """Lets the fault of a call happen that does not wait for its answer."""
        fault = call.fault
        assert fault is not None  # noqa: S101 - the caller has looked
        call.has_struck = True
        self._engine.note_struck(self.name, call.number, fault)
        if fault.kind == "die":
            self.lose(fault.exit_code)
        elif fault.kind == "hang":
            call.goes_on_at_s = math.inf
        elif fault.kind == "delay":
            call.goes_on_at_s += fault.seconds

    def _answer(self, call: _Call) -> None:
        """Sends the answer of a call that has run to its end on its way."""
        call.goes_on_at_s += _CALL_S
        call.answer = call.turns.answer
        if call.is_struck_by("lose_answer") and call.fault is not None:
            self._strike(call)
            self._is_dead, self._exit_code = True, call.fault.exit_code
            call.answer = self._lost(call.fault.exit_code)
        elif call.is_struck_by("break_answer"):
            self._strike(call)
            call.answer = _BROKEN_ANSWER

    def _end_call(self, lost: Lost) -> None:
        """The call ends without an answer, and its owner hears of it now."""
        self._receive(lost, incarnation=self.incarnation)

    def _lost(self, exit_code: int | None) -> Lost:
        return Lost(exit_code, num_heartbeats=self._signals.num_heartbeats, notes=self.notes)

    def _as_worker(self, do: Callable[[], Any]) -> Any:
        """Lets the worker compute: with its own random generators, and one BLAS thread."""
        with single_threaded_blas(), self._generators:
            return do()


class FakeArrivals:
    """How places of this process tell that a call has ended; waiting moves the clock."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._is_logged = False

    def put(self) -> None:
        """Says that a call has ended."""
        self._is_logged = True

    def clear(self) -> None:
        """Forgets what was put so far."""
        self._is_logged = False

    def wait(self, timeout_s: float) -> None:
        """Lets workers do what they do in the meantime; until something is told."""
        self._engine.advance(timeout_s, until=lambda: self._is_logged)


class FakeEngine:
    """Runs workers in this process, by script; see `Engine`.

    Attributes:
        name: "fake".
        struck: the faults that have happened: name of the place, number of the call, fault.
        places: all places that were made, by name; of several with one name, the last.
        given_machines: what `machines` gives; empty for this one.
    """

    name = "fake"

    def __init__(self, *script: ScriptedFault) -> None:
        """Has no places yet; its clock shows 0.

        Args:
            *script: what happens; of those about a call, the first that is not used up.
        """
        self.struck: list[tuple[str, int, ScriptedFault]] = []
        self.places: dict[str, FakePlace] = {}
        self.given_machines: Sequence[MachineFacts] = ()
        self._script = list(script)
        self._times_left = [fault.times for fault in script]
        self._all_places: list[FakePlace] = []
        self._to_do: list[tuple[float, Callable[[], None]]] = []
        self._now_s = 0.0
        self._quiet_since_s = 0.0

    def now_s(self) -> float:
        """Seconds since the engine was made, by its own clock."""
        return self._now_s

    def make_arrivals(self) -> FakeArrivals:
        """What a new pool of places waits with."""
        return FakeArrivals(self)

    def make_place(self, name: str, *, arrivals: Arrivals, inherit: Inherit = nothing) -> FakePlace:
        """Makes an empty place; see `Engine`."""
        place = FakePlace(name, engine=self, arrivals=arrivals, inherit=inherit)
        self.places[name] = place
        self._all_places.append(place)
        return place

    def preload(self, modules: Sequence[str]) -> None:
        """Does nothing: what workers import, this process imports."""

    def publish(self, value: object, *, name: str) -> Published:
        """Packs a value once for all workers."""
        return published(value, name=name)

    def machines(self) -> Sequence[MachineFacts]:
        """As the test says; this machine if it says nothing."""
        return self.given_machines or [facts_of_this_machine()]

    def close(self) -> None:
        """Does nothing: it holds nothing besides places."""

    # ---- script

    def take_fault(self, place: str, method: str, call: int) -> ScriptedFault | None:
        """What happens to a call that begins now; None if nothing does."""
        for index, fault in enumerate(self._script):
            if self._times_left[index] > 0 and fault.is_about(place, method, call):
                self._times_left[index] -= 1
                return fault
        return None

    def note_struck(self, place: str, call: int, fault: ScriptedFault) -> None:
        """Notes that a fault has happened."""
        self.struck.append((place, call, fault))

    def do_at(self, at_s: float, do: Callable[[], None]) -> None:
        """Does something when the clock has come so far."""
        self._to_do.append((at_s, do))

    # ---- time

    def advance(self, timeout_s: float, *, until: Callable[[], bool]) -> None:
        """Lets time pass: workers go on, each when it is due, in the order of their places.

        Args:
            timeout_s: how long at most.
            until: looked at after each thing that has happened; ends it sooner.

        Raises:
            RuntimeError: nothing will ever happen any more.
        """
        end_s = self._now_s + timeout_s
        while not until():
            at_s, do = self._next()
            if at_s > end_s or at_s == math.inf:
                self._let_pass(end_s, is_quiet=at_s == math.inf)
                return
            with signals_deferred():  # an interrupt must not leave a call between two states
                self._now_s = self._quiet_since_s = max(self._now_s, at_s)
                do()

    def _next(self) -> tuple[float, Callable[[], None]]:
        """What happens next, and when."""
        due: list[tuple[float, Callable[[], None]]] = [
            (place.goes_on_at_s, place.go_on) for place in self._all_places
        ]
        due += [
            (at_s, partial(self._do_once, number)) for number, (at_s, _) in enumerate(self._to_do)
        ]
        return min(due, key=lambda entry: entry[0], default=(math.inf, lambda: None))

    def _do_once(self, number: int) -> None:
        _, do = self._to_do.pop(number)
        do()

    def _let_pass(self, end_s: float, *, is_quiet: bool) -> None:
        if not is_quiet:
            self._quiet_since_s = end_s
        if end_s - self._quiet_since_s > _FOREVER_S:
            raise RuntimeError(
                "The owner of a fake engine waits for ever: none of its calls will go on. Give the "
                "call that hangs a stall limit, or take the fault out of the script."
            )
        self._now_s = max(self._now_s, end_s)

"""The Ray engine: each worker is kept by a Ray actor, on whichever machine has room.

    engine = RayEngine()                         # 1 CPU per worker, on the cluster of this process
    engine = RayEngine(num_cpus=2, resources={"env_node": 0.01}, placement_strategy="SPREAD")

Who keeps the worker, and why it is not the actor itself, is told in `place_host`. An actor is lost
with its machine, or if something kills it; then the call ends as `Lost`, marked as caused from
outside. The next start is made by the actor of another place on that machine, which takes a tenth
of a second, or if none answers there, Ray is asked for another actor, which takes seconds. Actors
are never restarted and calls never repeated by Ray: what to do is decided above, as on every
engine.

Heartbeats are asked for while a place is looked at, twice per second, and more often where a call
may go without progress for a short time only. An actor that does not answer them is one whose
worker makes no progress.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pickle
import signal
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from trainer.errors import ConfigError, EngineError
from trainer.ray_engine import cluster
from trainer.ray_engine.place_host import (
    MOST_KEPT,
    SIGNALS,
    Heartbeat,
    HostReply,
    HostSettings,
    PlaceHost,
)
from trainer.runtime.engine import (
    UNLIMITED,
    Arrivals,
    Inherit,
    PlaceIdentity,
    StallLimit,
    StallWatch,
    nothing,
)
from trainer.runtime.machine_facts import MachineFacts, cpu_kinds, facts_of_this_machine
from trainer.runtime.messages import (
    Failed,
    Lost,
    Outcome,
    Published,
    describe_failure,
    outcome_of,
    pack_arguments,
    published,
)
from trainer.runtime.process_start import ImportPath
from trainer_toolkit.interrupts import ArrivalFlag, signals_deferred

_LOGGER: Final = logging.getLogger(__name__)

_POLL_EVERY_S = 0.5
_SHORTEST_POLL_S: Final = 0.05
_POLLS_PER_LIMIT: Final = 10
_KILLED_WITHIN_S: Final = 2.0
_ANSWERS_WITHIN_S: Final = 1.0
_MOST_NEIGHBOURS_ASKED: Final = 2
_SENT_TO_EACH_BYTES: Final = 2**20
_LONGEST_CAUSE: Final = 300
STRATEGIES: Final = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
"""How Ray may spread what places reserve over machines."""

_LAST_BITS: Final = (
    "Numeric libraries choose other kernels there, so a runner that is placed or replaced on "
    "another kind may act differently in the last bits, and episodes part."
)

Ending = Literal["ended", "gone", "stuck"]
"""What came of asking an actor to end a worker: it did; the actor is gone, and the process ids that
were its own may be others' by now; or it does not answer."""


class Host:
    """An actor, and the places whose workers it keeps.

    Attributes:
        handle: Ray's handle of the actor; None if this process has left its cluster.
        made_for: the number of the place whose reserved resources it uses.
        node: Ray's id of its machine; "" until it has answered.
        places: whose workers it keeps, by number.
        is_gone: it was lost or ended.
    """

    def __init__(self, handle: Any, *, made_for: int) -> None:
        """An actor that nothing was heard of yet."""
        self.handle = handle
        self.made_for = made_for
        self.node = ""
        self.places: set[int] = set()
        self.is_gone = False

    def asked(self, method: str, *arguments: object) -> Future[Any]:
        """Calls a method of the actor; the answer is an error if it is gone."""
        if self.handle is None:
            return _left_cluster()
        answer: Future[Any] = getattr(self.handle, method).remote(*arguments).future()
        return answer

    def asked_meanwhile(self, method: str, *arguments: object) -> Any:
        """Calls a method of the actor while others are under way; Ray's reference to the answer."""
        return getattr(self.handle, method).options(concurrency_group=SIGNALS).remote(*arguments)


class RayPlace:
    """A place whose worker is kept by a Ray actor; see `Place`.

    Attributes:
        name: what messages call it.
        is_busy: it may be working.
        number: places are made in this order.
        host: the actor that keeps its worker; None if none was asked for, or it was ended.
    """

    def __init__(
        self, name: str, *, engine: RayEngine, arrivals: Arrivals, inherit: Inherit
    ) -> None:
        self.name = name
        self.number = engine.next_call()
        self.is_busy = False
        self._engine = engine
        self._arrivals = arrivals
        self._inherit = inherit
        self._watch = StallWatch(name, engine.now_s)
        self.host: Host | None = None
        self._lost_on = ""
        self._is_running = False
        self._is_placed = False
        self._pending: Future[bytes] | None = None
        self._has_come: list[bool] = []
        self._closing: Future[None] | None = None
        self._call = 0
        self._is_start = False
        self._asked_at_s = self._polled_at_s = 0.0
        self._poll: Future[bytes] | None = None
        self._last = Heartbeat(0)
        self._owner_pid = os.getpid()

    # ---- what it is doing

    @property
    def is_running(self) -> bool:
        """Whether a worker was started and not yet found dead or stopped."""
        return self._is_running

    @property
    def owes_answer(self) -> bool:
        """Whether something was asked whose outcome was not taken yet."""
        return self._pending is not None

    @property
    def has_answer(self) -> bool:
        """Whether `take` will not wait."""
        # Not `done()`: its lock, left locked by an interrupt, would stop Ray's thread.
        return self._pending is not None and bool(self._has_come)

    @property
    def identity(self) -> PlaceIdentity | None:
        """The machine and the process id of its worker, as far as they are known."""
        if not self._is_running:
            return None
        return PlaceIdentity(self._last.host, self._last.pid)

    @property
    def host_pid(self) -> int | None:
        """The process id of the actor on its machine, as far as it is known."""
        return self._last.host_pid if self.host is not None and self._is_placed else None

    @property
    def stall_limit_s(self) -> float | None:
        """How long the pending call may go without progress; None is for ever."""
        return self._watch.limit.seconds

    @property
    def num_heartbeats(self) -> int:
        """Heartbeats in the call that was made last, as far as it was heard of."""
        self._look()
        return self._last.num_heartbeats if self._last.call == self._call else 0

    @property
    def notes(self) -> tuple[int, ...]:
        """What the handler noted last, as far as it was heard of."""
        self._look()
        return self._last.notes if self._last.call == self._call else Heartbeat(0).notes

    def idle_s(self) -> float:
        """Seconds without progress, as far as it was looked at."""
        return self._watch.idle_s(self.num_heartbeats)

    # ---- asking

    def start(self, packed_factory: bytes, /, limit: StallLimit = UNLIMITED) -> None:
        """Starts a worker, with another actor unless there is an idle one; see `Place`."""
        if self.owes_answer or self._closing is not None:
            self.kill()
        take_over = pickle.dumps(self._inherit())
        with signals_deferred():
            self._engine.notice_disconnection()
            if self.host is not None and self.host.is_gone:  # lost by another place that it kept
                self._lose_host()
            if self.host is None:
                self.host = self._engine.host_for(self, lost_on=self._lost_on)
                self._is_placed = bool(self.host.node)
            self._begin(is_start=True)
            self._is_running = True
            answer = self.host.asked(
                "start", self.number, self.name, self._call, packed_factory, take_over
            )
            self._await(answer, limit)

    def submit(
        self, method: str, arguments: Sequence[object], limit: StallLimit = UNLIMITED
    ) -> None:
        """Calls a method of the handler; see `Place`."""
        beside: list[Any] = []

        def is_packed_with_the_rest(buffer: pickle.PickleBuffer) -> bool:
            found = self._engine.find_published(memoryview(buffer).obj)
            if found is not None:
                beside.append(found.reference)
            return found is None

        packed = pack_arguments(
            self.name, method, arguments, buffer_callback=is_packed_with_the_rest
        )
        if self.host is None or not self._is_running:
            raise RuntimeError(f"{self.name} has no worker: start it first.")
        with signals_deferred():
            self._engine.notice_disconnection()
            self._begin(is_start=False)
            answer = self.host.asked("call", self.number, self._call, method, packed, *beside)
            self._await(answer, limit)

    def _begin(self, *, is_start: bool) -> None:
        self.is_busy = True
        self._is_start = is_start
        self._call = self._engine.next_call()
        self._asked_at_s = self._polled_at_s = self._engine.now_s()

    def _await(self, answer: Future[bytes], limit: StallLimit) -> None:
        self._watch.begin(0, limit)
        self._pending, self._has_come = answer, []
        has_come, arrivals = self._has_come, self._arrivals

        def note(_: Future[bytes]) -> None:
            has_come.append(True)
            arrivals.put()

        # It keeps no place: one that Ray's thread lets go of gives back what is reserved for it
        # there, and waits for ever for that thread.
        answer.add_done_callback(note)

    def take(self) -> Outcome:
        """Waits for the pending answer; returns how the call ended."""
        if self._pending is None:
            raise RuntimeError(f"{self.name} was not asked anything.")
        while not self.has_answer:
            self._arrivals.wait(1.0)
        with signals_deferred():
            future, self._pending = self._pending, None
            try:
                packed = future.result()
            except Exception as error:  # noqa: BLE001 - whatever Ray says: the actor is gone
                lost = self._lost_with_host(error)
                self._is_running = self.is_busy = False
                self._lose_host()
                return lost
            reply: HostReply = pickle.loads(packed)  # noqa: S301 - from our own actor
            self._hear(reply.last)
            self.is_busy = False
            if isinstance(reply.answer, Lost):
                self._is_running = False
                return dataclasses.replace(reply.answer, where=self._where())
            if reply.facts is not None:
                refused = self._engine.why_refused(reply.facts)
                if refused:
                    self.kill()
                    return Failed(describe_failure(EngineError(refused)))
        return outcome_of(reply.answer)

    def _lost_with_host(self, error: Exception) -> Lost:
        """How the call of a worker ended whose actor is gone; nothing in it has caused that."""
        cause = _cause_of(error)
        if self._is_start and not self._is_placed:
            return Lost(
                None,
                start_error=f"Ray could not make its actor: {cause}",
                # Its machine was lost meanwhile; an actor that raises is to blame itself.
                was_taken_along=not _has_raised(error),
            )
        return Lost(
            None,
            num_heartbeats=self._last.num_heartbeats_ever,
            notes=self.notes,
            cause=f"it went with its Ray actor: {cause}",
            where=self._where(),
            was_taken_along=not isinstance(error, self._engine.errors.OutOfMemoryError),
        )

    def _where(self) -> str:
        host, node = self._last.host, self._last.node
        return f"{host} (node {node[:8]})" if host else ""

    # ---- flags during a call

    def request_end(self) -> None:
        """Tells a call that has no end of its own to come to one."""
        if self.host is not None and self.owes_answer:
            with signals_deferred():
                self._engine.notice_disconnection()
                if not self.host.is_gone:
                    self.host.asked_meanwhile("end", self.number, self._call)

    def _look(self) -> None:
        """Asks for a heartbeat now and then while a call is under way; it comes by itself."""
        now_s = self._engine.now_s()
        if self._poll is not None:
            with signals_deferred():
                self._take_poll(self._poll)
        if self.host is None or not self.owes_answer:
            return
        if now_s - self._polled_at_s >= self._poll_every_s():
            with signals_deferred():
                self._polled_at_s = now_s
                self._engine.notice_disconnection()
                if self.host.handle is None and not self.has_answer:  # Ray will bring none
                    self._pending, self._has_come = _left_cluster(), [True]
                elif not self.host.is_gone and self._poll is None:
                    self._poll = self.host.asked_meanwhile("poll", self.number).future()

    def _take_poll(self, poll: Future[bytes]) -> None:
        if not poll.done():
            return
        self._poll = None
        if poll.exception() is None:  # else the call's own answer tells
            self._is_placed = True
            heartbeat: Heartbeat = pickle.loads(poll.result())  # noqa: S301 - our own actor
            last = self._last.num_heartbeats if self._last.call == self._call else 0
            if heartbeat.call == self._call and heartbeat.num_heartbeats >= last:
                self._hear(heartbeat)

    def _poll_every_s(self) -> float:
        """Each heartbeat costs what a request costs, so they are few unless the limit is short."""
        limit_s = self._watch.limit.seconds
        if limit_s is None:
            return _POLL_EVERY_S
        return min(_POLL_EVERY_S, max(_SHORTEST_POLL_S, limit_s / _POLLS_PER_LIMIT))

    def _hear(self, heartbeat: Heartbeat) -> None:
        self._last, self._is_placed = heartbeat, True
        if self.host is not None:
            self.host.node = heartbeat.node

    # ---- ending

    def kill_if_stalled(self) -> Lost | None:
        """Ends a worker that made no progress for too long, or found no room in the cluster."""
        if self._pending is None:
            return None
        num_heartbeats = self.num_heartbeats
        waited_s = self._engine.now_s() - self._asked_at_s
        if self._is_start and not self._is_placed and not self.has_answer:
            why = self._engine.why_not_placed(self, waited_s)
            if why:
                self.kill()
                return Lost(None, start_error=why)
        stalled_s = self._watch.stalled_s(num_heartbeats)
        if stalled_s is None:
            return None
        lost = Lost(
            None,
            stalled_s,
            num_heartbeats=self._last.num_heartbeats_ever,
            notes=self.notes,
            stall_limit=self._watch.limit.text,
            where=self._where(),
        )
        self.kill()
        return lost

    def kill(self) -> None:
        """Ends the worker at once, whatever it is doing; its actor is there for the next one.

        An actor that does not say at once that the worker is gone is ended, too.
        """
        with signals_deferred():
            has_worker = self._is_running
            self._pending = self._closing = self._poll = None
            self.is_busy = self._is_running = False
            if self.host is None or os.getpid() != self._owner_pid:
                self.host = None
            elif has_worker and not self._is_placed:
                self._lose_host()
            elif has_worker:
                ending = self._engine.end_worker(self.host, self.number, self._call)
                if ending != "ended":
                    self._lose_host(stuck=self._last if ending == "stuck" else None)

    def _lose_host(self, stuck: Heartbeat | None = None) -> None:
        """Ends an actor that is gone or does not answer, with all workers that it keeps."""
        host, self.host = self.host, None
        self._poll = None  # it may never be answered
        if host is not None and os.getpid() == self._owner_pid:
            self._lost_on = host.node
            self._engine.end_host(host, stuck)

    def _leave_host(self) -> None:
        """Ends the actor, unless it keeps workers of other places."""
        host, self.host = self.host, None
        self._lost_on = ""
        if host is not None and os.getpid() == self._owner_pid:
            host.places.discard(self.number)
            if not host.places:
                self._engine.end_host(host, None)

    def request_close(self) -> None:
        """Lets the handler close and the worker end in order, if it is idle; `stop` waits."""
        if not self._is_running or self.is_busy or self._closing is not None:
            return
        if self.host is None:
            return
        with signals_deferred():
            self._engine.notice_disconnection()
            self._closing = self.host.asked("close", self.number, self._call, _KILLED_WITHIN_S)

    def stop(self, grace_s: float) -> None:
        """Lets the worker end in order, then ends it and its actor."""
        try:
            self.request_close()
            closing, self._closing = self._closing, None
            if closing is not None:
                self._engine.wait_for(closing, timeout_s=grace_s)
        finally:
            self.kill()
            with signals_deferred():
                self._leave_host()
            self._engine.leave_out(self)


def _left_cluster() -> Future[bytes]:
    """The answer to what was asked of an actor whose cluster this process has left."""
    answer: Future[bytes] = Future()
    answer.set_exception(ConnectionError("this process has left the Ray cluster (ray.shutdown())"))
    return answer


def _cause_of(error: Exception) -> str:
    """What Ray says about the end of an actor, in one sentence."""
    lines = [line.strip() for line in str(error).splitlines()]
    shown = [line for line in lines if line.startswith(("The actor", "The node", "Ray"))]
    if _has_raised(error):
        shown = []  # the last line says what
    text = (shown or [line for line in lines if line] or [""])[-1]
    sentence = text.partition(". Some common causes")[0].partition("There are some potential")[0]
    return f"{type(error).__name__}: {sentence.strip().rstrip('.')}"[:_LONGEST_CAUSE]


def _has_raised(error: Exception) -> bool:
    """Whether an actor is gone because its own code raised while it was made."""
    return bool(getattr(error, "actor_init_failed", False))


@dataclass(frozen=True, eq=False)
class _InStore(Published):
    """A published value that is in Ray's object store: one copy per machine.

    Attributes:
        reference: to the bytes there; they are freed with the last holder.
    """

    reference: Any = None


class RayEngine:
    """Keeps each worker with a Ray actor, on whichever machine has room; see `Engine`.

    Attributes:
        name: "ray".
        placement_timeout_s: seconds that an actor may wait for room in the cluster.
    """

    name = "ray"

    def __init__(
        self,
        *,
        num_cpus: float = 1.0,
        resources: Mapping[str, float] | None = None,
        placement_strategy: str = "PACK",
        placement_timeout_s: float = 10.0,
        strict_cpus: bool = False,
        init_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Says what workers ask for; connects to a cluster with the first pool of workers.

        Args:
            num_cpus: CPUs to reserve for each worker, ≥ 0.
            resources: further resources to reserve for each, by name.
            placement_strategy: "PACK": few machines; "SPREAD": as many as there are;
                "STRICT_PACK": one; "STRICT_SPREAD": no two workers of a pool on the same.
            placement_timeout_s: seconds that a worker may wait for room, before that counts as a
                failure to start it.
            strict_cpus: refuse machines whose CPUs are of another kind than this one's.
            init_arguments: of `ray.init`, for a local cluster that is started for this.

        Raises:
            ConfigError: there is no such strategy here.
            ImportError: Ray is not installed.
            EngineError: it is too old.
        """
        if placement_strategy not in STRATEGIES:
            raise ConfigError(
                f"placement_strategy={placement_strategy!r}: expected one of "
                f"{', '.join(map(repr, STRATEGIES))}."
            )
        self.placement_timeout_s = placement_timeout_s
        self._needs = {"CPU": float(num_cpus), **(resources or {})}
        self._strategy = placement_strategy
        self._strict_cpus = strict_cpus
        self._init_arguments = dict(init_arguments or {})
        self._ray: Any = cluster.load_ray()
        self._connection = ""
        self._num_calls = 0
        self._preloaded: tuple[str, ...] = ()
        self._places: weakref.WeakSet[RayPlace] = weakref.WeakSet()
        self._reservations: list[cluster.Reservation[RayPlace]] = []
        self._published: weakref.WeakValueDictionary[int, _InStore] = weakref.WeakValueDictionary()
        self._machines: dict[str, MachineFacts] = {}
        self._has_logged_kinds = False
        self._user = object()
        cluster.when_collected(self, cluster.release, self._user)

    # ---- what every engine gives

    def now_s(self) -> float:
        """Seconds of this machine's monotonic clock."""
        return time.monotonic()

    def make_arrivals(self) -> ArrivalFlag:
        """What a new pool of places waits with."""
        return ArrivalFlag()

    def make_place(self, name: str, *, arrivals: Arrivals, inherit: Inherit = nothing) -> RayPlace:
        """Makes an empty place; an EngineError without a cluster that has what workers need."""
        self._connect()
        place = RayPlace(name, engine=self, arrivals=arrivals, inherit=inherit)
        self._places.add(place)
        return place

    def preload(self, modules: Sequence[str]) -> None:
        """Lets each actor import modules once for all workers that it will start."""
        self._preloaded = tuple(modules)

    def publish(self, value: object, *, name: str) -> Published:
        """Puts a value into the object store, from which each machine fetches it once.

        A value that is small even if every worker is sent it, is sent: the store costs each of them
        more than that.
        """
        in_request = published(value, name=name)
        packed = in_request.packed
        if len(packed) * len(self._places) <= _SENT_TO_EACH_BYTES:
            return in_request
        self._connect()
        found = _InStore(packed, self._ray.put(packed))
        self._published[id(packed)] = found
        return found

    def machines(self) -> list[MachineFacts]:
        """The facts of this machine and of those on which workers were started."""
        return [facts_of_this_machine(), *self._machines.values()]

    def num_cpus_there(self) -> float:
        """CPUs of the cluster; 0 if it is our own, on this machine. Errors as of `make_place`."""
        self._connect()
        return 0.0 if cluster.is_own() else float(self._ray.cluster_resources().get("CPU", 0.0))

    def close(self) -> None:
        """Shuts a cluster down that was started for this engine, if no worker uses it."""
        self.give_back()
        if not any(place.is_running for place in self._places):
            cluster.release(self._user)

    # ---- what its places need

    @property
    def errors(self) -> Any:
        """Ray's exceptions."""
        return self._ray.exceptions

    def next_call(self) -> int:
        """A number that no call of this engine had before: answers are told apart by it."""
        self._num_calls += 1
        return self._num_calls

    def _connect(self) -> None:
        cluster.connect(self._user, init_arguments=self._init_arguments)
        self.notice_disconnection()
        wanted = self._reserves()
        if not wanted or not cluster.is_own():
            return
        total = self._ray.cluster_resources()
        lacking = [name for name, amount in wanted.items() if total.get(name, 0.0) < amount]
        if lacking:
            there = ", ".join(f"{total.get(name, 0):g} {name}" for name in lacking)
            raise EngineError(
                f"Each worker is to reserve {_shown(wanted)}, and the local Ray cluster that is "
                f"started for them has {there}. Connect to a cluster that has more, with "
                'ray.init(address="auto"), give it with RayEngine(init_arguments={"resources": …}),'
                " or leave custom_resources_per_env_runner out."
            )

    def _reserves(self) -> dict[str, float]:
        """What each worker reserves: no CPU on a cluster of our own, where nobody else is."""
        is_own = cluster.is_own()
        return {
            name: amount
            for name, amount in self._needs.items()
            if amount and not (is_own and name == "CPU")
        }

    def notice_disconnection(self) -> None:
        """Notes what is gone if this process has left the cluster that it was connected to.

        Ray ends what was made there. A call would connect to whichever cluster it finds.
        """
        connection = cluster.connection()
        if connection == self._connection:
            return
        self._connection = connection
        for host in [place.host for place in self._places if place.host is not None]:
            host.handle, host.is_gone = None, True
        self._reservations.clear()
        self._published.clear()

    def host_for(self, place: RayPlace, *, lost_on: str) -> Host:
        """The actor that is to keep the worker of a place.

        Args:
            place: one that has none.
            lost_on: the machine on which its actor was lost; "" if none was. What it reserved there
                is reserved still, whichever actor keeps the worker.
        """
        self._connect()
        self._places.add(place)
        hosts = {id(each.host): each.host for each in self._places if each.host is not None}
        living = [each for each in hosts.values() if not each.is_gone]
        # One that was made for the place, and lives because it keeps the worker of another one.
        own = [each for each in living if each.made_for == place.number]
        host = own[0] if own else self._neighbour_on(lost_on, living) or self.make_host(place)
        host.places.add(place.number)
        return host

    def _neighbour_on(self, node: str, hosts: Sequence[Host]) -> Host | None:
        """One of these actors that is on a machine and answers at once, the emptiest first."""
        there = [each for each in hosts if node and each.node == node]
        there.sort(key=lambda each: (len(each.places), min(each.places, default=0)))
        there = [each for each in there if len(each.places) < MOST_KEPT]
        for host in there[:_MOST_NEIGHBOURS_ASKED]:
            with contextlib.suppress(self.errors.RayError):  # it is gone, too, or stuck
                self._ray.get(host.asked_meanwhile("answers"), timeout=_ANSWERS_WITHIN_S)
                return host
        return None

    def make_host(self, place: RayPlace) -> Host:
        """Asks Ray for the actor of a place; returns at once, whenever it will be placed."""
        settings = HostSettings(
            place.name,
            ImportPath.of_this_process(),
            str(Path.cwd()),
            self._preloaded,
        )
        as_actor = self._ray.remote(
            **self._reservation_of(place).for_actor(place),
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=MOST_KEPT,
            concurrency_groups={SIGNALS: 1},
        )
        return Host(as_actor(PlaceHost).remote(settings), made_for=place.number)

    def _reservation_of(self, place: RayPlace) -> cluster.Reservation[RayPlace]:
        """What is reserved for a place: together with all that have nothing reserved yet."""
        found = [one for one in self._reservations if one.is_for(place)]
        if found:
            return found[0]
        others = [each for one in self._reservations for each in one.places()]
        waiting = [each for each in self._places if each not in others]
        waiting.sort(key=lambda each: each.number)
        reservation = cluster.Reservation(
            self._ray, waiting, needs=self._reserves(), strategy=self._strategy
        )
        self._reservations.append(reservation)
        return reservation

    def leave_out(self, place: RayPlace) -> None:
        """Reserves nothing for a place from now on, unless it starts a worker again."""
        self._places.discard(place)
        self.give_back()

    def give_back(self) -> None:
        """Gives back what was reserved for places of which none has a worker any more."""
        idle = [one for one in self._reservations if not any(each.host for each in one.places())]
        for reservation in idle:
            self._reservations.remove(reservation)
            reservation.give_back()

    def end_worker(self, host: Host, place: int, call: int) -> Ending:
        """Lets an actor end the worker of a place, and its call; returns what came of it."""
        self.notice_disconnection()
        if host.is_gone:
            return "gone"
        asked = host.asked_meanwhile("kill", place, call)
        done, _ = self._ray.wait([asked], timeout=_KILLED_WITHIN_S)
        try:
            self._ray.get(done, timeout=0)
        except self.errors.RayError:  # it is gone itself, and the worker with it
            return "gone"
        return "ended" if done else "stuck"

    def end_host(self, host: Host, stuck: Heartbeat | None) -> None:
        """Ends an actor and its workers; `stuck` is the last heartbeat of one without an answer."""
        self.notice_disconnection()
        if host.is_gone:
            return
        host.is_gone = True
        self._ray.kill(host.handle, no_restart=True)
        if stuck is not None and stuck.node:  # one that is stopped cannot end itself
            self._end_processes(stuck)

    def _end_processes(self, last: Heartbeat) -> None:
        """Ends processes on their machine that do not answer there, without waiting."""
        on_their_node = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            last.node, soft=False
        )
        task = self._ray.remote(end_processes).options(
            num_cpus=0, max_retries=0, scheduling_strategy=on_their_node
        )
        task.remote([pid for pid in (last.pid, last.host_pid) if pid])

    def wait_for(self, future: Future[Any], *, timeout_s: float) -> None:
        """Waits for an answer that may not come; it says nothing."""
        arrived = ArrivalFlag()
        with signals_deferred():
            future.add_done_callback(lambda _: arrived.put())
        arrived.wait(timeout_s)

    def find_published(self, packed: object) -> _InStore | None:
        """The published value with just these bytes; None if they are none."""
        found = self._published.get(id(packed))
        return found if found is not None and found.packed is packed else None

    def why_refused(self, facts: MachineFacts) -> str:
        """Why a worker on such a machine is not used; "" if it is."""
        own = facts_of_this_machine()
        differences = own.differences(facts)
        if differences:
            return (
                f"The machine {facts.host} of the Ray cluster has other versions than this one: "
                f"{'; '.join(differences)}. Results would depend on where runners are placed. "
                "Install the same versions on all machines."
            )
        if facts.cpu != own.cpu and self._strict_cpus:
            return (
                f"The machine {facts.host} of the Ray cluster has another kind of CPU than this "
                f"one ({own.host}): {facts.cpu}; here {own.cpu}. {_LAST_BITS} strict_cpus=True "
                "refuses it: reserve a resource that only machines of one kind have "
                "(custom_resources_per_env_runner), or leave strict_cpus out."
            )
        self._machines.setdefault(facts.host, facts)
        self._log_kinds()
        return ""

    def _log_kinds(self) -> None:
        kinds = cpu_kinds(self.machines())
        if len(kinds) > 1 and not self._has_logged_kinds:
            self._has_logged_kinds = True
            shown = "; ".join(f"{', '.join(hosts)}: {kind}" for kind, hosts in kinds.items())
            _LOGGER.warning(
                "The machines of the Ray cluster have CPUs of %d kinds (%s). %s Results say so "
                "(engine/num_cpu_kinds); strict_cpus=True refuses such machines.",
                len(kinds),
                shown,
                _LAST_BITS,
            )

    def why_not_placed(self, place: RayPlace, waited_s: float) -> str:
        """What keeps an actor from being placed; "" while it may still be, or is."""
        if waited_s < self.placement_timeout_s:
            return ""
        reservation = self._reservation_of(place)
        if reservation.is_there_for(place):
            return ""  # its process takes its time
        others = len(reservation.places()) - 1
        strategy = f"placement_strategy={self._strategy!r}"
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        total, free = self._ray.cluster_resources(), self._ray.available_resources()
        wanted = self._reserves()
        shown = ", ".join(
            f"{total.get(key, 0):g} {key} of which {free.get(key, 0):g} free" for key in wanted
        )
        machines = "1 machine" if len(nodes) == 1 else f"{len(nodes)} machines"
        return (
            f"it found no room within {waited_s:.0f} s: it needs {_shown(wanted)} on one "
            f"machine{f', at once with {others} more of its kind ({strategy})' if others else ''}, "
            f"and the Ray cluster has {machines} with {shown or 'no such thing'}. Add a machine, "
            "free others' resources, or ask for fewer runners or another placement_strategy"
        )


def _shown(needs: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {key}" for key, amount in needs.items() if amount) or "nothing"


def end_processes(pids: Sequence[int]) -> None:
    """Ends processes of this machine; a task, because an actor that is stopped ends nothing."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)

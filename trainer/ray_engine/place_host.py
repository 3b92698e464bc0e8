"""The Ray actor of a place: keeps a worker process on its machine, and passes bytes on.

A worker is a process of the local engine there, not the actor itself. So whatever code of users
does to its process (it exits, crashes, holds the interpreter lock, is killed) is noticed and told
as on the local engine, with exit code, heartbeat and notes, and repaired in milliseconds without
Ray. Ray is asked for three things only: to place the actor, to carry bytes, and to tell when the
actor or its machine is gone.

An actor is made for one place. It also takes in the worker of a place on the same machine whose own
actor is lost: its modules are imported and its fork server stands, so that takes a tenth of what
another actor takes, and no further memory.

Calls of a place come one after the other, those of `MOST_KEPT` places side by side; what is asked
meanwhile (`poll`, `end`, `kill`) comes in a thread of its own, the concurrency group `SIGNALS`.
Answers leave as bytes, which Ray carries as they are. Nothing of users is unpickled here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainer.ray_engine.cluster import load_ray
from trainer.runtime.engine import NO_NOTES, TakeOver
from trainer.runtime.local_engine import LocalEngine
from trainer.runtime.machine_facts import MachineFacts, facts_of_this_machine
from trainer.runtime.messages import Lost
from trainer.runtime.process_start import ImportPath

SIGNALS: Final = "signals"
"""The concurrency group of what is asked while a call is under way."""
MOST_KEPT: Final = 3
"""How many places an actor keeps workers of, its own included."""

_LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True)
class HostSettings:
    """What an actor needs to know of the process that its worker belongs to.

    Attributes:
        name: of the place that it is made for.
        path: where the owner finds modules.
        folder: the owner's current one.
        preloaded: modules to import once for all workers.
    """

    name: str
    path: ImportPath
    folder: str
    preloaded: tuple[str, ...]


@dataclass(frozen=True)
class Heartbeat:
    """What is known of a worker at a moment.

    Attributes:
        call: number of the call that is under way or was last.
        num_heartbeats: made in it.
        num_heartbeats_ever: since the actor was made, as the worker counts.
        notes: what it noted in the call.
        host: the machine.
        pid: of the worker; None if there is none.
        node: Ray's id of the node.
        host_pid: of the actor.
    """

    call: int
    num_heartbeats: int = 0
    num_heartbeats_ever: int = 0
    notes: tuple[int, ...] = NO_NOTES
    host: str = ""
    pid: int | None = None
    node: str = ""
    host_pid: int = 0


@dataclass(frozen=True)
class HostReply:
    """How a call ended.

    Attributes:
        answer: the worker's packed `Reply`, or how it was lost.
        last: its last heartbeat.
        facts: of the machine, after a start.
    """

    answer: bytes | Lost
    last: Heartbeat
    facts: MachineFacts | None = None


class KeptPlace:
    """The worker process of one place, and the call that it is at."""

    def __init__(
        self, name: str, *, engine: LocalEngine, node: str, starting: threading.Lock
    ) -> None:
        """Starts no worker yet.

        Args:
            name: what messages call the worker.
            engine: of this machine.
            node: Ray's id of it.
            starting: held while a worker is started, which changes what belongs to the process.
        """
        self._arrivals = engine.make_arrivals()
        self._take_over: TakeOver | None = None
        self._place = engine.make_place(
            name, arrivals=self._arrivals, inherit=lambda: self._take_over
        )
        self._lock = threading.RLock()
        self._node = node
        self._starting = starting
        self._call = self._newest = 0
        self._asked_to_end = 0

    def start(self, call: int, packed_factory: bytes, take_over: TakeOver | None) -> HostReply:
        """Starts a worker in the place of the one that there is."""
        with self._starting, self._lock:
            if not self._is_due(call):
                return self._reply_of(_gone())
            self._take_over = take_over
            self._place.start(packed_factory)
        reply = self._reply(call)
        return HostReply(reply.answer, reply.last, facts_of_this_machine())

    def call(self, call: int, method: str, packed: bytes, buffers: Sequence[bytes]) -> HostReply:
        """Calls a method of the handler."""
        with self._lock:
            if not self._is_due(call) or not self._place.is_running:
                return self._reply_of(_gone())
            self._place.submit_packed(method, packed, buffers=buffers)
            if self._asked_to_end == call:  # that came first
                self._place.request_end()
        return self._reply(call)

    def close(self, call: int, grace_s: float) -> None:
        """Lets the handler close and ends the worker, unless something was asked since."""
        with self._lock:
            if self._call != call:
                return
            self._place.request_close()
        self._place.await_close(grace_s)  # meanwhile it may be killed, and another one started
        with self._lock:
            if self._call == call:
                self._place.kill()

    def _is_due(self, call: int) -> bool:
        """Begins a call, unless it was ended or a newer one came first: several threads run."""
        if call <= self._newest:
            return False
        self._call = self._newest = call
        return True

    def _reply(self, call: int) -> HostReply:
        """Waits for the end of a call."""
        while True:
            with self._lock:
                if self._call != call or not self._place.owes_answer:  # it was killed
                    return self._reply_of(_gone())
                if self._place.has_answer:
                    return self._reply_of(self._place.take_packed())
            self._arrivals.wait(_LOOK_EVERY_S)

    def _reply_of(self, answer: bytes | Lost) -> HostReply:
        return HostReply(answer, self.heartbeat())

    def heartbeat(self) -> Heartbeat:
        """What is known of the worker now."""
        with self._lock:
            place = self._place
            return Heartbeat(
                self._call,
                num_heartbeats=place.num_heartbeats,
                num_heartbeats_ever=place.num_heartbeats_ever,
                notes=place.notes,
                host=socket.gethostname(),
                pid=place.pid,
                node=self._node,
                host_pid=os.getpid(),
            )

    def end(self, call: int) -> None:
        """Tells a call to come to an end."""
        with self._lock:
            self._asked_to_end = call
            if self._call == call and self._place.owes_answer:
                self._place.request_end()

    def kill(self, call: int) -> None:
        """Ends the worker at once, and the call, also where it comes later than this."""
        with self._lock:
            self._newest = max(self._newest, call)
            self._call = -1
            self._place.kill()
        self._arrivals.put()


class PlaceHost:
    """Keeps the workers of places, by the number of each; the class of the Ray actor."""

    def __init__(self, settings: HostSettings) -> None:
        """Takes over where modules are found; starts no worker yet."""
        self._names = [settings.name]
        settings.path.take_over()
        with contextlib.suppress(OSError):  # another machine may not have that folder
            os.chdir(settings.folder)
        self._engine = LocalEngine()
        self._engine.preload(settings.preloaded)
        self._ray = load_ray()
        self._node: str = self._ray.get_runtime_context().get_node_id()
        self._kept: dict[int, KeptPlace] = {}
        self._starting = threading.Lock()

    def __repr__(self) -> str:
        # Ray writes it before each line that the actor or its workers print.
        return ", ".join(self._names)

    # ---- calls, those of a place one after the other

    def start(
        self, place: int, name: str, call: int, packed_factory: bytes, packed_take_over: bytes
    ) -> bytes:
        """Starts a worker in the place of the one that there is; see `Place.start`.

        Args:
            place: its number.
            name: what messages call it.
            call: the number of the call.
            packed_factory: makes the handler.
            packed_take_over: what the worker calls first; this library's own.

        Returns:
            a pickled `HostReply`, like `call`.
        """
        take_over = pickle.loads(packed_take_over)  # noqa: S301 - from our own owner
        if place not in self._kept:
            self._kept[place] = KeptPlace(
                name, engine=self._engine, node=self._node, starting=self._starting
            )
            self._send_name(name)
        return pickle.dumps(self._kept[place].start(call, packed_factory, take_over))

    def call(self, place: int, call: int, method: str, packed: bytes, *buffers: bytes) -> bytes:
        """Calls a method of the handler; see `Place.submit`.

        Args:
            place: its number.
            call: the number of the call.
            method: of the handler.
            packed: its arguments.
            buffers: what is published, and was kept out of them.
        """
        return pickle.dumps(self._kept[place].call(call, method, packed, buffers))

    def close(self, place: int, call: int, grace_s: float) -> None:
        """Lets the handler close and ends the worker; see `Place.stop`."""
        self._kept[place].close(call, grace_s)

    def _send_name(self, name: str) -> None:
        """Lets Ray write one more name before lines: it cannot tell whose worker printed which."""
        if name in self._names:
            return
        self._names.append(name)
        # There is no public way. Where Ray has moved its own, lines go without the further names.
        prefix = None
        with contextlib.suppress(AttributeError):
            prefix = self._ray._private.ray_constants.LOG_PREFIX_ACTOR_NAME
        if prefix is not None:
            for stream in (sys.stdout, sys.stderr):
                stream.write(f"{prefix}{self!r}\n")
                stream.flush()

    # ---- meanwhile

    def answers(self) -> bool:
        """Says that it is there, and may take in a worker."""
        return True

    def poll(self, place: int) -> bytes:
        """What is known of a worker now: a pickled `Heartbeat`."""
        kept = self._kept.get(place)
        return pickle.dumps(Heartbeat(-1) if kept is None else kept.heartbeat())

    def end(self, place: int, call: int) -> None:
        """Tells a call to come to an end; see `Place.request_end`."""
        kept = self._kept.get(place)
        if kept is not None:
            kept.end(call)

    def kill(self, place: int, call: int) -> None:
        """Ends a worker at once; who waits for it is told that it is gone."""
        kept = self._kept.get(place)
        if kept is not None:
            kept.kill(call)


def _gone() -> Lost:
    return Lost(None, cause="it was ended before it was asked")

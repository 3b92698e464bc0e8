"""The caller's side: one connection from this process to one actor, with backpressure."""

from __future__ import annotations

import collections
import contextlib
import itertools
import logging
import math
import os
import pickle
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, ClassVar, Final

import cloudpickle

from callbacks import PackingError
from trainer.actors.process import FAILURE, HEADER, VALUE, is_actor, pack_arguments
from trainer.actors.registry import ActorAddress, ActorRegistry, Ending, refuse_elsewhere
from trainer.errors import (
    ActorDiedError,
    ActorError,
    ActorTimeoutError,
    RemoteError,
    SerializationError,
)
from trainer.runtime.messages import Failure, Lost
from trainer_toolkit.interrupts import ArrivalFlag, signals_deferred

# ---- actor answer
#
# What a call to an actor will give: a value or an error, for those who ask, now or later.

_LOGGER: Final = logging.getLogger(__name__)


class Arrival:
    """What another thread brings, once; any number of threads may wait for it.

    A `concurrent.futures.Future` without its lock, which an interrupt could leave taken (see
    `trainer_toolkit.interrupts`): each wait has a flag of its own.

    Attributes:
        outcome: a kind and a packed value, or why there is none; None until it is there.
    """

    def __init__(self) -> None:
        """Nothing is there yet."""
        self.outcome: tuple[int, bytes] | ActorError | None = None
        self._to_call: list[Callable[[], object]] = []

    def bring(self, outcome: tuple[int, bytes] | ActorError) -> None:
        """Tells everyone who waits."""
        self.outcome = outcome  # first: who comes now calls itself
        for function in tuple(self._to_call):
            function()

    def when_there(self, function: Callable[[], object]) -> None:
        """Calls it, in whichever thread, at once if it is there already; it may be called twice."""
        self._to_call.append(function)
        if self.outcome is not None:
            function()

    def forget(self, function: Callable[[], object]) -> None:
        """Calls it no more."""
        with contextlib.suppress(ValueError):
            self._to_call.remove(function)


def wait_for(arrivals: Sequence[Arrival], timeout_s: float | None, *, at_least: int) -> bool:
    """Waits until so many are there; None waits for ever. False if the time is up before."""
    flag = ArrivalFlag()
    until = math.inf if timeout_s is None else time.monotonic() + timeout_s
    try:
        for arrival in arrivals:
            arrival.when_there(flag.put)
        while sum(arrival.outcome is not None for arrival in arrivals) < at_least:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            flag.wait(left_s)
    finally:
        for arrival in arrivals:
            arrival.forget(flag.put)
    return True


class Answer:
    """What a call will give: a value or an error."""

    _was_asked = True  # until it is made: of one that was refused nothing is told

    def __init__(self, label: str, logged: set[str] | None = None) -> None:
        """Nothing is known yet.

        Args:
            label: which call it is, for messages.
            logged: which calls a warning was given for already.
        """
        self.label = label
        self._logged: set[str] = set() if logged is None else logged
        self._was_asked = False
        self.arrival = Arrival()
        self._value: tuple[Any] | None = None

    def __repr__(self) -> str:
        state = "under way" if self.arrival.outcome is None else "there"
        return f"<future of {self.label}, {state}>"

    def __del__(self) -> None:
        # No caller can ask any more: an error must not vanish. Once per method is enough.
        is_wanted = not self._was_asked and self.label not in self._logged
        if is_wanted and self.arrival.outcome is not None and self.packed is None:
            self._logged.add(self.label)
            try:
                self.value()
            except Exception as error:  # noqa: BLE001 - it is what is told
                _LOGGER.warning("%s failed, and its future is gone: %r", self.label, error)

    def __reduce__(self) -> Any:
        raise SerializationError(
            f"The future of {self.label} cannot be sent to another process inside something else. "
            "Give it as an argument of its own, or send what `actors.get(future)` returns."
        )

    @property
    def packed(self) -> bytes | None:
        """The value as bytes; None as long as it is not there, or if there is an error instead."""
        arrived = self.arrival.outcome
        return arrived[1] if isinstance(arrived, tuple) and arrived[0] == VALUE else None

    def value(self, timeout_s: float | None = None) -> Any:
        """Waits for the value.

        Args:
            timeout_s: seconds to wait; None waits for ever.

        Raises:
            ActorTimeoutError: it did not come in time.
            ActorDiedError: the actor is gone.
            Exception: whatever the method raised, with the actor's traceback as its cause.
        """
        if self._value is not None:
            return self._value[0]
        self._was_asked = True
        if self.arrival.outcome is None:
            wait_for([self.arrival], timeout_s, at_least=1)
        arrived = self.arrival.outcome
        if arrived is None:
            raise ActorTimeoutError(
                f"{self.label} gave no answer within {timeout_s:g} s. The call goes on; `get` may "
                "be asked again, and `actors.kill(handle)` ends the actor."
            )
        if isinstance(arrived, ActorError):
            raise type(arrived)(*arrived.args) from arrived.__cause__
        kind, data = arrived
        if kind == FAILURE:
            raise unpack_failure(cloudpickle.loads(data))
        self._value = (cloudpickle.loads(data),)
        return self._value[0]


def unpack_failure(failure: Failure) -> BaseException:
    """The error that a failure tells of, or its text where its class is not known."""
    try:
        return failure.unpack_error()
    except Exception as error:  # noqa: BLE001 - its class is not known here: its text is
        text = f"{failure.type_name}: {failure.message}\n\n{failure.traceback_text}"
        unknown = RemoteError(text)
        unknown.__cause__ = error
        return unknown


# ---- actor end
#
# The errors for calls to an actor that cannot be reached (any more).

_ENDING_TIMEOUT_S: Final = 2.0


def lost_connection(address: ActorAddress) -> ActorError:
    """The error for calls through a connection that was closed on this side."""
    return ActorError(f"The connection to the {address.describe()} was ended. Call it again.")


def describe_end(address: ActorAddress) -> ActorError:
    """The error for calls to an actor whose connection has ended: why it is gone."""
    # Its sockets are closed one after the other.
    if not address.wait_for_end(_ENDING_TIMEOUT_S):
        return lost_connection(address)
    registry = ActorRegistry(address.directory)
    ending = registry.ending_of(address.actor_id) or Ending()
    advice = (
        "Its state is lost. Make it again (`options(name=…, get_if_exists=True)` makes it where "
        "there is none), or let it save what must not be lost."
    )
    subject = f"The {address.describe()}, process {address.pid},"
    if ending.failure is not None:
        error = ActorDiedError(
            f"{subject} could not be made: its constructor raised {ending.failure.type_name}: "
            f"{ending.failure.message}"
        )
        error.__cause__ = unpack_failure(ending.failure)
        return error
    if ending.was_killed:
        return ActorDiedError(f"{subject} was ended by kill(). {advice}")
    return ActorDiedError(f"{subject} {Lost(ending.exit_code).describe()}. {advice}")


# ---- actor room
#
# How much a process may have under way with one actor, so that no memory fills with calls.
#     room.enter(label, num_bytes)     waits while it is full, until half of it is free again
#     room.leave(num_bytes)            an answer is there
#     room.open()                      the actor is gone: no caller needs to wait
#
# Calls that actors make do not wait for room: two actors that call each other could wait for each
# other for ever. No actor waits for a process that is none, so the others' waiting closes no
# circle.

MOST_CALLS: Final = 10_000
MOST_BYTES: Final = 64 * 2**20
PATIENCE_S: Final = 10.0


class Room:
    """How much one process may have under way with one actor."""

    def __init__(
        self,
        subject: str,
        *,
        is_bounded: bool = True,
        most_calls: int = MOST_CALLS,
        most_bytes: int = MOST_BYTES,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Nothing is under way.

        Args:
            subject: which actor it is, for messages.
            is_bounded: whether calls wait at all.
            most_calls: so many calls are full.
            most_bytes: so many bytes are full; a call that is larger goes alone.
            patience_s: seconds of waiting after which a warning says so, once.
        """
        self._subject = subject
        self._is_open = not is_bounded
        self._most_calls = most_calls
        self._most_bytes = most_bytes
        self.patience_s: Final = patience_s
        self._has_warned = False
        self._lock = threading.Lock()
        self._waiting: list[ArrivalFlag] = []
        self.num_calls = 0
        self.num_bytes = 0

    def enter(self, num_bytes: int, then: Callable[[], object] = lambda: None) -> None:
        """Counts a call as under way, as soon as there is room for it, and calls `then`.

        An interrupt finds both done, or neither.
        """
        if not self._counts(num_bytes, then, self._is_full):
            self._wait(num_bytes, then)

    def leave(self, num_bytes: int) -> None:
        """Counts a call as done."""
        with self._lock:
            self.num_calls -= 1
            self.num_bytes -= num_bytes
            has_emptied = bool(self._waiting) and not self._is_half_full(0)
        if has_emptied:
            self._wake_all()

    def grow(self, num_bytes: int) -> None:
        """Counts bytes of a call that were not known when it entered."""
        with self._lock:
            self.num_bytes += num_bytes

    def open(self) -> None:
        """Lets every caller in, from now on."""
        self._is_open = True
        self._wake_all()

    def warn(self, reason: str) -> None:
        """Warns that a caller waits, once."""
        if self._has_warned:
            return
        self._has_warned = True
        _LOGGER.warning(
            "A call to the %s has waited for %g s to be sent, because %s: %d calls with %.3g MB. "
            "It goes on when the actor has answered some. If the actor is stuck, "
            "`actors.kill(handle)` ends the wait; if it is only slow, call it less often.",
            self._subject,
            self.patience_s,
            reason,
            self.num_calls,
            self.num_bytes / 1e6,
        )

    def _wait(self, num_bytes: int, then: Callable[[], object]) -> None:
        flag = ArrivalFlag()
        self._waiting.append(flag)  # before it looks again: nothing is missed
        try:
            until = time.monotonic() + self.patience_s
            while not self._counts(num_bytes, then, self._is_half_full):
                if time.monotonic() >= until:
                    self.warn("much is under way")
                flag.wait(self.patience_s)
        finally:
            self._waiting.remove(flag)

    def _counts(
        self, num_bytes: int, then: Callable[[], object], is_too_full: Callable[[int], bool]
    ) -> bool:
        """Lets a call in, unless that is too full."""
        with signals_deferred():
            with self._lock:
                if is_too_full(num_bytes):
                    return False
                self.num_calls += 1
                self.num_bytes += num_bytes
            then()
        return True

    def _wake_all(self) -> None:
        for flag in tuple(self._waiting):
            flag.put()

    def _is_full(self, num_bytes: int) -> bool:
        has_room = (
            self.num_calls < self._most_calls and self.num_bytes + num_bytes <= self._most_bytes
        )
        return not (self._is_open or has_room or self.num_calls == 0)

    def _is_half_full(self, _: int) -> bool:
        # Half, and not one: so that a caller and an actor do not wake each other for every call.
        is_half_empty = (
            self.num_calls <= self._most_calls // 2 and self.num_bytes <= self._most_bytes // 2
        )
        return not (self._is_open or is_half_empty)


# ---- actor link
#
# The caller's side: one connection from this process to one actor, and the answers to come.
#     link = link_to(address)                      the same for all threads of this process
#     answer = link.call("inc", [1], {})           returns at once, unless too much is under way
#     value = answer.value(timeout_s=5.0)
#
# A thread per connection sleeps until answers come, and takes them at once, so that an actor
# never waits for a caller. Arguments that are answers of other actors need not be there yet: the
# call, and those after it, are sent when they are.


@dataclass
class _Request:
    answer: Answer
    method: str
    packed_arguments: bytes
    waits_for: tuple[tuple[int | str, Answer], ...]
    counted_bytes: int = 0

    def num_bytes(self) -> int:
        """Of its arguments, as far as they are there."""
        there = (answer.packed for _, answer in self.waits_for)
        return len(self.packed_arguments) + sum(len(packed) for packed in there if packed)

    def is_ready(self) -> bool:
        return all(answer.arrival.outcome is not None for _, answer in self.waits_for)


class Link:
    """A connection to one actor; calls are sent in the order in which they are made."""

    def __init__(self, address: ActorAddress) -> None:
        """Connects; an ActorDiedError if the actor is gone."""
        self._address = address
        self._connection = _connect(address)
        self._numbers = itertools.count(1)
        self._room = Room(address.describe(), is_bounded=not is_actor())
        self._writable = select.poll()
        self._writable.register(self._connection.fileno(), select.POLLOUT)
        self._under_way: dict[int, tuple[Answer, int]] = {}
        self._outbox: collections.deque[_Request] = collections.deque()
        self._lock = threading.RLock()
        self._end: ActorError | None = None
        self._was_closed = False
        self._logged: set[str] = set()
        self._reader = threading.Thread(
            target=self._read, name=f"answers of {address.describe()}", daemon=True
        )
        with signals_deferred():
            self._reader.start()

    @property
    def has_ended(self) -> bool:
        """Whether no more calls can be made through it."""
        return self._was_closed or self._end is not None

    def call(
        self, method: str, arguments: Sequence[object], keywords: Mapping[str, object]
    ) -> Answer:
        """Calls a method; returns at once, unless too much is under way (backpressure, above).

        Args:
            method: its name.
            arguments: what it is given; answers are replaced by their values.
            keywords: what it is given by name; likewise.

        Raises:
            SerializationError: an argument cannot be pickled; nothing was sent.
        """
        label = f"{method}() of {self._address.describe()}"
        plain, named = list(arguments), dict(keywords)
        waits_for: list[tuple[int | str, Answer]] = []
        for container in (dict(enumerate(plain)), dict(named)):
            for position, value in container.items():
                if isinstance(value, Answer):
                    waits_for.append((position, value))
                    (plain if isinstance(position, int) else named)[position] = None  # type: ignore[index]
        try:
            packed = pack_arguments(plain, named, f"the arguments of {method}()")
        except PackingError as error:
            raise SerializationError(f"{label} was not called: {error}") from error
        request = _Request(Answer(label, self._logged), method, packed, tuple(waits_for))
        request.counted_bytes = request.num_bytes()
        self._room.enter(request.counted_bytes, lambda: self._outbox.append(request))
        self._send_what_is_ready()
        for _, answer in waits_for:
            answer.arrival.when_there(self._send_what_is_ready)
        return request.answer

    def _send_what_is_ready(self) -> None:
        settled: list[tuple[_Request, tuple[int, bytes] | ActorError]] = []
        with self._lock:
            while self._outbox and (self._end is not None or self._outbox[0].is_ready()):
                request = self._outbox[0]
                failed = [answer for _, answer in request.waits_for if answer.packed is None]
                # If an argument is an error, the call cannot be made.
                outcome = self._end or (failed[0].arrival.outcome if failed else None)
                if outcome is None:
                    self._send(request)
                else:
                    settled.append((request, outcome))
                    self._outbox.popleft()
        # Outside the lock: others may be waiting for these, with locks of their own.
        for request, arrival in settled:
            self._room.leave(request.counted_bytes)
            request.answer.arrival.bring(arrival)

    def _send(self, request: _Request) -> None:
        """Sends the first call of the outbox."""
        values = [(position, answer.packed) for position, answer in request.waits_for]
        number = next(self._numbers)
        num_bytes = request.num_bytes() if values else request.counted_bytes
        try:
            with signals_deferred():  # an interrupt finds it in the outbox, or under way
                self._outbox.popleft()
                self._under_way[number] = (request.answer, num_bytes)
                if num_bytes != request.counted_bytes:
                    self._room.grow(num_bytes - request.counted_bytes)
            body = pickle.dumps((request.method, request.packed_arguments, values), 5)
            if not self._writable.poll(self._room.patience_s * 1000):
                self._room.warn("its process takes nothing in: it may have been stopped")
            self._connection.send_bytes(HEADER.pack(number, VALUE) + body)
        except OSError:
            pass  # the reader sees the same, and tells everyone who waits
        except BaseException:
            # An interrupt within a message: what comes after it could not be understood.
            self._shut()
            raise

    def _read(self) -> None:
        try:
            while True:
                message = self._connection.recv_bytes()
                number, kind = HEADER.unpack_from(message)
                answer, num_bytes = self._under_way.pop(number)
                self._room.leave(num_bytes)
                answer.arrival.bring((kind, message[HEADER.size :]))
                del answer  # or it would last until the next one comes
        except (OSError, EOFError):
            pass
        end = lost_connection(self._address) if self._was_closed else describe_end(self._address)
        with self._lock:
            self._end = end
            left = list(self._under_way.values())
            self._under_way.clear()
            self._connection.close()
        _forget(self, self._address.socket_path)
        self._room.open()
        for answer, _ in left:
            answer.arrival.bring(end)
        self._send_what_is_ready()  # to those who were not sent yet, the same

    def close(self) -> None:
        """Ends the connection; the actor goes on."""
        self._shut()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def _shut(self) -> None:
        """Wakes the reader; closing the connection would not."""
        self._was_closed = True
        try:
            with socket.socket(fileno=os.dup(self._connection.fileno())) as ours:
                ours.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed, here or there


def _connect(address: ActorAddress) -> Connection[Any, Any]:
    joined = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        address.connect(joined)
        connection: Connection[Any, Any] = Connection(joined.detach())
    except (OSError, EOFError) as error:
        joined.close()
        end = describe_end(address)
        # What its constructor raised is its cause; that no process listens comes of it.
        raise end from end.__cause__ or error
    return connection


class _Process:
    """The connections of this process, by socket; global because a process has them."""

    lock = threading.Lock()
    links: ClassVar[dict[str, Link]] = {}


def link_to(address: ActorAddress) -> Link:
    """This process' connection to an actor.

    Raises:
        ActorDiedError: the actor is gone.
        ActorNameError: this process is on another machine.
    """
    refuse_elsewhere()
    link = _Process.links.get(address.socket_path)
    if link is not None and not link.has_ended:
        return link
    with _Process.lock:
        link = _Process.links.get(address.socket_path)
        if link is None or link.has_ended:
            link = _Process.links[address.socket_path] = Link(address)
        return link


def _forget(link: Link, socket_path: str) -> None:
    """Drops a connection that has ended, or there would be one for every actor there ever was."""
    with _Process.lock:
        if _Process.links.get(socket_path) is link:
            del _Process.links[socket_path]


def close_links() -> None:
    """Ends all connections of this process."""
    with _Process.lock:
        links = list(_Process.links.values())
        _Process.links.clear()
    for link in links:
        link.close()


def _forget_links() -> None:
    """In a forked copy: the connections are those of the original."""
    _Process.lock = threading.Lock()
    _Process.links.clear()


os.register_at_fork(after_in_child=_forget_links)

"""The caller's side: one connection from this process to one actor, and the answers to come.

    link = link_to(address)                      the same for all threads of this process
    answer = link.call("inc", [1], {})           returns at once, unless too much is under way
    value = answer.value(timeout_s=5.0)

A thread per connection sleeps until answers come, and takes them at once, so that an actor never
waits for a caller. Arguments that are answers of other actors need not be there yet: the call, and
those after it, are sent when they are.
"""

from __future__ import annotations

import collections
import itertools
import os
import pickle
import select
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, ClassVar

from callbacks import PackingError
from trainer.errors import ActorError, SerializationError
from trainer.runtime.actor_address import ActorAddress
from trainer.runtime.actor_answer import Answer
from trainer.runtime.actor_end import describe_end, lost_connection
from trainer.runtime.actor_process import HEADER, VALUE, is_actor, pack_arguments
from trainer.runtime.actor_registry import ActorRegistry
from trainer.runtime.actor_room import Room


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
        return all(answer.arrival.done() for _, answer in self.waits_for)


class Link:
    """A connection to one actor; calls are sent in the order in which they are made."""

    def __init__(self, address: ActorAddress) -> None:
        """Connects.

        Raises:
            ActorDiedError: nobody is there.
        """
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
        self._told: set[str] = set()
        self._reader = threading.Thread(
            target=self._read, name=f"answers of {address.describe()}", daemon=True
        )
        self._reader.start()

    @property
    def has_ended(self) -> bool:
        """Whether no more calls can be made through it."""
        return self._end is not None

    def call(
        self, method: str, arguments: Sequence[object], keywords: Mapping[str, object]
    ) -> Answer:
        """Calls a method; returns at once, unless too much is under way (see `actor_room`).

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
        request = _Request(Answer(label, self._told), method, packed, tuple(waits_for))
        request.counted_bytes = request.num_bytes()
        self._room.enter(request.counted_bytes)
        with self._lock:
            self._outbox.append(request)
        self._send_what_is_ready()
        for _, answer in waits_for:
            answer.arrival.add_done_callback(self._send_what_is_ready)
        return request.answer

    def _send_what_is_ready(self, _: object = None) -> None:
        settled: list[tuple[_Request, tuple[int, bytes] | ActorError]] = []
        with self._lock:
            while self._outbox and (self._end is not None or self._outbox[0].is_ready()):
                request = self._outbox.popleft()
                failed = [answer for _, answer in request.waits_for if answer.packed is None]
                if self._end is not None:
                    settled.append((request, self._end))
                elif failed:  # the call cannot be made: its argument is an error
                    settled.append((request, failed[0].arrival.result()))
                else:
                    self._send(request)
        # Outside the lock: others may be waiting for these, with locks of their own.
        for request, arrival in settled:
            self._room.leave(request.counted_bytes)
            request.answer.arrival.set_result(arrival)

    def _send(self, request: _Request) -> None:
        values = [(position, answer.packed) for position, answer in request.waits_for]
        number = next(self._numbers)
        body = pickle.dumps((request.method, request.packed_arguments, values), 5)
        num_bytes = request.num_bytes() if values else request.counted_bytes
        if num_bytes != request.counted_bytes:
            self._room.grow(num_bytes - request.counted_bytes)
        self._under_way[number] = (request.answer, num_bytes)
        try:
            if not self._writable.poll(self._room.patience_s * 1000):
                self._room.tell("its process takes nothing in: it may have been stopped")
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
                answer.arrival.set_result((kind, message[HEADER.size :]))
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
            answer.arrival.set_result(end)
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
        key = ActorRegistry(address.directory).key()
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except (OSError, EOFError) as error:
        joined.close()
        end = describe_end(address)
        # What its constructor raised is its cause; that nobody listens comes of it.
        raise end from end.__cause__ or error
    return connection


class _Process:
    """The connections of this process, by socket; global because a process has them."""

    lock = threading.Lock()
    links: ClassVar[dict[str, Link]] = {}


def link_to(address: ActorAddress) -> Link:
    """This process' connection to an actor.

    Raises:
        ActorDiedError: nobody is there.
    """
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

"""The actor's side: what runs inside an actor's process.

    accept thread        lets callers in that are of this user
    a thread per caller  reads its calls into one queue, so that callers never wait to be read
    main thread          makes the object, then takes one call after the other from the queue

Calls of one caller come through one connection and stay in order. No error leaves this module: what
a method raises is the answer to its call; what the constructor raises is noted in the registry
before the process ends.

A message is a number of eight bytes, which names the call, a byte (`VALUE`, `FAILURE`), and bytes.
"""

from __future__ import annotations

import inspect
import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import cloudpickle

from callbacks import PackingError
from callbacks.packing import pack_object
from trainer.actors.registry import ActorRegistry, Ending, join_registry
from trainer.errors import ActorUsageError, SerializationError
from trainer.runtime.messages import describe_failure, pack
from trainer.runtime.private_folder import check_peer
from trainer.runtime.process_start import ImportPath
from trainer.runtime.worker import die_with_parent, flush_output, prepare_process, unpack

HEADER: Final = struct.Struct("<QB")
VALUE: Final = 0
FAILURE: Final = 1

_PROTOCOL: Final = 5
_Call = tuple["Connection[Any, Any]", bytes]
_FAILED_TO_BEGIN: Final = 1


@dataclass(frozen=True)
class ActorBootstrap:
    """What makes an actor.

    Attributes:
        actor_id: its id in its registry.
        registry: where it is found.
        visible_registry: where it finds other actors.
        name: what errors call it.
        packed_factory: pickled callable that makes the object.
        import_path: where the user's modules are found.
        has_forkserver: whether its parent is a fork server; None if it outlives its parent.
    """

    actor_id: str
    registry: ActorRegistry
    visible_registry: ActorRegistry
    name: str
    packed_factory: bytes
    import_path: ImportPath
    has_forkserver: bool | None


class _Here:
    """What this process is; global because a process is one thing."""

    is_actor = False


def is_actor() -> bool:
    """Whether this process serves calls of others."""
    return _Here.is_actor


def run(listener: socket.socket, bootstrap: ActorBootstrap) -> None:
    """The life of an actor; returns only if its object could not be made."""
    _Here.is_actor = True
    prepare_process(bootstrap.import_path, partial(join_registry, bootstrap.visible_registry))
    if bootstrap.has_forkserver is not None:
        die_with_parent(has_forkserver=bootstrap.has_forkserver)
    calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
    threading.Thread(target=_accept, args=(listener, calls), daemon=True).start()
    try:
        factory: Callable[[], Any] = unpack(bootstrap.packed_factory)
        handler = factory()
    except BaseException as error:  # noqa: BLE001 - sent to everyone who calls
        failure = describe_failure(error)
        bootstrap.registry.note_end(bootstrap.actor_id, Ending(_FAILED_TO_BEGIN, failure=failure))
        flush_output()
        os._exit(_FAILED_TO_BEGIN)
    while True:
        connection, message = calls.get()
        _answer(handler, connection, message, bootstrap.name)


def run_detached() -> None:
    """The life of an actor that outlives its maker: a process of its own session.

    It is given its listener as an open file, by number, and its bootstrap through stdin.
    """
    bootstrap: ActorBootstrap = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - our parent's
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run(socket.socket(fileno=int(sys.argv[1])), bootstrap)


def _accept(listener: socket.socket, calls: queue.SimpleQueue[_Call]) -> None:
    while True:
        try:
            accepted, _ = listener.accept()
        except OSError:
            time.sleep(0.1)  # no more open files for now; callers queue
            continue
        _let_in(accepted, calls)


def _let_in(accepted: socket.socket, calls: queue.SimpleQueue[_Call]) -> None:
    try:
        check_peer(accepted)
    except OSError:  # another user, or gone already
        accepted.close()
        return
    connection: Connection[Any, Any] = Connection(accepted.detach())
    threading.Thread(target=_read, args=(connection, calls), daemon=True).start()


def _read(connection: Connection[Any, Any], calls: queue.SimpleQueue[_Call]) -> None:
    try:
        while True:
            calls.put((connection, connection.recv_bytes()))
    except Exception:  # noqa: BLE001 - it has gone
        connection.close()


def _answer(handler: object, connection: Connection[Any, Any], message: bytes, name: str) -> None:
    number, _ = HEADER.unpack_from(message)
    try:
        request = pickle.loads(memoryview(message)[HEADER.size :])  # noqa: S301 - of this user
        method, packed_arguments, answers = request
        arguments, keywords = cloudpickle.loads(packed_arguments)
        for position, packed in answers:
            (arguments if isinstance(position, int) else keywords)[position] = cloudpickle.loads(
                packed
            )
        value = getattr(handler, method)(*arguments, **keywords)
        _refuse_what_has_not_run(value, f"the result of {name}.{method}()")
        kind, answer = VALUE, pack_value(value, f"the result of {name}.{method}()")
    except BaseException as error:  # noqa: BLE001 - sent to the caller, who raises it
        kind, answer = FAILURE, pack(describe_failure(error))
    flush_output()
    try:
        connection.send_bytes(HEADER.pack(number, kind) + answer)
    except (OSError, ValueError):
        pass  # the caller is gone, and its answer is not needed


def _refuse_what_has_not_run(value: object, name: str) -> None:
    if inspect.iscoroutine(value):
        value.close()  # else Python warns that it was never awaited
    elif not (inspect.isgenerator(value) or inspect.isasyncgen(value)):
        return
    raise ActorUsageError(
        f"{name} is a {type(value).__name__}, whose body has not run, and it cannot travel to "
        "another process. Write a method without `yield` and `async` that returns the values; "
        "`asyncio.run(...)` in it runs what is `async`."
    )


_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None)})


def pack_value(value: object, name: str) -> bytes:
    """A value for another process; a SerializationError, which calls it `name`, if it cannot go."""
    if type(value) in _PLAIN:
        return pickle.dumps(value, _PROTOCOL)  # measured: a tenth of what cloudpickle takes
    try:
        return pack_object(value, name=name)
    except PackingError as error:
        raise SerializationError(str(error)) from error


def pack_arguments(arguments: list[Any], keywords: dict[str, Any], name: str) -> bytes:
    """The arguments of a call for another process; a PackingError, as of `pack_object`."""
    if not keywords and all(type(argument) in _PLAIN for argument in arguments):
        return pickle.dumps((arguments, keywords), _PROTOCOL)
    try:
        return pack_object((arguments, keywords), name=name)
    except PackingError:
        for place, argument in (*enumerate(arguments), *keywords.items()):
            pack_object(argument, name=f"{name}[{place!r}]")  # raises: names it as it was given
        raise

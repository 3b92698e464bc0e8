"""Making actors, watching over them, ending them.

An actor belongs to the process that made it and ends with it, however that ends; a detached one
belongs to nobody. A thread per actor sleeps until it ends, and then notes its exit code where
everyone who called it finds it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import util
from multiprocessing.process import BaseProcess
from typing import IO, ClassVar, Final, cast

from trainer.actors.connection import describe_end
from trainer.actors.process import ActorBootstrap, run
from trainer.actors.registry import (
    ActorAddress,
    ActorRegistry,
    Ending,
    initialize,
    registry_of_this_process,
)
from trainer.errors import ActorError, ActorNameError
from trainer.runtime.process_start import (
    ImportPath,
    choose_start_method,
    describe_start_error,
    end_group,
    guard_group,
    keep_temporary_directory,
    make_context,
    preload,
    starting,
)
from trainer.runtime.signals import signals_deferred
from trainer.runtime.worker import refuse_while_unpacking

_LOGGER: Final = logging.getLogger(__name__)
_PRELOADED: Final = ("numpy", "trainer.actors.process")
_NOTICE_TIMEOUT_S: Final = 2.0
_KILL_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class ActorPlan:
    """What an actor shall be.

    Attributes:
        class_name: the name of its class.
        methods: what can be called.
        packed_factory: pickled callable that makes the object.
        name: what it is called; None gives it no name.
        namespace: where the name holds; None for that of this process.
        is_detached: it outlives this process.
        is_checkpointable: its state belongs into checkpoints.
        get_if_exists: an actor that has the name already is as good.
    """

    class_name: str
    methods: tuple[str, ...]
    packed_factory: bytes
    name: str | None = None
    namespace: str | None = None
    is_detached: bool = False
    is_checkpointable: bool = False
    get_if_exists: bool = False


def start_actor(plan: ActorPlan) -> ActorAddress:
    """Starts an actor's process; its object is made while the caller goes on.

    Raises:
        ActorNameError: the name is taken.
    """
    refuse_while_unpacking("Actors")
    initialize()
    visible_registry = registry_of_this_process()
    registry = ActorRegistry.for_detached() if plan.is_detached else visible_registry
    with contextlib.ExitStack() as locks:
        visible_registry.ensure()
        locks.enter_context(visible_registry.locked())
        # All in the same order: two processes may prefer different ones.
        for found in ActorRegistry.all_detached() if plan.is_detached else []:
            if found.directory != visible_registry.directory:
                locks.enter_context(found.locked())
        registry.sweep(living=list(_Process.owned))
        existing = find_actor(plan.name, plan.namespace) if plan.name is not None else None
        if existing is not None and plan.get_if_exists:
            return existing
        if existing is not None:
            raise ActorNameError(
                f"The name {plan.name!r} is taken by a living {existing.describe()}, process "
                f"{existing.pid}. Choose another name, give `get_if_exists=True` to use that one, "
                "or `actors.kill(actors.get_actor(name))` it first."
            )
        with signals_deferred():  # else an actor might live that nobody knows of
            actor_id, listener = registry.new_listener()
            with listener:
                address = _start(plan, registry, actor_id, listener)
            if plan.name is not None:
                registry.write(address, plan.name)
    return address


def find_actor(name: str, namespace: str | None) -> ActorAddress | None:
    """The living actor of that name that this process can see, detached ones included."""
    registry = registry_of_this_process()
    where = registry.namespace if namespace is None else namespace
    own = registry.find(name, where)
    if own is not None:
        return own
    found = (detached.find(name, where) for detached in ActorRegistry.all_detached())
    return next(filter(None, found), None)


def visible_names() -> list[tuple[str, str]]:
    """Name and namespace of all living actors that this process can see."""
    registries = [registry_of_this_process(), *ActorRegistry.all_detached()]
    return [place for registry in registries for place in registry.names()]


def _start(
    plan: ActorPlan, registry: ActorRegistry, actor_id: str, listener: socket.socket
) -> ActorAddress:
    method, visible_registry = choose_start_method(), registry_of_this_process()
    draft = functools.partial(
        ActorAddress,
        directory=registry.directory,
        actor_id=actor_id,
        class_name=plan.class_name,
        name=plan.name,
        namespace=visible_registry.namespace if plan.namespace is None else plan.namespace,
        methods=plan.methods,
        is_detached=plan.is_detached,
        is_checkpointable=plan.is_checkpointable,
    )
    bootstrap = ActorBootstrap(
        actor_id=actor_id,
        registry=registry,
        visible_registry=visible_registry,
        name=plan.name or plan.class_name,
        packed_factory=plan.packed_factory,
        import_path=ImportPath.of_this_process(),
        has_forkserver=None if plan.is_detached else method == "forkserver",
    )
    if plan.is_detached:
        popen = _start_detached(bootstrap, listener)
        address = draft(pid=popen.pid)
        _watch(address, popen.wait)
        return address
    keep_temporary_directory()
    preload(_PRELOADED, method)
    process: BaseProcess = make_context(method, _ignore).Process(  # type: ignore[attr-defined]
        target=run, args=(listener, bootstrap), name=f"actor {bootstrap.name}"
    )
    try:
        process.start()
    except (OSError, EOFError) as error:  # the fork server died; the next start makes another one
        raise ActorError(
            f"No process could be started for the actor {bootstrap.name!r} "
            f"({describe_start_error(error)}). Try again; if it stays so, the limits of the "
            "operating system (processes, memory) may be reached."
        ) from error
    address = draft(pid=process.pid or 0)  # it has one, now that it was started
    guard_group(address.pid)
    _Process.owned[actor_id] = address
    if _is_saved(address):
        _Process.saved[_place_of(address)] = address
    _end_with_this_process()

    def wait() -> int | None:
        process.join()
        end_group(address.pid, is_leader_known=True)
        return process.exitcode

    _watch(address, wait)
    return address


def _ignore(_: BaseProcess) -> None:
    """The handle is not needed before the process has started."""


def _start_detached(bootstrap: ActorBootstrap, listener: socket.socket) -> subprocess.Popen[bytes]:
    code = "from trainer.actors.process import run_detached; run_detached()"
    # What it prints goes to a file: a pipe of ours would end, or keep our reader waiting.
    with starting(), bootstrap.registry.opened_log(bootstrap.actor_id) as output:
        popen = subprocess.Popen(  # noqa: S603 - our own code
            [sys.executable, "-c", code, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    with cast(IO[bytes], popen.stdin) as stdin:
        stdin.write(pickle.dumps(bootstrap))
    return popen


class _Process:
    """The actors that this process made and that end with it; global because its exit is.

    `saved` has those whose states belong into checkpoints: the latest of each name, dead or alive,
    until somebody says by `kill()` that it is no longer wanted.
    """

    owned: ClassVar[dict[str, ActorAddress]] = {}
    saved: ClassVar[dict[tuple[str, str | None], ActorAddress]] = {}
    watchers: ClassVar[dict[str, threading.Thread]] = {}
    watches: ClassVar[dict[str, IO[bytes]]] = {}
    finalizer: util.Finalize | None = None


def _watch(address: ActorAddress, wait: Callable[[], int | None]) -> None:
    registry, actor_id = ActorRegistry(address.directory), address.actor_id

    def watch() -> None:
        with _Process.watches[actor_id]:  # who asks why it is gone sleeps until this is closed
            exit_code = wait()
            registry.note_end(actor_id, Ending(exit_code))
        if _belongs_into_checkpoints(address) and _was_killed(address):
            _save_no_more(address)
        elif _belongs_into_checkpoints(address):
            _LOGGER.warning(
                "%s No checkpoint is saved from now on, because its state would be missing: make "
                "it again and restore the newest checkpoint, or say by actors.kill(handle) that "
                "it is no longer wanted.",
                describe_end(address),
            )
        registry.forget(address)
        for known in (_Process.owned, _Process.watches, _Process.watchers):
            known.pop(actor_id, None)

    _Process.watches[actor_id] = registry.watch(actor_id)
    thread = threading.Thread(target=watch, name=f"watch of {address.describe()}", daemon=True)
    _Process.watchers[actor_id] = thread
    thread.start()


def kill_actor(address: ActorAddress) -> None:
    """Ends an actor at once, whatever it is doing; returns when it is gone and its name is free.

    Nothing happens if it is dead already.

    Raises:
        ActorError: it does not end.
    """
    watcher = _Process.watchers.get(address.actor_id)
    if not address.is_alive():
        if watcher is not None:
            watcher.join(_NOTICE_TIMEOUT_S)
        if watcher is None or not watcher.is_alive():
            _save_no_more(address)
            return
        # Only its socket is gone: somebody has removed the folder.
    registry = ActorRegistry(address.directory)
    registry.note_end(address.actor_id, Ending(was_killed=True))
    for kill in (os.killpg, os.kill):  # with all that it has started
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(address.pid, signal.SIGKILL)
    if not address.wait_for_end(_KILL_TIMEOUT_S):
        raise ActorError(
            f"The {address.describe()}, process {address.pid}, was killed but is still there "
            f"after {_KILL_TIMEOUT_S:g} s: the operating system holds it, perhaps in a device."
        )
    if watcher is not None:
        watcher.join()
    else:
        registry.forget(address)
    _save_no_more(address)  # also if it died by itself a moment before


def actors_to_save() -> list[ActorAddress]:
    """The named actors that this process made, not detached, whose class is checkpointable.

    Those that are gone are among them, unless `kill()` ended them or they were made again: who is
    alive may be dead a moment later, so whoever asks for states has to miss who does not answer.
    """
    return [address for address in list(_Process.saved.values()) if not _was_killed(address)]


def _is_saved(address: ActorAddress) -> bool:
    return address.is_checkpointable and address.name is not None and not address.is_detached


def _was_killed(address: ActorAddress) -> bool:
    ending = ActorRegistry(address.directory).known_ending_of(address.actor_id)
    return ending is not None and ending.was_killed


def _place_of(address: ActorAddress) -> tuple[str, str | None]:
    return address.namespace, address.name


def _belongs_into_checkpoints(address: ActorAddress) -> bool:
    return _Process.saved.get(_place_of(address)) == address  # else it was made again


def _save_no_more(address: ActorAddress) -> None:
    if _belongs_into_checkpoints(address):
        _Process.saved.pop(_place_of(address), None)


def kill_own_actors() -> None:
    """Ends all actors that this process made, except for detached ones."""
    for address in list(_Process.owned.values()):
        kill_actor(address)
    _Process.saved.clear()


def _end_with_this_process() -> None:
    """Before multiprocessing waits for actors; a process of its own knows no `atexit`."""
    if _Process.finalizer is None or not _Process.finalizer.still_active():
        _Process.finalizer = util.Finalize(None, kill_own_actors, exitpriority=100)


def _forget_actors() -> None:
    """In a forked copy: the actors are those of the original."""
    _Process.finalizer = None  # it knows whose it is, and does nothing here
    for watch in _Process.watches.values():
        watch.close()
    for known in (_Process.owned, _Process.saved, _Process.watches, _Process.watchers):
        known.clear()


os.register_at_fork(after_in_child=_forget_actors)

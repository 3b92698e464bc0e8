"""What users hold of actors: classes and handles; making, watching and ending them; states."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import util
from multiprocessing.process import BaseProcess
from typing import IO, Any, ClassVar, Final, cast, overload

from callbacks import PackingError
from callbacks.packing import module_not_importable, pack_object
from checkpoints import Checkpointable
from trainer.actors.connection import Answer, describe_end, link_to, wait_for
from trainer.actors.process import ActorBootstrap, run
from trainer.actors.registry import (
    ActorAddress,
    ActorRegistry,
    Ending,
    initialize,
    registries_to_search,
    registry_of_this_process,
)
from trainer.errors import (
    ActorDiedError,
    ActorError,
    ActorNameError,
    ActorUsageError,
    SerializationError,
)
from trainer.runtime.process_start import (
    ImportPath,
    choose_start_method,
    end_group,
    guard_group,
    keep_temporary_directory,
    make_context,
    preload,
    starting,
)
from trainer.runtime.start_errors import describe_start_error
from trainer.runtime.worker import refuse_while_unpacking
from trainer_toolkit.interrupts import signals_deferred
from trainer_toolkit.nearest_names import did_you_mean, nearest

# ---- start
#
# Making actors, watching over them, ending them. An actor belongs to the process that made it and
# ends with it, however that ends; a detached one has no owner. A thread per actor sleeps
# until it ends, and then notes its exit code where everyone who called it finds it.

_LOGGER: Final = logging.getLogger(__name__)
_PRELOADED: Final = ("trainer.actors.process",)
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
        with signals_deferred():  # else an actor might live that is not known here
            actor_id, listener = registry.new_listener()
            with listener:
                address = _start(plan, registry, actor_id, listener)
            if plan.name is not None:
                registry.write(address, plan.name)
    return address


def find_actor(name: str, namespace: str | None) -> ActorAddress | None:
    """The living actor of that name that this process can see, detached ones included."""
    own, *others = registries_to_search()
    where = own.namespace if namespace is None else namespace
    found = (registry.find(name, where) for registry in [own, *others])
    return next(filter(None, found), None)


def visible_names() -> list[tuple[str, str]]:
    """Name and namespace of all living actors that this process can see."""
    return [place for registry in registries_to_search() for place in registry.names()]


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
    if address.is_checkpointable and address.name is not None and not address.is_detached:
        _Process.saved[_place_of(address)] = address
    _end_with_this_process()

    def wait() -> int | None:
        process.join()
        end_group(address.pid, is_leader_known=True)
        return process.exitcode

    _watch(address, wait)
    return address


def _ignore(_process: BaseProcess, _arguments: Sequence[object]) -> None:
    """The handle is not needed before the process has started."""


def _start_detached(bootstrap: ActorBootstrap, listener: socket.socket) -> subprocess.Popen[bytes]:
    code = "from trainer.actors.process import run_detached; run_detached()"
    # What it prints goes to a file: a pipe of ours would end, or keep our reader waiting.
    with starting(), bootstrap.registry.log_file(bootstrap.actor_id).open("ab") as output:
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
    until `kill()` says that it is no longer wanted.
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
    with signals_deferred():
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
        # Only its socket is gone: the folder was removed.
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
    alive may be dead a moment later, so a caller that asks for states reports who does not answer.
    """
    return [address for address in list(_Process.saved.values()) if not _was_killed(address)]


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


# ---- actor class
#
# Actor classes and handles: what users hold of an actor.
#
#     Counter = remote(Counter)                          an `ActorClass`
#     handle = Counter.options(name="…").remote(1, 2)    an `ActorHandle`, to be sent anywhere
#     handle.inc.remote(1)                               a call through an `ActorMethod`
#
# How actors are called is in `trainer.actors.connection`.

_FOR_CLUSTERS: Final = frozenset(
    {
        "accelerator_type",
        "label_selector",
        "memory",
        "num_cpus",
        "num_gpus",
        "object_store_memory",
        "placement_group",
        "placement_group_bundle_index",
        "resources",
        "scheduling_strategy",
    }
)
"""Options that say on which machine of a cluster an actor runs. There is one machine."""

_WITHOUT_EFFECT: Final = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1}
"""Options that can have the one value that describes what actors here do."""


@dataclass(frozen=True)
class _Options:
    name: str | None = None
    namespace: str | None = None
    get_if_exists: bool = False
    lifetime: str | None = None


def _with_options(before: _Options, options: dict[str, Any]) -> _Options:
    """The options with some replaced; complains about all that are wrong at once."""
    known = {field.name for field in dataclasses.fields(_Options)}
    problems = []
    for name, value in options.items():
        if name in _WITHOUT_EFFECT and value not in (None, _WITHOUT_EFFECT[name]):
            problems.append(
                f"`{name}={value!r}`: actors here are not restarted by themselves and answer one "
                f"call at a time; leave it out, or give {_WITHOUT_EFFECT[name]}"
            )
        elif name not in known | _FOR_CLUSTERS | set(_WITHOUT_EFFECT):
            near = nearest(name, [*known, *_FOR_CLUSTERS, *_WITHOUT_EFFECT])
            hint = f"did you mean `{near}`?" if near else f"known are {', '.join(sorted(known))}"
            problems.append(f"`{name}` is no option of an actor; {hint}")
    given = {name: value for name, value in options.items() if name in known}
    made = dataclasses.replace(before, **given)
    if made.lifetime not in (None, "detached", "non_detached"):
        problems.append(f'`lifetime={made.lifetime!r}`: "detached", "non_detached" or None')
    for text in ("name", "namespace"):
        value = getattr(made, text)
        if value is not None and not (isinstance(value, str) and value):
            problems.append(f"`{text}={value!r}`: a text that is not empty, or None")
    if made.get_if_exists and made.name is None:
        problems.append("`get_if_exists=True` needs a `name` to look for")
    if problems:
        raise ActorUsageError("Options of an actor are wrong: " + "; ".join(problems) + ".")
    return made


class ActorClass:
    """A class whose objects are made in processes of their own; made by `@remote`."""

    def __init__(self, original: type, options: _Options) -> None:
        """Keeps the class as it is; `remote` makes objects."""
        self.original: Final = original
        self.__name__ = original.__name__
        self.__qualname__ = original.__qualname__
        self.__module__ = original.__module__
        self.__doc__ = original.__doc__
        self._options = options

    def options(self, **options: Any) -> ActorClass:
        """The same class with other options for the actors to be made.

        Args:
            **options: `name`, by which `get_actor` finds it; `namespace`, where the name holds;
                `get_if_exists`, to take the actor that has the name already; `lifetime`, which is
                "detached" for an actor that outlives this process. Options that place an actor in a
                cluster (`num_cpus`, …) are accepted and mean nothing.

        Raises:
            ActorUsageError: an option does not exist or has an impossible value.
        """
        return ActorClass(self.original, _with_options(self._options, options))

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Makes an actor; returns when its process is there, before its object is made.

        Args:
            *args: what the constructor is given.
            **kwargs: what it is given by name.

        Raises:
            ActorNameError: the name is taken.
            SerializationError: the class or an argument cannot be pickled.
        """
        label = f"{self.__name__}.remote()"
        try:
            packed = pack_object(_Factory(self._travelling(), args, kwargs), name=label)
        except PackingError as error:
            raise SerializationError(f"No actor was made: {error}") from error
        return ActorHandle(
            start_actor(
                ActorPlan(
                    class_name=self.__name__,
                    methods=_methods_of(self.original),
                    packed_factory=packed,
                    name=self._options.name,
                    namespace=self._options.namespace,
                    is_detached=self._options.lifetime == "detached",
                    is_checkpointable=issubclass(self.original, Checkpointable),
                    get_if_exists=self._options.get_if_exists,
                )
            )
        )

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refused: an object in this process is not what an actor class is for."""
        raise ActorUsageError(
            f"{self.__name__} is an actor class: `{self.__name__}(…)` would make an object in this "
            f"process. Write `{self.__name__}.remote(…)`, or `{self.__name__}.original(…)` for an "
            "ordinary object."
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        # A class may be derived from it: from the original.
        return (self.original,)

    def __reduce__(self) -> Any:
        # As a name, if another process finds this very object under it.
        is_found = self._found_by_name() is self
        return self.__qualname__ if is_found else (ActorClass, (self.original, self._options))

    def _travelling(self) -> ActorClass | type:
        """What stands for the class on its way: the decorated name where there is one.

        Pickle looks for the original under the name that the decorated class has.
        """
        found = self._found_by_name()
        same = isinstance(found, ActorClass) and found.original is self.original
        return found if same else self.original

    def _found_by_name(self) -> Any:
        """What another process finds under the name of this class; None if nothing."""
        if self.__module__ == "__main__" or module_not_importable(self.__module__) is not None:
            return None
        return getattr(sys.modules.get(self.__module__), self.__qualname__, None)

    def __repr__(self) -> str:
        return f"<actor class {self.__module__}.{self.__qualname__}>"


@dataclass(frozen=True)
class _Factory:
    actor_class: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        found = self.actor_class
        original = found.original if isinstance(found, ActorClass) else found
        return original(*self.args, **self.kwargs)


def _methods_of(cls: type) -> tuple[str, ...]:
    """The names of what can be called: public methods and `__call__`."""
    names = (name for name in dir(cls) if not name.startswith("_") or name == "__call__")
    return tuple(name for name in names if callable(getattr(cls, name, None)))


class ActorMethod:
    """A method of an actor; made by `handle.method`."""

    def __init__(self, address: ActorAddress, name: str) -> None:
        """Calls nothing yet."""
        self._address = address
        self._name = name

    def remote(self, *args: Any, **kwargs: Any) -> Answer:
        """Calls the method in the actor's process; returns at once.

        Calls of one process are answered in the order in which they were made.

        Args:
            *args: what the method is given. A future is replaced by its value; the call is sent
                when that is there.
            **kwargs: what it is given by name; likewise.

        Raises:
            ActorDiedError: the actor is gone.
            SerializationError: an argument cannot be pickled; nothing was sent.
        """
        return link_to(self._address).call(self._name, args, kwargs)

    def options(self, **options: Any) -> ActorMethod:
        """Refused: a call has no options here."""
        given = ", ".join(f"{name}={value!r:.80}" for name, value in options.items())
        raise ActorUsageError(
            f"`{self._name}.options({given})`: calls have no options here. Every call is answered "
            f"by one value, in the order in which they were made; write "
            f"`handle.{self._name}.remote(…)`. A limit of time is `actors.get(future, timeout=…)`."
        )

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refused: the object is in another process."""
        raise ActorUsageError(
            f"`{self._name}` runs in the process of the {self._address.describe()}. Write "
            f"`handle.{self._name}.remote(…)`, which returns a future, and `actors.get(future)` "
            "for its value."
        )


class ActorHandle:
    """A way to an actor; can be sent to any process on this machine that the same user runs."""

    _address: ActorAddress

    def __init__(self, address: ActorAddress) -> None:
        """Keeps the address; the first call connects."""
        self.__dict__["_address"] = address

    def __setattr__(self, name: str, value: object) -> None:
        raise ActorUsageError(
            f"`{name} = {value!r:.80}` would be set on this handle alone: the object is in the "
            f"process of the {self._address.describe()}. Give its class a method that sets it."
        )

    def __getattr__(self, name: str) -> ActorMethod:
        # `_address` is missing while an object is copied or unpickled.
        address = self.__dict__.get("_address")
        if address is None or (name.startswith("__") and name not in address.methods):
            raise AttributeError(name)
        if name.startswith("_") and name not in address.methods:
            raise ActorUsageError(
                f"`{name}` of the {address.describe()} begins with `_`, so it is private and "
                "cannot be called from outside. Call it in a public method, or rename it."
            )
        if name not in address.methods:
            hint = did_you_mean(name, address.methods) or f" It has {', '.join(address.methods)}."
            raise ActorUsageError(
                f"The {address.describe()} has no method {name!r}.{hint} Attributes are read "
                "through methods."
            )
        return ActorMethod(address, name)

    def __reduce__(self) -> Any:
        return ActorHandle, (self._address,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._address == self._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __repr__(self) -> str:
        return f"<{self._address.describe()}, process {self._address.pid}>"


@overload
def remote(target: type, /) -> ActorClass: ...
@overload
def remote(**options: Any) -> Callable[[type], ActorClass]: ...
def remote(target: Any = None, /, **options: Any) -> Any:
    """Makes a class an actor class: `@remote`, or `@remote(name=…)` with the options of all actors.

    Raises:
        ActorUsageError: it is no class, or an option is wrong.
    """
    chosen = _with_options(_Options(), options)
    if target is None:
        return lambda cls: _actor_class(cls, chosen)
    return _actor_class(target, chosen)


def _actor_class(target: Any, options: _Options) -> ActorClass:
    if not isinstance(target, type):
        name = getattr(target, "__name__", "work")
        raise ActorUsageError(
            f"`@actors.remote` is for classes, not for {target!r}. Make the function a method of a "
            f"class, `class Worker: def {name}(self, …)`, make as many actors of it as shall work "
            f"side by side, and call them in turn: `workers[i % n].{name}.remote(…)`."
        )
    return ActorClass(target, options)


# ---- actor states
#
# The states of actors in checkpoints: those whose class is `Checkpointable`. A state is taken
# like any other call: after all calls that this process made before, and between those of other
# processes. Actors are found again by their names; none is made or ended here.

_PATIENCE_S: Final = 10.0

ActorStates = dict[str, dict[str, Any]]
"""Namespace -> name -> state; the namespace of this process is called ""."""


def get_actor_states(*, may_miss_some: bool = False) -> ActorStates:
    """The states of the named actors that this process made and whose class says so.

    Args:
        may_miss_some: whether those that are gone are left out.

    Raises:
        ActorDiedError: one is gone, was not ended by `kill()`, and was not made again; or one dies
            meanwhile.
        Exception: what its `get_state` raises.
    """
    found = _by_place()
    gone = _gone_among(found)
    if gone and not may_miss_some:
        raise _missed(gone)
    # From here on no actor is left out for being dead: who dies meanwhile has to be reported.
    found = {place: address for place, address in found.items() if address not in gone}
    try:
        values = _all_values([link_to(each).call("get_state", (), {}) for each in found.values()])
    except ActorDiedError as error:
        gone = _gone_among(found)
        if gone:
            raise _missed(gone) from error
        raise  # one that an actor called
    states: ActorStates = {}
    for (namespace, name), value in zip(found, values, strict=True):
        states.setdefault(namespace, {})[name] = value
    return states


def _missed(gone: Sequence[ActorAddress]) -> ActorDiedError:
    return ActorDiedError(
        " ".join(str(describe_end(address)) for address in gone) + " "
        "A state without it cannot be restored. Go on from the newest checkpoint: start the "
        "program again, or make the actor again under its name and call "
        "`algo.restore_from_path(newest)`; training from there ends with the same bytes as if "
        "nothing had happened. If the actor is no longer wanted, say so by "
        "`actors.kill(handle)`, and its state is left out."
    )


def with_kept(states: ActorStates, kept: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """States together with those that were not taken; a registered actor has its own."""
    return {
        namespace: {**kept.get(namespace, {}), **states.get(namespace, {})}
        for namespace in {**kept, **states}
    }


def set_actor_states(states: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """Gives living actors their states back.

    Warnings name the states that were not taken, and the living actors that there is no state for.

    Returns:
        the states that were not taken.

    Raises:
        ActorDiedError: one dies meanwhile.
        Exception: what its `set_state` raises.
    """
    found = _by_place()
    answers, missing = [], []
    kept: ActorStates = {}
    for namespace, by_name in states.items():
        for name, state in by_name.items():
            address = found.get((namespace, name))
            if address is None or not address.is_alive():
                kept.setdefault(namespace, {})[name] = state
                missing.append(f"{name!r}" + (f" in namespace {namespace!r}" if namespace else ""))
            else:
                answers.append(link_to(address).call("set_state", (state,), {}))
    _all_values(answers)
    if missing:
        _LOGGER.warning(
            "The checkpoint holds the state of the actors %s, but this process has no living actor "
            "of that name whose class is Checkpointable. The state is kept, and goes into the next "
            "checkpoints as it is. Make them before you restore, or restore the component 'actors' "
            "once more when they are there.",
            ", ".join(missing),
        )
    stateless = [name for namespace, name in found if name not in states.get(namespace, {})]
    if stateless:
        _LOGGER.warning(
            "The checkpoint holds states of actors, but none of the actors %s, which this process "
            "has made: they keep theirs. That is right if they were made after it was saved.",
            ", ".join(map(repr, stateless)),
        )
    return kept


def _by_place() -> dict[tuple[str, str], ActorAddress]:
    own = registry_of_this_process().namespace
    return {
        ("" if address.namespace == own else address.namespace, address.name or ""): address
        for address in actors_to_save()
    }


def _gone_among(found: Mapping[tuple[str, str], ActorAddress]) -> list[ActorAddress]:
    return [address for address in found.values() if not address.is_alive()]


def _all_values(answers: Sequence[Answer]) -> list[Any]:
    arrivals = [answer.arrival for answer in answers]
    if not wait_for(arrivals, _PATIENCE_S, at_least=len(arrivals)):
        labels = [answer.label for answer in answers if answer.arrival.outcome is None]
        _LOGGER.warning("Still waiting for %s, after %g s.", ", ".join(labels), _PATIENCE_S)
    return [answer.value() for answer in answers]

"""Named actors: objects in processes of their own, which everyone can call.

    from trainer import actors

    @actors.remote
    class Counter:
        def __init__(self):
            self.count = 0

        def inc(self, n):
            self.count += n
            return self.count

    counter = Counter.options(name="global_counter").remote()      # on the driver
    counter = actors.get_actor("global_counter")                   # in envs and callbacks
    assert actors.get(counter.inc.remote(1)) == 1

The names are those of the part of Ray that RLlib's users know. Here are the functions; `handles`
has classes and handles, and how actors are made and ended, `registry` where they are found,
`process` their own side, `connection` that of their callers.
"""

from __future__ import annotations

import numbers
import time
from collections.abc import Sequence
from typing import Any, Final

from trainer.actors.connection import Answer, close_links, wait_for
from trainer.actors.handles import (
    ActorClass,
    ActorHandle,
    ActorMethod,
    find_actor,
    kill_actor,
    kill_own_actors,
    remote,
    visible_names,
)
from trainer.actors.process import VALUE, pack_value
from trainer.actors.registry import (
    forget_initialization,
    initialize,
    registry_of_this_process,
)
from trainer.actors.registry import is_initialized as registry_is_initialized
from trainer.errors import (
    ActorDiedError,
    ActorError,
    ActorNameError,
    ActorTimeoutError,
    ActorUsageError,
)
from trainer_toolkit.checks import integer
from trainer_toolkit.nearest_names import nearest

__all__ = [
    "ActorClass",
    "ActorDiedError",
    "ActorError",
    "ActorHandle",
    "ActorMethod",
    "ActorNameError",
    "ActorTimeoutError",
    "ActorUsageError",
    "Future",
    "get",
    "get_actor",
    "init",
    "is_initialized",
    "kill",
    "put",
    "remote",
    "shutdown",
    "wait",
]

_CLUSTER_OPTIONS: Final = frozenset(
    {
        "allow_multiple",
        "configure_logging",
        "dashboard_host",
        "dashboard_port",
        "enable_resource_isolation",
        "ignore_reinit_error",
        "include_dashboard",
        "job_config",
        "labels",
        "local_mode",
        "log_to_driver",
        "logging_config",
        "logging_format",
        "logging_level",
        "num_cpus",
        "num_gpus",
        "object_store_memory",
        "resources",
        "runtime_env",
        "storage",
        "system_reserved_cpu",
        "system_reserved_memory",
    }
)

Future = Answer
"""What a method call returns: a value that will be there later."""


def get(futures: Any, *, timeout: float | None = None) -> Any:
    """Waits for the value of a future, or for those of a list of futures.

    Args:
        futures: one future or a list of them.
        timeout: seconds to wait for all of them together; None waits for ever.

    Returns:
        the value, or a list of values.

    Raises:
        ActorTimeoutError: a value did not come in time.
        ActorDiedError: an actor has died.
        Exception: whatever the method raised, with the actor's traceback as its cause.
    """
    _check_timeout(timeout, "get")
    if isinstance(futures, Answer):
        return futures.value(timeout)
    wanted = _checked(futures, "get")
    deadline = None if timeout is None else time.monotonic() + timeout
    return [future.value(_seconds_until(deadline)) for future in wanted]


def wait(
    futures: Sequence[Future],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[Future], list[Future]]:
    """Waits until some of several futures have a value or an error.

    Args:
        futures: those to wait for.
        num_returns: for how many of them.
        timeout: seconds to wait; None waits for ever.
        fetch_local: no effect; values are always here.

    Returns:
        those that are there, at most `num_returns`, and the others; both in the order given.

    Raises:
        ActorUsageError: `num_returns` is not between 1 and the number of futures.
    """
    del fetch_local
    _check_timeout(timeout, "wait")
    wanted = _checked(futures, "wait")
    if not integer(1, len(wanted)).accepts(num_returns):
        raise ActorUsageError(
            f"wait() was asked for num_returns={num_returns} of {len(wanted)} futures; give a "
            "number from 1 to the number of futures."
        )
    wait_for([future.arrival for future in wanted], timeout, at_least=num_returns)
    ready = [future for future in wanted if future.arrival.outcome is not None][:num_returns]
    taken = set(map(id, ready))
    return ready, [future for future in wanted if id(future) not in taken]


def _seconds_until(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _check_timeout(timeout: Any, function: str) -> None:
    is_number = isinstance(timeout, numbers.Real) and not isinstance(timeout, bool)
    if timeout is not None and (not is_number or timeout != timeout):
        raise ActorUsageError(
            f"{function}() was given timeout={timeout!r}; give a number of seconds, or None to "
            "wait for ever."
        )


def _checked(futures: Any, function: str) -> list[Future]:
    if not isinstance(futures, (list, tuple)):
        raise ActorUsageError(
            f"{function}() was given {futures!r}; it takes what `handle.method.remote(…)` returned"
            ", or a list of that."
        )
    wrong = [position for position, item in enumerate(futures) if not isinstance(item, Answer)]
    if wrong:
        raise ActorUsageError(
            f"{function}() was given {futures[wrong[0]]!r} at position {wrong[0]} of its list, "
            "which is no future: give what `handle.method.remote(…)` returned."
        )
    return list(futures)


def put(value: Any) -> Future:
    """Packs a value once, to give it to many calls; later changes of the value do not show.

    Raises:
        SerializationError: it cannot be pickled.
    """
    packed = pack_value(value, "the value given to put()")
    future = Answer("put()")
    future.arrival.bring((VALUE, packed))
    return future


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """The living actor of that name, in any process of this run.

    Args:
        name: its name.
        namespace: where the name holds; None for the namespace of this process, see `init`.

    Raises:
        ActorNameError: there is none.
    """
    address = find_actor(name, namespace)
    if address is None:
        raise ActorNameError(
            f"There is no living actor {name!r}{_looked_in(namespace)}; {_near(name)} Make it "
            f"first, in the main process: `handle = MyClass.options(name={name!r}).remote()`."
        )
    return ActorHandle(address)


def _looked_in(namespace: str | None) -> str:
    where = namespace or registry_of_this_process().namespace
    return f" in namespace {where!r}" if where else ""


def _near(name: str) -> str:
    living = [
        (other, f"{other!r} in namespace {where!r}" if where else repr(other))
        for other, where in visible_names()
    ]
    near = nearest(name, [other for other, _ in living])
    for other, described in living:
        if other == near:
            return f"did you mean {described}?"
    described_all = ", ".join(described for _, described in living)
    return f"living are {described_all}." if living else "no named actor is alive."


def kill(handle: ActorHandle, *, no_restart: bool = True) -> None:
    """Ends an actor at once, whatever it is doing; returns when it is gone and its name is free.

    Args:
        handle: the actor; nothing happens if it is dead.
        no_restart: there are no restarts; for code that says so.
    """
    del no_restart
    if not isinstance(handle, ActorHandle):
        raise ActorUsageError(f"kill() was given {handle!r}; it takes the handle of an actor.")
    kill_actor(handle._address)


def init(address: object = None, *, namespace: str | None = None, **cluster_options: Any) -> None:
    """Prepares this process for actors; optional, the first actor does the same.

    Args:
        address: where a cluster is; means nothing, because there is only this machine.
        namespace: where names hold that are given and looked for without a namespace: in this
            process, and in actors and env runners that are made from now on. So call it first.
        **cluster_options: those that Ray's `init` knows are accepted and mean nothing.

    Raises:
        ActorUsageError: an option does not exist.
        ActorError: this process uses another namespace already.
    """
    del address
    if namespace is not None and not (isinstance(namespace, str) and namespace):
        raise ActorUsageError(f"init() was given namespace={namespace!r}: a text, or None.")
    known = _CLUSTER_OPTIONS | {"address", "namespace"}
    for name in cluster_options:
        if name not in known and not name.startswith("_"):  # Ray's private ones
            near = nearest(name, known)
            hint = f"did you mean `{near}`?" if near else "leave it out"
            raise ActorUsageError(f"`{name}` is no option of init(); {hint}")
    initialize(namespace)


def is_initialized() -> bool:
    """Whether `init()` was called or an actor was made, and no `shutdown()` since.

    Always so in env runners and in actors.
    """
    return registry_is_initialized()


def shutdown() -> None:
    """Ends all actors that this process made, except for detached ones, and all its connections.

    Optional: it happens when the process ends, too. New actors can be made afterwards.
    """
    kill_own_actors()
    close_links()
    forget_initialization()

"""Which Ray cluster is used, and what is reserved there: the connected one, or a local one of ours.

    connected already (`ray.init()`)    that one
    RAY_ADDRESS is set                  the one at that address
    else                                a local one, which is shut down after its last user

On a cluster of our own nothing is reserved: this process is alone on it, and has this machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

from callbacks.optional_import import optional_module
from trainer.errors import EngineError
from trainer_toolkit.interrupts import signals_deferred

PlaceT = TypeVar("PlaceT")

_OLDEST: Final = (2, 49)
_REACHED_WITHIN_S: Final = 5.0
_RESERVED_ALREADY: Final = "CREATED"
_NAMED: Final = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # arguments of Ray's


class _Own:
    """The local cluster that was started for engines of this process.

    Global because Ray's connection belongs to the process.
    """

    lock = threading.RLock()
    users: Final[set[object]] = set()
    connection = ""


def load_ray() -> ModuleType:
    """The package `ray`.

    Raises:
        ImportError: it is not installed; says how to install it.
        EngineError: it is too old.
    """
    # Read when ray is imported: equal lines of several workers would be shown once.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    ray = optional_module("ray", user='engine="ray"', extra="ray")
    numbers = tuple(int(part) for part in str(ray.__version__).split(".")[:2])
    if numbers < _OLDEST:
        raise EngineError(
            f'engine="ray" needs Ray {".".join(map(str, _OLDEST))} or newer; ray '
            f'{ray.__version__} is installed. Install it: pip install "local-trainer[ray]".'
        )
    return ray


def connection() -> str:
    """The id of this process's connection to a cluster, unlike all earlier ones; "" without one."""
    ray = load_ray()
    if not ray.is_initialized():
        return ""
    # Each cluster counts its jobs from 1, and the ids of drivers follow from that.
    context = ray.get_runtime_context()
    return f"{context.get_node_id()} {context.get_job_id()}"


def connect(user: object, *, init_arguments: Mapping[str, Any]) -> None:
    """Connects this process to a cluster, if it is not yet.

    Args:
        user: who uses it, until `release`.
        init_arguments: of `ray.init`, for a local cluster that is started.

    Raises:
        ImportError, EngineError: Ray is missing or too old, or there is no cluster at the address
            that was given.
    """
    ray = load_ray()
    # Ray that is interrupted while it connects may end the process.
    with signals_deferred(), _Own.lock:
        if ray.is_initialized():
            _refuse_client(ray)
            if is_own():
                _Own.users.add(user)
            return
        _Own.users.clear()  # of a cluster that was shut down meanwhile
        address = os.environ.get("RAY_ADDRESS", "")
        if address and address != "local":
            _join(ray, address)
            return
        with _as_a_guest():
            ray.init(
                **{
                    "address": "local",
                    "num_cpus": os.cpu_count() or 1,
                    "include_dashboard": False,
                    "logging_level": "WARNING",
                    **init_arguments,
                }
            )
        _Own.users.add(user)
        _Own.connection = connection()


def release(user: object) -> None:
    """Shuts the local cluster down if this was its last user; others are left alone."""
    with _Own.lock:
        if user not in _Own.users:
            return
        is_last = is_own() and len(_Own.users) == 1
        _Own.users.discard(user)
        if is_last:
            load_ray().shutdown()


def is_own() -> bool:
    """Whether the cluster was started for engines of this process."""
    return bool(_Own.users) and connection() == _Own.connection


# ---- what is reserved in it


class Reservation(Generic[PlaceT]):
    """What is reserved in the cluster for the places of one pool: a placement group of Ray's.

    What was reserved on a machine that is lost, Ray reserves on another as soon as there is room.

    Attributes:
        give_back: gives everything back.
    """

    def __init__(
        self, ray: Any, places: Sequence[PlaceT], *, needs: Mapping[str, float], strategy: str
    ) -> None:
        """Asks for the resources; returns at once."""
        self._ray = ray
        self._places = weakref.WeakKeyDictionary({place: n for n, place in enumerate(places)})
        wanted = {name: amount for name, amount in needs.items() if amount}
        named = {_NAMED[name]: amount for name, amount in wanted.items() if name in _NAMED}
        others = {name: amount for name, amount in wanted.items() if name not in _NAMED}
        self._needs = {"num_cpus": 0.0, **named, "resources": others}
        bundles = [wanted for _ in places]
        self._group = ray.util.placement_group(bundles, strategy=strategy) if wanted else None
        self.give_back = when_collected(self, _remove, ray, self._group, connection())

    def is_for(self, place: PlaceT) -> bool:
        """Whether it is for this place."""
        return place in self._places

    def places(self) -> list[PlaceT]:
        """Those that it is for and that are still there."""
        return list(self._places)

    def for_actor(self, place: PlaceT) -> dict[str, Any]:
        """The options with which the actor of a place uses what is reserved for it."""
        if self._group is None:
            return dict(self._needs)
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=self._places[place]
        )
        return {**self._needs, "scheduling_strategy": strategy}

    def is_there_for(self, place: PlaceT) -> bool:
        """Whether there was room for the place."""
        if self._group is None:
            return True
        table = self._ray.util.placement_group_table(self._group)
        if table.get("state") == _RESERVED_ALREADY:
            return True
        return bool(table.get("bundles_to_node_id", {}).get(self._places[place]))


def _remove(ray: Any, group: Any, made_in: str) -> None:
    if group is not None and connection() == made_in:
        ray.util.remove_placement_group(group)


def when_collected(
    owner: object, work: Callable[..., None], *arguments: object
) -> weakref.finalize[..., object]:
    """Lets something be done when `owner` is collected, or when what is returned is called.

    Garbage is collected in any thread, also in that of Ray's which brings answers. What waits there
    for Ray waits for ever, so it gets a thread of its own.
    """
    return weakref.finalize(owner, _in_no_thread_of_ray, work, *arguments)


def _in_no_thread_of_ray(work: Callable[..., None], *arguments: object) -> None:
    if threading.get_ident() == threading.main_thread().ident:
        work(*arguments)
    else:
        threading.Thread(target=work, args=arguments, name="gives back to Ray", daemon=True).start()


# ---- connecting


def _refuse_client(ray: ModuleType) -> None:
    if ray.util.client.ray.is_connected():
        raise EngineError(
            'engine="ray" does not work through Ray Client (an address that begins with "ray://"): '
            "it needs to hear at once when a call has ended. Run the program on a machine of the "
            'cluster, and connect with ray.init(address="auto").'
        )


def _join(ray: ModuleType, address: str) -> None:
    if address.startswith("ray://"):
        raise EngineError(
            f'RAY_ADDRESS={address}: engine="ray" does not work through Ray Client. Run the '
            "program on a machine of the cluster, with RAY_ADDRESS=auto."
        )
    why = _why_unreachable(address)
    if not why:
        try:
            with _as_a_guest():
                ray.init(address=address, logging_level="WARNING")
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.300}"
        else:
            return
    raise EngineError(
        f"There is no Ray cluster to connect to at RAY_ADDRESS={address}: {why}. Start one "
        "(`ray start --head`), correct the address, or unset RAY_ADDRESS: then a local cluster is "
        "started and shut down."
    )


def _why_unreachable(address: str) -> str:
    """Why no server listens at "host:port"; "" if one does, or it is another kind of address."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        return ""
    try:
        socket.create_connection((host, int(port)), timeout=_REACHED_WITHIN_S).close()
    except OSError as error:
        return f"no answer there ({error})"
    return ""


@contextlib.contextmanager
def _as_a_guest() -> Iterator[None]:
    """Takes back what Ray changes in this process when it connects: it is the user's."""
    handler = None
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hints about Ray's own settings
            yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)

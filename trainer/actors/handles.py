"""What users hold of an actor: classes and handles; and the states of actors in checkpoints."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import difflib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, overload

from callbacks import PackingError
from callbacks.packing import module_not_importable, pack_object
from checkpoints import Checkpointable
from checkpoints.arguments import checked_methods
from trainer.actors.connection import Answer, describe_end, link_to
from trainer.actors.registry import ActorAddress, registry_of_this_process
from trainer.actors.start import ActorPlan, actors_to_save, start_actor
from trainer.errors import ActorDiedError, ActorUsageError, SerializationError

# ---- actor class
#
# Actor classes and handles: what users hold of an actor.
#     Counter = remote(Counter)                          an `ActorClass`
#     handle = Counter.options(name="…").remote(1, 2)    an `ActorHandle`, to be sent anywhere
#     handle.inc.remote(1)                               a call through an `ActorMethod`
#
# How actors live and die is in `actor_start`, how they are called in `actor_link`.

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


@dataclasses.dataclass(frozen=True)
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
            near = difflib.get_close_matches(name, [*known, *_FOR_CLUSTERS, *_WITHOUT_EFFECT], n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(sorted(known))}"
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


@checked_methods()
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


@dataclasses.dataclass(frozen=True)
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

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refused: the object is in another process."""
        raise ActorUsageError(
            f"`{self._name}` runs in the process of the {self._address.describe()}. Write "
            f"`handle.{self._name}.remote(…)`, which returns a future, and `actors.get(future)` "
            "for its value."
        )


class ActorHandle:
    """A way to an actor; can be sent to any process on this machine that the same user runs."""

    def __init__(self, address: ActorAddress) -> None:
        """Keeps the address; the first call connects."""
        self._address = address

    def __getattr__(self, name: str) -> ActorMethod:
        # `_address` is missing while an object is copied or unpickled.
        address = self.__dict__.get("_address")
        if address is None or (name.startswith("__") and name not in address.methods):
            raise AttributeError(name)
        if name not in address.methods:
            near = difflib.get_close_matches(name, address.methods, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(address.methods)}."
            raise ActorUsageError(
                f"The {address.describe()} has no method {name!r}. {hint} Attributes are read "
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
def remote(target: type, /) -> Any: ...
@overload
def remote(**options: Any) -> Callable[[type], Any]: ...
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

_LOGGER: Final = logging.getLogger(__name__)
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
    # From here on nobody is left out for being dead: who dies meanwhile has to be missed.
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
        "Nobody can go on from a state without it. Go on from the newest checkpoint: start the "
        "program again, or make the actor again under its name and call "
        "`algo.restore_from_path(newest)`; training from there ends with the same bytes as if "
        "nothing had happened. If the actor is no longer wanted, say so by "
        "`actors.kill(handle)`, and its state is left out."
    )


def with_kept(states: ActorStates, kept: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """States together with those that nobody took; a registered actor has its own."""
    return {
        namespace: {**kept.get(namespace, {}), **states.get(namespace, {})}
        for namespace in {**kept, **states}
    }


def set_actor_states(states: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """Gives living actors their states back.

    Warnings name the states that nobody took, and the living actors that there is no state for.

    Returns:
        the states that nobody took.

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
    _, late = concurrent.futures.wait([answer.arrival for answer in answers], _PATIENCE_S)
    if late:
        labels = [answer.label for answer in answers if answer.arrival in late]
        _LOGGER.warning("Still waiting for %s, after %g s.", ", ".join(labels), _PATIENCE_S)
    return [answer.value() for answer in answers]

"""CallbackChain: the callback objects of one process, and who is called when an event fires.

The chain makes the objects a spec describes, finds out once who listens to what, fires events, and
collects and restores the state of the objects. Which events exist and when they fire is not decided
here.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, itemgetter
from typing import Any, Final, NoReturn

from callbacks.callback import (
    NotPlainError,
    RLlibCallback,
    attribute_names,
    plain_attributes,
    plain_copy,
    restore_attributes,
    unsaved_attributes,
)
from callbacks.errors import CallbackConfigError, CallbackError
from callbacks.events import EVENTS, unknown_event_text
from callbacks.spec import (
    CallbackSpec,
    Listener,
    is_inherited,
    listener_for,
    name_of,
    new_object,
    object_problems,
)
from checkpoints import check_shape
from trainer_toolkit.arguments import require_keys
from trainer_toolkit.checks import TEXT, anything, fields, list_of
from trainer_toolkit.class_names import full_name

# ---- state matching
#
# Which saved callback state belongs to which callback object, decided by class and order.

_MAIN = "__main__."


@dataclass(frozen=True, kw_only=True)
class Matches:
    """The outcome of matching.

    Attributes:
        pairs: Index of the object -> its saved state.
        states_without_object: Class names of saved states that no object took.
        objects_without_state: Class names of objects that got none.
    """

    pairs: dict[int, Any]
    states_without_object: tuple[str, ...]
    objects_without_state: tuple[str, ...]

    @property
    def text(self) -> str:
        """What did not match, as a sentence; empty when everything did."""
        parts = []
        if self.states_without_object:
            names = ", ".join(self.states_without_object)
            parts.append(f"no callback object takes the saved state of {names}")
        if self.objects_without_state:
            names = ", ".join(self.objects_without_state)
            parts.append(f"no state was saved for {names}, which starts as `__init__` made it")
        return "; ".join(parts)


def matched_states(saved: Sequence[dict[str, Any]], classes: Sequence[str]) -> Matches:
    """Match the k-th saved state of a class with the k-th object of that class.

    A callback that was added, removed or moved thus leaves the states of all other classes in
    place. A class that was defined in the script itself (`__main__`) when saved matches the class
    of the same name in a module.

    Args:
        saved: Entries `{"class": dotted name, "state": ...}` in the order they were saved.
        classes: The dotted class name of each object, in order.
    """
    waiting = list(saved)
    pairs: dict[int, Any] = {}
    for same in (eq, _same_name_in_script):
        for index, name in enumerate(classes):
            if index in pairs:
                continue
            found = next((entry for entry in waiting if same(entry["class"], name)), None)
            if found is not None:
                pairs[index] = found["state"]
                # By identity: two entries may be equal.
                waiting = [entry for entry in waiting if entry is not found]
    return Matches(
        pairs=pairs,
        states_without_object=tuple(entry["class"] for entry in waiting),
        objects_without_state=tuple(
            name for index, name in enumerate(classes) if index not in pairs
        ),
    )


def _same_name_in_script(saved: str, current: str) -> bool:
    """`__main__.Counter` and `my_run.Counter` are one class, met as a script and as a module."""
    if saved.startswith(_MAIN):
        return current.endswith("." + saved.removeprefix(_MAIN))
    return current.startswith(_MAIN) and saved.endswith("." + current.removeprefix(_MAIN))


# ---- object state


def has_own_state(cls: type) -> bool:
    """Whether a class says itself what its state is, instead of inheriting the default."""
    method = getattr(cls, "get_state", None)
    return method is not None and method is not RLlibCallback.get_state


def object_state(instance: Any) -> Any:
    """The state of a callback object, which need not inherit from RLlibCallback.

    It shares nothing with the object: one that hands out its own list goes on filling that list,
    and an iteration could not be undone.
    """
    if not hasattr(instance, "get_state"):
        return plain_attributes(instance)
    state = instance.get_state()
    return _copied(state) if has_own_state(type(instance)) else state  # the default is a copy


def set_object_state(instance: Any, state: Any) -> None:
    """Give a callback object its state back; it may keep what it is given."""
    if hasattr(instance, "set_state"):
        instance.set_state(_copied(state))
    else:
        restore_attributes(instance, state)


class LeftOut:
    """Names once what default states leave out."""

    def __init__(self) -> None:
        self._named: set[tuple[type, str]] = set()

    def name(
        self,
        instance: Any,
        state: Mapping[str, Any],
        *,
        kind: str,
        besides: Collection[str] = (),
        ways: str = "get_state and set_state",
    ) -> None:
        """Warn about each attribute that is not in a state and was not named before.

        Args:
            instance: An object of that `kind`, which the warning says.
            state: What `plain_attributes` gave.
            kind: Such as "callback".
            besides: Names that are no part of the state, as for `plain_attributes`.
            ways: The methods by which a class says itself what its state is.
        """
        cls = type(instance)
        left_out = attribute_names(instance, besides=besides) - state.keys()
        if all((cls, name) in self._named for name in left_out):
            return  # the usual case: nothing is looked at twice
        for name, reason in unsaved_attributes(instance, besides=besides).items():
            if (cls, name) not in self._named:
                self._named.add((cls, name))
                logger.warning(
                    "the state of %s %s leaves out its attribute `%s`: %s cannot be saved. "
                    "After a restart or restore it is what `__init__` makes it. Override %s to "
                    "keep it.",
                    kind,
                    name_of(cls),
                    name,
                    reason,
                    ways,
                )


def _copied(state: Any) -> Any:
    try:
        return plain_copy(state)
    except NotPlainError:  # only a checkpoint refuses it
        return copy.deepcopy(state)


# ---- phases

RESULT_PHASES: Final = ("decide", "save", "save_last", "report")
"""What happens to a complete result, in order: it is judged; the best are saved; then what is saved
in any case, which remembers the best; and it is written down and shown."""

_Descent = tuple[int, ...]
"""The numbers of the functions that added one another, from one added before `run` to this one."""


class ResultPhases:
    """Functions that wait for a complete result, called in rounds; the first rounds have names.

    Functions without a phase are called in a single queue, as if there were no phases: one that
    waits from the start is in the first round, one that another function adds in the round after.
    So in every round, functions stand in the order in which those stand that added them. One that
    is given a phase waits for that round, and stands in it where it would if it had come there
    by itself, from round to round.

    Life: `add` while `on_train_result` fires; then `run` once, in which functions may `add` others.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, list[tuple[_Descent, Callable[[Any], object]]]] = {}
        self._round = -1
        self._adding: _Descent = ()
        self._num_added = 0

    def add(self, function: Callable[[Any], object], phase: str | None = None) -> None:
        """Lets a function wait.

        Args:
            function: called with the result.
            phase: one of `RESULT_PHASES`; None for the round after that which runs now, so the
                first one for functions added before `run`.

        Raises:
            ValueError: there is no such phase, or it is over.
        """
        left = RESULT_PHASES[max(0, self._round) :]
        if phase is not None and phase not in left:
            problem = "is over" if phase in RESULT_PHASES else "does not exist"
            raise ValueError(
                f"the phase {phase!r} {problem}; expected one of "
                f"{', '.join(map(repr, left)) or 'none, as all are over'}"
            )
        number = self._round + 1 if phase is None else RESULT_PHASES.index(phase)
        self._num_added += 1
        descent = (*self._adding, self._num_added)
        self._rounds.setdefault(number, []).append((descent, function))

    def run(self, result: Any) -> None:
        """Calls all of them; what one raises comes out as it is, and the rest is not called."""
        while self._rounds:
            self._round = min(self._rounds)
            waiting = self._rounds[self._round]
            waiting.sort(key=itemgetter(0))
            for self._adding, function in waiting:  # which may grow while it is gone through
                function(result)
            del self._rounds[self._round]


# ---- chain

__all__ = ["RESULT_PHASES", "CallbackChain", "CallbackGroup", "CallbackSpec", "ResultPhases"]

logger = logging.getLogger(__name__)

CHAIN_STATE: Final = fields({"objects": list_of(fields({"class": TEXT, "state": anything()}))})
"""The shape of a chain's state."""


class CallbackChain:
    """The callbacks of one algorithm or of one env runner.

    Life of a chain:
        1. Made from a spec: one object per entry of `spec.classes`, in order, of this chain alone.
        2. `listeners(event)` are found once: methods of the objects, then functions. A method that
           no class overrode is no listener, so an event without listeners costs nothing.
        3. `fire` or an `emitter` calls them; what one raises becomes a CallbackError at once.
        4. `get_state()` and `set_state()` carry the objects over a restart or a checkpoint.
           Functions have no state.

    Attributes:
        objects: The callback objects, in order.

    Args:
        spec: What is configured.
        where: Which process this is, for errors, such as `env runner 2`.

    Raises:
        CallbackConfigError: A factory returned something unfit, or a pattern cannot be copied.
        CallbackError: The `__init__` of a callback raised.
    """

    objects: tuple[Any, ...]

    def __init__(self, spec: CallbackSpec, *, where: str = "") -> None:
        self._spec = spec
        self._where = where
        self.objects = tuple(new_object(entry, where) for entry in spec.classes)
        problems = []
        for index, instance in enumerate(self.objects):
            problems += object_problems(instance, f"callbacks_class[{index}]")
        if problems:
            raise CallbackConfigError(problems)
        self._connect()

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self._spec, "where": self._where, "objects": self.objects}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        # Listeners are bound to the objects of one chain: a copy has to find its own.
        self._spec, self._where, self.objects = parts["spec"], parts["where"], parts["objects"]
        self._connect()

    def __len__(self) -> int:
        return len(self.objects)

    def __bool__(self) -> bool:
        return True  # a chain without objects may still have functions

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects)

    def __getitem__(self, index: Any) -> Any:
        return self.objects[index]

    def __getattr__(self, name: str) -> Any:
        # RLlib's chain is the one callback object itself, or a list: what is no member of the
        # chain is looked up in its objects, in order. Never called for what the chain has.
        if not name.startswith("_") and name != "objects":
            for instance in self.objects:
                if hasattr(instance, name):
                    return getattr(instance, name)
        raise AttributeError(
            f"Neither the chain of callbacks nor one of its objects "
            f"({', '.join(name_of(type(o)) for o in self.__dict__.get('objects', ())) or 'none'}) "
            f"has an attribute {name!r}."
        )

    def listeners(self, event: str) -> tuple[Listener, ...]:
        """The callables of an event in order; each takes all documented arguments by keyword.

        Who calls them directly gets raw exceptions: use `emitter` for a fast path that wraps them.

        Raises:
            ValueError: There is no such event.
        """
        try:
            return self._listeners[event]
        except KeyError:
            raise ValueError(f"`{event}` is {unknown_event_text(event)}") from None

    def listens_to(self, event: str) -> bool:
        """Whether anybody listens to an event."""
        return bool(self.listeners(event))

    def emitter(self, event: str) -> Callable[..., None] | None:
        """A function that fires this event, or None when there is no listener: for hot loops.

        It is found once outside the loop: `if emit is not None: emit(episode=episode, ...)`.
        """
        listeners = self.listeners(event)
        if not listeners:
            return None

        def emit(**arguments: Any) -> None:
            for listener in listeners:
                try:
                    listener(**arguments)
                except (Exception, SystemExit) as error:  # noqa: BLE001  _fail raises it again
                    self._fail(event, listener, arguments, error)

        return emit

    def fire(self, event: str, /, **arguments: Any) -> None:
        """Call every listener of an event, in order, with its documented arguments.

        Raises:
            CallbackError: A callback raised; it names callback, event and place. The listeners
                after it are not called. A SystemExit counts as raised: a callback must not end
                a runner's process, which would then be replaced. KeyboardInterrupt passes
                unchanged.
            TypeError: The arguments are not those of the event: a mistake of the engine.
        """
        emit = self.emitter(event)
        if arguments.keys() != set(EVENTS[event].arguments):
            raise TypeError(
                f"`{event}` was fired with {', '.join(arguments) or 'nothing'}; "
                f"it has to be fired with exactly {', '.join(EVENTS[event].arguments)}"
            )
        if emit is not None:
            emit(**arguments)

    def blame(self, event: str, arguments: Mapping[str, Any], error: Exception) -> CallbackError:
        """The error for what the listeners of an event did together, such as spoiling a batch."""
        where = _place(self._where, arguments)
        return CallbackError(", ".join(self._names[event]), event, where=where, original=error)

    def has_state(self) -> bool:
        """Whether `get_state()` could hold anything; cheap, for runners that want to skip it."""
        return any(
            instance.chain.has_state()
            if isinstance(instance, CallbackGroup)
            else has_own_state(type(instance)) or bool(attribute_names(instance))
            for instance in self.objects
        )

    def get_state(self) -> dict[str, Any]:
        """The states of the objects, as plain data.

        The form is `{"objects": [{"class": dotted name, "state": {...}}, ...]}`.
        Attributes that are no plain data are left out; a warning names each once.

        Raises:
            CallbackError: The `get_state` of a callback raised.
        """
        return {
            "objects": [
                {"class": full_name(type(instance)), "state": self._state_of(instance)}
                for instance in self.objects
            ]
        }

    def check_state(self, state: Any) -> None:
        """Raise a CheckpointMismatchError unless `set_state` will take it; change nothing.

        What is in the state of an object is the object's own affair.
        """
        check_shape(state, CHAIN_STATE)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Give the objects their states back.

        The k-th state of a class goes to the k-th object of that class. States without an object,
        and objects without a state, are named in one warning.

        Raises:
            CallbackError: The `set_state` of a callback raised.
        """
        require_keys("CallbackChain.set_state()", "state", state, ("objects",))
        matches = matched_states(state["objects"], [full_name(type(o)) for o in self.objects])
        for index, saved in matches.pairs.items():
            instance = self.objects[index]
            try:
                set_object_state(instance, saved)
            except (Exception, SystemExit) as error:
                name = f"{name_of(type(instance))}.set_state"
                raise CallbackError(
                    name, "its state was restored", where=self._where, original=error
                ) from error
        if matches.text:
            logger.warning("callback state was restored only in part: %s", matches.text)

    def _connect(self) -> None:
        """Find the listeners of every event, and their names for errors."""
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._left_out = LeftOut()
        for event in EVENTS:
            found = self._find(event)
            self._listeners[event] = tuple(listener for listener, _ in found)
            self._names[event] = tuple(name for _, name in found)

    def _find(self, event: str) -> list[tuple[Listener, str]]:
        found: list[tuple[Listener, str]] = []
        for instance in self.objects:
            method = getattr(instance, event, None)
            if method is None or is_inherited(method, event):
                continue
            if isinstance(instance, CallbackGroup) and is_inherited(method, event, CallbackGroup):
                found += instance.chain.named_listeners(event)
            else:
                name = f"{name_of(type(instance))}.{event}"
                found.append((listener_for(method, event), name))
        for index, function in enumerate(self._spec.functions.get(event, ())):
            name = f"{event}[{index}] {name_of(function)}"
            found.append((listener_for(function, event), name))
        return found

    def named_listeners(self, event: str) -> list[tuple[Listener, str]]:
        """The listeners of an event with their names for errors."""
        return list(zip(self.listeners(event), self._names[event], strict=True))

    def _fail(
        self, event: str, listener: Listener, arguments: dict[str, Any], error: BaseException
    ) -> NoReturn:
        """Raise what a listener raised as a CallbackError that names it."""
        if isinstance(error, CallbackError):
            raise error  # a callback inside: it is named already
        name = self._names[event][self._listeners[event].index(listener)]
        raise CallbackError(
            name, event, where=_place(self._where, arguments), original=error
        ) from error

    def _state_of(self, instance: Any) -> Any:
        try:
            state = object_state(instance)
        except (Exception, SystemExit) as error:
            name = f"{name_of(type(instance))}.get_state"
            raise CallbackError(
                name, "its state was taken", where=self._where, original=error
            ) from error
        if not has_own_state(type(instance)):
            self._left_out.name(instance, state, kind="callback")
        return state


def _forwarder(event: str) -> Callable[..., None]:
    """A method that fires `event` for the members of a group."""

    def forward(self: CallbackGroup, **arguments: Any) -> None:
        self.chain.fire(event, **arguments)

    forward.__name__ = event
    forward.__qualname__ = f"CallbackGroup.{event}"
    forward.__doc__ = f"Call `{event}` of every member, in order."
    return forward


def _forwards_every_event(cls: type[CallbackGroup]) -> type[CallbackGroup]:
    """Give a class one forwarding method per event of the table, so that none is forgotten."""
    for event in EVENTS:
        setattr(cls, event, _forwarder(event))
    return cls


@_forwards_every_event
class CallbackGroup(RLlibCallback):
    """A callback object made of others: every event goes to all of them, in order.

    A chain calls the members directly, so a group costs nothing and an event that no member listens
    to has no listener.

    Args:
        callbacks: Classes, factories or patterns, as for `CallbackSpec`.
    """

    def __init__(self, callbacks: Any) -> None:
        self.chain = CallbackChain(CallbackSpec(callbacks))

    def get_state(self) -> dict[str, Any]:
        """The states of the members."""
        return self.chain.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Give the members their states back."""
        self.chain.set_state(state)


def _place(where: str, arguments: Mapping[str, Any]) -> str:
    """Process, sub-env and episode of a firing, as far as they are known."""
    parts = [where] if where else []
    if "env_index" in arguments:
        parts.append(f"env_index {arguments['env_index']}")
    episode_id = getattr(arguments.get("episode"), "id_", None)
    if episode_id is not None:
        parts.append(f"episode {episode_id}")
    return ", ".join(parts)

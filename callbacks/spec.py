"""What the user configured as callbacks: normalised, checked, ready to be sent and made.

Which of an event's arguments a callable takes, and a version that can be fired with all.
Rules:
    * A callable without `**kwargs` gets just the arguments it names.
    * A callable with `**kwargs` gets exactly the documented arguments, and those old ones it names.
    * A callable that needs something the event does not have cannot be configured.

This is done once, when callbacks are configured or a chain is built, never while an event fires.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import types
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.errors import CallbackConfigError, CallbackError
from callbacks.events import EVENTS, Derivation, Event, signature_text, unknown_event_text
from trainer_toolkit.arguments import argument_error
from trainer_toolkit.class_names import without_locals
from trainer_toolkit.nearest_names import nearest

# ---- signatures

Listener = Callable[..., object]
"""A callable that takes every documented argument of its event by keyword."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What one callable takes of one event.

    Attributes:
        takes_all: Whether it has `**kwargs`.
        named: The documented arguments it names, in the order of the event.
        old: The old arguments it names.
    """

    takes_all: bool
    named: tuple[str, ...]
    old: tuple[str, ...]


class SignatureProblem(Exception):  # noqa: N818  it only carries text to a CallbackConfigError
    """A callable does not fit an event; the message says why and what to write."""


def demand_of(callback: Callable[..., object], event: str) -> Demand:
    """What `callback` takes of `event`; a SignatureProblem if the event does not have that."""
    entry = EVENTS[event]
    _check_that_a_call_runs_it(callback)
    parameters = _parameters(callback, event)
    kinds = {parameter.kind for parameter in parameters.values()}
    takes_all = inspect.Parameter.VAR_KEYWORD in kinds
    by_name = [name for name, parameter in parameters.items() if parameter.kind in _BY_NAME]
    demand = Demand(
        takes_all=takes_all,
        named=tuple(name for name in entry.arguments if name in by_name),
        old=tuple(name for name in entry.old_arguments if name in by_name),
    )
    for parameter in parameters.values():
        _check_required(parameter, entry)
    takes_something = takes_all or demand.named or demand.old
    if inspect.Parameter.VAR_POSITIONAL in kinds and not takes_something:
        raise SignatureProblem(
            "it takes its arguments by position only, but events give them by name; "
            f"wrap it, for example `lambda **kwargs: ...`. The event is {signature_text(event)}"
        )
    return demand


def listener_for(callback: Callable[..., object], event: str) -> Listener:
    """A version of `callback` that can be called with all documented arguments of `event`.

    It is `callback` itself whenever nothing has to be left out or added, so that such callables
    cost nothing extra.

    Raises:
        SignatureProblem: It needs something that the event does not have.
    """
    entry = EVENTS[event]
    demand = demand_of(callback, event)
    derivations = {name: entry.old_arguments[name] for name in demand.old}
    if derivations:
        return _adding(callback, None if demand.takes_all else demand.named, derivations)
    if demand.takes_all or demand.named == entry.arguments:
        return callback
    return _naming(callback, demand.named)


def required_names(callback: Callable[..., object]) -> tuple[str, ...]:
    """The parameters that must be given; none if the signature cannot be read."""
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (ValueError, TypeError):
        return ()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind not in variable
    )


def _check_that_a_call_runs_it(callback: Callable[..., object]) -> None:
    """Refuse what a call only prepares: its body would silently never run."""
    called: Any = callback
    while isinstance(called, functools.partial):
        called = called.func
    if not inspect.isroutine(called) and not isinstance(called, type):
        called = type(called).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise SignatureProblem(
            "it is `async`, and nothing awaits what a call of it returns, so it would never run; "
            "write `def` without `async`, and `asyncio.run(...)` inside if need be"
        )
    if inspect.isgeneratorfunction(called):
        raise SignatureProblem(
            "it is a generator (it has a `yield`), and nothing iterates over what a call of it "
            "returns, so it would never run; remove the `yield`"
        )


def _parameters(callback: Callable[..., object], event: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(callback).parameters
    except (ValueError, TypeError) as error:
        raise SignatureProblem(
            "it is built in and does not tell which arguments it takes; "
            f"wrap it, for example `lambda **kwargs: ...`. The event is {signature_text(event)}"
        ) from error


def _check_required(parameter: inspect.Parameter, entry: Event) -> None:
    """Refuse a parameter that must be given but that the event cannot give."""
    known = parameter.name in entry.arguments or parameter.name in entry.old_arguments
    if parameter.default is not inspect.Parameter.empty:
        return
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise SignatureProblem(
            f"it takes `{parameter.name}` by position only, but events give arguments by name; "
            f"remove the `/` or wrap it in a lambda. The event is {signature_text(entry.name)}"
        )
    if parameter.kind not in _BY_NAME or known:
        return
    offered = [*entry.arguments, *entry.old_arguments]
    near = nearest(parameter.name, offered)
    hint = f"; did you mean `{near}`?" if near else "."
    raise SignatureProblem(
        f"it requires `{parameter.name}`, which the event does not have{hint} "
        f"The event is {signature_text(entry.name)}"
    )


def _naming(callback: Callable[..., object], names: tuple[str, ...]) -> Listener:
    """Give just `names`; one name is the common case and gets the shortest path."""
    if len(names) == 1:
        (only,) = names

        def give_one(**arguments: Any) -> object:
            return callback(**{only: arguments[only]})

        return give_one

    def give_some(**arguments: Any) -> object:
        return callback(**{name: arguments[name] for name in names})

    return give_some


def _adding(
    callback: Callable[..., object],
    names: tuple[str, ...] | None,
    derivations: Mapping[str, Derivation],
) -> Listener:
    """Give just `names`, or everything documented if None, and old arguments besides."""

    def give_more(**arguments: Any) -> object:
        given = arguments if names is None else {name: arguments[name] for name in names}
        old = {name: derive(arguments) for name, derive in derivations.items()}
        return callback(**given, **old)

    return give_more


# ---- naming


def name_of(thing: Any) -> str:
    """A short name of a class, function, lambda, partial, bound method or callable object."""
    if isinstance(thing, type):
        return without_locals(thing.__qualname__)
    if isinstance(thing, functools.partial):
        return f"partial({name_of(thing.func)})"
    if isinstance(thing, types.MethodType):
        return f"{name_of(_owner_of(thing))}.{getattr(thing, '__name__', '?')}"
    if isinstance(thing, types.FunctionType):
        return _name_of_function(thing)
    if isinstance(thing, types.BuiltinFunctionType):
        return without_locals(thing.__qualname__)
    return f"{name_of(type(thing))} object"


def with_article(noun: str) -> str:
    """`a Tracker`, `an App`: for sentences that name a type."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _owner_of(method: types.MethodType) -> type:
    owner = method.__self__
    return owner if isinstance(owner, type) else type(owner)


def _name_of_function(function: types.FunctionType) -> str:
    code = function.__code__
    if function.__name__ == "<lambda>":
        return f"<lambda at {PurePath(code.co_filename).name}:{code.co_firstlineno}>"
    return without_locals(function.__qualname__)


# ---- problems
#
# What can be wrong with one configured callback, as sentences. Each says what was given, what was
# expected and what to write instead. Pure checks of classes and callables: no object is made and
# no user code is called, so that a configuration can be checked in any process at any time. An
# object made by a factory is checked by `object_problems` when the chain makes it.

_UNCHECKED = object()


def is_instance_entry(entry: Any) -> bool:
    """Whether an entry of `callbacks_class` is an object to copy, not something to call."""
    if isinstance(entry, type):
        return False
    return isinstance(entry, RLlibCallback) or any(hasattr(type(entry), event) for event in EVENTS)


def class_problems(entry: Any, where: str) -> list[str]:
    """The problems of one entry of `callbacks_class`; `where` names the entry."""
    if isinstance(entry, type):
        return _problems_of_class(entry, where)
    if is_instance_entry(entry):
        return object_problems(entry, where)
    if callable(entry):
        return _problems_of_factory(entry, where)
    return [f"{where} is {_described(entry)}; {_advice_for(entry)}"]


def object_problems(instance: Any, where: str) -> list[str]:
    """The problems of a callback object: misspelt methods, methods unfit for their event."""
    cls = type(instance)
    problems = _unknown_methods(cls, where)
    for event in EVENTS:
        method = getattr(instance, event, None)
        if method is None or is_inherited(method, event):
            continue
        place = f"{where}: {name_of(cls)}.{event}"
        is_bound = getattr(method, "__self__", None) is instance
        found = inspect.getattr_static(cls, event, None) if is_bound else None
        problems += _problems_of_self(found, event, place) or _problems_of_method(
            method, event, place
        )
    return problems


def function_problems(event: Any, functions: Sequence[Any]) -> list[str]:
    """The problems of the callables configured for one event."""
    if event not in EVENTS:
        return [f"`{event}` is {unknown_event_text(str(event))}"]
    problems = []
    for index, function in enumerate(functions):
        where = f"{event}[{index}]" if len(functions) > 1 else event
        if not callable(function):
            problems.append(
                f"{where} is {_described(function)}, which cannot be called; expected a function "
                f"such as `lambda {EVENTS[event].arguments[0]}, **kwargs: ...`, or a list of "
                "functions"
            )
        elif isinstance(function, type) and issubclass(function, RLlibCallback):
            problems.append(
                f"{where} is the class {name_of(function)}; a callback class is given as "
                f"`callbacks_class={name_of(function)}` and its methods are found by name"
            )
        else:
            problems += _problems_of_method(function, event, f"{where}: {name_of(function)}")
    return problems


def _problems_of_class(cls: type, where: str) -> list[str]:
    problems = _unknown_methods(cls, where)
    known = [event for event in EVENTS if hasattr(cls, event)]
    if not known and not problems:
        problems.append(
            f"{where} is the class {name_of(cls)}, which inherits from no RLlibCallback and has no "
            "method named like an event, so it would never be called; write "
            f"`class {name_of(cls)}(RLlibCallback)` and methods such as `on_episode_end`"
        )
    if inspect.isabstract(cls):
        problems.append(f"{where}: {name_of(cls)} is abstract, so no object of it can be made")
    needed = required_names(cls)
    if needed:
        given = ", ".join(f"{name}=..." for name in needed)
        problems.append(
            f"{where}: {name_of(cls)} is made without arguments in every process, but its "
            f"`__init__` requires {_listed_names(needed)}; give them defaults, or give a function: "
            f"`callbacks_class=lambda: {name_of(cls)}({given})`"
        )
    for event in known:
        problems += _problems_of_class_method(cls, event, f"{where}: {name_of(cls)}.{event}")
    return problems


def _problems_of_class_method(cls: type, event: str, where: str) -> list[str]:
    found = inspect.getattr_static(cls, event)
    # None switches an inherited method off, as Python's own `__hash__ = None` does.
    if found is None or is_inherited(getattr(cls, event), event):
        return []
    if problems := _problems_of_self(found, event, where):
        return problems
    method = _bound_method(cls, event)
    return [] if method is _UNCHECKED else _problems_of_method(method, event, where)


def _problems_of_self(found: Any, event: str, where: str) -> list[str]:
    """A method written without `self`: its first argument would be the object itself.

    `found` is what the class holds under the name of the event.
    """
    if not isinstance(found, types.FunctionType):
        return []
    first = next(iter(inspect.signature(found).parameters.values()), None)
    entry = EVENTS[event]
    if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        what = "takes no `self`"
    elif first.name in entry.arguments or first.name in entry.old_arguments:
        what = f"has `{first.name}` where `self` is expected"
    else:
        return []
    return [
        f"{where} {what}; the first parameter of a method is the callback object itself: write "
        f"`def {event}(self, *, {entry.arguments[0]}, **kwargs)`"
    ]


def _problems_of_factory(factory: Callable[..., Any], where: str) -> list[str]:
    needed = required_names(factory)
    if not needed:
        return []
    return [
        f"{where} is {name_of(factory)}, which requires {_listed_names(needed)}; expected a class "
        "or a function without arguments that returns a callback object. A function for one event "
        "is given under the name of the event, for example `on_episode_end=...`"
    ]


def _problems_of_method(method: Any, event: str, where: str) -> list[str]:
    if not callable(method):
        return [f"{where} is {_described(method)}; expected a method for the event of that name"]
    try:
        demand_of(method, event)
    except SignatureProblem as problem:
        return [f"{where} cannot be called: {problem}"]
    return []


def _unknown_methods(cls: type, where: str) -> list[str]:
    """Methods named like events that are none: misspelt, they would silently never be called."""
    problems = []
    names = sorted({name for base in cls.__mro__ for name in base.__dict__})
    for name in names:
        meant = _meant_event(name)
        if meant is not None and callable(getattr(cls, name, None)):
            problems.append(
                f"{where}: {name_of(cls)} has a method `{name}`, which is "
                f"{unknown_event_text(meant)} (helpers of your own need another name, such as one "
                "that starts with `_`)"
            )
    return problems


def _meant_event(name: str) -> str | None:
    """How a name is spelt that is meant to be an event but is none; None for all other names.

    Names with `on_` are always meant to be one; other spellings (`onEpisodeEnd`, `OnEpisodeEnd`,
    `on__episode_end`, `onepisode_end`) if they come close enough to an event.
    """
    if name in EVENTS or name.startswith("_"):
        return None
    if name.startswith("on_"):
        return name
    spelt = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    is_near = spelt.startswith("on") and nearest(spelt, EVENTS, similarity=0.85)
    return spelt if is_near else None


def is_inherited(method: Any, event: str, owner: type = RLlibCallback) -> bool:
    """Whether the method of an event is that of a class; of `RLlibCallback` it does nothing."""
    return getattr(method, "__func__", method) is getattr(owner, event)


def _bound_method(cls: type, event: str) -> Any:
    """The method as an object would have it, or `_UNCHECKED` when only an object can tell."""
    found = inspect.getattr_static(cls, event)
    if isinstance(found, types.FunctionType):
        return types.MethodType(found, cls)
    if isinstance(found, (staticmethod, classmethod)):
        return getattr(cls, event)
    if hasattr(type(found), "__get__"):
        return _UNCHECKED  # object_problems() checks it once there is an object
    return found


def _described(thing: Any) -> str:
    if isinstance(thing, str):
        return f"the string {thing!r}"
    return f"{with_article(type(thing).__name__)} ({thing!r:.60})"


def _advice_for(entry: Any) -> str:
    expected = "expected a callback class, an object of one, or a function that makes one"
    if isinstance(entry, str):
        return f"{expected}; import the class and give the class itself"
    if isinstance(entry, dict):
        return f"{expected}; functions are given by event: `config.callbacks(on_episode_end=...)`"
    if isinstance(entry, (set, frozenset)):
        return f"{expected}; a set has no order, give a list"
    return expected


def _listed_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ---- spec
#
# CallbackSpec: what the user configured, normalised and checked; it can be packed and sent. A
# spec holds no callback objects of its own making: it says how to make them. `callbacks.chain`
# makes them.

Function = Callable[..., object]

_LISTS = (list, tuple, deque)


class CallbackSpec:
    """Which callback objects and functions listen to which events; cannot be changed.

    The order in which an event calls them: methods of `classes` in their order, then the functions
    of the event in their order.

    Attributes:
        classes: What objects are made from, in order. Each is a class, a function without arguments
            that returns an object, or an object that serves as a pattern (each process gets a
            copy).
        functions: Event -> the callables of that event, in order. Events without callables are left
            out.

    Args:
        classes: None, one of the above, or a list of them.
        functions: Event -> None, a callable, or a list of callables.

    Raises:
        CallbackConfigError: Something is wrong; all problems are listed.
    """

    __slots__ = ("classes", "functions")

    classes: tuple[Any, ...]
    functions: Mapping[str, tuple[Function, ...]]

    def __init__(self, classes: Any = None, functions: Mapping[str, Any] | None = None) -> None:
        if functions is not None and not isinstance(functions, Mapping):
            raise argument_error(
                "CallbackSpec()", "functions", functions, "None or a dict by event"
            )
        listed, is_list = _listed(classes), isinstance(classes, _LISTS)
        by_event = {event: _listed(given) for event, given in (functions or {}).items()}
        problems = []
        for index, entry in enumerate(listed):
            problems += class_problems(
                entry, f"callbacks_class[{index}]" if is_list else "callbacks_class"
            )
        for event, given in by_event.items():
            problems += function_problems(event, given)
        if problems:
            raise CallbackConfigError(problems)
        object.__setattr__(self, "classes", listed)
        kept = {event: given for event, given in by_event.items() if given}
        object.__setattr__(self, "functions", MappingProxyType(kept))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"a CallbackSpec cannot be changed (`{name}` was to be set); make a new one: "
            "CallbackSpec(classes, functions)"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a CallbackSpec cannot be changed (`{name}` was to be deleted)")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CallbackSpec):
            return NotImplemented
        return (self.classes, dict(self.functions)) == (other.classes, dict(other.functions))

    def __hash__(self) -> int:
        return hash((CallbackSpec, len(self.classes), tuple(self.functions)))

    def __bool__(self) -> bool:
        """Whether anything is configured."""
        return bool(self.classes or self.functions)

    def __repr__(self) -> str:
        return f"CallbackSpec(classes={self.classes!r}, functions={dict(self.functions)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (CallbackSpec, (self.classes, dict(self.functions)))


def _listed(given: Any) -> tuple[Any, ...]:
    """None, one thing or a list of things, as a tuple."""
    if given is None:
        return ()
    return tuple(given) if isinstance(given, _LISTS) else (given,)


# ---- making


def new_object(entry: Any, where: str) -> Any:
    """The callback object for one entry of a spec.

    A class or factory is called, a pattern is copied.

    Raises:
        CallbackConfigError: A factory returned no callback object, or a pattern cannot be copied.
        CallbackError: A class or factory raised.
    """
    if is_instance_entry(entry):
        return _copy_of(entry)
    try:
        made = entry()
    except (Exception, SystemExit) as error:
        raise CallbackError(
            f"{name_of(entry)}()", "callback objects were made", where=where, original=error
        ) from error
    if made is None or isinstance(made, type) or not any(hasattr(made, e) for e in EVENTS):
        raise CallbackConfigError(
            [
                f"the function {name_of(entry)} returned {made!r:.80}; expected a callback object "
                "with methods named like events, such as an instance of a subclass of "
                "RLlibCallback. A function for one event is given under the name of the event, for "
                "example `on_episode_end=...`"
            ]
        )
    return made


def _copy_of(pattern: Any) -> Any:
    """A copy for this chain alone: runs must not share what their callbacks remember."""
    try:
        return copy.deepcopy(pattern)
    except Exception as error:
        name = name_of(type(pattern))
        raise CallbackConfigError(
            [
                f"the {name} object given as callback cannot be copied ({error}), but the "
                "algorithm and every env runner need one of their own; give the class, or a "
                f"function that makes it: `callbacks_class=lambda: {name}(...)`"
            ]
        ) from error

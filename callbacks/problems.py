"""What can be wrong with one configured callback, as sentences.

Each says what was given, what was expected and what to write instead. Pure checks of classes and
callables: no object is made and no user code is called, so that a configuration can be checked in
any process at any time. An object made by a factory is checked by `object_problems` when the chain
makes it.
"""

from __future__ import annotations

import difflib
import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.events import EVENTS, unknown_event_text
from callbacks.naming import name_of, with_article
from callbacks.signatures import SignatureProblem, demand_of, required_names

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
        if method is None or _is_inherited_no_op(method, event):
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
    if found is None or _is_inherited_no_op(getattr(cls, event), event):
        return []
    if problems := _problems_of_self(found, event, where):
        return problems
    method = _bound_method(cls, event)
    return [] if method is _UNCHECKED else _problems_of_method(method, event, where)


def _problems_of_self(found: Any, event: str, where: str) -> list[str]:
    """A method written without `self`: its first argument would be the object itself.

    Args:
        found: What the class holds under the name of the event.
        event: The event.
        where: What the method is called.
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
    is_near = spelt.startswith("on") and difflib.get_close_matches(spelt, EVENTS, n=1, cutoff=0.85)
    return spelt if is_near else None


def _is_inherited_no_op(method: Any, event: str) -> bool:
    return getattr(method, "__func__", method) is getattr(RLlibCallback, event)


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

"""Which of an event's arguments a callable takes, and a version that can be fired with all.

Rules:
    * A callable without `**kwargs` gets just the arguments it names.
    * A callable with `**kwargs` gets exactly the documented arguments, and those old ones it names.
    * A callable that needs something the event does not have cannot be configured.

This is done once, when callbacks are configured or a chain is built, never while an event fires.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from callbacks.events import EVENTS, Event, signature_text
from callbacks.old_arguments import Derivation

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
    """What `callback` takes of `event`.

    Args:
        callback: A function, lambda, partial, bound method, callable object or builtin.
        event: The name of an event.

    Raises:
        SignatureProblem: It needs something that the event does not have.
    """
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
    if demand.takes_all:
        return _adding(callback, derivations) if derivations else callback
    if derivations:
        return _naming_and_adding(callback, demand.named, derivations)
    if demand.named == entry.arguments:
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
    near = difflib.get_close_matches(parameter.name, offered, n=1, cutoff=0.6)
    hint = f"; did you mean `{near[0]}`?" if near else "."
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


def _adding(callback: Callable[..., object], derivations: Mapping[str, Derivation]) -> Listener:
    """Give everything documented, and old arguments besides."""

    def give_more(**arguments: Any) -> object:
        old = {name: derive(arguments) for name, derive in derivations.items()}
        return callback(**arguments, **old)

    return give_more


def _naming_and_adding(
    callback: Callable[..., object],
    names: tuple[str, ...],
    derivations: Mapping[str, Derivation],
) -> Listener:
    """Give just `names`, and old arguments besides."""

    def give_named(**arguments: Any) -> object:
        given = {name: arguments[name] for name in names}
        old = {name: derive(arguments) for name, derive in derivations.items()}
        return callback(**given, **old)

    return give_named

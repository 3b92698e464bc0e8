"""Checks of arguments at the edges of the three packages: what is given, or an error that names it.

    @takes(num_env_steps=integer(1), path=optional(path()))
    def play(self, num_env_steps: int, path: PathLike | None = None) -> None: ...

A check is a predicate and the words that describe it, always together. It stands where a wrong
argument would lead to wrong numbers, lost files, or an error that nobody can read;
`tests/unit/test_edges.py` lists these places. Everywhere else Python's own errors are clear enough,
and mypy judges our own calls. NumPy's scalars are numbers like any other: `takes` turns them into
Python's, so that none gets into a state or a JSON file.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ArgumentError(TypeError, ValueError):
    """An argument of a public function or method is nothing that it can use."""


@dataclass(frozen=True)
class Check:
    """One condition on one value.

    Attributes:
        expected: completes the sentence "expected ...".
        accepts: whether a value fulfils it; never raises.
    """

    expected: str
    accepts: Callable[[Any], bool]


def anything(expected: str = "any value") -> Check:
    """Accepts every value."""
    return Check(expected, lambda _: True)


def boolean() -> Check:
    """True or False (NumPy's too); 0 and 1 are not booleans."""
    return Check("True or False", lambda value: isinstance(value, bool | np.bool_))


def integer(minimum: int | None = None, maximum: int | None = None) -> Check:
    """An int (NumPy's too, no bool), at least `minimum` and at most `maximum`."""
    bound = "" if minimum is None else f" ≥ {minimum}"
    bound += "" if maximum is None else f"{' and' if bound else ''} ≤ {maximum}"

    def accepts(value: Any) -> bool:
        # By type first: asking an abstract class takes longer than all the rest.
        if type(value) is not int and (
            isinstance(value, bool) or not isinstance(value, numbers.Integral)
        ):
            return False
        return (minimum is None or int(value) >= minimum) and (
            maximum is None or int(value) <= maximum
        )

    return Check(f"an int{bound}", accepts)


def number(
    minimum: float | None = None,
    *,
    maximum: float | None = None,
    above: float | None = None,
    infinite: bool = False,
) -> Check:
    """A real number (no bool, no NaN) within bounds.

    Args:
        minimum: the smallest value allowed.
        maximum: the largest value allowed.
        above: the value must be larger than this.
        infinite: whether infinity is allowed.
    """
    bounds = [
        f" {sign} {bound:g}"
        for sign, bound in (("≥", minimum), (">", above), ("≤", maximum))
        if bound is not None
    ]

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        try:
            real = float(value)
        except OverflowError:  # an int of more than 308 digits
            return False
        if math.isnan(real) or (math.isinf(real) and not infinite):
            return False
        within = (minimum is None or real >= minimum) and (maximum is None or real <= maximum)
        return within and (above is None or real > above)

    return Check("a number" + " and".join(bounds), accepts)


def text() -> Check:
    """A string that is not empty."""
    return Check("a string", lambda value: isinstance(value, str) and bool(value))


def path() -> Check:
    """A path: a string that is not empty, or a `pathlib.Path`."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, str | os.PathLike):
            return False
        plain = os.fspath(value)
        return isinstance(plain, str) and bool(plain) and "\0" not in plain

    return Check("a path (a string or a pathlib.Path)", accepts)


def one_of(*choices: str | int | float | bool | None) -> Check:
    """One of a few values, by type and value; NumPy's scalars count as Python's."""
    names = ", ".join(repr(choice) for choice in choices)

    def accepts(value: Any) -> bool:
        value = plain_scalar(value)
        return any(type(value) is type(choice) and value == choice for choice in choices)

    return Check(f"one of {names}", accepts)


def function() -> Check:
    """Anything that can be called."""
    return Check("a callable", callable)


def instance(kind: type | tuple[type, ...], expected: str) -> Check:
    """An instance of a class."""
    return Check(expected, lambda value: isinstance(value, kind))


def mapping(of: Check | None = None) -> Check:
    """A dict; with `of`, every value must fulfil it."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        return of is None or all(of.accepts(entry) for entry in value.values())

    return Check("a dict" if of is None else f"a dict of {of.expected}", accepts)


def several(of: Check | None = None) -> Check:
    """A list or tuple; with `of`, every entry must fulfil it."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, list | tuple):
            return False
        return of is None or all(of.accepts(entry) for entry in value)

    return Check("a list" if of is None else f"a list of {of.expected}", accepts)


def numeric() -> Check:
    """What NumPy makes an array of numbers or booleans of."""

    def accepts(value: Any) -> bool:
        if type(value) is np.ndarray:
            return value.dtype.kind in "biuf"
        try:
            return np.asarray(value).dtype.kind in "biuf"
        except (ValueError, TypeError, RecursionError, OverflowError):
            return False

    return Check("an array of numbers", accepts)


def optional(check: Check) -> Check:
    """None, or what `check` accepts."""
    return Check(
        f"None or {check.expected}",
        lambda value: value is None or check.accepts(value),
    )


def either(*checks: Check) -> Check:
    """What any of the checks accepts."""
    return Check(
        " or ".join(check.expected for check in checks),
        lambda value: any(check.accepts(value) for check in checks),
    )


def plain_scalar(value: Any) -> Any:
    """A scalar of NumPy as Python's own; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Any) -> str:
    """A value for an error text: short, whatever it is."""
    try:
        short = reprlib.Repr()
        short.maxother, short.maxstring, short.maxlong = 60, 60, 40
        return short.repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide what is wrong
        return f"a {type(value).__name__}"


def argument_error(where: str, name: str, value: Any, expected: str) -> ArgumentError:
    """The error that an argument is none of what was expected."""
    return ArgumentError(
        f"{where}: `{name}={shown(value)}` is of type {type(value).__name__}; expected {expected}. "
        f"Give {name} as that."
    )


def require_keys(where: str, name: str, value: Any, keys: tuple[str, ...]) -> None:
    """Raises an ArgumentError unless a dict has all of some keys."""
    missing = [key for key in keys if key not in value]
    if missing:
        raise ArgumentError(
            f"{where}: `{name}={shown(value)}` has no {', '.join(map(repr, missing))}; expected a "
            f"dict with {', '.join(map(repr, keys))}. Give {name} as it was handed out."
        )


def takes(**checks: Check) -> Callable[[_Function], _Function]:
    """Checks arguments of a function or method before it runs.

    Parameters that are left out of a call are not looked at.
    """

    def decorate(function: _Function) -> _Function:
        code = inspect.unwrap(function).__code__
        places = {name: place for place, name in enumerate(code.co_varnames[: code.co_argcount])}

        def accepted(name: str, value: Any, args: tuple[Any, ...]) -> Any:
            if not checks[name].accepts(value):
                raise argument_error(_called(function, args), name, value, checks[name].expected)
            return plain_scalar(value)

        @functools.wraps(function)
        def checked(*args: Any, **named: Any) -> Any:
            given = [*args]
            for name in checks:
                place = places.get(name, len(args))
                if name in named:
                    named[name] = accepted(name, named[name], args)
                elif place < len(args):
                    given[place] = accepted(name, args[place], args)
            return function(*given, **named)

        return cast(_Function, checked)

    return decorate


def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """What was called, in the words of its caller: of a method the object's class, not its base."""
    owner, _, name = function.__qualname__.rpartition(".")
    if not owner or not args or name == "__init__":
        return f"{owner or name}()"
    of = args[0] if isinstance(args[0], type) else type(args[0])
    known = any(each.__qualname__ == owner for each in of.__mro__)
    return f"{of.__name__ if known else owner}.{name}()"

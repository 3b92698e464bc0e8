"""Checks of arguments at the edges of the three packages: what is given, or an error that names it.

    @takes(num_env_steps=integer(1), path=optional(path()))
    def play(self, num_env_steps: int, path: PathLike | None = None) -> None: ...

A check stands where a wrong argument would lead to wrong numbers, lost files, or an error that
nobody can read; `tests/unit/test_edges.py` lists these places. Everywhere else Python's own errors
are clear enough, and mypy judges our own calls. NumPy's scalars are numbers like any other: `takes`
turns them into Python's, so that none gets into a state or a JSON file.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from trainer_toolkit.checks import Check, plain_scalar, shown

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ArgumentError(TypeError, ValueError):
    """An argument of a public function or method is nothing that it can use."""


def checked(value: Any, check: Check, *, name: str, error: type[Exception]) -> Any:
    """The value, if it is accepted; else raises the error, which says what was expected."""
    if not check.accepts(value):
        raise error(f"`{name}={shown(value)}`: expected {check.expected}.")
    return value


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

"""Adds the members of one class to another, as if they had been written there."""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any, Final

_NOT_MEMBERS: Final = frozenset(
    {"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__qualname__"}
    | {"__static_attributes__", "__firstlineno__"}
)


def renamed(name: str) -> property:
    """A method or attribute that is called `name` today."""
    return property(operator.attrgetter(name), doc=f"Older name of `{name}`.")


def add_names(cls: type, names: type) -> None:
    """Adds methods, properties and constants that a class declares in its body to another class.

    Signatures and docstrings come along, so that `help()` and completion show them; errors about
    arguments name the class that was called. A subclass that defines such a name wins.

    Args:
        cls: gets them.
        names: declares them; what it inherits is left out.

    Raises:
        TypeError: `cls` has such a member already.
    """
    for name, member in vars(names).items():
        if name in _NOT_MEMBERS:
            continue
        if name in vars(cls):
            raise TypeError(
                f"{names.__name__}.{name} would hide {cls.__name__}.{name}. Rename one of them."
            )
        for function in _functions_in(member):
            function.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, member)


def _functions_in(member: Any) -> list[Any]:
    """The functions behind a member, those behind its decorators too."""
    found: list[Any]
    if isinstance(member, property):
        found = [member.fget, member.fset]
    elif isinstance(member, functools.cached_property):
        found = [member.func]
    else:
        found = [getattr(member, "__func__", member)]
    found = [function for function in found if inspect.isfunction(function)]
    wrapped = [function.__wrapped__ for function in found if hasattr(function, "__wrapped__")]
    return found + wrapped

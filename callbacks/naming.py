"""How callbacks are called in messages: short names that a user recognises in their own code."""

from __future__ import annotations

import functools
import types
from pathlib import PurePath
from typing import Any


def name_of(thing: Any) -> str:
    """A short name of a class, function, lambda, partial, bound method or callable object."""
    if isinstance(thing, type):
        return _without_locals(thing.__qualname__)
    if isinstance(thing, functools.partial):
        return f"partial({name_of(thing.func)})"
    if isinstance(thing, types.MethodType):
        return f"{name_of(_owner_of(thing))}.{getattr(thing, '__name__', '?')}"
    if isinstance(thing, types.FunctionType):
        return _name_of_function(thing)
    if isinstance(thing, types.BuiltinFunctionType):
        return _without_locals(thing.__qualname__)
    return f"{name_of(type(thing))} object"


def dotted_name(cls: type) -> str:
    """Module and qualified name of a class: the key under which its state is saved."""
    return f"{cls.__module__}.{cls.__qualname__}"


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
    return _without_locals(function.__qualname__)


def _without_locals(qualified_name: str) -> str:
    """`make.<locals>.Callback` is `Callback` to the person who wrote it."""
    return qualified_name.rpartition("<locals>.")[2]

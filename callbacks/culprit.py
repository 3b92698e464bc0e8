"""Finding the part of an object that cannot be packed, and saying where it is.

The search starts when packing has failed already, so it may be slow: it packs part after part and
follows the first one that fails, until no part of the part fails.
"""

from __future__ import annotations

import dis
import functools
import io
import socket
import sqlite3
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from callbacks.naming import name_of, with_article
from callbacks.spec import CallbackSpec

_MAX_STEPS: Final = 100

_KINDS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((io.IOBase,), "an open file"),
    ((type(threading.Lock()), type(threading.RLock())), "a lock"),
    ((socket.socket,), "a network socket"),
    ((sqlite3.Connection, sqlite3.Cursor), "a database connection"),
    ((types.GeneratorType, types.AsyncGeneratorType), "a generator"),
    ((types.CoroutineType,), "a coroutine"),
    ((types.FrameType, types.TracebackType), "a part of the running program"),
)


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The part that cannot be packed.

    Attributes:
        text: A clause without an end, such as "f closes over `log`, an open file".
        path: How it is reached, such as `f > log`.
    """

    text: str
    path: str


@dataclass(frozen=True)
class _Part:
    """A part of an object.

    Attributes:
        value: The part.
        label: How it is reached: `.log`, `['log']`, or a name when there is a relation.
        relation: Empty for a member; otherwise a verb phrase such as `closes over`.
    """

    value: object
    label: str
    relation: str = ""


def find_culprit(
    thing: object, name: str, *, cannot_pack: Callable[[object], Exception | None]
) -> Culprit:
    """The innermost part of `thing` that cannot be packed.

    Args:
        thing: An object that cannot be packed.
        name: What the user calls it.
        cannot_pack: Why an object cannot be packed, or None if it can.
    """
    trail = [_Part(thing, name)]
    seen = {id(thing)}
    while len(trail) < _MAX_STEPS:
        part = _first_failing(trail[-1].value, seen, cannot_pack)
        if part is None:
            break
        seen.add(id(part.value))
        trail.append(part)
    return _told(trail)


def _first_failing(
    thing: object, seen: set[int], cannot_pack: Callable[[object], Exception | None]
) -> _Part | None:
    for part in _parts_of(thing):
        if id(part.value) not in seen and cannot_pack(part.value) is not None:
            return part
    return None


def _told(trail: list[_Part]) -> Culprit:
    """The trail as a clause: members extend a name, relations start a new one."""
    names = [trail[0].label]
    relations = []
    for part in trail[1:]:
        if part.relation:
            names.append(part.label)
            relations.append(part.relation)
        else:
            names[-1] += part.label
    text = names[0]
    for position, (relation, name) in enumerate(zip(relations, names[1:], strict=True)):
        text += f"{', which' if position else ''} {relation} `{name}`"
    kind = _kind_of(trail[-1].value)
    text += f", {kind}" if relations else f" is {kind}"
    return Culprit(text=text, path=" > ".join(names))


def _kind_of(thing: object) -> str:
    for types_of_kind, kind in _KINDS:
        if isinstance(thing, types_of_kind):
            return kind
    if isinstance(thing, (types.FunctionType, type)):
        return f"`{name_of(thing)}`"
    cls = type(thing)
    module = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"{with_article(cls.__name__)} (of type {module}{cls.__qualname__})"


def _parts_of(thing: object) -> Iterator[_Part]:
    """The parts that packing `thing` would pack."""
    if isinstance(thing, CallbackSpec):
        yield from _parts_of_spec(thing)
    elif isinstance(thing, types.FunctionType):
        yield from _parts_of_function(thing)
    elif isinstance(thing, types.MethodType):
        yield _Part(thing.__self__, name_of(type(thing.__self__)), "is a method of")
        yield _Part(thing.__func__, ".__func__")
    elif isinstance(thing, functools.partial):
        yield _Part(thing.func, ".func")
        yield from _items(thing.args, ".args")
        yield from _entries(thing.keywords, ".keywords")
    elif isinstance(thing, type):
        yield from _parts_of_class(thing)
    elif isinstance(thing, Mapping):
        yield from _entries(thing, "")
        yield from _attributes(thing)
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from _items(thing, "")
        yield from _attributes(thing)
    elif isinstance(thing, np.ndarray) and thing.dtype.hasobject:
        yield from _items(thing.ravel().tolist(), "")
    else:
        yield from _attributes(thing)


def _parts_of_spec(spec: CallbackSpec) -> Iterator[_Part]:
    yield from _items(spec.classes, ".callbacks_class")
    for event, functions in spec.functions.items():
        yield from _items(functions, f".{event}")


def _parts_of_function(function: types.FunctionType) -> Iterator[_Part]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield _Part(cell.cell_contents, name, "closes over")
        except ValueError:
            continue  # a variable that is not assigned yet
    for name in sorted(_global_names(code)):
        if name in function.__globals__:
            yield _Part(function.__globals__[name], name, "uses the global")
    defaults = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    for name, value in zip(names, defaults, strict=True):
        yield _Part(value, name, "has the default of")
    for name, value in (function.__kwdefaults__ or {}).items():
        yield _Part(value, name, "has the default of")
    yield from _entries_as_attributes(vars(function))


def _global_names(code: types.CodeType) -> set[str]:
    """The names a function looks up in its module, functions inside it included."""
    instructions = dis.get_instructions(code)
    names = {str(step.argval) for step in instructions if step.opname.endswith("_GLOBAL")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _parts_of_class(cls: type) -> Iterator[_Part]:
    for name, value in vars(cls).items():
        if name in ("__dict__", "__weakref__", "__doc__", "__module__"):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            yield _Part(value.__func__, f".{name}")
        elif isinstance(value, property):
            for accessor in (value.fget, value.fset, value.fdel):
                yield _Part(accessor, f".{name}")
        else:
            yield _Part(value, f".{name}")
    for base in cls.__bases__:
        yield _Part(base, name_of(base), "inherits from")


def _attributes(thing: object) -> Iterator[_Part]:
    """What an object is made of: what its own `__getstate__` says, or its attributes."""
    own = getattr(type(thing), "__getstate__", None)
    if own is not None and own is not getattr(object, "__getstate__", None):
        try:
            state = own(thing)
        except Exception:  # noqa: BLE001  then the object itself is the culprit
            return
        if isinstance(state, dict):
            yield from _entries_as_attributes(state)
        return
    yield from _entries_as_attributes(getattr(thing, "__dict__", {}))
    for cls in type(thing).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield _Part(getattr(thing, name), f".{name}")


def _entries_as_attributes(attributes: Mapping[str, Any]) -> Iterator[_Part]:
    for name, value in list(attributes.items()):
        yield _Part(value, f".{name}")


def _entries(mapping: Mapping[Any, Any], label: str) -> Iterator[_Part]:
    for key, value in list(mapping.items()):
        yield _Part(value, f"{label}[{key!r}]")
        yield _Part(key, f"{label}, key {key!r:.40}")


def _items(values: Any, label: str) -> Iterator[_Part]:
    for index, value in enumerate(list(values)):
        yield _Part(value, f"{label}[{index}]")

"""Packing callbacks and other objects of the user as bytes for another process.

What travels by value, so that the other process need not be able to import it:
    * everything defined in `__main__`, lambdas, closures and classes made in functions
      (cloudpickle);
    * everything from a module that Python cannot find again under its name, such as a test file or
      a file loaded by its path. Modules found on `sys.path` travel as their name: worker processes
      have the `sys.path` of the main process.

Unpacking runs code of the user. These bytes are for our own worker processes, never for
checkpoints.
"""

from __future__ import annotations

import dis
import functools
import io
import socket
import sqlite3
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from pickle import PickleBuffer
from types import ModuleType
from typing import Any, Final

import cloudpickle
import numpy as np

from callbacks.errors import PackingError
from callbacks.spec import CallbackSpec, name_of, with_article

# ---- culprit
#
# Finding the part of an object that cannot be packed, and saying where it is. The search starts
# when packing has failed already, so it may be slow: it packs part after part and follows the
# first one that fails, until no part of the part fails.

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


def find_culprit(thing: object, name: str, *, dumps: Callable[[Any], bytes]) -> Culprit:
    """The innermost part of `thing` that `dumps` cannot pack."""
    trail = [_Part(thing, name)]
    seen = {id(thing)}
    while len(trail) < _MAX_STEPS:
        part = _first_failing(trail[-1].value, seen, dumps)
        if part is None:
            break
        seen.add(id(part.value))
        trail.append(part)
    return _culprit(trail)


def _first_failing(thing: object, seen: set[int], dumps: Callable[[Any], bytes]) -> _Part | None:
    for part in _parts_of(thing):
        if id(part.value) in seen:
            continue
        try:
            dumps(part.value)
        except Exception:  # noqa: BLE001  whatever it is, this is the part
            return part
    return None


def _culprit(trail: list[_Part]) -> Culprit:
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
        for part in state if isinstance(state, tuple) else (state,):  # with slots, several
            if isinstance(part, dict):
                yield from _entries_as_attributes(part)
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


# ---- importable

_LOADED_IN_WORKERS: Final = frozenset(
    {"callbacks", "checkpoints", "trainer", "trainer_toolkit", "cloudpickle", "gymnasium", "numpy"}
)
"""Every worker process has imported these before it unpacks anything."""


def module_not_importable(name: str) -> ModuleType | None:
    """The loaded module `name` if its own source file cannot be found under its name, else None.

    A file loaded by its path (by a test runner, a notebook, `importlib.util`) is in `sys.modules`
    under a name that means nothing in another process. Modules without a Python source file are
    never reported: built-in and compiled modules cannot travel by value, and cloudpickle knows what
    to do with the rest.

    Args:
        name: The dotted name of a module. `__main__` is never reported: cloudpickle handles it;
            nor is what every worker process has loaded, even where a file of the user hides it.
    """
    module = sys.modules.get(name)
    if name == "__main__" or name.partition(".")[0] in _LOADED_IN_WORKERS:
        return None
    if not isinstance(module, ModuleType):
        return None
    source = getattr(module, "__file__", None)
    if not isinstance(source, str) or not source.endswith(".py"):
        return None
    spec = _found_anew(name)
    if spec is None or spec.origin is None:
        return module
    # Parts of the standard library are frozen into Python and have a source file besides.
    if not spec.has_location or Path(spec.origin).resolve() == Path(source).resolve():
        return None
    return module


def _found_anew(name: str) -> ModuleSpec | None:
    """What the import system finds under a name, whatever is loaded already."""
    parent, _, _ = name.rpartition(".")
    path = None
    if parent:
        parent_spec = _found_anew(parent)
        if parent_spec is None or parent_spec.submodule_search_locations is None:
            return None
        path = parent_spec.submodule_search_locations
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(name, path) if find_spec is not None else None
        if isinstance(spec, ModuleSpec):
            return spec
    return None


# ---- packing


BufferCallback = Callable[[PickleBuffer], bool]
"""Whether a buffer is packed with the rest."""


def pack(spec: CallbackSpec) -> bytes:
    """A spec as bytes that `unpack` reads in another process.

    Raises:
        PackingError: A part cannot travel; the message names it, such as
            "callbacks.on_episode_end[0] closes over `log`, an open file".
    """
    return pack_object(spec, name="callbacks")


def unpack(data: bytes) -> CallbackSpec:
    """The spec that `pack` packed; a PackingError if, for example, a module is missing here."""
    spec = unpack_object(data, name="callbacks")
    if not isinstance(spec, CallbackSpec):
        raise PackingError(
            f"the bytes hold {with_article(type(spec).__name__)} where packed callbacks were "
            "expected; give unpack() what pack() returned"
        )
    return spec


def pack_object(
    thing: object, *, name: str, buffer_callback: BufferCallback | None = None
) -> bytes:
    """Any object as bytes that `unpack_object` reads in another process.

    Errors start from `name`, what the user calls it. `buffer_callback` is called with each large
    buffer; False keeps it out of the bytes, and it is sent beside them (PEP 574).

    Raises:
        PackingError: A part cannot travel; the message and `path` name it.
    """
    try:
        return _dumps(thing, buffer_callback)
    except Exception as error:
        culprit = find_culprit(thing, name, dumps=_dumps)
        raise PackingError(
            f"{culprit.text}; it cannot travel to another process ({type(error).__name__}: "
            f"{error}). Make it where it is used: in the `__init__` of a callback class or env, "
            "which runs in each process, or in a function that is given in its place.",
            culprit.path,
        ) from error


def unpack_object(data: bytes, *, name: str) -> Any:
    """The object that `pack_object` packed; a PackingError as of `unpack`."""
    try:
        return cloudpickle.loads(data)
    except Exception as error:
        raise PackingError(
            f"{name} was packed, but cannot be unpacked here ({type(error).__name__}: {error}). "
            "Everything it is made of must be importable in this process or be defined in the "
            "script itself.",
            name,
        ) from error


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    """A cloudpickle pickler that sends unfindable modules by value.

    cloudpickle decides by a list of module names; a name is put on it when the first function or
    class of an unfindable module is met, and taken off when packing is over.
    """

    def __init__(self, file: io.BytesIO, buffer_callback: BufferCallback | None) -> None:
        super().__init__(file, buffer_callback=buffer_callback)
        self._known: set[str] = set()
        self._registered: list[types.ModuleType] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            self._look_at(obj.__name__)
        elif isinstance(obj, (types.FunctionType, type)):
            self._look_at(getattr(obj, "__module__", None))
        return super().reducer_override(obj)

    def _look_at(self, module_name: str | None) -> None:
        if not isinstance(module_name, str) or module_name in self._known:
            return
        self._known.add(module_name)
        module = module_not_importable(module_name)
        if module is not None and module_name not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self._registered.append(module)

    def forget(self) -> None:
        """Take every module off cloudpickle's list that this pickler put on it."""
        for module in self._registered:
            cloudpickle.unregister_pickle_by_value(module)
        self._registered.clear()


def _dumps(thing: object, buffer_callback: BufferCallback | None = None) -> bytes:
    """Pickle without explaining failures."""
    with io.BytesIO() as file:
        pickler = _Pickler(file, buffer_callback)
        try:
            pickler.dump(thing)
        finally:
            pickler.forget()
        return file.getvalue()

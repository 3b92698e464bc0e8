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

import io
import types
from typing import Any

import cloudpickle

from callbacks.culprit import find_culprit
from callbacks.errors import PackingError
from callbacks.importable import module_not_importable
from callbacks.naming import with_article
from callbacks.spec import CallbackSpec


def pack(spec: CallbackSpec) -> bytes:
    """A spec as bytes that `unpack` reads in another process.

    Raises:
        PackingError: A part cannot travel; the message names it, such as
            "callbacks.on_episode_end[0] closes over `log`, an open file".
    """
    return pack_object(spec, name="callbacks")


def unpack(data: bytes) -> CallbackSpec:
    """The spec that `pack` packed.

    Raises:
        PackingError: The bytes cannot be read here, for example because a module is missing.
    """
    spec = unpack_object(data, name="callbacks")
    if not isinstance(spec, CallbackSpec):
        raise PackingError(
            f"the bytes hold {with_article(type(spec).__name__)} where packed callbacks were "
            "expected; give unpack() what pack() returned"
        )
    return spec


def pack_object(thing: object, *, name: str) -> bytes:
    """Any object as bytes that `unpack_object` reads in another process.

    Args:
        thing: What to pack.
        name: What the user calls it, such as `config.env_config`; errors start from it.

    Raises:
        PackingError: A part cannot travel; the message and `path` name it.
    """
    try:
        return _dumps(thing)
    except Exception as error:
        culprit = find_culprit(thing, name, cannot_pack=_cannot_pack)
        raise PackingError(
            f"{culprit.text}; it cannot travel to another process ({type(error).__name__}: "
            f"{error}). Make it where it is used: in the `__init__` of a callback class or env, "
            "which runs in each process, or in a function that is given in its place.",
            culprit.path,
        ) from error


def unpack_object(data: bytes, *, name: str) -> Any:
    """The object that `pack_object` packed.

    Args:
        data: The bytes.
        name: What the user calls it, for errors.

    Raises:
        PackingError: The bytes cannot be read here, for example because a module is missing.
    """
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

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
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


def _dumps(thing: object) -> bytes:
    """Pickle without explaining failures."""
    with io.BytesIO() as file:
        pickler = _Pickler(file)
        try:
            pickler.dump(thing)
        finally:
            pickler.forget()
        return file.getvalue()


def _cannot_pack(thing: object) -> Exception | None:
    """Why an object cannot be packed, or None if it can."""
    try:
        _dumps(thing)
    except Exception as error:  # noqa: BLE001  the answer; pack_object raises
        return error
    return None

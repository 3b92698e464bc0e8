"""What objects were made with, saved beside their state, so that `from_checkpoint` needs no more.

One component, `constructors`, holds it for the object and for each of its parts: path ("" for the
object itself) → `class` (dotted name; shown, or compared with the names of classes that are there:
nothing is imported because a checkpoint names it), `args`, `kwargs` and `left_out`: names of
arguments that are no plain data, which the caller has to give.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from checkpoints.codec import encode
from checkpoints.component_tree import HasParts, HasState, joined
from checkpoints.errors import CheckpointMismatchError, StateError
from checkpoints.inside import has_component
from checkpoints.reader import read_checkpoint, read_manifest
from checkpoints.state_shapes import TEXT, anything, check_shape, dict_of, fields, list_of, of_type

CONSTRUCTORS: Final = "constructors"
"""The component; no part of the state of any object."""

_SHAPE: Final = dict_of(
    fields(
        {
            "class": TEXT,
            "args": list_of(anything),
            "kwargs": of_type(dict),
            "left_out": list_of(TEXT),
        }
    )
)


@runtime_checkable
class HasConstructor(Protocol):
    """What an object offers that says what it was made with."""

    def _plain_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and named arguments, as plain data as far as that is possible."""


def constructors_of(owner: HasState, path: str = "") -> dict[str, Any]:
    """Return what an object and its parts were made with, for those that say so, by path."""
    found: dict[str, Any] = {}
    if isinstance(owner, HasConstructor):
        args, kwargs = _by_name(type(owner), *owner._plain_ctor_args_and_kwargs())
        if args or kwargs:
            found[path] = _record(type(owner), args, kwargs)
    if isinstance(owner, HasParts):
        for name, part in owner.get_checkpointable_components():
            found |= constructors_of(part, joined(path, name))
    return found


def read_constructor(checkpoint: Path, root: str) -> Mapping[str, Any]:
    """Return the record of the object at `root`; one without arguments if there is none."""
    nothing = {"class": "", "args": [], "kwargs": {}, "left_out": []}
    if not has_component(checkpoint, CONSTRUCTORS):
        read_manifest(checkpoint)  # there must be a checkpoint at all
        return nothing
    records = read_checkpoint(checkpoint, CONSTRUCTORS).components[CONSTRUCTORS]
    try:
        check_shape(records, _SHAPE)
    except CheckpointMismatchError as error:
        raise CheckpointMismatchError(
            f"The component {CONSTRUCTORS!r} of {checkpoint} cannot be understood: {error}. "
            "Nothing was made. Build the object yourself and call restore_from_path()."
        ) from error
    record: Mapping[str, Any] = records.get(root, nothing)
    return record


def check_enough(
    cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, path: object
) -> None:
    """Raise if an argument that the class needs is missing; of others, Python says so itself."""
    try:
        signature = _signature(cls)
        signature.bind_partial(*args, **kwargs)
    except (TypeError, ValueError):  # ValueError: a class written in C
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as cause:
        raise CheckpointMismatchError(
            f"A {cls.__name__} cannot be made from {path}: {cause}; expected all arguments of the "
            "class, from the checkpoint or from you. Give those that are missing: "
            f"{cls.__name__}.from_checkpoint(path, name=value)."
        ) from cause


def _signature(cls: type) -> inspect.Signature:
    """What a class is made with; of `__init__`, as a `__new__` beside it may take anything."""
    if inspect.isfunction(cls.__init__):  # type: ignore[misc]  # of this very class
        whole = inspect.signature(cls.__init__)  # type: ignore[misc]
        return whole.replace(parameters=list(whole.parameters.values())[1:])
    return inspect.signature(cls)


def check_given(
    cls: type, record: Mapping[str, Any], kwargs: Mapping[str, Any], *, path: object
) -> None:
    """Raise if the caller has to give arguments that the checkpoint does not hold."""
    missing = [name for name in record["left_out"] if name not in kwargs]
    if missing:
        given = ", ".join(f"{name}=..." for name in missing)
        raise CheckpointMismatchError(
            f"{path} does not hold the argument(s) {', '.join(map(repr, missing))} that its "
            f"{record['class']} was made with: they are no plain data, and a checkpoint holds "
            f"nothing else. Give them: {cls.__name__}.from_checkpoint(path, {given})."
        )


def check_taken(
    cls: type, record: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise if a class does not take the arguments that the checkpoint holds."""
    try:
        _signature(cls).bind_partial(*args, **kwargs)
    except TypeError as error:
        raise CheckpointMismatchError(
            f"The checkpoint holds the arguments of a {record['class']}, and {cls.__name__} does "
            f"not take them: {error}. Nothing was made. Call "
            f"{record['class'].split('.')[-1]}.from_checkpoint(path), which is of the class that "
            "was saved; or build the object yourself and call restore_from_path()."
        ) from error


def _record(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    left_out = [name for name, value in kwargs.items() if not _is_plain(value)]
    for index, value in enumerate(args):
        if not _is_plain(value):
            raise StateError(
                f"{cls.__name__}.get_ctor_args_and_kwargs() returned a {type(value).__name__} as "
                f"positional argument {index}, which is no plain data and which no name can "
                "replace later. Return it by name: what is no plain data is then asked for by "
                "from_checkpoint()."
            )
    return {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "args": list(args),
        "kwargs": {name: value for name, value in kwargs.items() if name not in left_out},
        "left_out": left_out,
    }


def _by_name(
    cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional arguments by name, if they have one, so that callers can change some."""
    if not args:
        return (), dict(kwargs)
    parameters = list(inspect.signature(cls).parameters.values())[: len(args)]
    named = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if len(named) < len(args):
        return tuple(args), dict(kwargs)
    return (), {**dict(zip(named, args, strict=True)), **kwargs}


def _is_plain(value: Any) -> bool:
    try:
        encode(value)
    except StateError:
        return False
    return True

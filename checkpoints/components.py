"""Objects with state and the parts they consist of, as flat components by path."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from checkpoints.codec import encode
from checkpoints.component_paths import check_name
from checkpoints.errors import CheckpointError, CheckpointMismatchError, StateError
from checkpoints.listing import PathLike, resolve_path
from checkpoints.manifest import MANIFEST_FILE, Migration, StateMigrations, checked_migrations
from checkpoints.reader import read_checkpoint, read_manifest
from checkpoints.state_shapes import check_shape
from checkpoints.strict_files import regular_file_size
from trainer_toolkit.checks import TEXT, anything, dict_of, fields, list_of, of_type
from trainer_toolkit.class_names import full_name

# ---- component tree

WHOLE: Final = "state"
"""The one component of an object without parts."""

_FAILED_AT: Final = "_checkpoint_component"


class HasState(Protocol):
    """What a component must offer; `Checkpointable` itself offers it."""

    def get_state(self) -> Any:
        """Return the state as plain data."""

    def set_state(self, state: Any) -> None:
        """Take back what `get_state` returned."""


@runtime_checkable
class HasParts(Protocol):
    """What an object offers that consists of parts, or whose states have changed."""

    state_migrations: ClassVar[StateMigrations]

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """Return (name, object) for each part."""


def flatten(owner: HasState, state: Any, path: str = "") -> dict[str, Any]:
    """Return the components of a nested state, by path: as deep as there are objects with parts."""
    parts: Mapping[str, HasState] = {}
    if isinstance(owner, HasParts):
        parts = dict(owner.get_checkpointable_components())
    if not parts:
        if state is None:
            raise StateError(
                f"{type(owner).__name__}.get_state() returned None: a `return` may be missing. "
                "Return plain data, {} if there is nothing to keep."
            )
        return {path or WHOLE: state}
    if not isinstance(state, Mapping):
        raise StateError(
            f"{type(owner).__name__}.get_state() returned a {type(state).__name__}; an object with "
            "components returns a dict by name of component."
        )
    components: dict[str, Any] = {}
    for name, value in state.items():
        if "/" in check_name(name):
            raise StateError(
                f"{type(owner).__name__}.get_state() has the key {name!r}; the keys of an "
                "object with components are single steps of a path. Nest a dict, or use another "
                "character."
            )
        inner = joined(path, name)
        if name in parts:
            components |= flatten(parts[name], value, inner)
        else:
            components[inner] = value
    return components


def leaves(owner: HasState, path: str = "") -> dict[str, HasState]:
    """Return the objects without parts, by the path of their component."""
    if not isinstance(owner, HasParts) or not (parts := owner.get_checkpointable_components()):
        return {path or WHOLE: owner}
    found: dict[str, HasState] = {}
    for name, part in parts:
        found |= leaves(part, joined(path, name))
    return found


def migrations_of(owner: HasState, path: str = "") -> dict[str, Sequence[Migration]]:
    """Return the migrations of an object's components and of those of its parts, by path.

    Raises:
        StateError: if `state_migrations` is not what it has to be.
    """
    if not isinstance(owner, HasParts):
        return {}
    parts = dict(owner.get_checkpointable_components())
    found: dict[str, Sequence[Migration]] = {}
    where = f"{type(owner).__name__}.state_migrations"
    for name, steps in checked_migrations(owner.state_migrations, where=where).items():
        if not parts and name != WHOLE:
            raise StateError(
                f"{where} has the key {name!r}, but an object without parts has the one component "
                f"{WHOLE!r}: these migrations would never be applied. Write {{{WHOLE!r}: [...]}}."
            )
        is_whole = name == WHOLE and not parts
        found[(path or WHOLE) if is_whole else joined(path, name)] = steps
    for name, part in parts.items():
        found |= migrations_of(part, joined(path, name))
    return found


def joined(path: str, name: str) -> str:
    """Return the path of a part."""
    return "/".join(step for step in (path, name) if step)


def reachable(names: Collection[str]) -> set[str | None]:
    """Return every path that selects something: the names, what stands before a slash, and None."""
    steps = [name.split("/") for name in names]
    paths = {"/".join(step[:count]) for step in steps for count in range(1, len(step) + 1)}
    return {None, *paths}


@contextlib.contextmanager
def naming_component(name: str) -> Iterator[None]:
    """Note on an error raised within which component it is about; see `failed_component`."""
    try:
        yield
    except Exception as error:
        # An error that cannot be written on stays without a note.
        with contextlib.suppress(AttributeError, TypeError):
            error.__dict__[_FAILED_AT] = joined(name, failed_component(error) or "")
        raise


def failed_component(error: BaseException) -> str | None:
    """Return the path of the component that an error is about, as far as it is known."""
    noted: str | None = getattr(error, "__dict__", {}).get(_FAILED_AT)
    return noted


# ---- inside
#
# Paths that lead into a checkpoint: `<checkpoint>/learner/rl_module` is a component of it.


def checkpoint_and_component(path: PathLike) -> tuple[Path, str | None]:
    """Return the checkpoint that a path leads to or into, and the component that it names.

    A component is named by its path in the checkpoint or by its file; None is the whole. That it
    exists is not checked.
    """
    target = resolve_path(path)
    if not target.is_dir():
        for parent in target.parents:
            if regular_file_size(parent / MANIFEST_FILE) is not None:
                inside = target.relative_to(parent).as_posix()
                manifest = read_manifest(parent)
                files = {
                    f"{manifest.folder}/{entry.file}": name
                    for name, entry in manifest.components.items()
                }
                return parent, files.get(inside, inside)
    return target, None


def checkpoint_and_root(path: PathLike, component: str | None) -> tuple[Path, str]:
    """Return the checkpoint and where in it the state of the object stands ("" for the top).

    A path that leads into a checkpoint leads to the object's own state, or, as RLlib wants it, to
    that of the one component that is asked for.
    """
    checkpoint, inside = checkpoint_and_component(path)
    if inside is None or inside == component:
        return checkpoint, ""
    if component and inside.endswith("/" + component):
        return checkpoint, inside[: -len(component) - 1]
    return checkpoint, inside


def below_root(name: str, root: str) -> str:
    """Return what a component is called by the object whose state stands at `root`."""
    if not root:
        return name
    return WHOLE if name == root else name[len(root) + 1 :]


def at_root(name: str, root: str) -> str:
    """Return what a component of an object is called in a checkpoint that has it at `root`."""
    if not root:
        return name
    return root if name == WHOLE else joined(root, name)


def has_component(checkpoint: Path, name: str) -> bool:
    """Return whether a checkpoint has that very component; False if there is no checkpoint."""
    try:
        return name in read_manifest(checkpoint).components
    except CheckpointError:
        return False


# ---- constructors
#
# What objects were made with, saved beside their state, so that `from_checkpoint` needs no more.
# One component, `constructors`, holds it for the object and for each of its parts: path ("" for
# the object itself) → `class` (dotted name; shown, or compared with the names of classes that are
# there: nothing is imported because a checkpoint names it), `args`, `kwargs` and `left_out`:
# names of arguments that are no plain data, which the caller has to give.

CONSTRUCTORS: Final = "constructors"
"""The component; no part of the state of any object."""

_SHAPE: Final = dict_of(
    fields(
        {
            "class": TEXT,
            "args": list_of(anything()),
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
        "class": full_name(cls),
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


# ---- tree checks
#
# What is wrong with an object that is to be saved, before anything is asked of it or written.
# Each of these would give a checkpoint that is complete and verified, and that brings nothing
# back.

_METHODS: Final = ("get_state", "set_state")


def check_tree(owner: HasState, base: type, path: str = "") -> None:
    """Raise unless an object and its parts can give and take states.

    Raises:
        StateError: names the class and what is wrong with it.
    """
    if isinstance(owner, base):
        _check_overridden(owner, base)
    else:
        _check_methods(owner, path)
    if not isinstance(owner, HasParts):
        return
    seen: dict[str, HasState] = {}
    for name, part in owner.get_checkpointable_components():
        if name in seen:
            raise StateError(
                f"{type(owner).__name__}.get_checkpointable_components() names two parts {name!r} "
                f"(a {type(seen[name]).__name__} and a {type(part).__name__}): only one of them "
                "would be saved. Nothing was saved. Give each part a name of its own."
            )
        seen[name] = part
        check_tree(part, base, joined(path, name))


def check_own_keys(owner: HasState, base: type, state: Any) -> None:
    """Raise if a state holds more than the parts, and the class has no method that takes it."""
    if type(owner).set_state is not getattr(base, "set_state", None):
        return
    parts = dict(owner.get_checkpointable_components()) if isinstance(owner, HasParts) else {}
    own = [name for name in state if name not in parts] if isinstance(state, Mapping) else [state]
    if own:
        shown = ", ".join(map(repr, own))
        raise _lacks(owner, "set_state", f"its state holds {shown:.200}, which could not return")


def refuse_reserved(owner: HasState, components: Collection[str]) -> None:
    """Raise if a component is called like what the arguments of the constructors are saved as."""
    for name in components:
        if name.split("/")[0] == CONSTRUCTORS:
            raise StateError(
                f"{type(owner).__name__} has a component {CONSTRUCTORS!r}, which is what the "
                "arguments of get_ctor_args_and_kwargs() are saved as. Rename the component."
            )


def _check_overridden(owner: HasState, base: type) -> None:
    """Raise if a class without parts overrides one of the two methods and inherits the other."""
    cls = type(owner)
    if cls.get_checkpointable_components is not base.get_checkpointable_components:  # type: ignore[attr-defined]
        return
    gives = any(getattr(cls, n) is not getattr(base, n) for n in ("get_state", "_own_state"))
    takes = getattr(cls, "set_state") is not getattr(base, "set_state")  # noqa: B009
    if gives and not takes:
        raise _lacks(owner, "set_state", "what is saved could never be restored")
    if takes and not gives:
        raise _lacks(owner, "get_state", "nothing would be saved")


def _check_methods(part: HasState, path: str) -> None:
    missing = [name for name in _METHODS if not callable(getattr(part, name, None))]
    if missing:
        raise _lacks(part, " and ".join(missing), f"the part {path!r} cannot be saved and restored")


def _lacks(owner: object, method: str, consequence: str) -> StateError:
    return StateError(
        f"{type(owner).__name__} lacks {method}: {consequence}. Nothing was saved. Write "
        f"{method}, or correct its name: get_state() returns plain data and set_state(state) "
        "takes it back."
    )

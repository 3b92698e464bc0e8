"""Objects with state and the parts they consist of, as flat components by path."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from checkpoints.component_paths import check_name
from checkpoints.errors import StateError
from checkpoints.migrations import Migration, StateMigrations, checked_migrations

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

    state_migrations: StateMigrations

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

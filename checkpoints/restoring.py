"""Restoring an object: what a checkpoint holds for it is read, compared, and taken, one way.

SavedState.read                verified, decoded, migrated; nothing is changed
check_names, saved.check_state they fit the object; nothing is changed
saved.take                     `set_state`, in a block that is undone if it raises
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from checkpoints.codec import decode, encode
from checkpoints.component_paths import is_inside, select, unflatten
from checkpoints.components import (
    CONSTRUCTORS,
    WHOLE,
    HasParts,
    HasState,
    at_root,
    below_root,
    checkpoint_and_root,
    failed_component,
    flatten,
    joined,
    leaves,
    migrations_of,
    reachable,
)
from checkpoints.errors import CheckpointError, CheckpointMismatchError
from checkpoints.listing import PathLike
from checkpoints.live_arrays import live_state
from checkpoints.manifest import Manifest, version_differences, written_by_others
from checkpoints.reader import read_checkpoint
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean
from trainer_toolkit.undo import Undo, undone_on_error

_LOGGER: Final = logging.getLogger(__name__)


@runtime_checkable
class HasLargeArrays(Protocol):
    """What a part offers besides `get_state` and `set_state` if its arrays must not be copied."""

    def make_large_array(self, dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Any:
        """Return room for an array of a state to come, which `set_state` may keep; see `NewArray`.

        It is filled before `set_state` gets it.
        """

    def mark(self) -> Undo:
        """Return what gives the present state back, without a copy of it."""


class Owner(HasParts, HasState, Protocol):
    """An object whose state is restored: a `Checkpointable`."""

    def check_state(self, state: Any) -> None:
        """Raise unless `set_state` will take this state."""


@dataclass(frozen=True)
class SavedState:
    """What a checkpoint holds for an object.

    Attributes:
        path: as it was given, for messages.
        component: the part that is restored; None for everything.
        manifest: of the checkpoint.
        components: decoded and migrated states, by their paths below the object.
        versions: those here that matter to the state, to be compared with those of the manifest.
    """

    path: PathLike
    component: str | None
    manifest: Manifest
    components: Mapping[str, Any]
    versions: Mapping[str, str]

    @classmethod
    def read(
        cls,
        owner: Owner,
        path: PathLike,
        component: str | None = None,
        *,
        check_manifest: Callable[[Manifest], None] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> SavedState:
        """Read a checkpoint, or a part of it, completely; the object is not changed.

        Args:
            owner: brings the migrations, and the room for large arrays.
            path: of the checkpoint, or into one, to where the state of the object stands.
            component: path of the part to read; None for everything.
            check_manifest: raises to refuse it before its payload is read; not asked if the state
                is a part of another object's checkpoint.
            versions: by key of the metadata: those of here, to warn of others.
        """
        checkpoint, root = checkpoint_and_root(path, component)
        here = dict(versions or {})

        def check(manifest: Manifest) -> None:
            if check_manifest is not None and not root:
                check_manifest(manifest)
            _warn_of_other_versions(manifest, here)

        contents = read_checkpoint(
            checkpoint,
            joined(root, component or "") or None,
            check_manifest=check,
            migrations={at_root(n, root): steps for n, steps in migrations_of(owner).items()},
            array_makers={
                at_root(name, root): part.make_large_array
                for name, part in leaves(owner).items()
                if isinstance(part, HasLargeArrays) and is_inside(name, component)
            },
        )
        components = {
            below_root(name, root): state
            for name, state in contents.components.items()
            if name != CONSTRUCTORS
        }
        return cls(path, component, contents.manifest, components, here)

    def expected(self, before: Collection[str]) -> list[str]:
        """Return which components of an object are to be restored, of all that it has."""
        return select(before, self.component) if self.component in reachable(before) else []

    def check_state(self, owner: Owner) -> None:
        """Raise a CheckpointMismatchError unless the object will take it; nothing is changed."""
        try:
            owner.check_state(self.assembled(owner))
        except Exception as error:
            raise self._misfit(owner, error, "check_state", "Nothing was changed.") from error

    def take(self, owner: Owner, as_given: Callable[[Any], Any] = lambda state: state) -> None:
        """Have the object take the state; its caller undoes what fails.

        Args:
            owner: the object.
            as_given: makes of the state what `set_state` is given.

        Raises:
            CheckpointMismatchError: it did not take it; the cause is chained.
        """
        try:
            owner.set_state(as_given(self.assembled(owner)))
        except Exception as error:
            after = "The object has its previous state back."
            raise self._misfit(owner, error, "set_state", after) from error

    def assembled(self, owner: Owner) -> Any:
        """Return the state as `set_state` takes it, whole or in part."""
        return assembled(owner, self.components)

    def _misfit(
        self, owner: Owner, error: Exception, method: str, after: str
    ) -> CheckpointMismatchError:
        return CheckpointMismatchError(
            f"{self.path} is intact, but its {self._place_of(owner, error)} does not fit this "
            f"{type(owner).__name__}, whose {method}() did not accept it: {_text(error)}. {after} "
            "Restore into an object that was built with the same settings."
            f"{written_by_others(self.manifest, dict(self.versions))}"
        )

    def _place_of(self, owner: Owner, error: BaseException) -> str:
        """Name the component that was not accepted, or those among which it is."""
        place = failed_component(error)
        if place is not None:
            return f"component {place!r}"
        parts = dict(owner.get_checkpointable_components())
        if not parts:
            return "state"
        state = self.assembled(owner)
        own = [name for name in state if name not in parts] or list(state)
        return f"component {' or '.join(map(repr, own))}"


def restore(owner: Owner, saved: SavedState) -> None:
    """Have an object take a saved state; if it raises, it has its previous one."""
    before = flatten(owner, live_state(owner.get_state))
    check_names(owner, saved.expected(before), saved.components, path=saved.path)
    saved.check_state(owner)
    with undone_on_error() as undo:
        undo(_mark(owner, {name: before[name] for name in saved.expected(before)}, saved.path))
        del before
        saved.take(owner)


def _mark(owner: Owner, before: Mapping[str, Any], path: PathLike) -> Undo:
    """Return what gives an object components back."""
    large = {name: part for name, part in leaves(owner).items() if isinstance(part, HasLargeArrays)}
    marks = [large[name].mark() for name in before if name in large]
    # As bytes: the state shows live arrays, which `set_state` is about to change.
    copies = {
        name: encode(state, name=f"components[{name!r}]")
        for name, state in before.items()
        if name not in large
    }

    def undo() -> None:
        for mark in marks:
            mark()
        try:
            if copies:
                state = {name: decode(data) for name, data in copies.items()}
                owner.set_state(assembled(owner, state))
        except Exception as error:
            raise CheckpointError(
                f"Restoring {path} failed, and so did giving the {type(owner).__name__} its "
                f"previous state back ({_text(error)}). It is in a mixed state: discard it and "
                "build a new one."
            ) from error

    return undo


def assembled(owner: HasParts, components: Mapping[str, Any]) -> Any:
    """Return the state that consists of these components, by their paths."""
    if not owner.get_checkpointable_components():
        return components[WHOLE]
    return unflatten(components)


def check_names(
    owner: HasState, expected: Collection[str], found: Collection[str], *, path: PathLike
) -> None:
    """Raise a CheckpointMismatchError unless there are just the components that are expected."""
    missing = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected]
    problems = []
    if missing:
        problems.append("it lacks " + ", ".join(map(repr, missing)))
    if unknown:
        hints = [f"{name!r}{did_you_mean(name, missing, IN_BRACKETS)}" for name in unknown]
        problems.append("it holds the unknown " + ", ".join(hints))
    if problems:
        raise CheckpointMismatchError(
            f"{path} does not fit this {type(owner).__name__}: {'; '.join(problems)}. "
            "Nothing was changed. Build the object with the settings that the checkpoint was "
            "saved with, or restore one part with `component=...`."
            f"{_if_it_is_a_part(missing, unknown, path)}"
        )


def _warn_of_other_versions(manifest: Manifest, here: Mapping[str, str]) -> None:
    if other := version_differences(manifest, dict(here), only_minor=True):
        _LOGGER.warning(
            "The checkpoint was written by %s. It is read all the same; numbers computed from "
            "here on may differ in their last bits from those of the program that wrote it.",
            ", ".join(other),
        )


def _text(error: BaseException) -> str:
    if isinstance(error, CheckpointMismatchError):
        return str(error).rstrip(".")
    return f"{type(error).__name__}: {str(error).rstrip('.')}"


def _if_it_is_a_part(missing: list[str], unknown: list[str], path: PathLike) -> str:
    if missing != [WHOLE] or not unknown:
        return ""
    inside = f"{str(path).rstrip('/')}/{unknown[0]}"
    return (
        " If the state of this object is a part of that checkpoint, give the path of the part, "
        f"such as {inside!r}."
    )

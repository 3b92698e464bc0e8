"""Restoring an object from a checkpoint: everything is checked first, and a failure is undone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from checkpoints.arguments import shown
from checkpoints.array_files import NewArray
from checkpoints.codec import decode, encode
from checkpoints.component_paths import is_inside, nearest, select, unflatten
from checkpoints.component_tree import (
    WHOLE,
    HasState,
    failed_component,
    flatten,
    joined,
    leaves,
    migrations_of,
    naming_component,
    reachable,
)
from checkpoints.constructors import CONSTRUCTORS
from checkpoints.errors import CheckpointError, CheckpointMismatchError
from checkpoints.inside import at_root, below_root, checkpoint_and_root
from checkpoints.listing import PathLike
from checkpoints.live_arrays import HasLargeArrays, live_state
from checkpoints.manifest import Manifest
from checkpoints.migrations import NO_MIGRATIONS, StateMigrations
from checkpoints.reader import read_checkpoint
from checkpoints.saving import Saving
from checkpoints.versions import version_differences, written_by_others

_LOGGER: Final = logging.getLogger(__name__)


class Restoring(Saving):
    """What `Checkpointable` does to restore; everything else about it is said there."""

    state_migrations: ClassVar[StateMigrations] = NO_MIGRATIONS
    _versions_in_metadata: ClassVar[tuple[str, ...]] = ()
    """Keys of the metadata that name versions which matter to the state."""

    def get_state(self) -> dict[str, Any]:
        """Return the state as plain data; see `Checkpointable`."""
        raise NotImplementedError

    def set_state(self, state: Any) -> None:
        """Take back what `get_state` returned; see `Checkpointable`."""
        raise NotImplementedError

    def check_state(self, state: Any) -> None:
        """Raise unless `set_state` will take this state, or partial state; change nothing.

        Restoring asks before anything is changed. An object with parts asks those that have this
        method. To be overridden, with `check_shape`:

            def check_state(self, state):
                check_shape(state, like(self.get_state()))     # same keys, types and shapes

        Raises:
            CheckpointMismatchError: names what does not fit.
        """
        if not isinstance(state, Mapping):
            raise CheckpointMismatchError(
                f"check_state() got {shown(state)}; expected a dict of components. Give what "
                "get_state() returned."
            )
        for name, part in self.get_checkpointable_components():
            check = getattr(part, "check_state", None)
            if check is not None and name in state:
                with naming_component(name):
                    check(state[name])

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """Return (name, object) for each part, in the order in which they are to be restored."""
        return ()

    def restore_from_path(
        self,
        path: PathLike,
        *,
        component: str | None = None,
        filesystem: object = None,
        **kwargs: Any,
    ) -> None:
        """Restore the state, or one part of it, from a checkpoint.

        Nothing is changed before the checkpoint has been verified and decoded, and its states have
        been checked (`check_state`). If an error is raised while the state is being set, the object
        gets its previous state back. Large arrays are read in pieces, straight into the memory that
        they stay in.

        Args:
            path: the directory that `save_to_path` returned, also when only a part is restored; or
                a path into the checkpoint of another object, to where the state of this one stands:
                `module.restore_from_path("run/000010/learner/rl_module")`.
            component: path of the part, such as `"learner/rl_module"`; None for everything.
            filesystem: must be None: paths are local.
            kwargs: none are known; RLlib's signature.

        Raises:
            CheckpointNotFoundError: if there is no checkpoint; says what is there instead.
            CheckpointCorruptError: if a file is missing, unexpected or altered.
            CheckpointVersionError: if it, or a state in it, has a newer version.
            CheckpointMismatchError: if its components are not those of this object, or the object
                did not accept the state (the cause is chained).
            CheckpointWriteError: if a save in the background failed; nothing is restored then.
        """
        refuse_filesystem(filesystem)
        if kwargs:
            raise TypeError(
                f"{type(self).__name__}.restore_from_path() got the unknown argument(s) "
                f"{', '.join(kwargs)}. It takes `component` and `filesystem`."
            )
        self.finish_saving()
        with contextlib.ExitStack() as undone_by_themselves:
            large = {
                name: undone_by_themselves.enter_context(part.restoring_large_arrays())
                for name, part in leaves(self).items()
                if isinstance(part, HasLargeArrays) and is_inside(name, component)
            }
            self._restore(path, component, large)
        self._on_restored()

    def _restore(
        self, path: PathLike, component: str | None, large: Mapping[str, NewArray]
    ) -> None:
        """Restore what the checkpoint holds; the components of `large` undo themselves."""
        checkpoint, root = checkpoint_and_root(path, component)
        contents = read_checkpoint(
            checkpoint,
            joined(root, component or "") or None,
            check_manifest=lambda manifest: self._check_before_reading(manifest, root=root),
            migrations={at_root(n, root): steps for n, steps in migrations_of(self).items()},
            array_makers={at_root(name, root): make for name, make in large.items()},
        )
        found = {
            below_root(name, root): state
            for name, state in contents.components.items()
            if name != CONSTRUCTORS
        }
        before = flatten(self, live_state(self.get_state))
        expected = select(before, component) if component in reachable(before) else []
        self._check_components(expected=expected, found=list(found), path=path)
        manifest, state = contents.manifest, self._assemble(found)
        self._guarded(self.check_state, state, path=path, manifest=manifest)
        # As bytes: the state shows live arrays, which set_state() is about to change.
        undo = {
            name: encode(before[name], name=f"components[{name!r}]")
            for name in expected
            if name not in large
        }
        del before
        self._guarded(self.set_state, state, path=path, manifest=manifest, undo=undo)

    def _guarded(
        self,
        take: Callable[[Any], None],
        state: Any,
        *,
        path: PathLike,
        manifest: Manifest,
        undo: Mapping[str, bytes] | None = None,
    ) -> None:
        """Call a method with a state; on an error undo, and say what did not fit."""
        try:
            take(state)
        except BaseException as error:
            if undo:
                self._undo(undo, error, path=path)
            if not isinstance(error, Exception):
                raise  # an interrupt stays an interrupt
            raise CheckpointMismatchError(
                f"{path} is intact, but its {self._place_of(error, state)} does not fit this "
                f"{type(self).__name__}, whose {take.__name__}() did not accept it: "
                f"{_text(error)}. "
                f"{'Nothing was changed' if undo is None else 'The object has its previous state'}"
                f"{'.' if undo is None else ' back.'} Restore into an object that was built with "
                f"the same settings.{written_by_others(manifest, self._versions_here())}"
            ) from error

    def _place_of(self, error: BaseException, state: Any) -> str:
        """Name the component that was not accepted, or those among which it is."""
        place = failed_component(error)
        if place is not None:
            return f"component {place!r}"
        parts = dict(self.get_checkpointable_components())
        if not parts:
            return "state"
        own = [name for name in state if name not in parts] or list(state)
        return f"component {' or '.join(map(repr, own))}"

    def _checkpoint_metadata(self) -> dict[str, Any]:
        """Return what the manifest says of this object (plain JSON data). To be extended.

        `training_iteration` orders checkpoints; retention reads metrics from here.
        """
        return {"class": f"{type(self).__module__}.{type(self).__qualname__}"}

    def _check_manifest(self, manifest: Manifest) -> None:
        """Raise to refuse a checkpoint before its payload is read. To be overridden.

        Not asked if the object's state is a part of another object's checkpoint.
        """

    def _check_before_reading(self, manifest: Manifest, *, root: str = "") -> None:
        if not root:
            self._check_manifest(manifest)
        other = version_differences(manifest, self._versions_here(), only_minor=True)
        if other:
            _LOGGER.warning(
                "The checkpoint was written by %s. It is read all the same; numbers computed from "
                "here on may differ in their last bits from those of the program that wrote it.",
                ", ".join(other),
            )

    def _versions_here(self) -> dict[str, str]:
        own = self._checkpoint_metadata() if self._versions_in_metadata else {}
        return {name: str(own[name]) for name in self._versions_in_metadata}

    def _check_components(
        self, *, expected: Collection[str], found: Collection[str], path: PathLike
    ) -> None:
        """Raise unless the checkpoint holds exactly the components of this object.

        To be extended by classes with components that may be missing.

        Args:
            expected: paths of the components that this object has.
            found: paths of the components in the checkpoint.
            path: the checkpoint, for messages.
        """
        missing = [name for name in expected if name not in found]
        unknown = [name for name in found if name not in expected]
        problems = []
        if missing:
            problems.append("it lacks " + ", ".join(map(repr, missing)))
        if unknown:
            hints = [f"{name!r}{nearest(name, missing)}" for name in unknown]
            problems.append("it holds the unknown " + ", ".join(hints))
        if problems:
            raise CheckpointMismatchError(
                f"{path} does not fit this {type(self).__name__}: {'; '.join(problems)}. "
                "Nothing was changed. Build the object with the settings that the checkpoint was "
                "saved with, or restore one part with `component=...`."
                f"{_if_it_is_a_part(missing, unknown, path)}"
            )

    def _on_restored(self) -> None:
        """Do what has to follow a successful restore, such as telling workers. To be overridden."""

    def _assemble(self, components: Mapping[str, Any]) -> Any:
        if not self.get_checkpointable_components():
            return components[WHOLE]
        return unflatten(components)

    def _undo(self, undo: Mapping[str, bytes], error: BaseException, *, path: PathLike) -> None:
        try:
            self.set_state(self._assemble({name: decode(data) for name, data in undo.items()}))
        except Exception as second:  # noqa: BLE001 - raised again as our own, with both reasons
            raise CheckpointError(
                f"Restoring {path} failed ({_text(error)}), and so did giving the "
                f"{type(self).__name__} its previous state back ({_text(second)}). It is in a "
                "mixed state: discard it and build a new one."
            ) from error


def refuse_filesystem(filesystem: object) -> None:
    """Raise if the caller wants another file system than that of this machine."""
    if filesystem is not None:
        raise TypeError(
            f"filesystem={filesystem!r}: checkpoints are kept in local directories, for no other "
            "file system promises the renames that make them crash-safe. Save to a local path, "
            "then copy the directory."
        )


def _text(error: BaseException) -> str:
    if isinstance(error, CheckpointMismatchError):
        return str(error).rstrip(".")
    return f"{type(error).__name__}: {str(error).rstrip('.')}"


def _if_it_is_a_part(missing: list[str], unknown: list[str], path: PathLike) -> str:
    if missing != [WHOLE] or not unknown:
        return ""
    return (
        " If the state of this object is a part of that checkpoint, give the path of the part, "
        f"such as {str(Path(path) / unknown[0])!r}."
    )

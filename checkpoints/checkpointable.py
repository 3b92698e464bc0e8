"""Objects that can be saved to a directory and restored from it, alone or as parts of others."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final, TypeVar

from checkpoints.background import WhenOver
from checkpoints.codec import decode, encode
from checkpoints.component_paths import (
    ComponentNames,
    below,
    is_selected,
    nearest,
    select,
    unflatten,
)
from checkpoints.component_tree import WHOLE, HasState, flatten, migrations_of, reachable
from checkpoints.errors import CheckpointError, CheckpointMismatchError
from checkpoints.listing import PathLike
from checkpoints.live_arrays import states_shown_live
from checkpoints.manifest import Manifest
from checkpoints.migrations import NO_MIGRATIONS, StateMigrations, newest_version
from checkpoints.reader import read_checkpoint
from checkpoints.saving import Saving
from checkpoints.versions import version_differences, written_by_others
from checkpoints.writer import EncodedCheckpoint, encode_checkpoint

_LOGGER: Final = logging.getLogger(__name__)
_Self = TypeVar("_Self", bound="Checkpointable")


class Checkpointable(Saving):
    """Base of objects whose state can be saved and restored.

    A simple object overrides `get_state` and `set_state` with plain data. An object with parts
    returns them from `get_checkpointable_components`; the inherited methods then gather and
    hand out the parts' states. An object with both extends the inherited methods:

        def get_state(self, components=None, *, not_components=None):
            state = super().get_state(components, not_components=not_components)
            if is_selected("counters", components, not_components):
                state["counters"] = dict(self._counters)
            return state

        def set_state(self, state):
            super().set_state(state)
            if "counters" in state:
                self._counters = dict(state["counters"])

    On disk, each part without parts of its own becomes one component, called by its path
    (`learner/rl_module`), and so does each further key of an object with parts (`counters`).

    A class whose states change keeps what it saved before readable with functions from each version
    to the next. An object without parts has the one component "state":

        state_migrations = {"state": [add_name]}       # version 2: states have a name

    Life of a restore: `_check_manifest` · every file verified, decoded and migrated · names
    compared · `set_state` (undone if it raises) · `_on_restored`.

    Attributes:
        state_migrations: path of a component → pure functions, oldest first, each from a version of
            its state to the next; may change what it is given. Parts bring their own.
    """

    state_migrations: ClassVar[StateMigrations] = NO_MIGRATIONS
    _versions_in_metadata: ClassVar[tuple[str, ...]] = ()
    """Keys of the metadata that name versions which matter to the state."""

    def get_state(
        self,
        components: ComponentNames | None = None,
        *,
        not_components: ComponentNames | None = None,
    ) -> dict[str, Any]:
        """Return the state as plain data, by name of component.

        Args:
            components: names or paths (`"learner"`, `"learner/rl_module"`); None for all.
            not_components: names or paths to leave out.
        """
        state = {}
        for name, part in self.get_checkpointable_components():
            if not is_selected(name, components, not_components):
                continue
            if isinstance(part, Checkpointable):
                state[name] = part.get_state(
                    below(name, components), not_components=below(name, not_components)
                )
            else:
                state[name] = part.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` returned; a partial state changes only what it names."""
        for name, part in self.get_checkpointable_components():
            if name in state:
                part.set_state(state[name])

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """Return (name, object) for each part, in the order in which they are to be restored."""
        return ()

    def save_to_path(
        self,
        path: PathLike | None = None,
        *,
        background: bool = False,
        when_over: WhenOver | None = None,
    ) -> str:
        """Save the state to a directory and return its absolute path.

        A save in the background takes a copy of the state in memory and returns. The files are
        written while the object goes on, and hold the state of this moment. Its end is noticed by
        `finish_saving()`, and before anything is saved or restored: these wait for it, and raise if
        it failed.

        Args:
            path: a directory that does not exist, is empty, or holds a checkpoint, which is
                replaced when the new one is complete. None makes a temporary directory, which
                stays until somebody removes it.
            background: whether to return before the checkpoint is there.
            when_over: for saves in the background: called when the end is noticed, with None or
                with the error, which is then raised nowhere else.

        Raises:
            StateError: if a state is not plain data; names the place. Nothing is written then.
            CheckpointWriteError: if the directory cannot be written; the previous one is whole. Or
                an earlier save in the background failed; nothing else is done then.
        """
        self.finish_saving()
        encoded = self._encoded()
        return self._write_checkpoint(path, encoded, background=background, when_over=when_over)

    def restore_from_path(self, path: PathLike, *, component: str | None = None) -> None:
        """Restore the state, or one part of it, from a checkpoint.

        Nothing is changed before the checkpoint has been verified and decoded. If an error is
        raised while the state is being set, the object gets its previous state back.

        Args:
            path: the directory that `save_to_path` returned; also when only a part is restored.
            component: path of the part, such as `"learner/rl_module"`; None for everything.

        Raises:
            CheckpointNotFoundError: if there is no checkpoint; says what is there instead.
            CheckpointCorruptError: if a file is missing, unexpected or altered.
            CheckpointVersionError: if it, or a state in it, has a newer version.
            CheckpointMismatchError: if its components are not those of this object, or the object
                did not accept the state (the cause is chained).
            CheckpointWriteError: if a save in the background failed; nothing is restored then.
        """
        self.finish_saving()
        contents = read_checkpoint(
            path,
            component,
            check_manifest=self._check_before_reading,
            migrations=migrations_of(self),
        )
        before = flatten(self, self.get_state())
        expected = select(before, component) if component in reachable(before) else []
        self._check_components(expected=expected, found=list(contents.components), path=path)
        # As bytes: the state may show live arrays, which set_state() is about to change.
        undo = {name: encode(before[name], name=f"components[{name!r}]") for name in expected}
        try:
            self.set_state(self._assemble(contents.components))
        except BaseException as error:
            self._undo(undo, error, path=path)
            if not isinstance(error, Exception):
                raise  # an interrupt stays an interrupt
            raise CheckpointMismatchError(
                f"{path} is intact, but {type(self).__name__}.set_state() did not accept it: "
                f"{type(error).__name__}: {str(error).rstrip('.')}. The object has its previous "
                "state back. Restore into an object that was built with the same settings."
                f"{written_by_others(contents.manifest, self._versions_here())}"
            ) from error
        self._on_restored()

    @classmethod
    def from_checkpoint(cls: type[_Self], path: PathLike, **kwargs: Any) -> _Self:
        """Return a new object, made with `cls(**kwargs)` and restored from a checkpoint.

        The class and its arguments come from the caller, never from the checkpoint. Raises the
        errors of `restore_from_path`.
        """
        restored = cls(**kwargs)
        restored.restore_from_path(path)
        return restored

    def _encoded(self) -> EncodedCheckpoint:
        """Return everything that is to be saved, as bytes; large arrays show their own memory."""
        with states_shown_live():
            components = flatten(self, self.get_state())
        migrations = migrations_of(self)
        return encode_checkpoint(
            components=components,
            metadata=self._checkpoint_metadata(),
            code=self._checkpoint_code(),
            state_versions={name: newest_version(steps) for name, steps in migrations.items()},
        )

    def _checkpoint_metadata(self) -> dict[str, Any]:
        """Return what the manifest says of this object (plain JSON data). To be extended.

        `training_iteration` orders checkpoints; retention reads metrics from here.
        """
        return {"class": f"{type(self).__module__}.{type(self).__qualname__}"}

    def _checkpoint_code(self) -> bytes | None:
        """Return bytes of `pack_code(...)` to save beside the state, or None. To be overridden."""
        return None

    def _check_manifest(self, manifest: Manifest) -> None:
        """Raise to refuse a checkpoint before its payload is read. To be overridden."""

    def _check_before_reading(self, manifest: Manifest) -> None:
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
                f"Restoring {path} failed ({type(error).__name__}: {error}), and so did giving the "
                f"{type(self).__name__} its previous state back "
                f"({type(second).__name__}: {second}). It is in a mixed state: discard it and "
                "build a new one."
            ) from error

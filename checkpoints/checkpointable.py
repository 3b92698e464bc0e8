"""Objects that can be saved to a directory and restored from it, alone or as parts of others.

Saving happens at once or in the background, one save at a time; restoring checks everything first,
and undoes what fails.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from checkpoints.component_paths import (
    ComponentNames,
    below,
    is_selected,
    selected,
)
from checkpoints.components import (
    CONSTRUCTORS,
    HasState,
    check_enough,
    check_given,
    check_own_keys,
    check_taken,
    check_tree,
    checkpoint_and_root,
    constructors_of,
    flatten,
    migrations_of,
    naming_component,
    read_constructor,
    refuse_reserved,
)
from checkpoints.errors import (
    CheckpointMismatchError,
    CheckpointWriteError,
    StateError,
)
from checkpoints.listing import PathLike
from checkpoints.live_arrays import live_state
from checkpoints.manifest import (
    NO_MIGRATIONS,
    StateMigrations,
    newest_version,
)
from checkpoints.restoring import SavedState, restore
from checkpoints.writer import (
    BackgroundSave,
    EncodedCheckpoint,
    WhenOver,
    encode_checkpoint,
    write_encoded,
)
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean, shown
from trainer_toolkit.class_names import full_name

# ---- checkpointable

_LOGGER: Final = logging.getLogger(__name__)
_Self = TypeVar("_Self", bound="Checkpointable")


class Checkpointable:
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

    A restore (`checkpoints.restoring`): every file verified, decoded and migrated · names compared
    · `check_state` · `set_state`, undone if it raises.

    Attributes:
        state_migrations: path of a component → pure functions, oldest first, each from a version of
            its state to the next; may change what it is given. Parts bring their own.
    """

    state_migrations: ClassVar[StateMigrations] = NO_MIGRATIONS
    _save_under_way: BackgroundSave | None = None
    """Of an instance only while a save in the background is under way, or its end unnoticed."""

    _is_firing_saved: bool = False
    """Of an instance only while `_on_checkpoint_saved` runs."""

    # ---- the state, and the parts that it comes from

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
        return {**state, **selected(self._own_state(), components, not_components)}

    def _own_state(self) -> dict[str, Any]:
        """Return the state without that of the parts; a shorter way than to extend `get_state`."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` returned; a partial state changes only what it names."""
        for name, part in self.get_checkpointable_components():
            if name in state:
                with naming_component(name):
                    part.set_state(state[name])

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and named arguments that make an object like this. To be overridden.

        They are saved, so that `from_checkpoint(path)` needs no others. What is no plain data is
        not saved: `from_checkpoint` then says which arguments to give.
        """
        return (), {}

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

    # ---- saving

    def get_metadata(self) -> dict[str, Any]:
        """Return what the manifest says of this object; to be extended with plain JSON data.

        Such as `{**super().get_metadata(), "dataset": "2026-03"}`.
        """
        return self._checkpoint_metadata()

    @takes(background=boolean())
    def save_to_path(
        self,
        path: PathLike | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        filesystem: object = None,
        use_msgpack: bool | None = None,
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
                stays until it is removed.
            state: a whole state that `get_state()` returned, to be saved instead of the present
                one.
            filesystem: must be None: paths are local.
            use_msgpack: of no effect, whatever it is: states are always msgpack, never pickles.
            background: whether to return before the checkpoint is there.
            when_over: for saves in the background: called when the end is noticed, with None or
                with the error, which is then raised nowhere else.

        Raises:
            StateError: if a state is not plain data, or the given one lacks something; names the
                place. Nothing is written then.
            CheckpointWriteError: if the directory cannot be written; the previous one is whole. Or
                an earlier save in the background failed; nothing else is done then.
        """
        del use_msgpack
        refuse_filesystem(filesystem)
        self._refuse_while_firing()
        self.finish_saving()
        with self._saving():
            encoded = self._encoded(state)
            return self._write_checkpoint(path, encoded, background=background, when_over=when_over)

    def _saving(self) -> AbstractContextManager[None]:
        """Surrounds a save that may begin; raises if it must not. To be overridden."""
        return contextlib.nullcontext()

    def _plain_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return `get_ctor_args_and_kwargs()` as it is to be saved. To be overridden."""
        return self.get_ctor_args_and_kwargs()

    @classmethod
    def _ctor_args_from_plain(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what `_plain_ctor_args_and_kwargs` made plain, as it was. To be overridden."""
        return args, kwargs

    def _encoded(self, state: Mapping[str, Any] | None = None) -> EncodedCheckpoint:
        """Return everything that is to be saved, as bytes; large arrays show their own memory.

        Without a given state, the present one.
        """
        check_tree(self, Checkpointable)
        components = self._present_components() if state is None else self._given_components(state)
        migrations = migrations_of(self)
        constructors = constructors_of(self)
        if constructors:
            components = {**components, CONSTRUCTORS: constructors}
        return encode_checkpoint(
            components=components,
            metadata=self._metadata_of(state),
            code=self._checkpoint_code(),
            state_versions={name: newest_version(steps) for name, steps in migrations.items()},
            is_own=state is None and self._is_own_work(),  # a given state may be anybody's
        )

    def _is_own_work(self) -> bool:
        """Return whether what is saved opens without a question later. To be overridden."""
        return True

    def _present_components(self) -> dict[str, Any]:
        """Return the components of the present state; large arrays show their own memory."""
        present = live_state(self.get_state)
        components = flatten(self, present)
        check_own_keys(self, Checkpointable, present)
        refuse_reserved(self, components)
        return components

    def _given_components(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the components of a whole state that is to be saved."""
        given = flatten(self, state)
        refuse_part(self, expected=self._present_components(), given=given)
        return given

    def _metadata_of(self, state: Mapping[str, Any] | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the metadata that belong to a given state; None is the present one."""
        return self.get_metadata()

    def _checkpoint_code(self) -> bytes | None:
        """Return bytes of `pack_code(...)` to save beside the state, or None. To be overridden."""
        return None

    def finish_saving(self) -> None:
        """Wait until a save in the background is over; does nothing if there is none.

        Raises:
            CheckpointWriteError: if it failed. It is over all the same, and told only once.
        """
        self._notice_end_of_save(wait=True)

    def _write_checkpoint(
        self,
        path: PathLike | None,
        encoded: EncodedCheckpoint,
        *,
        background: bool,
        when_over: WhenOver | None,
    ) -> str:
        """Save what was encoded after `finish_saving()`; see `Checkpointable.save_to_path`."""
        if when_over is not None and not background:
            raise TypeError(
                "save_to_path() was given `when_over` for a save that is over when it returns, and "
                "that raises if it fails. Add `background=True`, or leave it out."
            )
        if path is None:
            path = Path(tempfile.mkdtemp(prefix="checkpoint-")) / "checkpoint"
        if background:
            self._save_under_way = save = BackgroundSave(path, encoded, when_over=when_over)
            self._start_save(save)
            return str(save.path)
        written = str(write_encoded(path, encoded))
        self._fire_saved(written)
        return written

    def _start_save(self, save: BackgroundSave) -> None:
        """Start it; to be extended where Ctrl-C is put off, which `Thread.start` bears badly."""
        save.start()

    def _fire_saved(self, path: str) -> None:
        self._is_firing_saved = True
        try:
            self._on_checkpoint_saved(path)
        finally:
            del self._is_firing_saved  # not False: a state may show all attributes

    def _refuse_while_firing(self) -> None:
        """Raise if what is told of a save wants to save once more, which would never end."""
        if self._is_firing_saved:
            raise CheckpointWriteError(
                f"save_to_path() of a {type(self).__name__} was called from on_checkpoint_saved "
                "of the same object: that save would be followed by on_checkpoint_saved again, "
                "without end. Nothing was written by it; the checkpoint before is complete. Copy "
                "its directory, or save from another event."
            )

    def _on_checkpoint_saved(self, path: str) -> None:
        """Do what has to follow a checkpoint that is complete. To be overridden."""

    def _notice_end_of_save(self, *, wait: bool) -> None:
        """Tell those concerned how the save in the background ended, if there is one."""
        save = self._save_under_way
        if save is None or not (wait or save.is_over):
            return
        save.wait()
        del self._save_under_way  # not None: a state may show all attributes of an instance
        if save.is_void:
            return
        error = save.take_error()
        if error is None:
            self._fire_saved(str(save.path))
        if save.when_over is not None:
            save.when_over(error)
        elif error is not None:
            raise error

    # ---- restoring

    @classmethod
    def from_checkpoint(
        cls: type[_Self], path: PathLike, filesystem: object = None, **kwargs: Any
    ) -> _Self:
        """Return a new object, made with `cls(...)` and restored from a checkpoint.

        The class comes from the caller, never from the checkpoint.

        Args:
            path: a checkpoint, or a path into one, as in `restore_from_path`.
            filesystem: must be None: paths are local.
            kwargs: arguments of the class. Those that are not given are those that the saved object
                named (`get_ctor_args_and_kwargs`).

        Raises:
            CheckpointMismatchError: if saved arguments are missing, or are of another class.
            CheckpointError: see `restore_from_path`.
        """
        refuse_filesystem(filesystem)
        checkpoint, root = checkpoint_and_root(path, None)
        record = read_constructor(checkpoint, root)
        check_given(cls, record, kwargs, path=path)
        args, saved = cls._ctor_args_from_plain(tuple(record["args"]), dict(record["kwargs"]))
        check_taken(cls, record, args, saved)
        check_enough(cls, args, {**saved, **kwargs}, path=path)
        restored = cls(*args, **{**saved, **kwargs})
        restored.restore_from_path(path)
        return restored

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
        restore(self, SavedState.read(self, path, component))

    def _checkpoint_metadata(self) -> dict[str, Any]:
        """Return what the manifest says of this object (plain JSON data). To be extended.

        `training_iteration` orders checkpoints; retention reads metrics from here.
        """
        return {"class": full_name(type(self))}


def refuse_part(owner: object, *, expected: Collection[str], given: Collection[str]) -> None:
    """Raise a StateError unless a state that is to be saved has all components, and no others."""
    missing = [name for name in expected if name not in given]
    unknown = [name for name in given if name not in expected]
    if missing or unknown:
        raise StateError(
            f"save_to_path(state=...) was given a state of {type(owner).__name__} "
            f"{f'without {missing}' if missing else ''}{' and ' if missing and unknown else ''}"
            f"{f'with the unknown {unknown}' if unknown else ''}. Give what get_state() "
            "returned, whole."
        )


def refuse_filesystem(filesystem: object) -> None:
    """Raise if the caller wants another file system than that of this machine."""
    if filesystem is not None:
        raise TypeError(
            f"filesystem={filesystem!r}: checkpoints are kept in local directories, for no other "
            "file system promises the renames that make them crash-safe. Save to a local path, "
            "then copy the directory."
        )

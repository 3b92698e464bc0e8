"""Objects that can be saved to a directory and restored from it, alone or as parts of others.

Saving happens at once or in the background, one save at a time; restoring checks everything first,
and undoes what fails.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from checkpoints.codec import NewArray, decode, encode
from checkpoints.component_paths import (
    ComponentNames,
    below,
    is_inside,
    is_selected,
    select,
    selected,
    unflatten,
)
from checkpoints.components import (
    CONSTRUCTORS,
    WHOLE,
    HasState,
    at_root,
    below_root,
    check_enough,
    check_given,
    check_own_keys,
    check_taken,
    check_tree,
    checkpoint_and_root,
    constructors_of,
    failed_component,
    flatten,
    joined,
    leaves,
    migrations_of,
    naming_component,
    reachable,
    read_constructor,
    refuse_reserved,
)
from checkpoints.errors import (
    CheckpointError,
    CheckpointMismatchError,
    CheckpointWriteError,
    StateError,
)
from checkpoints.listing import PathLike
from checkpoints.manifest import (
    NO_MIGRATIONS,
    Manifest,
    StateMigrations,
    newest_version,
    version_differences,
    written_by_others,
)
from checkpoints.reader import read_checkpoint
from checkpoints.writer import (
    BackgroundSave,
    EncodedCheckpoint,
    WhenOver,
    encode_checkpoint,
    write_encoded,
)
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean, shown
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean

# ---- live arrays
#
# States so large that they must not be in memory twice. Saving: `get_state()` gives out arrays of
# its own, which stay as they are whatever the object does next. A writer that puts them into a file
# before anything can change them does not need that, and a copy of a large replay buffer may not
# fit into memory.
#
# Restoring: an object that keeps its arrays in memory of its own shape lets the reader fill that
# memory itself, and undoes a restore that fails without having been copied before.

_State = TypeVar("_State")
_ARE_SHOWN: Final = ContextVar("_ARE_SHOWN", default=False)


def live_state(get_state: Callable[[], _State]) -> _State:
    """Return what `get_state()` gives, which may show arrays that the object goes on using.

    In a context of its own, so that there is nothing to put back: an interrupt in between that left
    arrays shown from then on would make states change unnoticed.
    """
    context = contextvars.copy_context()
    context.run(_ARE_SHOWN.set, True)
    return context.run(get_state)


def state_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what `get_state()` is to give out for an array: a copy; itself in `live_state`."""
    return array if _ARE_SHOWN.get() else np.array(array)


def are_arrays_shown() -> bool:
    """Return whether a state is asked for in `live_state`: what it shows will not be changed."""
    return _ARE_SHOWN.get()


@runtime_checkable
class HasLargeArrays(Protocol):
    """What a part offers besides `get_state` and `set_state` if its arrays must not be copied."""

    def restoring_large_arrays(self) -> AbstractContextManager[NewArray]:
        """Return the block within which `set_state` may be called once.

        An exception that leaves the block undoes what was done in it; no other copy is kept of the
        previous state. It gives a function that makes the large arrays of the state, from dtype and
        shape: they are filled before `set_state` gets them, which may keep their memory.
        """


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

    Life of a restore: `_check_manifest` · every file verified, decoded and migrated · names
    compared · `check_state` · `set_state` (undone if it raises) · `_on_restored`.

    Attributes:
        state_migrations: path of a component → pure functions, oldest first, each from a version of
            its state to the next; may change what it is given. Parts bring their own.
    """

    state_migrations: ClassVar[StateMigrations] = NO_MIGRATIONS
    _versions_in_metadata: ClassVar[tuple[str, ...]] = ()
    """Keys of the metadata that name versions which matter to the state."""
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
        present = live_state(self.get_state)
        components = flatten(self, present)
        check_own_keys(self, Checkpointable, present)
        refuse_reserved(self, components)
        migrations = migrations_of(self)
        if state is not None:
            given = flatten(self, state)
            self._check_given_state(expected=components, given=given)
            components = given
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

    def _check_given_state(self, *, expected: Collection[str], given: Collection[str]) -> None:
        missing = [name for name in expected if name not in given]
        unknown = [name for name in given if name not in expected]
        if missing or unknown:
            raise StateError(
                f"save_to_path(state=...) was given a state of {type(self).__name__} "
                f"{f'without {missing}' if missing else ''}{' and ' if missing and unknown else ''}"
                f"{f'with the unknown {unknown}' if unknown else ''}. Give what get_state() "
                "returned, whole."
            )

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
        """
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

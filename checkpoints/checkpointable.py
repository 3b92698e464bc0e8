"""Objects that can be saved to a directory and restored from it, alone or as parts of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from checkpoints.background import WhenOver
from checkpoints.code import check_switch
from checkpoints.component_paths import ComponentNames, below, is_selected, selected
from checkpoints.component_tree import flatten, migrations_of, naming_component
from checkpoints.constructors import (
    CONSTRUCTORS,
    check_enough,
    check_given,
    check_taken,
    constructors_of,
    read_constructor,
)
from checkpoints.errors import StateError
from checkpoints.inside import checkpoint_and_root
from checkpoints.listing import PathLike
from checkpoints.live_arrays import live_state
from checkpoints.migrations import newest_version
from checkpoints.restoring import Restoring, refuse_filesystem
from checkpoints.tree_checks import check_own_keys, check_tree, refuse_reserved
from checkpoints.writer import EncodedCheckpoint, encode_checkpoint

_Self = TypeVar("_Self", bound="Checkpointable")


class Checkpointable(Restoring):
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

    def get_metadata(self) -> dict[str, Any]:
        """Return what the manifest says of this object; to be extended with plain JSON data.

        Such as `{**super().get_metadata(), "dataset": "2026-03"}`.
        """
        return self._checkpoint_metadata()

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
                stays until somebody removes it.
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
        check_switch("background", background)
        self._refuse_while_telling()
        self.finish_saving()
        encoded = self._encoded(state)
        return self._write_checkpoint(path, encoded, background=background, when_over=when_over)

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

        Args:
            state: what to save; None is the present one.
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
        )

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

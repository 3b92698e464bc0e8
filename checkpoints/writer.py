"""Writing a checkpoint: encode everything, write every file, put the directory into place."""

from __future__ import annotations

import atexit
import dataclasses
import datetime as dt
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from checkpoints.array_format import is_contiguous, memory_pieces
from checkpoints.code import SAVED_AT
from checkpoints.codec import EncodedState, encode_split
from checkpoints.component_paths import array_file_name, check_name, file_name
from checkpoints.directory import SaveFolder
from checkpoints.errors import CheckpointError, CheckpointWriteError, StateError
from checkpoints.listing import PathLike, resolve_path, resolve_target
from checkpoints.manifest import (
    CODE_FILE,
    MANIFEST_FILE,
    FileEntry,
    current_versions,
    new_manifest,
    plain_metadata,
)
from checkpoints.reader import verify
from checkpoints.strict_files import ANY, FEW, StreamedHash
from trainer_toolkit.files import FileSystem, remedy, replacing
from trainer_toolkit.interrupts import ArrivalFlag, signals_deferred

# ---- writer

LARGE_ARRAY_BYTES: Final = 2**20
"""Arrays from this size on get files of their own: below, a file costs more than it is worth."""


def write_checkpoint(
    path: PathLike,
    *,
    components: Mapping[str, Any],
    metadata: Mapping[str, Any],
    code: bytes | None = None,
    state_versions: Mapping[str, int] | None = None,
    large_array_bytes: int = LARGE_ARRAY_BYTES,
    file_system: FileSystem | None = None,
) -> Path:
    """Write a checkpoint and return the absolute path of its directory.

    The checkpoint appears whole or not at all; one that was there before stays whole until then
    (`checkpoints.directory` explains how). Nothing on the disk is touched before every component
    has been encoded. Arrays are written from their own memory: no copy of the state is made, not
    even of one large array.

    Args:
        path: the directory; it must not exist, be empty, or be a checkpoint, which is replaced.
        components: name (slash path) to plain data, in the order in which to restore them.
        metadata: plain JSON data for the manifest; NaN and infinities are written as null.
            `training_iteration` orders checkpoints. Name the producer and its version here.
        code: bytes of a pickle that is loaded only on request (`checkpoints.code.pack_code`).
        state_versions: of components whose state is not of version 1 (`checkpoints.manifest`).
        large_array_bytes: from which size on an array gets a file of its own, ≥ 1.
        file_system: what to write with; tests replace it.

    Raises:
        StateError: if a component or the metadata holds something else than plain data.
        CheckpointWriteError: if the directory cannot be written or holds foreign files.
    """
    encoded = encode_checkpoint(
        components=components,
        metadata=metadata,
        code=code,
        state_versions=state_versions,
        large_array_bytes=large_array_bytes,
    )
    return write_encoded(path, encoded, file_system=file_system)


@dataclass(frozen=True)
class EncodedCheckpoint:
    """All that a checkpoint will hold, encoded; pieces of arrays may show the arrays' own memory.

    Attributes:
        components: name → state, in the order in which to restore them.
        metadata: plain JSON data.
        code: bytes of a pickle, or None.
        state_versions: name → version of its state, where that is not 1.
        is_own: to be signed (`checkpoints.signatures`): it opens without a question.
    """

    components: Mapping[str, EncodedState]
    metadata: Mapping[str, Any]
    code: bytes | None
    state_versions: Mapping[str, int]
    is_own: bool = False

    def detached(self) -> EncodedCheckpoint:
        """Return the same with its own memory: the arrays may change afterwards."""
        components = {name: state.detached() for name, state in self.components.items()}
        return dataclasses.replace(self, components=components)


def encode_checkpoint(
    *,
    components: Mapping[str, Any],
    metadata: Mapping[str, Any],
    code: bytes | None = None,
    state_versions: Mapping[str, int] | None = None,
    large_array_bytes: int = LARGE_ARRAY_BYTES,
    is_own: bool = False,
) -> EncodedCheckpoint:
    """Return what `write_encoded` writes; no file is touched. See `write_checkpoint`.

    Raises:
        StateError: if a component or the metadata holds something else than plain data.
    """
    plain = plain_metadata(metadata)
    encoded = {
        check_name(name): encode_split(
            state, name=f"components[{name!r}]", large_array_bytes=max(1, large_array_bytes)
        )
        for name, state in components.items()
    }
    if code is not None and type(code) is not bytes:
        raise StateError(
            f"code is a {type(code).__name__}; it must be bytes. Use checkpoints.pack_code(value)."
        )
    return EncodedCheckpoint(encoded, plain, code, state_versions or {}, is_own)


def write_encoded(
    path: PathLike, encoded: EncodedCheckpoint, *, file_system: FileSystem | None = None
) -> Path:
    """Write what was encoded and return the absolute path of the directory.

    Raises:
        CheckpointWriteError: if the directory cannot be written or holds foreign files.
    """
    target = resolve_target(path)
    files = file_system or FileSystem()
    try:
        with SaveFolder(target, files) as folder:
            writer = _FileWriter(folder.path, files)
            entries = writer.write_components(encoded.components, encoded.state_versions)
            writer.write_rest(entries, encoded, metadata=_metadata(encoded, target))
            folder.install()
    except CheckpointWriteError:
        raise
    except OSError as error:
        raise CheckpointWriteError(
            f"The checkpoint {target} could not be saved: {error}. What was there before is still "
            f"complete. {remedy(error)}; then save again."
        ) from error
    return target


def _metadata(encoded: EncodedCheckpoint, target: Path) -> Mapping[str, Any]:
    """The metadata; code names absolute paths, which follow the checkpoint from where it was."""
    if encoded.code is None:
        return encoded.metadata
    return {SAVED_AT: str(target), **encoded.metadata}


class _FileWriter:
    """Writes the files of one checkpoint into a directory that exists, each synced to the disk."""

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        self._directory = directory
        self._files = file_system

    def write_components(
        self, encoded: Mapping[str, EncodedState], state_versions: Mapping[str, int]
    ) -> dict[str, FileEntry]:
        """Write every component and return the entries of their files."""
        return {
            name: self._write_component(file_name(name), state, state_versions.get(name, 1))
            for name, state in encoded.items()
        }

    def write_rest(
        self,
        entries: Mapping[str, FileEntry],
        encoded: EncodedCheckpoint,
        *,
        metadata: Mapping[str, Any],
    ) -> None:
        """Write the code and, last of all, the manifest."""
        code = encoded.code
        code_entry = None if code is None else self._write(CODE_FILE, [code])
        manifest = new_manifest(
            versions=current_versions(),
            metadata=metadata,
            folder=self._directory.name,
            components=entries,
            code=code_entry,
            created_at=dt.datetime.now(dt.timezone.utc),
            is_own=encoded.is_own,
        )
        self._write(MANIFEST_FILE, [manifest.to_json().encode("ascii")])

    def _write_component(self, file: str, state: EncodedState, version: int) -> FileEntry:
        entry = self._write(file, state.parts)
        arrays = tuple(
            self._write(
                array_file_name(file, number),
                memory_pieces(array),
                max_waiting=ANY if is_contiguous(array) else FEW,
            )
            for number, array in enumerate(state.arrays)
        )
        return dataclasses.replace(entry, state_version=version, arrays=arrays)

    def _write(
        self, name: str, parts: Iterable[bytes | memoryview], *, max_waiting: int | None = ANY
    ) -> FileEntry:
        num_bytes = 0
        with (
            self._files.create_file(self._directory / name) as file,
            StreamedHash(max_waiting=max_waiting) as digest,
        ):
            for part in parts:
                digest.update(part)
                self._files.write(file, part)
                num_bytes += len(part)
            self._files.sync_file(file)  # while the rest is being hashed
        return FileEntry(file=name, num_bytes=num_bytes, sha256=digest.hexdigest())


# ---- background
#
# Saving while the object goes on: what is written is a copy, and a thread of its own writes it.
# The thread runs our code alone: what came from the user (`get_state`, events, functions to call)
# is asked before it begins or called after it has ended, in the thread that saves. It is no
# daemon, so the end of the program waits for it. A process that is killed leaves what a killed
# blocking save leaves: the previous checkpoint, whole (`checkpoints.directory`).

_LOGGER: Final = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 1.0
_WRITER: Final = "writer"
_NO_ONE: Final = "no one"


class WhenOver(Protocol):
    """What is called when a save is over."""

    def __call__(self, error: CheckpointError | None, /) -> object:
        """Hear of it: None says that the checkpoint is complete, else this is the reason."""


class BackgroundSave:
    """One save in the background; its owner keeps one at most, for each holds a copy.

    Life: `start()` · the owner goes on · `wait()`, or look whether it `is_over` · `tell()`.

    All but its own thread's work is for one thread, the owner's. A copy of it is None, because
    threads cannot be copied; in a forked process it `is_void`.

    Attributes:
        path: where the checkpoint will be, absolute.
        when_over: what the owner is to call.
        is_over: whether the checkpoint is there, or will never be.

    Args:
        path: as for `write_encoded`.
        encoded: what to write; may change as soon as this is made.
        when_over: kept for the owner.
    """

    def __init__(
        self, path: PathLike, encoded: EncodedCheckpoint, *, when_over: WhenOver | None = None
    ) -> None:
        self.path: Final = resolve_target(path)
        self.when_over: Final = when_over
        self.is_over = False
        self._encoded: EncodedCheckpoint | None = encoded.detached()
        self._iteration: Final = encoded.metadata.get("training_iteration")
        self._error: BaseException | None = None  # set by the thread, before is_over
        self._pid: Final = os.getpid()
        # Who writes: the thread, or no one. The first to set it decides, in one step that no
        # interrupt can divide.
        self._decided: Final[dict[str, str]] = {}
        self._has_started = False
        self._end: Final = ArrivalFlag()
        self._thread: Final = threading.Thread(
            target=self._run, name=f"saves {self.path.name}", daemon=False
        )

    @property
    def is_void(self) -> bool:
        """Whether nothing will come of it: it never began, or in the process we forked from."""
        return self._decided.get(_WRITER) == _NO_ONE or self._pid != os.getpid()

    def start(self) -> None:
        """Begin to write. If anything is raised, it either goes on all the same or is void.

        Raises:
            CheckpointWriteError: if no thread can be started; nothing is written.
        """
        atexit.register(self._log_at_exit)
        try:
            with signals_deferred():
                self._thread.start()
                self._has_started = True
        except BaseException as error:
            self._withdraw()
            if isinstance(error, RuntimeError):
                raise CheckpointWriteError(
                    f"No thread could be started that saves {self.path} ({error}). Nothing was "
                    "written. Save without `background=True`, or end some threads."
                ) from error
            raise

    def wait(self) -> None:
        """Wait until it is over. May be interrupted anywhere, as `start` may, and called again."""
        if not self._has_started:  # as far as we know; if the thread does run, this changes nothing
            self._withdraw()
        while not (self.is_over or self.is_void):
            self._end.wait(_LOOK_AGAIN_S)
        if not self.is_void:
            self._thread.join()

    def take_error(self) -> CheckpointWriteError | None:
        """Return why it failed, or None; from now on the owner knows."""
        atexit.unregister(self._log_at_exit)
        return self._write_error()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return (type(None), ())

    def _withdraw(self) -> None:
        if self._decided.setdefault(_WRITER, _NO_ONE) == _NO_ONE:
            self._encoded = None
            atexit.unregister(self._log_at_exit)

    def _run(self) -> None:
        if self._decided.setdefault(_WRITER, "thread") != "thread":
            return
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 - told by the owner, who has to go on
            self._error = error
        finally:
            self.is_over = True
            self._end.put()

    def _write(self) -> None:
        encoded, self._encoded = self._encoded, None
        assert encoded is not None  # noqa: S101 - only the thread takes it, once
        write_encoded(self.path, encoded)
        # No caller waits here; older ones may be removed then without another look. The copy goes
        # first: what is read to be compared takes its place in the memory.
        del encoded
        verify(self.path)

    def _write_error(self) -> CheckpointWriteError | None:
        if self._error is None:
            return None
        which = "" if self._iteration is None else f" of training iteration {self._iteration}"
        reason = str(self._error) or type(self._error).__name__
        error = CheckpointWriteError(
            f"The checkpoint {self.path}{which} was being saved in the background, and that "
            f"failed: {reason.rstrip('.')}. Nothing else was affected: go on, and save again."
        )
        error.__cause__ = self._error
        return error

    def _log_at_exit(self) -> None:
        # The interpreter has waited for the thread; in a forked process it never is over.
        if self.is_over and self._error is not None:
            _LOGGER.error("%s", self._write_error())


# ---- whole file


def write_whole_file(
    file: PathLike, content: bytes | Callable[[BinaryIO], None], *, overwrite: bool = False
) -> Path:
    """Write a file beside its place, put it there, and return its absolute path.

    Whenever the process or the machine stops, the old content or the new one is there, whole.
    `content` is all of it, or what writes it into the open file. Folders above it are made.

    Raises:
        CheckpointWriteError: if something is there already and `overwrite` is false, or if it
            cannot be written.
    """
    target = resolve_path(file)
    if os.path.lexists(target) and not overwrite:
        raise CheckpointWriteError(
            f"{target} exists, and would be lost. Give another name, or allow it with "
            "`overwrite=True` (`--overwrite`)."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(descriptor)
        unfinished = Path(name)
        with replacing(target, unfinished) as opened:
            if isinstance(content, bytes):
                opened.write(content)
            else:
                content(opened)
            unfinished.chmod(0o644)  # temporary files are for their owner only
    except OSError as error:
        raise CheckpointWriteError(
            f"{target} could not be written: {error}. {remedy(error)}."
        ) from error
    return target

"""Writing a checkpoint: encode everything, write every file, put the directory into place."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from checkpoints.arguments import instance, integer, mapping, optional, takes
from checkpoints.array_format import is_contiguous, memory_pieces
from checkpoints.codec import EncodedState, encode_split
from checkpoints.component_paths import array_file_name, check_name, file_name
from checkpoints.directory import Replacement
from checkpoints.errors import CheckpointWriteError, StateError
from checkpoints.file_system import FileSystem
from checkpoints.hashing import ANY, FEW, StreamedHash
from checkpoints.listing import PathLike, resolve_target
from checkpoints.manifest import (
    CODE_FILE,
    MANIFEST_FILE,
    FileEntry,
    new_manifest,
    plain_metadata,
)
from checkpoints.moved_paths import SAVED_AT
from checkpoints.versions import current_versions

LARGE_ARRAY_BYTES: Final = 2**20
"""Arrays from this size on get files of their own: below, a file costs more than it is worth."""


@takes(
    path=instance((str, os.PathLike), "a path (a string or a pathlib.Path)"),
    components=mapping(),
    state_versions=optional(mapping()),
    large_array_bytes=integer(),
    file_system=optional(instance(FileSystem, "a FileSystem")),
)
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
        state_versions: of components whose state is not of version 1 (`checkpoints.migrations`).
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


@dataclasses.dataclass(frozen=True)
class EncodedCheckpoint:
    """All that a checkpoint will hold, encoded; pieces of arrays may show the arrays' own memory.

    Attributes:
        components: name → state, in the order in which to restore them.
        metadata: plain JSON data.
        code: bytes of a pickle, or None.
        state_versions: name → version of its state, where that is not 1.
    """

    components: Mapping[str, EncodedState]
    metadata: Mapping[str, Any]
    code: bytes | None
    state_versions: Mapping[str, int]

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
    return EncodedCheckpoint(encoded, plain, code, state_versions or {})


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
        with Replacement(target, files) as replacement:
            writer = _FileWriter(replacement.new, files)
            entries = writer.write_components(encoded.components, encoded.state_versions)
            writer.write_rest(entries, code=encoded.code, metadata=_metadata(encoded, target))
            replacement.install()
    except CheckpointWriteError:
        raise
    except OSError as error:
        raise CheckpointWriteError(
            f"The checkpoint {target} could not be saved: {error}. What was there before is still "
            "complete. Check free space and permissions, then save again."
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
        self, entries: Mapping[str, FileEntry], *, code: bytes | None, metadata: Mapping[str, Any]
    ) -> None:
        """Write the code and, last of all, the manifest."""
        code_entry = None if code is None else self._write(CODE_FILE, [code])
        manifest = new_manifest(
            versions=current_versions(),
            metadata=metadata,
            components=entries,
            code=code_entry,
            created_at=dt.datetime.now(dt.timezone.utc),
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
        self, name: str, parts: Iterable[bytes | memoryview], *, max_waiting: int = ANY
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

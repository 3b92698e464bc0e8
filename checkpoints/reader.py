"""Reading a checkpoint: everything is verified and decoded before anything is given out.

The order is: manifest, versions, sizes, SHA-256, decoding, migrations. So a damaged checkpoint
cannot restore half of an object. Decoding never runs code; the code file is only compared with its
hash.

Which checkpoint is meant by the directory of a run: the newest that is whole.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checkpoints.codec import ArrayFiles, NewArray, check_digest, decode
from checkpoints.component_paths import ComponentNames, select
from checkpoints.errors import CheckpointCorruptError, CheckpointError
from checkpoints.links import check_inside
from checkpoints.listing import (
    PathLike,
    find_checkpoints,
    resolve_path,
    steadily,
)
from checkpoints.manifest import (
    MANIFEST_FILE,
    ComponentMigrations,
    FileEntry,
    Manifest,
    StateMigrations,
    written_by_others,
)
from checkpoints.strict_files import (
    opened_regular_file,
    read_regular_file,
    regular_file_size,
)

# ---- reader


@dataclass(frozen=True)
class CheckpointContents:
    """What was read from a checkpoint.

    Attributes:
        path: the directory of the checkpoint.
        manifest: what the checkpoint says of itself.
        components: name (slash path) to decoded state, in the order of the manifest.
    """

    path: Path
    manifest: Manifest
    components: dict[str, Any]


def read_manifest(path: PathLike) -> Manifest:
    """Return what a checkpoint says of itself; no payload is read.

    Raises:
        CheckpointNotFoundError: if there is no checkpoint.
        CheckpointCorruptError: if the manifest is not valid.
        CheckpointVersionError: if it has a newer format.
    """
    return steadily(path, lambda _, manifest: manifest)


def verify(path: PathLike) -> Manifest:
    """Read and check every file of a checkpoint, one at a time, and return its manifest.

    Large arrays are read in pieces and take no memory. Raises the errors of `read_checkpoint`.
    """

    def check(directory: Path, manifest: Manifest) -> Manifest:
        folder = directory / manifest.folder
        for entry in manifest.components.values():
            _decode_component(manifest, entry, ArrayFiles(folder, entry, mapped=True), folder)
        if manifest.code is not None:
            _read_file(folder, manifest.code)
        return manifest

    return steadily(path, check)


def read_checkpoint(
    path: PathLike,
    only: ComponentNames | None = None,
    *,
    check_manifest: Callable[[Manifest], None] | None = None,
    migrations: StateMigrations | None = None,
    mapped: bool = False,
    array_makers: Mapping[str, NewArray] | None = None,
) -> CheckpointContents:
    """Return the decoded components of a checkpoint, after verifying all that is returned.

    Arrays are new and writable, unless they are mapped. Either way each file is read in pieces.

    Args:
        path: the directory of the checkpoint.
        only: names to read; `"learner"` stands for `learner` and everything below it. Other files
            are then not looked at.
        check_manifest: called before any payload is read; raises to refuse the checkpoint.
        migrations: what brings older states up to the present, and says which ones are too new;
            None gives out every state as it was written, whatever its version.
        mapped: give out arrays that have files of their own (those of at least 1 MiB) as read-only
            maps of these files, which take no memory. The files must then stay as they are: do not
            keep a map of a file that may be cut short; touching it would end the process.
        array_makers: component → what makes the arrays that have files of their own.

    Raises:
        CheckpointNotFoundError: if there is no checkpoint; says what is there instead.
        CheckpointVersionError: if it, or a state in it, has a newer version.
        CheckpointCorruptError: if a file is missing, unexpected, cut, or altered.
        CheckpointMismatchError: if `only` names a component that it does not have.
    """
    known = None if migrations is None else ComponentMigrations(migrations)
    makers = array_makers or {}

    def read(directory: Path, manifest: Manifest) -> CheckpointContents:
        if check_manifest is not None:
            check_manifest(manifest)
        names = select(manifest.components, only)
        entries = {name: manifest.components[name] for name in names}
        if known is not None:
            versions = [(name, entry.state_version) for name, entry in entries.items()]
            source = f"{directory} (written with {dict(manifest.versions)})"
            known.refuse_newer(versions, source=source)
        folder = directory / manifest.folder
        for entry in entries.values():
            for file in entry.files:
                _check_size(folder, file)
        if only is None and manifest.code is not None:
            _read_file(folder, manifest.code)
        components = {
            name: _decode_component(
                manifest,
                entry,
                ArrayFiles(folder, entry, mapped=mapped, make_array=makers.get(name)),
                folder,
            )
            for name, entry in entries.items()
        }
        if known is not None:
            components = {
                name: known.migrated(name, state, version=entries[name].state_version)
                for name, state in components.items()
            }
        return CheckpointContents(directory, manifest, components)

    return steadily(path, read)


@dataclass
class ArrayLocation:
    """Where in a state a large array stands, which has a file of its own.

    Attributes:
        path: keys and positions that lead to it, joined with slashes; "" for the whole.
        dtype: how NumPy writes it.
        shape: of the array.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]


def read_array_places(path: PathLike, component: str) -> dict[str, ArrayLocation]:
    """Return where the large arrays of one component stand, by their files; none is read.

    Raises the errors of `read_checkpoint`.
    """

    def read(directory: Path, manifest: Manifest) -> dict[str, ArrayLocation]:
        (name,) = select(manifest.components, [component])
        entry = manifest.components[name]
        found: list[ArrayLocation] = []

        def note(number: Any, *, dtype: Any, shape: tuple[int, ...], order: str) -> Any:
            del number, order
            found.append(ArrayLocation("", str(dtype), shape))
            return found[-1]

        data = _read_file(directory / manifest.folder, entry)
        _name_places(decode(data, load_array=note), "")
        return {array.file: place for array, place in zip(entry.arrays, found, strict=False)}

    return steadily(path, read)


def _name_places(state: Any, path: str) -> None:
    pairs: Any = ()
    if isinstance(state, ArrayLocation):
        state.path = path
    elif isinstance(state, dict):
        pairs = state.items()
    elif isinstance(state, list | tuple):
        pairs = enumerate(state)
    for key, value in pairs:
        _name_places(value, f"{path}/{key}" if path else str(key))


def read_code_bytes(path: PathLike, *, check_manifest: Callable[[Manifest], None]) -> bytes | None:
    """Return the verified bytes of the code file, or None if there is none; they are not run.

    `check_manifest` is called before they are read; it raises to refuse.
    """

    def read(directory: Path, manifest: Manifest) -> bytes | None:
        check_manifest(manifest)
        folder = directory / manifest.folder
        return None if manifest.code is None else _read_file(folder, manifest.code)

    return steadily(path, read)


def _check_size(directory: Path, entry: FileEntry) -> None:
    """Raise early, before the first large file is read, if one is missing or cut."""
    path = directory / entry.file
    if regular_file_size(path) != entry.num_bytes:
        with opened_regular_file(path, num_bytes=entry.num_bytes):
            pass  # it raises with the reason, unless the file has just been replaced


def _read_file(directory: Path, entry: FileEntry) -> bytes:
    path = directory / entry.file
    data = read_regular_file(path, num_bytes=entry.num_bytes, max_bytes=entry.num_bytes)
    check_digest(path, entry, hashlib.sha256(data).hexdigest())
    return data


def _decode_component(
    manifest: Manifest, entry: FileEntry, arrays: ArrayFiles, directory: Path
) -> Any:
    data = _read_file(directory, entry)
    try:
        state = decode(data, load_array=arrays.load)
        arrays.finish()
    except CheckpointCorruptError as error:
        if str(error).startswith(str(directory)):
            raise  # it is about the file of an array, and names it
        raise CheckpointCorruptError(
            f"{directory / entry.file}: {error}{written_by_others(manifest)}"
        ) from error
    return state


# ---- run directories
#
# Which checkpoint is meant by the directory of a run: the newest that is whole.

_LOGGER: Final = logging.getLogger(__name__)

CHECKPOINTS: Final = "checkpoints"
"""The directory with the checkpoints in the directory of a run of the command line."""


def checkpoint_of_run(path: PathLike) -> PathLike:
    """Return the newest whole checkpoint if a path is a directory of several, else the path itself.

    Looked at are `<path>/checkpoints` and the path itself. Which one was taken is logged, and so is
    each that was passed over because its bytes are not as its hashes say. If all are damaged, the
    newest is returned: reading it tells.

    Raises:
        CheckpointError: if the path cannot be one.
    """
    given = resolve_path(path)
    if not given.is_dir() or (given / MANIFEST_FILE).exists():
        return path
    for directory in (given / CHECKPOINTS, given):
        check_inside(directory, given)
        newest = newest_whole(directory)
        if newest is not None:
            _LOGGER.info("%s is a directory of checkpoints: %s is taken.", given, newest)
            return newest
    return path


def newest_whole(directory: Path) -> Path | None:
    """Return the newest checkpoint in a directory that is not damaged; None if there is none.

    If all are damaged, the newest of them.
    """
    if not directory.is_dir():
        return None
    found = find_checkpoints(directory)
    for checkpoint in reversed(found):
        try:
            verify(checkpoint.path)
        except CheckpointCorruptError as error:
            _LOGGER.warning("The newest checkpoint is passed over for an older one: %s", error)
            continue
        except CheckpointError:  # of a newer version, or being replaced: reading it tells
            return checkpoint.path
        return checkpoint.path
    return found[-1].path if found else None

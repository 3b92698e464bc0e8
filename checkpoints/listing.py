"""Finding checkpoints: at a path, or in a directory of them. Only looks, never changes anything."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointVersionError,
)
from checkpoints.file_system import read_regular_file, regular_file_size
from checkpoints.leftovers import Leftover, parse_leftover
from checkpoints.manifest import MANIFEST_FILE, Manifest, parse_manifest

_LOGGER: Final = logging.getLogger(__name__)
_MAX_MANIFEST_BYTES: Final = 64 * 2**20
_MAX_LOOKS: Final = 3

PathLike = str | os.PathLike[str]
"""What the package takes as a path."""


@dataclasses.dataclass(frozen=True)
class FoundCheckpoint:
    """A complete checkpoint in a directory; can be passed wherever a path can.

    Attributes:
        path: its directory, absolute.
        manifest: what it says of itself.
    """

    path: Path
    manifest: Manifest

    def __fspath__(self) -> str:
        return str(self.path)


def resolve_path(path: PathLike) -> Path:
    """Return the absolute path, with `~` and links resolved; the one place that does so.

    Raises:
        CheckpointError: if the path is empty, which would mean the current directory.
    """
    text = os.fspath(path)
    if not text:
        raise CheckpointError(
            "The path of the checkpoint is empty, which would be the current directory. "
            "Pass a path such as 'runs/checkpoint'."
        )
    return Path(text).expanduser().resolve()


def locate(path: PathLike) -> Path:
    """Return the directory that holds the checkpoint `path`.

    That is `path` itself, or, after a crash in the instant in which `path` was being replaced, the
    complete new or previous checkpoint beside it.

    Raises:
        CheckpointNotFoundError: if there is none; says what is there instead.
    """
    target = resolve_path(path)
    for _ in range(_MAX_LOOKS):
        if regular_file_size(target / MANIFEST_FILE) is not None:
            return target
        if os.path.lexists(target):
            break
        rescued = rescue(target, leftovers_in(target.parent))
        if rescued is not None:
            return rescued.path
        # Or a save has just finished: the copies beside the path were renamed while we looked.
    raise CheckpointNotFoundError(_describe(target))


def load_manifest(directory: Path) -> Manifest:
    """Return the manifest of a located checkpoint; nothing else is read.

    Raises:
        CheckpointCorruptError: if it is missing or not valid.
        CheckpointVersionError: if it has a newer format.
    """
    file = directory / MANIFEST_FILE
    data = read_regular_file(file, max_bytes=_MAX_MANIFEST_BYTES)
    return parse_manifest(data, source=str(file))


def find_checkpoints(directory: PathLike) -> list[FoundCheckpoint]:
    """Return the complete checkpoints directly in a directory, oldest first.

    They are ordered by the metadata's `training_iteration`, then by time of creation. Complete
    means: a valid manifest, and every file there with its size (contents are compared on reading).
    What a crash left behind counts if it is the only complete copy. Links are not followed. A
    directory that does not exist holds no checkpoints.

    Raises:
        CheckpointNotFoundError: if `directory` is a file.
    """
    parent = resolve_path(directory)
    if os.path.lexists(parent) and not parent.is_dir():
        raise CheckpointNotFoundError(_describe(parent))
    found = [whole for path in _directories_in(parent) if (whole := look_at(path)) is not None]
    leftovers = leftovers_in(parent)
    for target in sorted({leftover.target for leftover in leftovers}):
        if not os.path.lexists(target):
            rescued = rescue(target, leftovers)
            if rescued is not None:
                found.append(rescued)
    return sorted(found, key=_age)


def latest_checkpoint(directory: PathLike) -> Path | None:
    """Return the path of the newest complete checkpoint in a directory, or None."""
    found = find_checkpoints(directory)
    return found[-1].path if found else None


def look_at(path: Path) -> FoundCheckpoint | None:
    """Return the checkpoint at exactly this path if it is complete; log why one is damaged."""
    if regular_file_size(path / MANIFEST_FILE) is None:
        return None
    try:
        manifest = load_manifest(path)
    except (CheckpointCorruptError, CheckpointVersionError) as error:
        _LOGGER.warning("Left out of the list of checkpoints: %s", error)
        return None
    for entry in manifest.files:
        if regular_file_size(path / entry.file) != entry.num_bytes:
            _LOGGER.warning("Left out of the list of checkpoints: %s lacks %s", path, entry.file)
            return None
    return FoundCheckpoint(path, manifest)


def leftovers_in(parent: Path) -> list[Leftover]:
    """Return the directories in `parent` that belong to unfinished or running saves."""
    found = [parse_leftover(path) for path in _entries(parent) if path.name.startswith(".")]
    return [leftover for leftover in found if leftover is not None]


def rescue(target: Path, leftovers: Iterable[Leftover]) -> FoundCheckpoint | None:
    """Return the best complete copy of a missing checkpoint: a new one before an old one."""
    candidates = [item for item in leftovers if item.target == target and item.role != "del"]
    candidates.sort(key=lambda item: (item.role != "new", item.path.name))
    complete = [whole for item in candidates if (whole := look_at(item.path)) is not None]
    return complete[0] if complete else None


def _age(found: FoundCheckpoint) -> tuple[int, str, str]:
    return (found.manifest.training_iteration, found.manifest.created_at, found.path.name)


def _entries(parent: Path) -> list[Path]:
    try:
        return sorted(parent.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _directories_in(parent: Path) -> list[Path]:
    return [
        path
        for path in _entries(parent)
        if path.is_dir() and not path.is_symlink() and parse_leftover(path) is None
    ]


def _describe(target: Path) -> str:
    """Return the message for a path that is not a checkpoint: what it is, and what to pass."""
    if not os.path.lexists(target):
        for parent in target.parents:
            if regular_file_size(parent / MANIFEST_FILE) is not None:
                part = target.relative_to(parent).as_posix()
                return (
                    f"{target} does not exist; {parent} is a checkpoint. A part of it is restored "
                    f"with the path of the whole: pass {str(parent)!r} and component={part!r}."
                )
        return f"{target} does not exist. Pass the path that save_to_path() returned."
    if not target.is_dir():
        return (
            f"{target} is a file; a checkpoint is a directory with a {MANIFEST_FILE}. "
            "Pass the directory that save_to_path() returned."
        )
    latest = latest_checkpoint(target)
    if latest is not None:
        return (
            f"{target} is not a checkpoint but a directory that holds some. "
            f"Pass one of them; the latest is {str(latest)!r}."
        )
    names = [path.name for path in _entries(target)]
    content = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "nothing"
    return (
        f"{target} is a directory without {MANIFEST_FILE} (it holds {content}), so it is not a "
        "complete checkpoint. Pass the directory that save_to_path() returned."
    )

"""Finding checkpoints: at a path, or in a directory of them. Only looks, never changes anything.

Others may save, replace and remove while we look. What is concluded from several looks, such as
"nothing is there, and no copy beside it", counts only if nothing was renamed between them; else it
is looked again.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from checkpoints.arguments import checked_arguments
from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointVersionError,
    CheckpointWriteError,
)
from checkpoints.file_system import read_regular_file, regular_file_size
from checkpoints.leftovers import Leftover, is_damaged_name, parse_leftover
from checkpoints.manifest import MANIFEST_FILE, Manifest, parse_manifest

_LOGGER: Final = logging.getLogger(__name__)
_MAX_MANIFEST_BYTES: Final = 64 * 2**20
_MAX_LOOKS: Final = 20

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
        CheckpointError: if the path is empty, which would mean the current directory, or cannot be
            one.
    """
    text = os.fspath(path)
    if not text:
        raise CheckpointError(
            "The path of the checkpoint is empty, which would be the current directory. "
            "Pass a path such as 'runs/checkpoint'."
        )
    try:
        return Path(text).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, no home, a null byte
        raise CheckpointError(
            f"{text!r} is no path of a checkpoint: {error}. Pass a path such as 'runs/checkpoint'."
        ) from error


def resolve_target(path: PathLike) -> Path:
    """Return the absolute path for a checkpoint that is to be written.

    Raises:
        CheckpointWriteError: if it is a link that leads nowhere: the checkpoint would appear in a
            place that nobody has named for it.
        CheckpointError: see `resolve_path`.
    """
    target = resolve_path(path)
    given = Path(os.fspath(path)).expanduser()
    # Not is_symlink, which raises for names that are too long.
    if os.path.islink(given) and not os.path.lexists(target):  # noqa: PTH114
        raise CheckpointWriteError(
            f"{given} is a link to {target}, which does not exist. Nothing was written. Remove the "
            "link, or make the directory that it leads to."
        )
    return target


def locate(path: PathLike) -> Path:
    """Return the directory that holds the checkpoint `path`.

    That is `path` itself, or, after a crash in the instant in which `path` was being replaced, the
    complete new or previous checkpoint beside it.

    Raises:
        CheckpointNotFoundError: if there is none; says what is there instead.
    """
    target = resolve_path(path)
    leftover = parse_leftover(target)
    for _ in range(_MAX_LOOKS):
        before = identity_of(target)
        if regular_file_size(target / MANIFEST_FILE) is not None:
            return target
        if before is not None and identity_of(target) == before:
            break
        if leftover is not None and before is None:
            return locate(leftover.target)  # it has come to its place since it was found
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


@checked_arguments
def find_checkpoints(directory: PathLike) -> list[FoundCheckpoint]:
    """Return the complete checkpoints directly in a directory, oldest first.

    They are ordered by the metadata's `training_iteration`, then by time of creation. Complete
    means: a valid manifest, and every file there with its size (contents are compared on reading).
    What a crash left behind counts if it is the only complete copy. Links are not followed, and
    what was set aside as damaged (`000010-damaged-1`) does not count. A directory that does
    not exist holds no checkpoints.

    Raises:
        CheckpointNotFoundError: if `directory` is a file.
    """
    parent = resolve_path(directory)
    if os.path.lexists(parent) and not parent.is_dir():
        raise CheckpointNotFoundError(_describe(parent))
    known: dict[tuple[str, int], FoundCheckpoint] = {}
    problems: list[str] = []
    found: list[FoundCheckpoint] = []
    for _ in range(_MAX_LOOKS):
        present = _directories_in(parent)
        found, problems = _complete_among(parent, present, known)
        if _directories_in(parent) == present:
            break
    for problem in problems:
        _LOGGER.warning("Left out of the list of checkpoints: %s", problem)
    return sorted(found, key=_age)


@checked_arguments
def latest_checkpoint(directory: PathLike) -> Path | None:
    """Return the path of the newest complete checkpoint in a directory, or None."""
    found = find_checkpoints(directory)
    return found[-1].path if found else None


def damages_in(directory: Path) -> list[str]:
    """Return what is wrong with each checkpoint in a directory that is not complete, by name."""
    problems: list[str] = []
    for name in sorted(_directories_in(directory)):
        path = directory / name
        if is_damaged_name(name) or parse_leftover(path) is not None:
            continue
        found = _examine(path)
        if isinstance(found, str):
            problems.append(found)
        elif found is None and any(path.glob("*.state")):
            problems.append(f"{path} lacks {MANIFEST_FILE}")
    return problems


def look_at(path: Path) -> FoundCheckpoint | None:
    """Return the checkpoint at exactly this path if it is complete; log why one is damaged."""
    for _ in range(_MAX_LOOKS):
        before = identity_of(path)
        found = _examine(path)
        if not isinstance(found, str) or identity_of(path) == before:
            break
    if isinstance(found, str):
        _LOGGER.warning("Left out of the list of checkpoints: %s", found)
        return None
    return found


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return what tells a directory from another one that takes its name; None for nothing."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def leftovers_in(parent: Path) -> list[Leftover]:
    """Return the directories in `parent` that belong to unfinished or running saves."""
    found = [parse_leftover(parent / name) for name in sorted(_directories_in(parent))]
    return [leftover for leftover in found if leftover is not None]


def rescue(target: Path, leftovers: Iterable[Leftover]) -> FoundCheckpoint | None:
    """Return the best complete copy of a missing checkpoint: a new one before an old one."""
    candidates = [item for item in leftovers if item.target == target and item.role != "del"]
    candidates.sort(key=lambda item: (item.role != "new", item.path.name))
    for item in candidates:
        found = _examine(item.path)
        if isinstance(found, FoundCheckpoint):
            return found
    return None  # one that is incomplete is still being written, or never was to its end


def _examine(path: Path) -> FoundCheckpoint | str | None:
    """Return the checkpoint at exactly this path, why it is damaged, or None if there is none."""
    try:
        if regular_file_size(path / MANIFEST_FILE) is None:
            return None
        manifest = load_manifest(path)
        for entry in manifest.files:
            size = regular_file_size(path / entry.file)
            if size is None:
                return f"{path} lacks {entry.file}"
            if size != entry.num_bytes:
                return f"{path / entry.file} has {size:,} of {entry.num_bytes:,} bytes"
    except (CheckpointCorruptError, CheckpointNotFoundError, CheckpointVersionError) as error:
        return str(error)
    except OSError as error:
        return f"{path} cannot be looked into: {error}"
    return FoundCheckpoint(path, manifest)


def _complete_among(
    parent: Path, present: Mapping[str, int], known: dict[tuple[str, int], FoundCheckpoint]
) -> tuple[list[FoundCheckpoint], list[str]]:
    """Return the complete checkpoints among the directories, and what is wrong with others.

    Args:
        parent: where they are.
        present: name → inode.
        known: by name and inode, those that were complete at an earlier look; gets new ones. What
            is complete does not change any more, so each is read once however often it is looked.
    """
    found: list[FoundCheckpoint] = []
    problems: list[str] = []
    leftovers: list[Leftover] = []
    for name, inode in present.items():
        leftover = parse_leftover(parent / name)
        if is_damaged_name(name):
            continue
        if leftover is not None:
            leftovers.append(leftover)
            continue
        whole = known.get((name, inode)) or _examine(parent / name)
        if isinstance(whole, FoundCheckpoint):
            found.append(known.setdefault((name, inode), whole))
        elif whole is not None:
            problems.append(whole)
    for target in {leftover.target for leftover in leftovers} - {parent / name for name in present}:
        rescued = None if os.path.lexists(target) else rescue(target, leftovers)
        if rescued is not None:
            found.append(rescued)
    return found, problems


def _age(found: FoundCheckpoint) -> tuple[int, str, str]:
    return (found.manifest.training_iteration, found.manifest.created_at, found.path.name)


def _directories_in(parent: Path) -> dict[str, int]:
    """Return name → inode of the directories in a directory, without links."""
    try:
        with os.scandir(parent) as entries:
            return {
                entry.name: entry.inode()
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            }
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CheckpointNotFoundError(
            f"{parent} cannot be looked into: {error}. Check its permissions."
        ) from error


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
    names = sorted(entry.name for entry in target.iterdir())
    content = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "nothing"
    return (
        f"{target} is a directory without {MANIFEST_FILE} (it holds {content}), so it is not a "
        "complete checkpoint. Pass the directory that save_to_path() returned."
    )

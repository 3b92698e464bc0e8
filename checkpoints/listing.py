"""Finding checkpoints: at a path, or in a directory of them. Only looks, never changes anything.

Others may save, replace and remove while we look. A reader takes no lock: whatever it finds wrong
counts only if the manifest is still the one that it began with.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointVersionError,
    CheckpointWriteError,
)
from checkpoints.manifest import MANIFEST_FILE, MAX_MANIFEST_BYTES, Manifest, parse_manifest
from checkpoints.strict_files import read_regular_file, refused, regular_file_size
from trainer_toolkit.files import remedy

_LOGGER: Final = logging.getLogger(__name__)
_MAX_LOOKS: Final = 100
_OF_SB3: Final = " An agent of Stable-Baselines3 is read by `trainer.load_sb3_policy(file)`."

_Result = TypeVar("_Result")

PathLike = str | os.PathLike[str]
"""What the package takes as a path."""


@dataclass(frozen=True)
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
            place that was not named for it.
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


def steadily(path: PathLike, read: Callable[[Path, Manifest], _Result]) -> _Result:
    """Return what `read` makes of a checkpoint; again if another one takes its place meanwhile.

    `read` is given the checkpoint's directory and its manifest. If it meets files of which some
    are gone, and the manifest is another one by now, its error says nothing.

    Raises:
        CheckpointNotFoundError: if there is no checkpoint; says what is there instead.
        CheckpointError: what `read` raises, and what `load_manifest` does.
    """
    return _steadily(resolve_path(path), read)


def _steadily(target: Path, read: Callable[[Path, Manifest], _Result]) -> _Result:
    for attempt in range(_MAX_LOOKS):
        if regular_file_size(target / MANIFEST_FILE) is None:
            raise CheckpointNotFoundError(_describe(target))
        manifest: Manifest | None = None
        try:
            manifest = load_manifest(target)
            if (target / manifest.folder).is_symlink():
                raise refused(target / manifest.folder, "is a link, which could lead anywhere")
            return read(target, manifest)
        except CheckpointError:
            if attempt + 1 == _MAX_LOOKS or _is_still_there(target, manifest):
                raise
    raise AssertionError("the last attempt returns or raises")


def _is_still_there(target: Path, manifest: Manifest | None) -> bool:
    """Return whether a checkpoint, or a manifest that cannot be read, is what it was before."""
    try:
        return load_manifest(target) == manifest
    except CheckpointError:
        return manifest is None and os.path.lexists(target / MANIFEST_FILE)


def load_manifest(directory: Path) -> Manifest:
    """Return the manifest in a directory; nothing else is read.

    Raises:
        CheckpointCorruptError: if it is missing or not valid.
        CheckpointVersionError: if it has a newer format.
    """
    file = directory / MANIFEST_FILE
    data = read_regular_file(file, max_bytes=MAX_MANIFEST_BYTES)
    return parse_manifest(data, source=str(file))


def find_checkpoints(directory: PathLike) -> list[FoundCheckpoint]:
    """Return the complete checkpoints directly in a directory, oldest first.

    They are ordered by the metadata's `training_iteration`, then by time of creation. Complete
    means: a valid manifest, and every file there with its size (contents are compared on reading).
    Links are not followed. A directory that does not exist holds no checkpoints.

    Raises:
        CheckpointNotFoundError: if `directory` is a file.
    """
    parent = resolve_path(directory)
    if os.path.lexists(parent) and not parent.is_dir():
        raise CheckpointNotFoundError(_describe(parent))
    found: dict[str, FoundCheckpoint | str | None] = {}
    for _ in range(_MAX_LOOKS):
        present = directories_in(parent)
        found = {name: _examine(parent / name) for name in present}
        # Else a newer one may have come, and those that we were looking for have gone.
        if directories_in(parent) == present:
            break
    for problem in found.values():
        if isinstance(problem, str):
            _LOGGER.warning("Left out of the list of checkpoints: %s", problem)
    return sorted(
        (one for one in found.values() if isinstance(one, FoundCheckpoint)),
        key=lambda one: (one.manifest.training_iteration, one.manifest.created_at, one.path.name),
    )


def latest_checkpoint(directory: PathLike) -> Path | None:
    """Return the path of the newest complete checkpoint in a directory, or None."""
    found = find_checkpoints(directory)
    return found[-1].path if found else None


def damages_in(directory: Path) -> list[str]:
    """Return what is wrong with each checkpoint in a directory that is not complete, by name."""
    found = [_examine(directory / name) for name in directories_in(directory)]
    return [problem for problem in found if isinstance(problem, str)]


def _examine(path: Path) -> FoundCheckpoint | str | None:
    """Return the checkpoint at exactly this path, why it is damaged, or None if there is none."""
    try:
        if regular_file_size(path / MANIFEST_FILE) is None:
            return None
        return _steadily(path, _complete)
    except CheckpointNotFoundError:  # it has just been removed, or is the file of another program
        return None
    except (CheckpointCorruptError, CheckpointVersionError) as error:
        return str(error)
    except OSError as error:
        return f"{path} cannot be looked into: {error}"


def _complete(directory: Path, manifest: Manifest) -> FoundCheckpoint:
    """Raise unless every file is there with its size."""
    for entry in manifest.files:
        path = directory / manifest.folder / entry.file
        size = regular_file_size(path)
        if size is None:
            raise CheckpointCorruptError(f"{directory} lacks {entry.file}")
        if size != entry.num_bytes:
            raise CheckpointCorruptError(f"{path} has {size:,} of {entry.num_bytes:,} bytes")
    return FoundCheckpoint(directory, manifest)


def directories_in(parent: Path) -> list[str]:
    """Return the sorted names of the directories in a directory, without links.

    Raises:
        CheckpointNotFoundError: if the system does not let it be looked into.
    """
    try:
        with os.scandir(parent) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointNotFoundError(
            f"{parent} cannot be looked into: {error}. {remedy(error)}."
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
            f"{_OF_SB3 if target.suffix == '.zip' else ''}"
        )
    latest = latest_checkpoint(target)
    if latest is not None:
        return (
            f"{target} is not a checkpoint but a directory that holds some. "
            f"Pass one of them; the latest is {str(latest)!r}."
        )
    try:
        names = sorted(entry.name for entry in target.iterdir())
    except FileNotFoundError:  # removed meanwhile
        return _describe(target)
    content = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "nothing"
    return (
        f"{target} is a directory without {MANIFEST_FILE} (it holds {content}), so it is not a "
        "complete checkpoint. Pass the directory that save_to_path() returned."
    )

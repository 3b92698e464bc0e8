"""Finding checkpoints, locking directories, and the names that a crash leaves beside a checkpoint.

Saving to `runs/ckpt` may leave behind, next to it, directories called

    .ckpt.new-<host>-<pid>-<token>     the checkpoint that is being written
    .ckpt.old-<host>-<pid>-<token>     the previous one, moved aside
    .ckpt.del-<host>-<pid>-<token>     one that is being removed on purpose

`checkpoints.directory` explains when; this module makes and understands the names, and tells those
that a process works in from those that a dead process left.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import platform
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointVersionError,
    CheckpointWriteError,
)
from checkpoints.manifest import MANIFEST_FILE, MAX_MANIFEST_BYTES, Manifest, parse_manifest
from checkpoints.strict_files import read_regular_file, regular_file_size
from trainer_toolkit.files import NoLocksError, lock_file, numbered_beside, remedy, unlock_file
from trainer_toolkit.interrupts import signals_deferred

# ---- directory lock
#
# A lock on a directory itself (`file_system.lock_file`). The number of a process says less: after
# a restart another one may have it, in containers it often is the same one again, and a process
# in another container is not seen at all.
#
# Where there are no locks (some network file systems), `is_real` is false and no process is kept
# away.

_NO_LOCKS_ON_DIRECTORIES: Final = frozenset({errno.EBADF, errno.EINVAL})
"""EBADF: NFS locks exclusively only what can be written, and a directory cannot be."""


class DirectoryLock:
    """Holds a directory that exists, until `release`, the end of its block or of the process.

    Attributes:
        is_real: whether others are kept away; false where there are no locks.

    Args:
        path: the directory.

    Raises:
        BlockingIOError: it is held elsewhere, in this process or another.
        OSError: it does not exist or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.is_real = False
        self._descriptor = -1
        self._pid = os.getpid()
        if sys.platform == "win32":
            return
        try:
            with signals_deferred():
                self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                with contextlib.suppress(NoLocksError):
                    lock_file(self._descriptor, also_no_locks=_NO_LOCKS_ON_DIRECTORIES)
                    self.is_real = True
        except BaseException:  # an interrupt has waited; nobody else would let go
            self.release()
            raise

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def holds(self, path: Path) -> bool:
        """Return whether the directory that is locked is the one at `path` now."""
        if self._descriptor < 0:
            return path.is_dir()
        try:
            return os.path.samestat(os.fstat(self._descriptor), path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Let go of it; a second time does nothing."""
        with signals_deferred():
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor < 0:
                return
            try:
                if self.is_real and self._pid == os.getpid():
                    # A process that was forked meanwhile has the descriptor, too: it would hold on,
                    # or, at its own end, let go of what is not its own.
                    unlock_file(descriptor)
            finally:
                os.close(descriptor)


# ---- leftovers

Role = Literal["new", "old", "del"]
"""What a leftover was before the crash."""

_NAME: Final = re.compile(
    r"\.(?P<target>.+)\.(?P<role>new|old|del)-(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{8}",
    re.DOTALL,  # names of directories may have line ends
)


_DAMAGED: Final = re.compile(r"[0-9]{6,}-damaged-[0-9]+")


@dataclass(frozen=True)
class Leftover:
    """A directory whose name says that it belongs to a save.

    Attributes:
        path: where it is.
        target: the checkpoint that was being written or replaced, in the same directory.
        role: what it was.
        host: short hash of the name of the machine.
        pid: of the process that was saving.
    """

    path: Path
    target: Path
    role: Role
    host: str
    pid: int

    @contextlib.contextmanager
    def claimed(self) -> Iterator[bool]:
        """Give whether no process works in it; none can begin to while the block lasts.

        A saving process holds a lock on the directory. Where there are no locks, the number of the
        process has to do. What was saved by another machine is never claimed.
        """
        if self.host != _host():
            yield False
            return
        try:
            lock = DirectoryLock(self.path)
        except OSError:  # another process works there, or it is gone
            yield False
            return
        with lock:
            yield lock.holds(self.path) and (lock.is_real or not _is_alive(self.pid))


def leftover_path(target: Path, role: Role) -> Path:
    """Return a new name beside `target` for this process."""
    token = secrets.token_hex(4)
    return target.with_name(f".{target.name}.{role}-{_host()}-{os.getpid()}-{token}")


def damaged_path(target: Path) -> Path:
    """Return a free name beside `target` for what is damaged there and has to make room."""
    return numbered_beside(target, "-damaged-")


def is_damaged_name(name: str) -> bool:
    """Return whether `damaged_path` gives this name, for a checkpoint named by its iteration."""
    return _DAMAGED.fullmatch(name) is not None


def parse_leftover(path: Path) -> Leftover | None:
    """Return what the name of a directory says, or None if it is no name of ours."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    return Leftover(
        path=path,
        target=path.with_name(match["target"]),
        role=cast(Role, match["role"]),
        host=match["host"],
        pid=int(match["pid"]),
    )


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _is_alive(pid: int) -> bool:
    """Return whether a process has this number; in doubt it has."""
    if os.name != "posix" or not 0 < pid < 2**31:
        return True  # elsewhere, asking with signal 0 would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


# ---- listing
#
# Finding checkpoints: at a path, or in a directory of them. Only looks, never changes anything.
# Others may save, replace and remove while we look. What is concluded from several looks, such as
# "nothing is there, and no copy beside it", counts only if nothing was renamed between them; else
# it is looked again.

_LOGGER: Final = logging.getLogger(__name__)
_MAX_LOOKS: Final = 20

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
    data = read_regular_file(file, max_bytes=MAX_MANIFEST_BYTES)
    return parse_manifest(data, source=str(file))


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
    return sorted(
        found,
        key=lambda one: (one.manifest.training_iteration, one.manifest.created_at, one.path.name),
    )


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

    Present are inodes by name. `known` has, by name and inode, those that were complete at an
    earlier look, and gets new ones: what is complete does not change any more, so each is read
    once.
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

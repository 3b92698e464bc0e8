"""Names beside a checkpoint that exist only while it is being replaced, or after a crash.

Saving to `runs/ckpt` may leave behind, next to it, directories called

    .ckpt.new-<host>-<pid>-<token>     the checkpoint that is being written
    .ckpt.old-<host>-<pid>-<token>     the previous one, moved aside
    .ckpt.del-<host>-<pid>-<token>     one that is being removed on purpose

`checkpoints.directory` explains when; this module makes and understands the names, and tells those
that somebody works in from those that a dead process left.

A lock on a directory; the operating system takes it back when its process ends, however it ends.
It is `flock` on the directory itself: nothing is written for it, it moves along when the directory
is renamed, and it is seen by all processes of the machine, those in other containers included. The
number of a process says less: after a restart another one may have it, in containers it often is
the same one again, and a process in another container is not seen at all.

Where the file system or the system has no such locks (some network file systems), `is_real` is
false and nobody is kept away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import os
import platform
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

# ---- directory lock

if sys.platform != "win32":
    import fcntl

_NO_LOCKS_HERE: Final = frozenset(
    {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}
)
"""EBADF: NFS locks exclusively only what can be written, and a directory cannot be."""


class DirectoryLock:
    """Holds a directory that exists, until `release`, the end of its block or of the process.

    Attributes:
        is_real: whether others are kept away; false where there are no locks.

    Args:
        path: the directory.

    Raises:
        BlockingIOError: somebody else holds it, in this process or another.
        OSError: it does not exist or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.is_real = False
        self._descriptor = -1
        self._pid = os.getpid()
        if sys.platform == "win32":
            return
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_real = True
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                self.release()
                raise

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            if sys.platform != "win32" and self.is_real and self._pid == os.getpid():
                # A process that was forked meanwhile has the descriptor, too: it would hold on, or,
                # at its own end, let go of what is not its own.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
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


@dataclasses.dataclass(frozen=True)
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
        """Give whether nobody works in it any more; nobody else can begin to while the block lasts.

        Whoever saves holds a lock on the directory. Where there are no locks, the number of the
        process has to do. What was saved by another machine is never claimed.
        """
        if self.host != _host():
            yield False
            return
        try:
            lock = DirectoryLock(self.path)
        except OSError:  # somebody works there, or it is gone
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
    paths = (target.with_name(f"{target.name}-damaged-{number}") for number in itertools.count(1))
    return next(path for path in paths if not os.path.lexists(path))


def is_damaged_name(name: str) -> bool:
    """Return whether `damaged_path` gives this name, for a checkpoint named by its iteration."""
    return _DAMAGED.fullmatch(name) is not None


def parse_leftover(path: Path) -> Leftover | None:
    """Return what the name of a directory says, or None if it is no name of ours."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    role = match["role"]
    return Leftover(
        path=path,
        target=path.with_name(match["target"]),
        role="new" if role == "new" else "old" if role == "old" else "del",
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

"""Operations on files: those that saving needs, locks, files written whole, what refusals mean.

A crash test gives a writer a `FileSystem` whose n-th operation fails or ends the process. All locks
of the packages are `lock_file`, and all single files that must be whole whenever a process stops
are written by `replacing`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from trainer_toolkit.interrupts import signals_deferred

if sys.platform != "win32":
    import fcntl

# ---- file system

_NO_DIRECTORY_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""What the system answers for paths that lead to nothing."""


_ABOUT_RIGHTS: Final = "Check the owner and the permissions of the path and of the folders above it"
_REMEDIES: Final = {
    errno.ENOSPC: "Free space on its disk (`df`, and `df -i` for the number of files)",
    errno.EDQUOT: "Your share of its disk is used up: remove files of yours, or have it raised",
    errno.EFBIG: "Raise the limit on the size of files (`ulimit -f`), or use another file system",
    errno.EROFS: "Its disk can only be read: have it mounted for writing, or use another one",
    errno.EACCES: _ABOUT_RIGHTS,
    errno.EPERM: _ABOUT_RIGHTS,
    errno.EMFILE: "This process has as many open files as it may (`ulimit -n`); the disk itself "
    "may be fine: raise the limit, or close what your code leaves open",
    errno.ENFILE: "The machine has as many open files as it may; the disk itself may be fine: end "
    "other programs, or have the limit raised (`fs.file-max`)",
    errno.ENAMETOOLONG: "Give a shorter path",
    errno.EIO: "The disk or the way to it fails: see the system's log (`dmesg`), and use another",
}


def remedy(error: OSError) -> str:
    """Return what to do about a refusal of the system, as a sentence without its full stop."""
    return _REMEDIES.get(error.errno or 0, "Check the path, the permissions and the disk")


class FileSystem:
    """Operations on real files; every method does one thing that can fail or be interrupted."""

    def make_directory(self, path: Path) -> None:
        """Create a directory that must not exist yet."""
        path.mkdir()

    def create_file(self, path: Path) -> BinaryIO:
        """Open a new file for writing; it must not exist yet."""
        return path.open("xb")

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        """Append bytes to an open file, all of them: the system may take them in pieces."""
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]

    def sync_file(self, file: BinaryIO) -> None:
        """Wait until the content of an open file is on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        if os.name != "posix":
            return  # elsewhere directories cannot be opened
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems sync names by themselves and refuse to be asked.
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Put one file in the place of another, or where none is, in one step."""
        source.replace(target)

    def remove_file(self, path: Path) -> None:
        """Remove one file."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove one empty directory."""
        path.rmdir()


@contextlib.contextmanager
def replacing(target: Path, draft: Path, *, must_sync: bool = True) -> Iterator[BinaryIO]:
    """Open `draft` for writing; at the end of the block it takes the place of `target`.

    Whenever the process stops, the old content or the new one is there, whole. If the block or the
    disk fails, the old one stays and the draft is removed.

    Args:
        target: the file to replace or make.
        draft: a name beside it that no other process writes to.
        must_sync: wait until the content is on the disk; else a power failure may bring the old
            content back, or leave the new name on an empty file.
    """
    files = FileSystem()
    try:
        with draft.open("wb") as opened:
            yield opened
            if must_sync:
                files.sync_file(opened)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if must_sync:
        files.sync_directory(target.parent)


APPENDING: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND
"""How files are opened that grow line by line."""


def append_whole(descriptor: int, data: bytes) -> None:
    """Write all of the data behind what is in a file; nothing of it with an OSError."""
    before = os.fstat(descriptor).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def append_to(path: Path, data: bytes) -> None:
    """Write all of the data behind what is in the file at a path; nothing of it with an OSError.

    The file is made if there is none. An interrupt waits until it is closed again.
    """
    with signals_deferred():
        descriptor = os.open(path, APPENDING, 0o644)
        try:
            append_whole(descriptor, data)
        finally:
            os.close(descriptor)


def numbered_beside(path: Path, ending: str, *, first: int = 1) -> Path:
    """Return the first of `<path><ending>1`, `<path><ending>2` and so on that does not exist."""
    paths = (path.with_name(f"{path.name}{ending}{n}") for n in itertools.count(first))
    return next(found for found in paths if not os.path.lexists(found))


# ---- locks

_NO_LOCKS_HERE: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class NoLocksError(OSError):
    """The file system or the operating system has no locks; no process is kept away."""


def lock_file(
    descriptor: int,
    *,
    wait: bool = False,
    shared: bool = False,
    also_no_locks: Collection[int] = (),
) -> None:
    """Lock an open file or directory until it is closed, or the process has ended however it ends.

    It is `flock`: nothing is written for it, it moves along when the file is renamed, and all
    processes of the machine see it, those in other containers included. A forked process holds it,
    too.

    Args:
        descriptor: of the file.
        wait: whether to wait until others let go of it.
        shared: whether others may hold it in the same way.
        also_no_locks: numbers of errors (`errno`) that mean, for this kind of file, that the file
            system has no locks for it; for others they are errors.

    Raises:
        BlockingIOError: it is held elsewhere, in this process or another.
        OSError: the descriptor cannot be locked for another reason.
        NoLocksError: there are no locks here.
    """
    if sys.platform == "win32":
        raise NoLocksError(errno.ENOSYS, "no file locks on this operating system")
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE and error.errno not in also_no_locks:
            raise
        raise NoLocksError(error.errno, error.strerror) from error


def unlock_file(descriptor: int) -> None:
    """Let go of a lock, also for forked processes that have the descriptor."""
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_NO_LOCKS_ON_DIRECTORIES: Final = frozenset({errno.EBADF, errno.EINVAL})
"""EBADF: NFS locks exclusively only what can be written, and a directory cannot be."""


class PathLock:
    """Holds a file or directory that exists, until `release`, or its block or the process ends.

    The number of a process says less: after a restart another one may have it, in containers it
    often is the same one again, and a process in another container is not seen at all.

    Attributes:
        is_real: whether others are kept away; false where there are no locks.

    Args:
        path: the file or directory.

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
                self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may be a pipe
                with contextlib.suppress(NoLocksError):
                    lock_file(self._descriptor, also_no_locks=_NO_LOCKS_ON_DIRECTORIES)
                    self.is_real = True
        except BaseException:  # an interrupt has waited; nobody else would let go
            self.release()
            raise

    def __enter__(self) -> PathLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def holds(self, path: Path) -> bool:
        """Return whether what is locked is what is at `path` now."""
        if self._descriptor < 0:
            return path.exists()
        try:
            return os.path.samestat(os.fstat(self._descriptor), path.stat())
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

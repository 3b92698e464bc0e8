"""Operations on files: those that saving needs, strict reading, locks, whole files, hashes.

A crash test gives the writer a `FileSystem` whose n-th operation fails or ends the process; nothing
else in the package writes, renames or removes. All locks of the three packages are `lock_file`, and
all single files that must be whole whenever a process stops are written by `replacing`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import itertools
import os
import queue
import stat
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from checkpoints.errors import CheckpointCorruptError, CheckpointError, CheckpointUnreadableError
from checkpoints.interrupts import signals_deferred

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

    def rename(self, source: Path, target: Path) -> None:
        """Rename a directory; the target must not exist."""
        source.rename(target)

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


# ---- reading


def regular_file_size(path: Path) -> int | None:
    """Return the size in bytes of a regular file; None for a link, a directory or nothing.

    Raises:
        CheckpointUnreadableError: if the system does not let it be looked at.
    """
    try:
        status = path.lstat()
    except OSError as error:
        if error.errno not in NOTHING_THERE:
            raise unreadable(path, error) from error
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def read_regular_file(path: Path, *, num_bytes: int | None = None, max_bytes: int) -> bytes:
    """Return the content of a regular file, following no link and trusting no size.

    Args:
        path: the file.
        num_bytes: the size that it must have; None if any will do.
        max_bytes: refuse larger files before reading them.

    Raises:
        CheckpointCorruptError: if it is missing, a link, no regular file, or of another size.
        CheckpointUnreadableError: if the system does not let it be read.
    """
    with opened_regular_file(path, num_bytes=num_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise refused(path, f"has {size} bytes, more than the {max_bytes} it may have")
        with io.BufferedReader(file) as buffered:
            data = buffered.read(size + 1)
    if len(data) != size:
        raise refused(path, CHANGED)
    return data


@contextlib.contextmanager
def opened_regular_file(path: Path, *, num_bytes: int | None = None) -> Iterator[io.FileIO]:
    """Open a regular file for reading, following no link; whatever is read through it is this file.

    Raises:
        CheckpointCorruptError: if it is missing, a link, no regular file, or of another size.
        CheckpointUnreadableError: if the system does not let it be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():  # where the system has no O_NOFOLLOW
        raise refused(path, "is a link, which could lead anywhere")
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except FileNotFoundError as error:
        raise refused(path, "is missing") from error
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise refused(path, "is not a regular file")
        if num_bytes is not None and status.st_size != num_bytes:
            raise refused(path, f"has {status.st_size} bytes, and {num_bytes} were written")
        with io.FileIO(descriptor, closefd=False) as file:
            yield file
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise unreadable(path, error) from error
    finally:
        os.close(descriptor)


CHANGED: Final = "changed its size while it was read"


def refused(path: Path, problem: str) -> CheckpointCorruptError:
    """Return the error for a file that is not as it was written; `problem` says why."""
    return CheckpointCorruptError(
        f"{path} {problem}. Nothing was loaded. Use an earlier checkpoint or a fresh copy of "
        "this one."
    )


def unreadable(path: Path, error: OSError) -> CheckpointUnreadableError:
    """Return the error for a file that may be whole, and that the system does not let be read."""
    return CheckpointUnreadableError(
        f"{path} cannot be read ({error.strerror or error}). Nothing was loaded, and nothing is "
        f"known of its content. {remedy(error)}."
    )


# ---- hashing

_SMALL_BYTES: Final = 2**20
"""Below, starting a thread takes longer than hashing."""
FEW: Final = 1
"""Pieces that may wait to be hashed if each has memory of its own; two are no faster."""
ANY: Final = None
"""No limit, for pieces whose memory is there anyway: no thread waits for another."""


class StreamedHash:
    """The hash of pieces in order. A disk and SHA-256 are about equally fast, and both let go of
    the interpreter's lock, so large pieces are hashed by a thread of their own. Its life:

    `with StreamedHash(max_waiting=FEW) as digest:` `digest.update(piece)` again and again; a piece
    must stay as it is until the block is left. Then `digest.hexdigest()`.
    """  # noqa: D205, D415 - the first lines announce the list

    def __init__(self, *, max_waiting: int | None) -> None:
        """Nothing is added yet; at most `max_waiting` pieces wait, `FEW` or `ANY`."""
        self._digest = hashlib.sha256()
        # No `Queue` with a limit: an interrupt may leave its lock taken, see `interrupts`.
        self._pieces: queue.SimpleQueue[bytes | memoryview | None] = queue.SimpleQueue()
        self._free_places: queue.SimpleQueue[None] | None = None
        if max_waiting is not None:
            self._free_places = queue.SimpleQueue()
            for _ in range(max_waiting):
                self._free_places.put(None)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StreamedHash:
        return self

    def update(self, piece: bytes | memoryview) -> None:
        """Add a piece; waits while too many are waiting."""
        if self._thread is None and len(piece) >= _SMALL_BYTES:
            self._thread = self._started_thread()
        if self._thread is None:
            self._digest.update(piece)
        else:
            if self._free_places is not None:
                self._free_places.get()
            self._pieces.put(piece)

    def hexdigest(self) -> str:
        """Return the hash of all pieces, as hexadecimal digits; after the block."""
        return self._digest.hexdigest()

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()

    def _started_thread(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._work, name="hashing", daemon=True)
        try:
            with signals_deferred():
                thread.start()
        except RuntimeError:
            return None  # there are too many, or the interpreter ends: it goes without
        return thread

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            if self._free_places is not None:
                self._free_places.put(None)
            self._digest.update(piece)

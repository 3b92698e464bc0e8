"""A lock on a directory; the operating system takes it back when its process ends, however it ends.

It is `flock` on the directory itself: nothing is written for it, it moves along when the directory
is renamed, and it is seen by all processes of the machine, those in other containers included. The
number of a process says less: after a restart another one may have it, in containers it often is
the same one again, and a process in another container is not seen at all.

Where the file system or the system has no such locks (some network file systems), `is_real` is
false and nobody is kept away.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Final

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

"""Folders that belong to this user alone, in places where others can write, too.

    folder = PrivateFolder("/tmp/local-trainer-0-x1y2z3")
    folder.make()                       with mode 0700, unless it is there
    folder.write("key", data)           the file appears whole or not at all
    folder.read("key")                  raises NotPrivateError if others could have written it

Anybody can make a folder of a known name in the folder for temporary files. So owner and mode are
checked whenever a folder is used, not only when it is made. The check and the use go through the
same open folder: it cannot be exchanged in between.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainer_toolkit.files import lock_file

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without O_NONBLOCK, opening a FIFO waits for a writer.
_OPEN_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK
_NOT_OURS: Final = frozenset({errno.EACCES, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EPERM})
"""What opening says of links, of other kinds of files, and of what another user keeps closed."""

_DRAFT_SUFFIX: Final = ".draft"


class NotPrivateError(OSError):
    """A folder or file that this user alone should have is another user's, or open to others."""


@dataclass(frozen=True)
class PrivateFolder:
    """A folder that only this user can enter, with files directly in it.

    Every method raises `NotPrivateError` if it is not so, and `FileNotFoundError` if there is no
    such folder or file.

    Attributes:
        path: where it is; the last step of the path must not be a link.
    """

    path: str

    def make(self) -> None:
        """Makes the folder, and those above it, unless they are there; checks it."""
        missing = Path(self.path)
        to_make = []
        while not os.path.lexists(missing):
            to_make.append(missing)
            missing = missing.parent
        for folder in reversed(to_make):
            with contextlib.suppress(FileExistsError):  # another process was quicker
                folder.mkdir(mode=0o700)
        self.check()

    def check(self) -> None:
        """Raises unless the folder is there and private."""
        with self.opened():
            pass

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The descriptor of the folder, which was checked through this very descriptor."""
        descriptor = _open(self.path, _OPEN_FOLDER, self.path)
        try:
            _check(os.fstat(descriptor), self.path, forbidden_mode=0o077)
            yield descriptor
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """The names of all that is in it."""
        with self.opened() as descriptor:
            return sorted(os.listdir(descriptor))  # noqa: PTH208 - a path may lead elsewhere by now

    def read(self, name: str) -> bytes:
        """The content of a file, which must be a regular one of this user."""
        with self.opened_file(name, os.O_RDONLY) as file:
            pieces = []
            while piece := os.read(file, 2**20):
                pieces.append(piece)
        return b"".join(pieces)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file of mode 0600, or replaces it; it appears whole or not at all."""
        draft = f"{name}.{secrets.token_hex(4)}{_DRAFT_SUFFIX}"
        with self.opened() as folder:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                with os.fdopen(_open_checked(folder, draft, flags, self.path), "wb") as file:
                    file.write(data)
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise

    def unlink(self, *names: str) -> None:
        """Removes files; those that are not there are left out."""
        with self.opened() as folder:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)

    def open_file(self, name: str, flags: int) -> int:
        """The descriptor of a file in it, checked through itself; a new one gets mode 0600."""
        with self.opened() as folder:
            return _open_checked(folder, name, flags, self.path)

    @contextlib.contextmanager
    def opened_file(self, name: str, flags: int) -> Iterator[int]:
        """The same, closed at the end of the block."""
        descriptor = self.open_file(name, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def locked(self, name: str, *, wait: bool = True, shared: bool = False) -> Iterator[int]:
        """Inside the block no other process holds the lock; the kernel gives it back at the latest.

        Args:
            name: of the file that is locked; it is made if the lock is waited for.
            wait: whether to wait for others; else `BlockingIOError` if it is held.
            shared: whether others may hold it in the same way.
        """
        makes = os.O_CREAT if wait and not shared else 0
        with self.opened_file(name, os.O_RDWR | makes) as file:
            lock_file(file, wait=wait, shared=shared)
            yield file

    def status(self, name: str) -> os.stat_result:
        """Size and times of a file in it."""
        with self.opened_file(name, os.O_RDONLY) as file:
            return os.fstat(file)

    def remove(self) -> None:
        """Removes the files in it, and then the folder.

        Folders in it are not entered: none is ours, so they stay, and this one with them.
        """
        with self.opened() as folder:
            for name in os.listdir(folder):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)
        with contextlib.suppress(OSError):
            Path(self.path).rmdir()


def is_draft(name: str) -> bool:
    """Whether a file is one that `PrivateFolder.write` has not finished."""
    return name.endswith(_DRAFT_SUFFIX)


def is_own_folder(path: str) -> bool:
    """Whether this user owns a folder, so that one of ours may be made in it."""
    try:
        found = os.stat(path)  # noqa: PTH116 - it may be a link: to where does not matter
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _open_checked(folder: int, name: str, flags: int, path: str) -> int:
    descriptor = _open(name, flags | _OPEN_FILE, f"{path}/{name}", folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivateError(f"{path}/{name} is no regular file")
        _check(found, f"{path}/{name}", forbidden_mode=0o022)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(name: str, flags: int, path: str, folder: int | None = None) -> int:
    try:
        return os.open(name, flags, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        raise NotPrivateError(
            f"{path} cannot be opened ({error.strerror}); it is a link, of another kind, or not "
            "yours"
        ) from error


def _check(found: os.stat_result, path: str, *, forbidden_mode: int) -> None:
    if found.st_uid != os.geteuid():
        raise NotPrivateError(
            f"{path} belongs to the user with the id {found.st_uid}, and not to you "
            f"({os.geteuid()})"
        )
    if stat.S_IMODE(found.st_mode) & forbidden_mode:
        raise NotPrivateError(
            f"{path} can be entered by other users or written by them (its mode is "
            f"{stat.S_IMODE(found.st_mode):04o})"
        )

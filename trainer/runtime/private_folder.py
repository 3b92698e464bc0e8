"""Folders that belong to this user alone, and sockets in them.

    folder = PrivateFolder("/tmp/local-trainer-0-x1y2z3")
    folder.make()                       with mode 0700, unless it is there
    folder.write("names", data)         the file appears whole or not at all

Other users are kept out by the mode of the folder; it is checked when the folder is made or taken
into use. Who calls or answers at a socket must be this user, too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainer_toolkit.files import lock_file, replacing

_DRAFT_SUFFIX: Final = ".draft"
_PEER_OF_LINUX: Final = struct.Struct("iII")  # struct ucred: pid, uid, gid
_PEER_OF_MACOS: Final = (0, 1, struct.Struct("II68x"))  # SOL_LOCAL, LOCAL_PEERCRED, struct xucred


class NotPrivateError(OSError):
    """What this user alone should have is another user's, or open to others."""


@dataclass(frozen=True)
class PrivateFolder:
    """A folder that only this user can enter, with files directly in it.

    Attributes:
        path: where it is.
    """

    path: str

    def make(self) -> None:
        """Makes the folder, and those above it, unless they are there; checks it.

        Raises:
            NotPrivateError: as `check`.
        """
        to_make = [Path(self.path)]
        while not to_make[-1].parent.exists():
            to_make.append(to_make[-1].parent)
        for folder in reversed(to_make):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        self.check()

    def check(self) -> None:
        """Raises unless the folder is there and private.

        Raises:
            FileNotFoundError: it is not there.
            NotPrivateError: it is a link or a file, another user's, or others can enter it.
        """
        found = Path(self.path).lstat()
        mode = stat.S_IMODE(found.st_mode)
        if not stat.S_ISDIR(found.st_mode):
            raise NotPrivateError(f"{self.path} is no folder")
        if found.st_uid != os.geteuid():
            raise NotPrivateError(
                f"{self.path} belongs to the user with the id {found.st_uid}, and not to you "
                f"({os.geteuid()})"
            )
        if mode & 0o077:
            raise NotPrivateError(
                f"{self.path} can be entered by other users (its mode is {mode:04o})"
            )

    def names(self) -> list[str]:
        """The names of all that is in it."""
        return sorted(file.name for file in Path(self.path).iterdir())

    def file(self, name: str) -> Path:
        """Where a file in it is."""
        return Path(self.path, name)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file, or replaces it; it appears whole or not at all."""
        draft = self.file(f"{name}.{secrets.token_hex(4)}{_DRAFT_SUFFIX}")
        with replacing(self.file(name), draft, must_sync=False) as file:
            file.write(data)

    def unlink(self, *names: str) -> None:
        """Removes files; those that are not there are left out."""
        for name in names:
            self.file(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, name: str, *, wait: bool = True, shared: bool = False) -> Iterator[None]:
        """Inside the block no other process holds the lock; the kernel gives it back at the latest.

        Args:
            name: of the file that is locked; it is made if the lock is waited for.
            wait: whether to wait for others; else `BlockingIOError` if it is held.
            shared: whether others may hold it in the same way.
        """
        makes = os.O_CREAT if wait and not shared else 0
        descriptor = os.open(self.file(name), os.O_RDWR | makes, 0o600)
        try:
            lock_file(descriptor, wait=wait, shared=shared)
            yield
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Removes the files in it, and then the folder.

        Folders in it are not entered: none is ours, so they stay, and this one with them.
        """
        for name in self.names():
            with contextlib.suppress(OSError):
                self.file(name).unlink()
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


def check_peer(joined: socket.socket) -> None:
    """Raises a NotPrivateError if another user's process is at the other end of a local socket."""
    uid = peer_uid(joined)
    if uid is not None and uid != os.geteuid():
        raise NotPrivateError(f"the user with the id {uid} is at the other end of a socket")


def peer_uid(joined: socket.socket) -> int | None:
    """The user at the other end of a local socket; None where the system does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is not None:  # Linux
        data = joined.getsockopt(socket.SOL_SOCKET, option, _PEER_OF_LINUX.size)
        return int(_PEER_OF_LINUX.unpack(data)[1])
    if sys.platform == "darwin":
        level, option, layout = _PEER_OF_MACOS
        return int(layout.unpack(joined.getsockopt(level, option, layout.size))[1])
    return None

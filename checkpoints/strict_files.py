"""Files read strictly, following no link and trusting no size, and the hashes of their content."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import queue
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from checkpoints.errors import CheckpointCorruptError, CheckpointError, CheckpointUnreadableError
from trainer_toolkit.files import NOTHING_THERE, remedy
from trainer_toolkit.interrupts import signals_deferred

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

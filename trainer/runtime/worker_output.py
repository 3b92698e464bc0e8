"""What workers print: whole lines, although several processes write to one place.

Python collects what is printed into a pipe or file and writes it in blocks, whose borders are in
the middle of lines; those of two processes then end up in each other. The operating system keeps a
write to a pipe in one piece if it is small (`PIPE_BUF`, 4096 bytes on Linux).
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from typing import Any, BinaryIO, Final, cast

_ONE_PIECE_BYTES: Final[int] = getattr(select, "PIPE_BUF", 512)


class WholeLines(io.BufferedIOBase):
    """Keeps the beginning of a line until its end comes, then writes it.

    Several lines at once are written in pieces that end with a line, except within a line that is
    longer than a piece can be. `flush()` writes what there is.
    """

    def __init__(self, descriptor: int) -> None:
        """Writes to an open file; closing this object does not close that."""
        self._descriptor = descriptor
        self._beginning = b""

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Whether it writes to a terminal."""
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        """The number of the open file."""
        return self._descriptor

    def write(self, data: Any) -> int:
        """Takes bytes; returns how many, which is all of them."""
        everything = self._beginning + bytes(data)
        end = everything.rfind(b"\n") + 1
        if len(everything) - end > _ONE_PIECE_BYTES:
            end = len(everything)
        self._beginning = everything[end:]
        self._write_out(everything[:end])
        return len(data)

    def flush(self) -> None:
        """Writes the line that has no end yet."""
        rest, self._beginning = self._beginning, b""
        self._write_out(rest)

    def _write_out(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data[: _end_of_piece(data)]) :]


def _end_of_piece(data: bytes) -> int:
    if len(data) <= _ONE_PIECE_BYTES:
        return len(data)
    return data.rfind(b"\n", 0, _ONE_PIECE_BYTES) + 1 or _ONE_PIECE_BYTES


def print_whole_lines() -> None:
    """Lets what this process prints appear line by line, each in one piece."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # It may be missing or closed, or an object of its own kind without a file.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            lines = io.TextIOWrapper(
                cast(BinaryIO, WholeLines(stream.fileno())),
                encoding=stream.encoding,
                errors=stream.errors,
                write_through=True,  # line by line is our business
            )
            setattr(sys, name, lines)


def flush_output() -> None:
    """Lets a line that is not finished yet appear now, and not be lost later."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the stream may be closed or missing
            stream.flush()

"""The rows of a run: a file with a line of JSON per row, each whole or not at all.

Everything else that shows results follows this file: see `callbacks.ready_made.followers`. So it is
the one place where rows are cut back and a torn line is dropped. A row is appended in one piece;
if the process is killed meanwhile, the line has no end, and is dropped the next time that the file
is written to. A row that takes the place of others is written, with those that stay, to a file
beside, which then takes the name.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from trainer_toolkit.files import append_to, numbered_beside, replacing
from trainer_toolkit.interrupts import signals_deferred

# ---- values
#
# JSON as other programs read it has neither NaN nor arrays: they are null and lists there. An entry
# of its own says which, so that rows that are read here are what they were.

_EXACT: Final = "_exact"
"""A list of [path, kind] for the values of a row that JSON cannot hold, the inner ones first."""

_NOT_FINITE: Final = frozenset({"nan", "inf", "-inf"})
_DTYPES: Final = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)

_Odd = list[tuple[tuple[str | int, ...], str]]


def jsonable(value: Any) -> Any:
    """The value as `json.dumps(..., allow_nan=False)` takes it; what JSON lacks becomes text."""
    return _plain(value, (), [])


def _plain(value: Any, path: tuple[str | int, ...], odd: _Odd) -> Any:
    """The same; notes in `odd` what `_as_it_was` needs to give the value back."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item, (*path, str(key)), odd) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, (*path, index), odd) for index, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        kind = value.dtype.kind
        is_plain = kind in "biu" or (kind == "f" and bool(np.isfinite(value).all()))
        plain = value.tolist() if is_plain else _plain(value.tolist(), path, odd)
        if value.dtype.name in _DTYPES:
            odd.append((path, value.dtype.name))
        return plain
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        odd.append((path, repr(float(value))))
        return None
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)


def row_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a result: all but the config, which the checkpoint has."""
    return {key: value for key, value in result.items() if key != "config"}


def encoded_row(row: Mapping[str, Any]) -> bytes:
    """The line of a row.

    Raises:
        Exception: whatever the text of a value of the user raises; RecursionError for one that
            holds itself.
    """
    try:
        return json.dumps(row, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError):  # most rows of functions are plain: ten times as fast
        odd: _Odd = []
        plain = _plain(row, (), odd)
        if odd:
            plain[_EXACT] = odd
        return json.dumps(plain, allow_nan=False).encode() + b"\n"


def decoded_row(line: bytes) -> dict[str, Any] | None:
    """The row of a line; None if it is not whole, or no row."""
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
        return _as_it_was(row) if isinstance(row, dict) else None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None  # it may be a stranger's


def _as_it_was(row: dict[str, Any]) -> dict[str, Any]:
    for (*way, last), kind in row.pop(_EXACT, ()):
        place: Any = row
        for part in way:
            place = place[part]
        if kind in _NOT_FINITE:
            place[last] = float(kind)
        elif kind in _DTYPES:
            place[last] = np.array(place[last], kind)
        else:
            raise ValueError(kind)
    return row


def iteration_of(row: Mapping[str, Any]) -> int:
    """The iteration that a row belongs to; a ValueError if the row does not say."""
    iteration = row.get("training_iteration")
    if isinstance(iteration, bool) or not isinstance(iteration, int | np.integer):
        raise ValueError(
            f"a result with training_iteration={iteration!r} cannot be written: the iteration, an "
            "integer, says where its row belongs. Do not remove or replace it in on_train_result."
        )
    return int(iteration)


def _iteration(row: dict[str, Any] | None) -> int | None:
    """The iteration of a row; None if it is no row of a run."""
    try:
        number = iteration_of(row or {})
    except ValueError:
        return None
    return number if number > 0 else None


def _has_end(line: bytes) -> bool:
    return line.endswith(b"\n")


def _is_row(line: bytes) -> bool:
    """Whether a line with an end holds a row, as far as can be seen without reading it."""
    return line[:1] == b"{" and line[-2:] == b"}\n"


# ---- file

_LOGGER = logging.getLogger(__name__)
_TAIL_BYTES: Final = 2**16
_CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True)
class Bookmark:
    """A place in a rows file, and what stands before it.

    Attributes:
        number: of the row that ends there; 0 before the first.
        offset: where, in bytes.
        crc32: of everything before.
    """

    number: int
    offset: int
    crc32: int


START: Final = Bookmark(0, 0, 0)


@dataclass(frozen=True)
class Line:
    """A row as it stands in the file.

    Attributes:
        end: the place behind it; its number is the row's.
        data: the line; what is no row, and stands between the row before and this one, included.
        read: the row, if it was read already.
    """

    end: Bookmark
    data: bytes
    read: dict[str, Any] | None = None

    @property
    def row(self) -> dict[str, Any] | None:
        """The row; None if it cannot be read."""
        return decoded_row(self.data) if self.read is None else self.read


class RowsFile:
    """One row per line, in the order of their numbers.

    The file is looked at when it is first written to, and again when others changed it; in between,
    appending costs one open, write and close. No file stays open.

    Args:
        path: the file; its folder is made when it is needed.
        counts_lines: the number of a row is that of its line, and a line that cannot be read is the
            end. Else it is the row's iteration, and what is no row is passed over.
    """

    def __init__(self, path: str | Path, *, counts_lines: bool = False) -> None:
        self.path = Path(path).expanduser().resolve()
        self._counts_lines = counts_lines
        self._draft = self.path.with_name(f"{self.path.name}.tmp")
        self._size = -1
        self._last = 0
        self._newest = b""

    # ---- reading

    def lines(self, behind: Bookmark = START) -> Iterator[Line]:
        """All whole rows behind a place, in order; none if the file is not there."""
        at, data = behind, b""
        for text in self._texts(behind.offset):
            data += text
            row = None if self._counts_lines else decoded_row(text)
            number = at.number + 1 if self._counts_lines else _iteration(row)
            if self._counts_lines and not _is_row(text):
                return
            if number is not None:
                at = Bookmark(number, at.offset + len(data), zlib.crc32(data, at.crc32))
                yield Line(at, data, row)
                data = b""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row that can be read, as it was."""
        for line in self.lines():
            if (row := line.row) is None:
                return
            yield row

    def last_row(self, *, until: int | None = None) -> dict[str, Any] | None:
        """The newest row, of those before a place; None if there is none. Reads the end only."""
        if not self.path.exists():
            return None
        with self.path.open("rb") as file:
            end = file.seek(0, os.SEEK_END) if until is None else until
            num_bytes = _TAIL_BYTES
            while True:
                begin = file.seek(max(0, end - num_bytes))
                lines = file.read(end - begin).splitlines(keepends=True)
                rows = map(decoded_row, reversed(lines[1:] if begin else lines))
                found = (row for row in rows if row and (self._counts_lines or _iteration(row)))
                if (row := next(found, None)) or not begin:
                    return row
                num_bytes *= 8

    def agreed(self, bookmarks: Sequence[Bookmark], since: Bookmark = START) -> list[Bookmark]:
        """Those of some bookmarks, by number, before which the file is what it was.

        What is before `since`, a bookmark before them, is not looked at.
        """
        found: list[Bookmark] = []
        at, crc32 = since.offset, since.crc32
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(at)
            for bookmark in bookmarks:
                if bookmark.offset < at:
                    break
                while chunk := file.read(min(_CHUNK_BYTES, bookmark.offset - at)):
                    at += len(chunk)
                    crc32 = zlib.crc32(chunk, crc32)
                if (at, crc32) != (bookmark.offset, bookmark.crc32):
                    break
                found.append(bookmark)
        return found

    def _texts(self, offset: int = 0) -> Iterator[bytes]:
        """All lines that have an end, from a place on."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(offset)
                yield from itertools.takewhile(_has_end, file)

    # ---- writing

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a row; one of its number and all later ones are dropped.

        Raises:
            ValueError: it has no iteration.
            OSError: the file cannot be read or written; what was in it stays.
        """
        self.append_line(0 if self._counts_lines else iteration_of(row), encoded_row(row))

    def append_line(self, number: int, line: bytes) -> None:
        """Writes the line of a row; see `append`."""
        last = self._look()
        if self._counts_lines:
            number = last + 1
        elif number == last and line == self._newest:
            return
        if number > last:
            if self._size < 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            append_to(self.path, line)
        else:
            self._size = -1  # until it is known to be written
            with signals_deferred():
                self._replace_from(number, line)
        self._remember(number, line)

    def keep(self, number: int) -> int:
        """Drops the rows behind this one, and a torn line; returns the newest that is left."""
        size = last = 0
        if not self._counts_lines:  # of a trial, the journal says what there is
            self._look()
        for line in self.lines():
            if line.end.number > number:
                break
            size, last = line.end.offset, line.end.number
        if size < self._current_size():
            os.truncate(self.path, size)
        self._remember(last, b"")
        return last

    def has(self, number: int) -> bool:
        """Whether it has this row, or later ones."""
        return self._look() >= number

    def set_aside(self, what: str = "the results of another run") -> None:
        """Gives the file another name, and says so; nothing if it is empty."""
        if self._current_size() > 0:
            aside = numbered_beside(self.path, ".")
            self.path.rename(aside)
            _LOGGER.warning("%s held %s. That file is now %s.", self.path, what, aside.name)
        self._remember(0, b"")

    def sync(self) -> None:
        """Waits until the rows are on the disk."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _look(self) -> int:
        """The number of the newest row; 0 if there is none. A torn line is cut off."""
        size = self._current_size()
        if size == self._size:
            return self._last
        self._draft.unlink(missing_ok=True)  # of a process that was killed
        last = whole = num_others = 0
        for text in self._texts():
            whole += len(text)
            if self._counts_lines:
                last += 1
            elif (number := _iteration(decoded_row(text))) is None:
                num_others += 1
            else:
                last = number
        if num_others and not last:
            self.set_aside("something else than the rows of a run")
            return 0
        if num_others:
            _LOGGER.warning(
                "%d lines of %s are no rows, or damaged. They stay, and are passed over.",
                num_others,
                self.path,
            )
        if whole < size:
            _LOGGER.warning(
                "The last line of %s was not written to its end, as happens when a process is "
                "killed. It is dropped; a run that goes on writes it again.",
                self.path,
            )
            os.truncate(self.path, whole)
        self._remember(last, b"")
        return last

    def _replace_from(self, number: int, line: bytes) -> None:
        """Writes a line behind the rows before it; all of that takes the file's place at once."""
        with replacing(self.path, self._draft) as file:
            for kept in self.lines():
                if kept.end.number >= number:
                    break
                file.write(kept.data)
            file.write(line)

    def _remember(self, last: int, newest: bytes) -> None:
        self._last, self._newest, self._size = last, newest, self._current_size()

    def _current_size(self) -> int:
        """In bytes; -1 if there is no file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return -1
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{self.path} is no file. Give the path of a file")
        return found.st_size

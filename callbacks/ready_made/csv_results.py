"""A results file as a table whose columns may grow; knows nothing of callbacks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from callbacks.ready_made.line_file import HEADER, LineFile
from callbacks.ready_made.result_values import cells_of, iteration_of

_ITERATION = "training_iteration"


class CSVResults:
    r"""Results as a table: one column per slash path, one line per row, NaN as an empty cell.

    A column that appears late is added to the header; the rows before have an empty cell there.
    The header is read from the file, so a resumed run goes on with the same columns in the same
    order. Lists and small arrays are JSON text; what has more than 1000 values is described ("array
    of shape (84, 84), float32"): JSON lines have the values. A line break inside a text is written
    as `\n`, so that every row is one line.

    Args:
        path: The file.
    """

    holds_points = True  # an evaluation that a result repeats would be a point that nobody measured

    def __init__(self, path: str | Path) -> None:
        self._file = LineFile(path, self._iteration_of)
        self._columns: list[str] = []

    @property
    def path(self) -> Path:
        """The file, as an absolute path."""
        return self._file.path

    def __str__(self) -> str:
        return str(self.path)

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one row; rows of the same iteration and of later ones are dropped first.

        Raises:
            ValueError: `training_iteration` is missing.
            RuntimeError: Somebody else writes to this file.
            OSError: It cannot be written.
        """
        iteration, cells = iteration_of(row), cells_of(row)
        last = self._file.look(to_write=iteration)
        known = [] if self._file.is_empty() else self._columns
        new = [name for name in cells if name not in set(known)]
        columns = known + new
        line = _line(cells.get(name, "") for name in columns)
        if not known:
            self._file.append(iteration, _line(columns) + b"\n" + line)
        elif new or iteration <= last:
            header, padding = _line(columns), b"," * len(new)
            self._file.rewrite(
                before=iteration,
                change=lambda old, is_header: header if is_header else old + padding,
                then=(iteration, line),
            )
        else:
            self._file.append(iteration, line)
        self._columns = columns

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Makes room for the first row of a new run: an older run's file gets another name."""
        self._file.start_anew(iteration_of(row))

    def _iteration_of(self, line: bytes, *, is_first: bool, is_terminated: bool) -> int | None:
        """Reads a line as what it is in this table; the header is learnt on the way."""
        if is_first:
            self._columns = []
        if not is_terminated:
            return None  # its last number may be torn, which nothing else would tell
        try:
            cells = next(csv.reader([line.decode()]))
        except (UnicodeDecodeError, csv.Error):
            return None
        if is_first and _ITERATION in cells:
            self._columns = cells
            return HEADER
        if not self._columns or len(cells) != len(self._columns):
            return None
        text = cells[self._columns.index(_ITERATION)]
        return int(text) if text.isdecimal() and int(text) > HEADER else None


def _line(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(list(cells))
    # Names of files may hold characters that UTF-8 has no bytes for.
    return text.getvalue().encode("utf-8", errors="backslashreplace")

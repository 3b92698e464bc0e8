"""A results file with one JSON object per line; knows nothing of callbacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from callbacks.ready_made.line_file import HEADER, LineFile
from callbacks.ready_made.result_values import iteration_of, jsonable


class JSONLinesResults:
    """Results as JSON lines: nested as they are, arrays as lists, NaN and infinities as null.

        results = JSONLinesResults("results.jsonl")
        results.append(row)             # a row of an iteration that is there already replaces it
        results.forget_after(10)        # before iterations from 11 on are made again

    Torn and unreadable lines are left out with one warning; see `LineFile`.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = LineFile(path, _iteration_of)

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
        iteration = iteration_of(row)
        line = json.dumps(jsonable(row), allow_nan=False).encode()
        last = self._file.look(to_write=iteration)
        if iteration <= last:
            self._file.rewrite(before=iteration, then=(iteration, line))
        else:
            self._file.append(iteration, line)

    def forget_after(self, iteration: int) -> None:
        """Drops the rows of later iterations, and a torn last line."""
        self._file.forget_after(iteration)

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Makes room for the first row of a new run: an older run's file gets another name."""
        self._file.start_anew(iteration_of(row))

    def last_iteration(self) -> int:
        """The last iteration that is written; 0 if there is none. Repairs a damaged file."""
        return self._file.look()

    def last(self) -> dict[str, Any] | None:
        """The newest row that can be read, with null as None; None if there is none."""
        line = None
        for iteration, found in self._file.rows():
            line = found if iteration != HEADER else line
        if line is None:
            return None
        row: dict[str, Any] = json.loads(line)
        return row


def _iteration_of(line: bytes, *, is_first: bool, is_terminated: bool) -> int | None:
    del is_first, is_terminated  # an object that is torn is no JSON
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: no UTF-8, or no JSON
        return None
    if not isinstance(row, dict):
        return None
    iteration = row.get("training_iteration", HEADER)  # lines of the user stay
    return iteration if isinstance(iteration, int) and iteration >= 0 else None

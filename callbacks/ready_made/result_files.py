"""Results files with one row per iteration, CSV or JSON: appended to, cut back, repaired."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from checkpoints.run_directories import moved_path

# ---- line file
#
# A file with one row per line and iteration: appended to, cut back, repaired, never half written.
# What a row looks like is the business of `jsonl_results` and `csv_results`.
#
# Why a kill at any moment does no harm: a row is appended in one piece, so that only the last
# line can be torn, and a torn line is noticed the next time the file is opened. Everything else
# is written to a file beside it, which then takes its name.

_LOGGER = logging.getLogger(__name__)

HEADER: Final = 0
"""The iteration of a line that stays however far a file is cut back."""


class IterationOfLine(Protocol):
    """Finds out which iteration a line belongs to."""

    def __call__(self, line: bytes, *, is_first: bool, is_terminated: bool) -> int | None:
        """The iteration, `HEADER`, or None for a line that is damaged.

        Args:
            line: Without its end.
            is_first: It is the first line of the file.
            is_terminated: A line end follows; a line without one may be torn.
        """


@dataclass(frozen=True, kw_only=True)
class _Survey:
    """What a file holds.

    Attributes:
        num_good: Lines that can be read.
        num_damaged: Lines that cannot.
        last_iteration: The highest iteration; 0 if there is none.
        is_last_damaged: Whether the last line cannot be read.
        is_terminated: Whether the last line has an end.
    """

    num_good: int
    num_damaged: int
    last_iteration: int
    is_last_damaged: bool
    is_terminated: bool


class LineFile:
    """One row per line, in the order of their iterations.

    The file is looked at when it is first written to, and again whenever somebody else changed it
    or a write failed; in between, appending costs one open, write and close. No file stays open.

    Args:
        path: The file; its folder is made when it is needed.
        iteration_of: Which iteration a line belongs to.
    """

    def __init__(self, path: str | Path, iteration_of: IterationOfLine) -> None:
        self.path = Path(path).expanduser().resolve()
        self._iteration_of = iteration_of
        self._last_iteration: int | None = None  # None: not known, look at the file
        self._size = 0
        self._damage_told: _Survey | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, path=moved_path(state["path"]))
        if self.path != state["path"]:
            self._last_iteration = None  # another file

    # ---- reading

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """(iteration, line) of every line that can be read, header included."""
        if self.path.exists():
            yield from ((number, line) for number, line, _ in self._lines() if number is not None)

    def _lines(self) -> Iterator[tuple[int | None, bytes, bool]]:
        """(iteration or None, line, whether it is terminated) of all lines that are not empty."""
        with self.path.open("rb") as file:
            for index, raw in enumerate(file):
                line, is_terminated = raw.rstrip(b"\r\n"), raw.endswith(b"\n")
                if line:
                    number = self._iteration_of(
                        line, is_first=index == 0, is_terminated=is_terminated
                    )
                    yield number, line, is_terminated

    def _survey(self) -> _Survey:
        num_good = num_damaged = last_iteration = 0
        is_last_damaged, is_last_terminated = False, True
        for iteration, _, is_terminated in self._lines():
            is_last_damaged, is_last_terminated = iteration is None, is_terminated
            num_damaged += is_last_damaged
            num_good += not is_last_damaged
            last_iteration = max(last_iteration, iteration or 0)
        return _Survey(
            num_good=num_good,
            num_damaged=num_damaged,
            last_iteration=last_iteration,
            is_last_damaged=is_last_damaged,
            is_terminated=is_last_terminated,
        )

    # ---- writing

    def look(self, *, to_write: int | None = None) -> int:
        """The last iteration in the file, 0 if it has none; damage is repaired first.

        Args:
            to_write: The iteration whose row is about to be written.

        Raises:
            RuntimeError: Somebody else wrote this and later iterations since the last write: their
                rows are not ours to drop.
            OSError: It cannot be read or repaired, or it is a device or a folder.
        """
        known, known_size = self._last_iteration, self._size
        size = self._current_size()
        if size >= 0 and not is_file_or_pipe(self.path):
            raise OSError(
                f"{self.path} is neither a file nor a pipe, so that rows can be neither read nor "
                "replaced there. Give the path of a file."
            )
        if known is not None and size == known_size:
            return known
        last = self._repaired_last_iteration() if size >= 0 else 0
        if known is not None and to_write is not None and known < to_write <= last:
            self._last_iteration, self._size = known, known_size  # so that it is noticed again
            raise RuntimeError(
                f"{self.path} got rows up to iteration {last} from somebody else, so that the row "
                f"of iteration {to_write} has no place there. Give every run a file of its own."
            )
        self._remember(last)
        return last

    def append(self, iteration: int, line: bytes) -> None:
        """Writes a line behind all others, or nothing of it."""
        self._last_iteration = None  # until it is known to be written
        self.path.parent.mkdir(parents=True, exist_ok=True)
        before = self._current_size()
        try:
            with self.path.open("ab") as file:
                file.write(line + b"\n")
        except OSError:
            self._take_back(before)
            raise
        self._remember(iteration)

    def _take_back(self, size: int) -> None:
        """Takes off what a failed write left: half a line is no damage that somebody must know."""
        with contextlib.suppress(OSError):  # a pipe; the next look repairs what is left of a file
            if self.path.is_file():
                os.truncate(self.path, max(0, size))

    def rewrite(
        self,
        *,
        before: int,
        change: Callable[[bytes, bool], bytes] | None = None,
        then: tuple[int, bytes] | None = None,
    ) -> None:
        """Keeps the rows of earlier iterations, in a file that replaces the old one at once.

        Args:
            before: Rows of this iteration and later ones are dropped.
            change: Called with each line that is kept and whether it is the header; gives the line
                to write.
            then: The (iteration, line) to write behind them.
        """
        self._last_iteration = None
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        last = 0
        with temporary.open("wb") as file:
            for iteration, line in self.rows():
                if iteration < before or iteration == HEADER:
                    last = max(last, iteration)
                    kept = line if change is None else change(line, iteration == HEADER)
                    file.write(kept + b"\n")
            if then is not None:
                last = then[0]
                file.write(then[1] + b"\n")
            file.flush()
            os.fsync(file.fileno())  # or a power failure could leave the new name on an empty file
        shutil.copymode(self.path, temporary)
        temporary.replace(self.path)
        self._remember(last)

    def forget_after(self, iteration: int) -> None:
        """Drops the rows of all later iterations; a file that is not there stays away."""
        if self.look() > iteration:
            self.rewrite(before=iteration + 1)

    def start_anew(self, iteration: int) -> None:
        """Gives the file another name if it holds this iteration of a run that began earlier."""
        if self.look() < iteration:
            return
        aside = free_name(self.path)
        self.path.rename(aside)
        self._last_iteration = None
        _LOGGER.warning(
            "%s holds the results of another run, which this one does not go on with. That file is "
            "now %s.",
            self.path,
            aside.name,
        )

    def is_empty(self) -> bool:
        """Whether nothing is in the file, or it does not exist."""
        return self._current_size() <= 0

    def _remember(self, last_iteration: int) -> None:
        self._last_iteration = last_iteration
        self._size = self._current_size()

    def _current_size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else -1

    # ---- damage

    def _repaired_last_iteration(self) -> int:
        survey = self._survey()
        if survey.num_damaged:
            self._tell_damage(survey)
        if survey.num_damaged or not survey.is_terminated:
            self.rewrite(before=survey.last_iteration + 1)
        return survey.last_iteration

    def _tell_damage(self, survey: _Survey) -> None:
        if survey == self._damage_told:
            return  # it could not be repaired, and is told
        self._damage_told = survey
        if survey.num_damaged == 1 and survey.is_last_damaged and survey.num_good:
            _LOGGER.warning(
                "The last line of %s was not written to its end, as happens when a process is "
                "killed. It is dropped; a resumed run writes it again.",
                self.path,
            )
            return
        # Not the usual torn line: it may be another file altogether, so nothing of it gets lost.
        kept = free_name(self.path, "damaged")
        shutil.copy2(self.path, kept)
        _LOGGER.warning(
            "%s is damaged: %d of its %d lines cannot be read and are left out. The other lines "
            "stay; the damaged file is kept as %s.",
            self.path,
            survey.num_damaged,
            survey.num_damaged + survey.num_good,
            kept.name,
        )


def is_file_or_pipe(path: Path) -> bool:
    """Whether what is there has an end; a device such as `/dev/full` can be read for ever."""
    return path.is_file() or path.is_fifo()


def free_name(path: Path, word: str = "") -> Path:
    """The first of `<name>.1`, `<name>.2`, … (or `<name>.word`, `<name>.word.1`, …) not taken."""
    first = path.with_name(f"{path.name}.{word or 1}")
    number = 1 if word else 2
    found = first
    while found.exists():
        found = path.with_name(f"{path.name}.{word}.{number}" if word else f"{path.name}.{number}")
        number += 1
    return found


# ---- result values
#
# The values of a result as files can hold them: copies, JSON, the cells of a table. Pure
# functions. NaN and infinities become null (JSON) or an empty cell (CSV): neither format has
# them, and readers stumble over `NaN`.

MAX_ELEMENTS_PER_CELL: Final = 1000
MAX_CHARACTERS_PER_CELL: Final = 100_000
"""Readers of CSV refuse larger cells: Python's own more than 131,072 characters."""

_LINE_BREAKS: Final = {"\n": "\\n", "\r": "\\r", "\x00": "\\x00"}


def row_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a result to be written later: plain containers, without the config.

    Nothing in it changes when the result is changed. The checkpoint has the config.
    """
    return {str(key): _frozen(value) for key, value in result.items() if key != "config"}


def iteration_of(row: Mapping[str, Any]) -> int:
    """The iteration that a row belongs to.

    Raises:
        ValueError: the row does not say.
    """
    iteration = row.get("training_iteration")
    if isinstance(iteration, bool) or not isinstance(iteration, int | np.integer):
        raise ValueError(
            f"a result with training_iteration={iteration!r} cannot be written: the iteration, an "
            "integer, says where its row belongs. Do not remove or replace it in on_train_result."
        )
    return int(iteration)


def jsonable(value: Any) -> Any:
    """The value as `json.dumps(..., allow_nan=False)` takes it; what JSON lacks becomes text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def leaves(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All (slash path, value) of a nested row, in its order; empty dicts have none."""
    for key, value in row.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}/")
        else:
            yield path, value


def cells_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row by the name of their column; no name and no cell breaks the line."""
    return {_on_one_line(path): _on_one_line(_cell(value)) for path, value in leaves(row)}


def _frozen(value: Any) -> Any:
    """A copy that shares nothing changeable; objects of other kinds become their text."""
    if isinstance(value, Mapping):
        return {str(key): _frozen(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_frozen(item) for item in value]
    if isinstance(value, np.ndarray):
        return _frozen(value.tolist()) if value.dtype.hasobject else value.copy()
    if isinstance(value, (bool, int, float, str, type(None), np.generic)):
        return value
    return str(value)


def _cell(value: Any) -> str:
    """One value as text; what is too big for a table is described instead."""
    if isinstance(value, np.ndarray) and value.size > MAX_ELEMENTS_PER_CELL:
        return f"array of shape {value.shape}, {value.dtype}"
    value = jsonable(value)
    if isinstance(value, list):
        number = _num_elements(value)
        if number > MAX_ELEMENTS_PER_CELL:
            return f"list of {number} values"
        text = json.dumps(value, allow_nan=False)
    else:
        text = "" if value is None else str(value)
    too_long = len(text) > MAX_CHARACTERS_PER_CELL
    return f"text of {len(text)} characters" if too_long else text


def _num_elements(value: Any) -> int:
    if isinstance(value, Mapping):
        value = list(value.values())
    return sum(map(_num_elements, value)) if isinstance(value, list) else 1


def _on_one_line(text: str) -> str:
    for found, written in _LINE_BREAKS.items():
        text = text.replace(found, written)
    return text


# ---- csv results
#
# A results file as a table whose columns may grow; knows nothing of callbacks.

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


# ---- jsonl results
#
# A results file with one JSON object per line; knows nothing of callbacks.


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

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row that can be read, in the order of the file, with null as None."""
        for _, line in self._file.rows():
            row: dict[str, Any] = json.loads(line)
            yield row

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

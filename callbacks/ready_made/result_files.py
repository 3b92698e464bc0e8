"""Files of results: CSV and JSON with one row per iteration, and TensorBoard's."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import math
import os
import shutil
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from callbacks.optional_import import optional_module
from checkpoints.code import moved_path
from trainer_toolkit.checks import plain_scalar
from trainer_toolkit.files import numbered_beside, replacing
from trainer_toolkit.trees import named_leaves

# ---- line file
#
# A file with one row per line and iteration: appended to, cut back, repaired, never half written.
# What a row looks like is the business of `JSONLinesResults` and `CSVResults`.
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

    The file is looked at when it is first written to, and again whenever another process changed it
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
        self._damage_logged: _Survey | None = None

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

        `to_write` is the iteration whose row is about to be written.

        Raises:
            RuntimeError: Another process wrote this and later iterations since the last write:
                their rows are not ours to drop.
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
                f"{self.path} got rows up to iteration {last} from another writer, so that the row "
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
        """Takes off what a failed write left: half a line is no damage to be reported."""
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

        Rows of the iteration `before` and later ones are dropped. `change` gives the line to write
        for one that is kept, from it and whether it is the header. `then` is the (iteration, line)
        to write behind them.
        """
        self._last_iteration = None
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        last = 0
        with replacing(self.path, temporary) as file:
            for iteration, line in self.rows():
                if iteration < before or iteration == HEADER:
                    last = max(last, iteration)
                    kept = line if change is None else change(line, iteration == HEADER)
                    file.write(kept + b"\n")
            if then is not None:
                last = then[0]
                file.write(then[1] + b"\n")
            shutil.copymode(self.path, temporary)
        self._remember(last)

    def forget_after(self, iteration: int) -> None:
        """Drops the rows of all later iterations; a file that is not there stays away."""
        if self.look() > iteration:
            self.rewrite(before=iteration + 1)

    def start_anew(self, iteration: int) -> None:
        """Gives the file another name if it holds this iteration of a run that began earlier."""
        if self.look() < iteration:
            return
        aside = numbered_beside(self.path, ".")
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
            self._log_damage(survey)
        if survey.num_damaged or not survey.is_terminated:
            self.rewrite(before=survey.last_iteration + 1)
        return survey.last_iteration

    def _log_damage(self, survey: _Survey) -> None:
        if survey == self._damage_logged:
            return  # it could not be repaired, and is told
        self._damage_logged = survey
        if survey.num_damaged == 1 and survey.is_last_damaged and survey.num_good:
            _LOGGER.warning(
                "The last line of %s was not written to its end, as happens when a process is "
                "killed. It is dropped; a resumed run writes it again.",
                self.path,
            )
            return
        # Not the usual torn line: it may be another file altogether, so nothing of it gets lost.
        kept = self.path.with_name(f"{self.path.name}.damaged")
        if os.path.lexists(kept):
            kept = numbered_beside(kept, ".")
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
    """The iteration that a row belongs to; a ValueError if the row does not say."""
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


def cells_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row by the name of their column; no name and no cell breaks the line."""
    return {_on_one_line(path): _on_one_line(_cell(value)) for path, value in named_leaves(row)}


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


class _LineResults:
    """Results in a file with a row per line; how a row is written is up to the kind."""

    def __init__(self, path: str | Path, iteration_of: IterationOfLine) -> None:
        self._file = LineFile(path, iteration_of)

    @property
    def path(self) -> Path:
        """The file, as an absolute path."""
        return self._file.path

    def __str__(self) -> str:
        return str(self.path)

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Makes room for the first row of a new run: an older run's file gets another name."""
        self._file.start_anew(iteration_of(row))


# ---- csv results

_ITERATION = "training_iteration"


class CSVResults(_LineResults):
    r"""Results as a table: one column per slash path, one line per row, NaN as an empty cell.

    A column that appears late is added to the header; the rows before have an empty cell there.
    The header is read from the file, so a resumed run goes on with the same columns in the same
    order. Lists and small arrays are JSON text; what has more than 1000 values is described ("array
    of shape (84, 84), float32"): JSON lines have the values. A line break inside a text is written
    as `\n`, so that every row is one line.

    Args:
        path: The file.
    """

    holds_points = True  # an evaluation that a result repeats would be a point never measured

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, self._iteration_of)
        self._columns: list[str] = []

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one row; rows of the same iteration and of later ones are dropped first.

        Raises:
            ValueError: `training_iteration` is missing.
            RuntimeError: Another process writes to this file.
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


class JSONLinesResults(_LineResults):
    """Results as JSON lines: nested as they are, arrays as lists, NaN and infinities as null.

        results = JSONLinesResults("results.jsonl")
        results.append(row)             # a row of an iteration that is there already replaces it
        results.forget_after(10)        # before iterations from 11 on are made again

    Torn and unreadable lines are left out with one warning; see `LineFile`.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, _iteration_of)

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one row; rows of the same iteration and of later ones are dropped first.

        Raises:
            ValueError: `training_iteration` is missing.
            RuntimeError: Another process writes to this file.
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


# ---- png

_COLOUR_TYPES: Final = {1: 0, 3: 2, 4: 6}
"""Number of channels (grey, RGB, RGB with alpha) to PNG's number for it."""


def is_image(value: Any) -> bool:
    """Whether it is an array uint8 [height, width] or [height, width, 1, 3 or 4 channels]."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.size == 0:
        return False
    return value.ndim == 2 or (value.ndim == 3 and value.shape[2] in _COLOUR_TYPES)


def png_of(image: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """The image, of which `is_image` is true, as a file (PNG specification, third edition)."""
    height, width, channels = (*image.shape, 1)[:3]
    # Each row begins with the number of its filter: 0 is none.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


# ---- tensorboard results
#
# tensorboardX gives the messages and checksums of the format. Its own writer is not used: it holds
# a file, a thread and a pipe open for its whole life, drops what is under way when the process
# ends, and overwrites the file of a process that was started in the same second.

_PATTERN: Final = "events.out.tfevents.*"
_NOT_SHOWN: Final = frozenset({"pid", "timestamp"})
_LIFETIME_STEPS: Final = "num_env_steps_sampled_lifetime"


class TensorBoardResults:
    """Writes the numbers of results as curves over env steps, lists of them as histograms, images.

    The step of a row is its `num_env_steps_sampled_lifetime`. A row that is made again (an
    iteration that was undone, a resumed run) tells TensorBoard to forget the steps from the
    beginning of its iteration on, so that the curves have no spikes and no gaps.

    A number that TensorBoard cannot hold, such as an int beyond floats, is left out and named once.

    Attributes:
        num_left_out: how often values were left out so, by their path.

    Args:
        directory: Where the event files go; made when it is needed.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    holds_points = True  # see `CSVResults`

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory).expanduser().resolve()
        self.num_left_out: dict[str, int] = {}
        self._file: Path | None = None
        self._last_iteration = 0
        _proto("event_pb2")  # a missing package is told when the run is configured

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"num_left_out": {}} | state, path=moved_path(state["path"]))
        if self.path != state["path"]:
            self._file = None  # another directory

    def __str__(self) -> str:
        return str(self.path)

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one row; steps of its iteration and of later ones are taken back first.

        Raises:
            ValueError: `training_iteration` or the number of env steps is missing.
            OSError: The directory cannot be written.
        """
        iteration, step = iteration_of(row), _lifetime_steps(row)
        wall_time = float(row.get("timestamp") or time.time())
        summary = _proto("summary_pb2").Summary(value=list(self._values(row)))
        records = [_event(wall_time, step=step, summary=summary)]
        if self._needs_new_file() or iteration <= self._last_iteration:
            records.insert(0, _purge(wall_time, from_step=_first_step(row, step)))
        self._write(wall_time, records)
        self._last_iteration = iteration

    def _values(self, row: Mapping[str, Any]) -> Iterator[Any]:
        """The values that TensorBoard can show; NaN, texts and truth values are left out."""
        make = _proto("summary_pb2").Summary.Value
        for path, value in named_leaves(row):
            if path in _NOT_SHOWN or isinstance(value, bool | np.bool_):
                continue
            try:
                if fields := _shown(value):
                    yield make(tag=path, **fields)
            except (TypeError, ValueError, OverflowError) as error:
                self.num_left_out[path] = self.num_left_out.get(path, 0) + 1
                if self.num_left_out[path] == 1:
                    _LOGGER.warning(
                        "TensorBoard cannot hold %r, a %s (%s); it is left out of its rows, and "
                        "further such values are only counted. Log a number that a float can hold.",
                        path,
                        type(value).__name__,
                        error,
                    )

    def append_hyper_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Writes the settings of a run, by which TensorBoard compares runs (its HParams).

        Args:
            parameters: by name; what is no number, truth value or text becomes text.

        Raises:
            OSError: The directory cannot be written.
        """
        plain = {str(name): plain_scalar(value) for name, value in parameters.items()}
        shown = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in plain.items()
        }
        wall_time = time.time()
        summaries = _tensorboardx("summary").hparams(shown, {})
        self._write(wall_time, [_event(wall_time, summary=summary) for summary in summaries])

    def _needs_new_file(self) -> bool:
        return self._file is None or not self._file.exists()

    def _write(self, wall_time: float, records: list[bytes]) -> None:
        """Writes records behind all others, in a new file if there is none."""
        file = None if self._needs_new_file() else self._file
        if file is None:
            file = self._new_file()
            records = [_event(wall_time, file_version="brain.Event:2"), *records]
        self._file = None  # until all is written: nothing can be read behind a torn record
        with file.open("ab") as opened:
            opened.write(b"".join(map(_framed, records)))
        self._file = file

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Makes room for the first row of a new run: older event files move to `<directory>.1`."""
        older = sorted(self.path.glob(_PATTERN))
        if iteration_of(row) > 1 or not older:
            return  # a run that begins later goes on with another one
        aside = numbered_beside(self.path, ".")
        aside.mkdir()
        for file in older:
            file.rename(aside / file.name)

    def _new_file(self) -> Path:
        """A name that no file has and that is read after all others of the directory."""
        self.path.mkdir(parents=True, exist_ok=True)
        seconds = int(time.time())
        for file in self.path.glob(_PATTERN):
            number = file.name.split(".")[3]
            seconds = max(seconds, int(number) + 1 if number.isdecimal() else 0)
        name = f"events.out.tfevents.{seconds}.{socket.gethostname()}.{os.getpid()}"
        return self.path / name


def _lifetime_steps(row: Mapping[str, Any]) -> int:
    step = row.get(_LIFETIME_STEPS)
    if not isinstance(step, int | np.integer):
        raise ValueError(
            f"a result with {_LIFETIME_STEPS}={step!r} cannot be written: this number of env steps "
            "is the place of its values in the curves. Do not remove or replace it."
        )
    return int(step)


def _first_step(row: Mapping[str, Any], last_step: int) -> int:
    """The first step of the iteration that ends with `last_step`."""
    runners = row.get("env_runners")
    steps = runners.get("num_env_steps_sampled") if isinstance(runners, Mapping) else None
    return last_step - int(steps) + 1 if isinstance(steps, int | np.integer) else last_step


def _shown(value: Any) -> dict[str, Any]:
    """What TensorBoard can show of a value; nothing of NaN and texts."""
    if isinstance(value, int | float | np.integer | np.floating):
        return {"simple_value": float(value)} if math.isfinite(value) else {}
    if (image := _image_in(value)) is not None:
        return {"image": _image(image)}
    numbers = _finite_numbers(value) if isinstance(value, list | np.ndarray) else np.empty(0)
    return {"histo": _histogram(numbers)} if numbers.size else {}


def _image_in(value: Any) -> Any:
    """An image, or the last one of a list of images; None if it is something else."""
    newest = value[-1] if isinstance(value, list) and value else value
    return newest if is_image(newest) else None


def _image(image: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
    return _proto("summary_pb2").Summary.Image(
        height=image.shape[0],
        width=image.shape[1],
        colorspace=(*image.shape, 1)[2],
        encoded_image_string=png_of(image),
    )


def _finite_numbers(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The finite numbers in a list or array, float64 [N]; none if it holds anything else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.asarray("")
    if array.dtype.kind not in "iuf":
        return np.empty(0)
    numbers = array.astype(np.float64).ravel()
    return numbers[np.isfinite(numbers)]


def _histogram(numbers: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """A histogram of 30 bins: the right edge of each bin and how many numbers are in it.

    Equal numbers lie in the middle of a width of 1. One bin if floats have no 30 edges between the
    lowest and the highest number, or if their distance is beyond floats; NumPy's own edges for such
    numbers are errors, which differ from version to version.
    """
    low, high = numbers.min(), numbers.max()
    half = 0.5 if low == high else 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        edges = np.linspace(low - half, high + half, 31)
        if not (np.diff(edges) > 0).all():
            edges = np.array([low, high])
        total, sum_squares = numbers.sum(), np.square(numbers).sum()
    counts, _ = np.histogram(numbers, bins=edges)
    return _proto("summary_pb2").HistogramProto(
        min=low,
        max=high,
        num=numbers.size,
        sum=total,
        sum_squares=sum_squares,
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )


def _purge(wall_time: float, *, from_step: int) -> bytes:
    """A record that makes readers forget what they have read of this step and later ones."""
    session = _proto("event_pb2").SessionLog
    return _event(wall_time, step=from_step, session_log=session(status=session.START))


def _event(wall_time: float, **fields: Any) -> bytes:
    event: bytes = _proto("event_pb2").Event(wall_time=wall_time, **fields).SerializeToString()
    return event


def _framed(record: bytes) -> bytes:
    """A record as event files hold it: length, its checksum, the record, its checksum."""
    checksum = _tensorboardx("record_writer").masked_crc32c
    length = struct.pack("<Q", len(record))
    parts = (length, struct.pack("<I", checksum(length)), record)
    return b"".join(parts) + struct.pack("<I", checksum(record))


def _proto(name: str) -> Any:
    return _tensorboardx(f"proto.{name}")


def _tensorboardx(name: str) -> Any:
    # A module that is imported already is one look into a dict; no reference to it is kept, so that
    # the object can be copied and sent.
    return optional_module(f"tensorboardX.{name}", user="TensorBoardLogger", extra="tensorboard")

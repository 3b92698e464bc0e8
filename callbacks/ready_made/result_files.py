"""What is made of rows: a table, and curves in TensorBoard. Both are sinks of a follower.

Each says how far it is and goes on from there; see `callbacks.ready_made.followers`. The rows
themselves are in `callbacks.ready_made.rows_file`.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from callbacks.optional_import import optional_module
from callbacks.ready_made.followers import Sink
from callbacks.ready_made.rows_file import jsonable
from trainer_toolkit.checks import plain_scalar
from trainer_toolkit.files import append_to, numbered_beside, replacing
from trainer_toolkit.trees import named_leaves

_LOGGER = logging.getLogger(__name__)
_NUMBER: Final = "training_iteration"


# ---- table
#
# What is too big for a cell is described instead; NaN and infinities are empty cells.

MAX_ELEMENTS_PER_CELL: Final = 1000
MAX_CHARACTERS_PER_CELL: Final = 100_000
"""Readers of CSV refuse larger cells: Python's own more than 131,072 characters."""

_LINE_BREAKS: Final = {"\n": "\\n", "\r": "\\r", "\x00": "\\x00"}


def cells_of(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row by the name of their column; no name and no cell breaks the line."""
    return {_on_one_line(path): _on_one_line(_cell(value)) for path, value in named_leaves(row)}


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


class CSVResults(Sink):
    r"""A table: one column per slash path, one line per row, NaN as an empty cell.

    A column that appears late is added to the header; the rows before have an empty cell there.
    Lists and small arrays are JSON text; what has more than 1000 values is described ("array of
    shape (84, 84), float32"): the rows have the values. A line break inside a text is written as
    `\n`, so that every row is one line.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._columns: list[str] = []
        self._size = 0

    def _place(self, path: Path) -> None:
        super()._place(path)
        rows_path = path.with_suffix(".jsonl")
        self.rows_path = path.with_name(f"{path.name}.rows") if rows_path == path else rows_path
        self.bookmark = path.with_name(f"{path.name}.bookmark")
        self._draft = path.with_name(f"{path.name}.tmp")

    def begin(self, number: int) -> int:
        """Cuts the table off before this row, or before what cannot be read."""
        self._draft.unlink(missing_ok=True)  # of a process that was killed
        self._columns, self._size, last = [], 0, 0
        for line in self._lines():
            if not self._columns:
                self._columns = _cells_in(line)
                if _NUMBER not in self._columns:
                    self._columns = []
                    break
            elif (found := self._number_in(line)) is None or found >= number:
                break
            else:
                last = found
            self._size += len(line)
        if self._current_size() > self._size:
            if not self._columns:
                self.set_aside()
            else:
                os.truncate(self.path, self._size)
        return last

    def append(self, number: int, row: dict[str, Any]) -> None:
        """Writes a line; a new column changes all of them."""
        if self._current_size() != self._size:
            raise OSError(f"{self.path} was changed by others; it is looked at again")
        cells = cells_of({**row, _NUMBER: number})
        known = set(self._columns)
        new = [name for name in cells if name not in known]
        columns = self._columns + new
        line = _line(cells.get(name, "") for name in columns)
        if not new:
            append_to(self.path, line)
        elif not self._columns:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_to(self.path, _line(columns) + line)
        else:
            self._widen(_line(columns), b"," * len(new) + b"\n", line)
        self._columns, self._size = columns, self._current_size()

    def set_aside(self) -> None:
        if self._current_size() > 0:
            aside = numbered_beside(self.path, ".")
            self.path.rename(aside)
            _LOGGER.warning(
                "%s held something else than results of this run. That file is now %s.",
                self.path,
                aside.name,
            )

    def _widen(self, header: bytes, padding: bytes, then: bytes) -> None:
        with replacing(self.path, self._draft, must_sync=False) as file:
            _, *lines = self._lines()
            file.write(header)
            file.writelines(line[:-1] + padding for line in lines)
            file.write(then)

    def _lines(self) -> Iterator[bytes]:
        if self.path.exists():
            with self.path.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))

    def _number_in(self, line: bytes) -> int | None:
        cells = _cells_in(line)
        if len(cells) != len(self._columns):
            return None
        text = cells[self._columns.index(_NUMBER)]
        return int(text) if text.isdecimal() else None

    def _current_size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


def _cells_in(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode()]), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _line(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(list(cells))
    # Names of files may hold characters that UTF-8 has no bytes for.
    return text.getvalue().encode("utf-8", errors="backslashreplace")


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


class TensorBoardResults(Sink):
    """Writes the numbers of results as curves over env steps, lists of them as histograms, images.

    The step of a row is its `num_env_steps_sampled_lifetime`, or its number if it has none. Where
    the curves go on (a resumed run, rows that were taken back), TensorBoard is told to forget the
    steps from the beginning of that iteration on, so that they have no spikes and no gaps.

    A number that TensorBoard cannot hold, such as an int beyond floats, is left out and named once.

    Attributes:
        num_left_out: how often values were left out so, by their path.

    Args:
        directory: Where the event files go; made when it is needed.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.num_left_out: dict[str, int] = {}
        self._file: Path | None = None
        self._must_purge = True
        _proto("event_pb2")  # a missing package is told when the run is configured

    def _place(self, path: Path) -> None:
        super()._place(path)
        self.rows_path, self.bookmark = path / "rows.jsonl", path / "rows.bookmark"

    def begin(self, number: int) -> int:
        """Has the next row take back what there is of its steps and later ones."""
        self._must_purge = True
        return number - 1 if any(self.path.glob(_PATTERN)) else 0

    def append(self, number: int, row: dict[str, Any]) -> None:
        step = row.get(_LIFETIME_STEPS)
        step = int(step) if isinstance(step, int | np.integer) else number
        wall_time = float(row.get("timestamp") or time.time())
        values = list(self._values({**row, _NUMBER: number}))
        summary = _proto("summary_pb2").Summary(value=values)
        records = [_event(wall_time, step=step, summary=summary)]
        if self._must_purge or self._needs_new_file():
            records.insert(0, _purge(wall_time, from_step=_first_step(row, step)))
        self._write(wall_time, records)
        self._must_purge = False

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
        append_to(file, b"".join(map(_framed, records)))
        self._file = file

    def set_aside(self) -> None:
        """Moves event files to `<directory>.1`."""
        older = sorted(self.path.glob(_PATTERN))
        if older:
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

"""Results as event files of TensorBoard; knows nothing of callbacks.

tensorboardX gives the messages and checksums of the format. Its own writer is not used: it holds a
file, a thread and a pipe open for its whole life, drops what is under way when the process ends,
and overwrites the file of a process that was started in the same second.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from callbacks.optional_import import optional_module
from callbacks.ready_made.result_files import free_name, iteration_of, leaves
from checkpoints.run_directories import moved_path

# ---- png
#
# Images as PNG, the form in which TensorBoard takes them.

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

_PATTERN: Final = "events.out.tfevents.*"
_NOT_SHOWN: Final = frozenset({"pid", "timestamp"})
_LIFETIME_STEPS: Final = "num_env_steps_sampled_lifetime"


class TensorBoardResults:
    """Writes the numbers of results as curves over env steps, lists of them as histograms, images.

    The step of a row is its `num_env_steps_sampled_lifetime`. A row that is made again (an
    iteration that was undone, a resumed run) tells TensorBoard to forget the steps from the
    beginning of its iteration on, so that the curves have no spikes and no gaps.

    Args:
        directory: Where the event files go; made when it is needed.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    holds_points = True  # see `CSVResults`

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory).expanduser().resolve()
        self._file: Path | None = None
        self._last_iteration = 0
        _proto("event_pb2")  # a missing package is told when the run is configured

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, path=moved_path(state["path"]))
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
        records = []
        is_new_file = self._file is None or not self._file.exists()
        file = self._new_file() if self._file is None or is_new_file else self._file
        if is_new_file:
            records.append(_event(wall_time, file_version="brain.Event:2"))
        if is_new_file or iteration <= self._last_iteration:
            records.append(_purge(wall_time, from_step=_first_step(row, step)))
        records.append(_event(wall_time, step=step, summary=_summary(row)))
        self._file = None  # until all is written: nothing can be read behind a torn record
        with file.open("ab") as opened:
            opened.write(b"".join(map(_framed, records)))
        self._file, self._last_iteration = file, iteration

    def append_hyper_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Writes the settings of a run, by which TensorBoard compares runs (its HParams).

        Args:
            parameters: by name; what is no number, truth value or text becomes text.

        Raises:
            OSError: The directory cannot be written.
        """
        plain = {
            str(name): value.item() if isinstance(value, np.generic) else value
            for name, value in parameters.items()
        }
        shown = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in plain.items()
        }
        summaries = _tensorboardx("summary").hparams(shown, {})
        wall_time = time.time()
        is_new_file = self._file is None or not self._file.exists()
        file = self._new_file() if self._file is None or is_new_file else self._file
        records = [_event(wall_time, file_version="brain.Event:2")] if is_new_file else []
        records += [_event(wall_time, summary=summary) for summary in summaries]
        with file.open("ab") as opened:
            opened.write(b"".join(map(_framed, records)))
        self._file = file

    def start_anew(self, row: Mapping[str, Any]) -> None:
        """Makes room for the first row of a new run: older event files move to `<directory>.1`."""
        older = sorted(self.path.glob(_PATTERN))
        if iteration_of(row) > 1 or not older:
            return  # a run that begins later goes on with another one
        aside = free_name(self.path)
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


def _summary(row: Mapping[str, Any]) -> Any:
    return _proto("summary_pb2").Summary(value=list(_values(row)))


def _values(row: Mapping[str, Any]) -> Iterator[Any]:
    """The values that TensorBoard can show; NaN, texts and truth values are left out."""
    make = _proto("summary_pb2").Summary.Value
    for path, value in leaves(row):
        if path in _NOT_SHOWN or isinstance(value, bool | np.bool_):
            continue
        if isinstance(value, int | float | np.integer | np.floating):
            if math.isfinite(value):
                yield make(tag=path, simple_value=float(value))
        elif (image := _image_in(value)) is not None:
            yield make(tag=path, image=_image(image))
        elif isinstance(value, list | np.ndarray):
            numbers = _finite_numbers(value)
            if numbers.size:
                yield make(tag=path, histo=_histogram(numbers))


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
    """A histogram of 30 bins: the right edge of each bin and how many numbers are in it."""
    counts, edges = np.histogram(numbers, bins=30)
    return _proto("summary_pb2").HistogramProto(
        min=numbers.min(),
        max=numbers.max(),
        num=numbers.size,
        sum=numbers.sum(),
        sum_squares=np.square(numbers).sum(),
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

"""The files of trials: rows, checkpoints, and what `trial.json` says for people and tools.

    trials/00003/
        trial.json              number, config (printable), params, seed, status, reason, clones
        results.jsonl           line k is row k
        checkpoints/000020/     the state after row 20
        checkpoints/.pending-000021/    reported with a row that does not count yet
        stdout.txt  error.txt

The journal says which rows and checkpoints count; what is here beyond it was under way when a
process ended, and is dropped or made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from callbacks.ready_made.result_files import jsonable
from checkpoints import FileSystem
from trainer.errors import JournalError, TuneError
from trainer.metrics import ResultDict
from trainer.tune.checkpoint import digest_of
from trainer.tune.journal_entries import MOST
from trainer.tune.journal_file import APPENDING, append_whole
from trainer.tune.trial_handler import PENDING, pending_name
from trainer_toolkit.files import numbered_beside, remedy, replacing
from trainer_toolkit.interrupts import signals_deferred

ROWS_FILE: Final = "results.jsonl"
TRIAL_FILE: Final = "trial.json"
ERROR_FILE: Final = "error.txt"
_CHECKPOINTS: Final = "checkpoints"
_TAIL_BYTES: Final = 2**16
_NOT_FINITE: Final = "_not_finite"
"""Paths of values that JSON cannot hold, with the values as text."""

_RECOVERY: Final = "recovery-"


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that counts.

    Attributes:
        row_number: the row whose state it is.
        name: of its folder.
        digest: of its files.
    """

    row_number: int
    name: str
    digest: str

    @property
    def is_recovery(self) -> bool:
        """Whether no setting asked for it: it only shortens repairs."""
        return self.name.startswith(_RECOVERY)


def checkpoint_folder_name(row_number: int, *, is_recovery: bool = False) -> str:
    """The name of a checkpoint's folder."""
    return f"{_RECOVERY if is_recovery else ''}{row_number:06d}"


class TrialFiles:
    """The folder of one trial.

    Args:
        path: the folder; made by `create`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows_file = path / ROWS_FILE

    def create(self) -> None:
        """Makes the folder."""
        self.path.mkdir(parents=True, exist_ok=True)

    # ---- rows

    def append_row(self, row: Mapping[str, Any]) -> None:
        """Writes the next row; a JournalError if the file cannot be written."""
        try:
            with signals_deferred():  # an interrupt leaves no file open, and no part of a row
                descriptor = os.open(self._rows_file, APPENDING, 0o644)
                try:
                    append_whole(descriptor, _line_of_row(row))
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise _refused(self._rows_file, error) from error

    def sync_rows(self) -> None:
        """Waits until the rows are on the disk; a JournalError if the disk refuses."""
        try:
            with self._rows_file.open("rb") as file:
                os.fsync(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise _refused(self._rows_file, error) from error

    def rows(self) -> Iterator[ResultDict]:
        """All whole rows, in order."""
        if not self._rows_file.exists():
            return
        with self._rows_file.open("rb") as file:
            for line in file:
                row = _row_of_line(line)
                if row is None:
                    return
                yield row

    def num_rows(self) -> int:
        """How many whole rows there are."""
        if not self._rows_file.exists():
            return 0
        with self._rows_file.open("rb") as file:
            return sum(1 for _ in itertools.takewhile(_is_whole, file))

    def last_row(self) -> ResultDict | None:
        """The newest whole row; None if there is none. Reads the end of the file only."""
        if not self._rows_file.exists():
            return None
        with self._rows_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            tail_bytes = _TAIL_BYTES
            while True:
                file.seek(max(0, size - tail_bytes))
                lines = file.read().splitlines(keepends=True)
                whole = lines if tail_bytes >= size else lines[1:]
                found = [row for line in whole[-2:] if (row := _row_of_line(line)) is not None]
                if found or tail_bytes >= size:
                    return found[-1] if found else None
                tail_bytes *= 8

    def keep_rows(self, num_rows: int) -> int:
        """Drops the rows behind the first ones, and a torn line; returns how many there are."""
        if not self._rows_file.exists():
            return 0
        size, number = 0, 0
        with self._rows_file.open("rb") as file:
            for line in file:
                if number == num_rows or not _is_whole(line):
                    break
                size += len(line)
                number += 1
        if size < self._rows_file.stat().st_size:
            os.truncate(self._rows_file, size)
        return number

    # ---- checkpoints

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / _CHECKPOINTS

    def checkpoint(self, name: str) -> Path:
        """The folder of one checkpoint."""
        return self.checkpoints / name

    def pending(self, row_number: int) -> Path:
        """Where a checkpoint is made until it counts."""
        return self.checkpoints / pending_name(row_number)

    def commit(self, row_number: int, name: str) -> None:
        """Gives what was made for a row its own name; it is on the disk by then."""
        target = self.checkpoint(name)
        if target.exists():
            shutil.rmtree(target)
        try:
            self.pending(row_number).rename(target)
            FileSystem().sync_directory(self.checkpoints)
        except OSError as error:
            raise _refused(target, error) from error

    def forget_pending(self, row_number: int) -> None:
        """Drops a checkpoint whose row does not count."""
        if (folder := self.pending(row_number)).is_dir():
            shutil.rmtree(folder, ignore_errors=True)

    def drop_pending(self, *, but: Collection[int] = ()) -> None:
        """Drops the checkpoints of all rows that do not count, but for some that may."""
        stay = {pending_name(row) for row in but}
        for path in self.checkpoints.glob(f"{PENDING}*"):
            if path.name not in stay:
                shutil.rmtree(path, ignore_errors=True)

    def remove(self, name: str) -> None:
        """Removes a checkpoint."""
        shutil.rmtree(self.checkpoint(name), ignore_errors=True)

    def sweep(self, known: Iterable[str], pending_rows: Iterable[int]) -> None:
        """Removes checkpoints that the journal does not know.

        Pending ones stay of `pending_rows`.
        """
        stay = {*known, *(pending_name(row) for row in pending_rows)}
        if self.checkpoints.is_dir():
            for path in self.checkpoints.iterdir():
                if path.name not in stay and path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)

    def set_later_aside(self, row_number: int) -> Path | None:
        """Moves checkpoints of later rows, with a copy of all rows, to a new folder beside.

        Returns:
            the folder; None if there are none.
        """
        names = self.checkpoints.glob("[0-9]*")
        later = [path for path in names if path.name.isdecimal() and int(path.name) > row_number]
        if not later:
            return None
        aside = numbered_beside(self.checkpoints, "-set-aside-")
        aside.mkdir()
        shutil.copyfile(self._rows_file, aside / ROWS_FILE)
        for path in later:
            path.rename(aside / path.name)
        return aside

    def is_whole(self, saved: SavedCheckpoint) -> bool:
        """Whether a checkpoint's files are as they were committed."""
        return digest_of(self.checkpoint(saved.name)) == saved.digest

    # ---- what it says

    def write_facts(self, facts: Mapping[str, Any], *, must_sync: bool = False) -> None:
        """Writes `trial.json`; what was there is replaced at once."""
        write_json(self.path / TRIAL_FILE, facts, must_sync=must_sync)

    def read_facts(self) -> dict[str, Any]:
        """What `trial.json` says; empty if it is not there or damaged: it decides nothing."""
        facts = read_json(self.path / TRIAL_FILE)
        return facts if all(_fits(name, value) for name, value in facts.items()) else {}

    def write_error(self, text: str) -> None:
        """Writes `error.txt`."""
        with contextlib.suppress(OSError):  # the journal has it, too
            (self.path / ERROR_FILE).write_text(text + "\n", encoding="utf-8")


def canonical_digest(value: Mapping[str, Any]) -> str:
    """A short digest of plain values: equal values give equal ones, NaN included."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_json(path: Path, value: Mapping[str, Any], *, must_sync: bool = False) -> None:
    """Writes a file of JSON; see `write_whole`.

    A line per key: with `indent`, Python would not use its fast encoder.
    """
    plain: dict[str, Any] = jsonable(value)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(entry)}" for key, entry in plain.items())
    write_whole(path, f"{{\n{lines}\n}}\n", must_sync=must_sync)


def write_whole(path: Path, text: str, *, must_sync: bool = False) -> None:
    """Writes a file, whole or not at all; a power failure may bring the old one back.

    Raises:
        JournalError: the file cannot be written.
    """
    try:
        with replacing(path, path.with_name(f".{path.name}.tmp"), must_sync=must_sync) as file:
            file.write(text.encode())
    except OSError as error:
        raise _refused(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote; empty if the file is not there or damaged: it decides nothing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _fits(name: str, value: Any) -> bool:
    """Whether `trial.json` may say this: the folder may be a stranger's."""
    if name in ("number", "num_rows", "num_failures"):
        is_missing = value is None and name != "number"
        return is_missing or (type(value) is int and 0 <= value < MOST)
    if name in ("status", "stop_reason", "error"):
        return value is None or isinstance(value, str)
    return name != "params" or value is None or isinstance(value, dict)


def read_trial_facts(folder: Path) -> dict[str, Any]:
    """What `trial.json` of a folder says; a TuneError if it is no trial's folder."""
    facts = TrialFiles(folder).read_facts()
    if not facts:
        raise TuneError(
            f"{folder} is no trial's folder: there is no {TRIAL_FILE} that can be read. Give a "
            "folder such as runs/NAME/trials/00003."
        )
    return facts


def _line_of_row(row: Mapping[str, Any]) -> bytes:
    with contextlib.suppress(TypeError, ValueError):
        return json.dumps(row, allow_nan=False).encode() + b"\n"
    odd = [(path, repr(value)) for path, value in _not_finite(row, ())]
    plain = jsonable(row)
    if odd:
        plain[_NOT_FINITE] = odd
    return json.dumps(plain, allow_nan=False).encode() + b"\n"


def _is_whole(line: bytes) -> bool:
    return line[:1] == b"{" and line[-2:] == b"}\n"


def _row_of_line(line: bytes) -> ResultDict | None:
    if not line.endswith(b"\n"):
        return None
    try:
        row = json.loads(line)
        if not isinstance(row, dict):
            return None
        for path, text in row.pop(_NOT_FINITE, ()):
            place: Any = row
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = float(text)
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return ResultDict(row)


def _not_finite(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _not_finite(entry, (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _not_finite(entry, (*path, index))


def _refused(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"{path} cannot be written: {error}. The experiment stops here, and nothing that was "
        f"decided is lost. {remedy(error)}; then go on with tune.Tuner.restore()."
    )

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
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from callbacks.ready_made.rows_file import RowsFile, jsonable
from checkpoints import FileSystem
from trainer.errors import JournalError, TuneError
from trainer.metrics import ResultDict
from trainer.tune.checkpoint import digest_of
from trainer.tune.journal_entries import MOST
from trainer.tune.trial_handler import PENDING, pending_name
from trainer_toolkit.files import numbered_beside, remedy, replacing

ROWS_FILE: Final = "results.jsonl"
TRIAL_FILE: Final = "trial.json"
ERROR_FILE: Final = "error.txt"
_CHECKPOINTS: Final = "checkpoints"
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

    Attributes:
        rows_file: its rows; what else shows them follows this file.

    Args:
        path: the folder; made by `create`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows_file = RowsFile(path / ROWS_FILE, counts_lines=True)

    def create(self) -> None:
        """Makes the folder."""
        self.path.mkdir(parents=True, exist_ok=True)

    # ---- rows

    def append_row(self, row: Mapping[str, Any]) -> None:
        """Writes the next row; a JournalError if the file cannot be written."""
        try:
            self.rows_file.append(row)
        except OSError as error:
            raise _refused(self.rows_file.path, error) from error

    def sync_rows(self) -> None:
        """Waits until the rows are on the disk; a JournalError if the disk refuses."""
        try:
            self.rows_file.sync()
        except OSError as error:
            raise _refused(self.rows_file.path, error) from error

    def rows(self) -> Iterator[ResultDict]:
        """All whole rows, in order."""
        return map(ResultDict, self.rows_file.rows())

    def num_rows(self) -> int:
        """How many whole rows there are."""
        return sum(1 for _ in self.rows_file.lines())

    def last_row(self) -> ResultDict | None:
        """The newest whole row; None if there is none. Reads the end of the file only."""
        row = self.rows_file.last_row()
        return None if row is None else ResultDict(row)

    def keep_rows(self, num_rows: int) -> int:
        """Drops the rows behind the first ones, and a torn line; returns how many there are."""
        return self.rows_file.keep(num_rows)

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
        shutil.copyfile(self.rows_file.path, aside / ROWS_FILE)
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


def _refused(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"{path} cannot be written: {error}. The experiment stops here, and nothing that was "
        f"decided is lost. {remedy(error)}; then go on with tune.Tuner.restore()."
    )

"""The journal as a file: one writer, whole lines, a checksum in each, a torn end forgiven.

    {"length": 57, "crc32": "89abcdef", "signature": "…", "entry": {"event": "move", …}}

Length, CRC-32 and signature (`checkpoints.signatures`) are of the entry's text. A last line that is
not whole was being written when the process or the machine stopped: nothing had been done about it,
so it is dropped. Damage before the last line is an error that names the line; nothing is guessed
and nothing is overwritten.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from callbacks import AnyCallbackError
from checkpoints import CheckpointError, FileSystem
from checkpoints.signatures import Signer, signer
from trainer.errors import JournalError, TrainerError
from trainer_toolkit.files import APPENDING, append_whole, remedy
from trainer_toolkit.interrupts import signals_deferred

_LOGGER = logging.getLogger(__name__)

JOURNAL_FILE: Final = "journal.jsonl"
_LINE: Final = re.compile(
    rb'\{"length": (\d{1,18}), "crc32": "([0-9a-f]{8})",'
    rb'(?: "signature": "([0-9a-f]{64})",)? "entry": (.*)\}\n?',
    re.S,
)
_ADVICE: Final = (
    "Nothing was changed. Bring the file back from a copy, or begin a new experiment under another "
    "name; the trials' results and checkpoints are whole and can be read one by one."
)


ReadJournal = tuple[list[dict[str, Any]], int]
"""Whole entries, and the bytes that they take in the file."""


class JournalFile:
    """The journal of one experiment, open for appending.

    Life: `read()` once, which drops a torn end; then `append()`, and `sync()` before anything is
    done that follows from what was appended.

    Args:
        path: the file; made by the first `append`.
        signs: whether what is appended is this user's own work, which opens without a question.
    """

    def __init__(self, path: Path, *, signs: bool = False) -> None:
        self._path = path
        self._signer = signer(may_make=True) if signs else None
        self._descriptor: int | None = None
        self._is_synced = True

    def read(self, known: ReadJournal | None = None) -> list[dict[str, Any]]:
        """All entries; a torn last line is cut off the file.

        What is `known` was read before, and is taken as it is if the file has not grown since.

        Raises:
            JournalError: a line before the last is damaged; the file cannot be read.
        """
        size = self._path.stat().st_size if self._path.exists() else 0
        if known is None or known[1] != size:
            known = read_journal(self._path)
        entries, whole_size = known
        if whole_size < size:
            os.truncate(self._path, whole_size)
        self._is_synced = False  # the writer may have been killed before its fsync
        return entries

    def cut_last(self, number: int) -> None:
        """Drops the last lines, so many."""
        lines = self._path.read_bytes().splitlines(keepends=True)
        os.truncate(self._path, sum(map(len, lines[:-number])))

    def append(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Writes entries behind all others, or nothing of them; a JournalError if it cannot."""
        data = b"".join(line_of(entry, self._signer) for entry in entries)
        if not data:
            return
        try:
            append_whole(self._open(), data)
        except OSError as error:
            raise self._refused(error) from error
        self._is_synced = False

    def sync(self) -> None:
        """Waits until what was appended is on the disk; a JournalError if the disk refuses."""
        if self._is_synced:
            return
        try:
            os.fsync(self._open())
        except OSError as error:
            raise self._refused(error) from error
        self._is_synced = True

    def close(self) -> None:
        """Closes the file. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            is_new = not self._path.exists()
            with signals_deferred():  # an interrupt between the two would leave the file open
                self._descriptor = os.open(self._path, APPENDING, 0o644)
            if is_new:
                FileSystem().sync_directory(self._path.parent)
        return self._descriptor

    def _refused(self, error: OSError) -> JournalError:
        return JournalError(
            f"The journal {self._path} cannot be written: {error}. What is not in it is not done, "
            "so the experiment stops here; nothing that was decided is lost. "
            f"{remedy(error)}; then go on with tune.Tuner.restore()."
        )


def line_of(entry: Mapping[str, Any], own: Signer | None = None) -> bytes:
    """The line of an entry, signed by its user's key if that is given."""
    text = json.dumps(entry).encode()
    signature = b"" if own is None else b' "signature": "%s",' % own.sign(text).encode()
    return b'{"length": %d, "crc32": "%08x",%s "entry": %s}\n' % (
        *(len(text), zlib.crc32(text)),
        *(signature, text),
    )


def is_own_journal(path: Path) -> bool:
    """Whether this user wrote every whole line of a journal on this machine."""
    own = signer(may_make=False)
    if own is None:
        return False
    lines = path.read_bytes().splitlines(keepends=True)
    found = [_LINE.fullmatch(line) for line in lines if line.endswith(b"\n")]
    return bool(found) and all(
        line is not None and own.is_own(line[4], (line[3] or b"").decode()) for line in found
    )


def read_journal(path: Path) -> ReadJournal:
    """All whole entries of a journal, and the bytes that they take; nothing is changed.

    Raises:
        JournalError: a line before the last is damaged; the file cannot be read.
    """
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise JournalError(f"The journal {path} cannot be read: {error}. {_ADVICE}") from error
    lines = data.splitlines(keepends=True)
    entries, size = [], 0
    for number, line in enumerate(lines, start=1):
        entry = _entry_of(line)
        if entry is None:
            if number < len(lines):
                raise JournalError(
                    f"Line {number} of the journal {path} is damaged: its checksum does not fit. "
                    f"{_ADVICE}"
                )
            _LOGGER.warning(
                "The last line of the journal %s was not written to its end, as happens when a "
                "process is killed. It is dropped: nothing had followed from it.",
                path,
            )
            break
        entries.append(entry)
        size += len(line)
    return entries, size


@contextlib.contextmanager
def followed(folder: Path) -> Iterator[None]:
    """Turns what an impossible journal makes the code raise into a JournalError that says so."""
    try:
        yield
    except (TrainerError, CheckpointError, AnyCallbackError, OSError):
        raise
    except Exception as error:  # any: a forged journal may tell of anything, in any order
        raise JournalError(
            f"The journal of {folder} cannot be followed ({type(error).__name__}: {error!s:.200}): "
            "it tells of what cannot have happened, or code of yours decides otherwise than "
            "before. Bring it back from a copy, or restore with the code of then."
        ) from error


def read_first_entry(path: Path) -> dict[str, Any] | None:
    """The first entry of a journal; None if it is not whole."""
    with path.open("rb") as file:
        return _entry_of(file.readline())


def _entry_of(line: bytes) -> dict[str, Any] | None:
    """The entry of a whole line; None if it is not as it was written."""
    found = _LINE.fullmatch(line)
    if found is None or not line.endswith(b"\n"):
        return None
    length, checksum, _, text = found.groups()
    if len(text) != int(length) or zlib.crc32(text) != int(checksum, 16):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):  # a forger's: its checksum fits
        return None
    return entry if isinstance(entry, dict) else None

"""A checkpoint as trainables see it: a directory, with metadata beside what the user put there.

Data goes in and out through the `checkpoints` package, so nothing in it is ever a pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from checkpoints import CheckpointError, FileSystem, decode, encode
from checkpoints.links import check_links
from trainer.errors import TuneError
from trainer_toolkit.checks import shown

DATA_FILE: Final = "tune_data.msgpack"
_METADATA_FILE: Final = ".metadata.json"
_BLOCK_BYTES: Final = 2**20


class Checkpoint:
    """A directory with what a trainable needs to go on.

        checkpoint = tune.Checkpoint.from_directory(algo.save_to_path())
        tune.report({"score": 1.0}, checkpoint=checkpoint)
        …
        algo.restore_from_path(tune.get_checkpoint())  # or with its path

    Args:
        path: the directory, which exists.

    Raises:
        TuneError: there is no such directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Path(path).expanduser().resolve()
        if not folder.is_dir():
            raise TuneError(
                f"{folder} is no directory, so it cannot be a checkpoint. Save into a directory "
                "first, such as tempfile.mkdtemp(), and give its path."
            )
        self.path = str(folder)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"Checkpoint(path={self.path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """A checkpoint of what is in a directory."""
        return cls(path)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Checkpoint:
        """A checkpoint of plain data (numbers, texts, arrays, containers) in a temporary directory.

        Raises:
            StateError: something in it is no plain data; names the place.
            TuneError: it is no dict.
        """
        if not isinstance(data, Mapping):
            raise TuneError(
                f"Checkpoint.from_data({shown(data)}): expected a dict of plain data, such as "
                "{'step': 3}."
            )
        folder = Path(tempfile.mkdtemp(prefix="checkpoint-"))
        try:
            write_data(folder, data)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(folder)

    from_dict = from_data

    def data(self) -> dict[str, Any]:
        """The data that `from_data` was given, exactly.

        Raises:
            TuneError: the directory holds files of another kind.
        """
        found = read_data(Path(self.path))
        if found is None:
            raise TuneError(
                f"{self.path} holds no data of Checkpoint.from_data(); it is a directory of files. "
                "Read them with as_directory()."
            )
        return found

    to_dict = data

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory's path; do not write there."""
        yield self.path

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files into a directory and returns its path.

        Args:
            path: where to; None makes a temporary directory.

        Raises:
            LinkError: a link in it leads out of it.
        """
        check_links(Path(self.path))
        target = Path(tempfile.mkdtemp(prefix="checkpoint-") if path is None else path)
        shutil.copytree(self.path, target.expanduser(), dirs_exist_ok=True)
        return str(target.expanduser().resolve())

    def get_metadata(self) -> dict[str, Any]:
        """What `set_metadata` noted; empty if nothing was. A TuneError if it is damaged."""
        file = Path(self.path) / _METADATA_FILE
        if not file.exists():
            return {}
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise TuneError(
                f"{file} is damaged: {error}. Remove it; it holds notes only."
            ) from error
        if not isinstance(found, dict):
            raise TuneError(f"{file} is damaged: it is no dict. Remove it; it holds notes only.")
        return found

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Notes JSON data beside the files; what was noted before is replaced."""
        text = json.dumps(dict(metadata), indent=1)
        (Path(self.path) / _METADATA_FILE).write_text(text, encoding="utf-8")

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds to what was noted."""
        self.set_metadata({**self.get_metadata(), **metadata})


def write_data(folder: Path, data: Mapping[str, Any]) -> None:
    """Writes plain data into a directory; a StateError names the place of what is none."""
    (folder / DATA_FILE).write_bytes(encode(dict(data), name="checkpoint"))


def read_data(folder: Path) -> dict[str, Any] | None:
    """The data that `write_data` wrote; None if there is none. A TuneError if it is damaged."""
    file = folder / DATA_FILE
    if not file.is_file():
        return None
    try:
        found = decode(file.read_bytes())
    except CheckpointError as error:
        raise TuneError(f"{file} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise TuneError(f"{file} is damaged: it holds no dict, which from_data() writes.")
    return found


def take_in(source: Path, target: Path) -> None:
    """Brings a reported directory to its place: moved from a temporary folder, else copied.

    Links are replaced by what they lead to, so that a checkpoint is whole wherever it is taken.
    What is at the target is replaced: it was never part of a row that counts. A folder of that name
    is whole, and on the disk, whenever it is there.
    """
    unfinished = cleared_for(target)
    is_temporary = source.resolve().is_relative_to(Path(tempfile.gettempdir()).resolve())
    has_links = any(path.is_symlink() for path in source.rglob("*"))
    can_move = is_temporary and source.stat().st_dev == target.parent.stat().st_dev
    if can_move and not has_links:
        source.rename(unfinished)
    else:
        shutil.copytree(source, unfinished, ignore_dangling_symlinks=True)
    sync_and_digest(unfinished)
    unfinished.rename(target)
    FileSystem().sync_directory(target.parent)


def cleared_for(target: Path) -> Path:
    """Where a folder is made that is renamed to `target` when it is whole; neither is there."""
    unfinished = target.with_name(f"{target.name}.tmp")
    for old in (unfinished, target):
        if old.exists():
            shutil.rmtree(old)
    target.parent.mkdir(parents=True, exist_ok=True)
    return unfinished


def sync_and_digest(folder: Path) -> str:
    """Waits until all files are on the disk; returns a SHA-256 over their names and contents."""
    files, digest = FileSystem(), hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
            os.fsync(file.fileno())
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        files.sync_directory(path)
    return digest.hexdigest()


def digest_of(folder: Path) -> str | None:
    """The digest that `sync_and_digest` gave for the same files; None if there is no directory."""
    return sync_and_digest(folder) if folder.is_dir() else None

"""The directory of a checkpoint: files that never change, and one manifest that is swapped.

    ckpt/
        manifest.json          says all that is in it, and in which folder; replaced in one step
        files-1/               the files of one save; nothing in it ever changes
            learner.rl_module.state
            …

Saving to T goes through these steps:

    1. make the folder T/files-n, of a number that nothing there has, and lock it
    2. write and sync every file in it, and the new manifest last; sync the folder, and T
    3. replace T/manifest.json by the new one; sync T
    4. remove the folders in T that the manifest does not name and that no process holds

Before step 3 the old checkpoint is whole, after it the new one is; there is no moment between, and
so nothing to be found again after a crash. What a killed save leaves is a folder that no manifest
names: the next save to T removes it. After a loss of power the old manifest or the new one is
there, and the files of both were synced before.

An error, or Ctrl-C, ends with the same step 4: the manifest says which folder stays.

Any number of processes may save to T at once: each has a folder of its own, and who comes last to
step 3 wins. A folder is removed only by whoever holds its lock and finds it in no manifest
afterwards. One whose lock is free is not being written, so no manifest will ever name it from then
on. Where there are no locks (some network file systems), a save removes its own folder if it fails
and the one whose manifest it replaced, and any other only if nothing changed in it for a day.

What others put into T, such as notes, is never touched.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final

from checkpoints.component_paths import is_payload_name
from checkpoints.errors import CheckpointCorruptError, CheckpointError, CheckpointWriteError
from checkpoints.listing import directories_in, load_manifest
from checkpoints.manifest import (
    CODE_FILE,
    FOLDER_NAME,
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    names_our_format,
)
from checkpoints.strict_files import read_regular_file, regular_file_size
from trainer_toolkit.files import FileSystem, PathLock
from trainer_toolkit.interrupts import signals_deferred

_LOGGER: Final = logging.getLogger(__name__)
_MAX_TRIES: Final = 100
_A_DAY_S: Final = 86_400.0


class SaveFolder:
    """The folder for the files of one save, in the directory of a checkpoint. Its life:

    `with SaveFolder(target, file_system) as folder:` checks the target and makes `folder.path`;
    the caller fills it, the manifest last; `folder.install()` makes it the checkpoint. Leaving the
    block removes what no manifest names.
    """  # noqa: D415 - the first line announces the list

    def __init__(self, target: Path, file_system: FileSystem) -> None:
        self._target = target
        self._files = file_system
        self._is_new = not target.exists()
        self._replaced: str | None = None
        self._locks = contextlib.ExitStack()
        self.path = target  # until there is a folder

    def __enter__(self) -> SaveFolder:
        _check_target(self._target)
        make_directories(self._target, self._files)
        clear(self._target, self._files)
        try:
            with signals_deferred():
                self._make()
        except BaseException as error:  # an interrupt has waited until all was there
            self.__exit__(type(error), error, None)
            raise
        return self

    def install(self) -> None:
        """Put the manifest that is in the folder in the place of the checkpoint's."""
        self._files.sync_directory(self.path)
        self._files.sync_directory(self._target)
        self._replaced = _named_if_readable(self._target)
        self._files.replace(self.path / MANIFEST_FILE, self._target / MANIFEST_FILE)
        self._files.sync_directory(self._target)

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        # Released first: where no further file can be opened, a directory cannot be listed either.
        self._locks.close()
        if kind is None:
            clear(self._target, self._files, ended={self._replaced}, is_synced=True)
            return
        if self.path != self._target:  # of others nothing goes: the new manifest may not be synced
            _clear_folder(self.path, self._files, ended={self.path.name})
        if self._is_new:
            _remove_if_empty(self._target, self._files)

    def _make(self) -> None:
        """Make the folder, locked from the first moment that anybody can know of."""
        for _ in range(_MAX_TRIES):
            try:
                path = self._target / _new_name(self._target)
                self._files.make_directory(path)
            except FileExistsError:
                continue
            except FileNotFoundError:  # a removal found it empty
                make_directories(self._target, self._files)
                continue
            self.path = path
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                lock = PathLock(path)
                if lock.holds(path) and not any(path.iterdir()):
                    self._locks.enter_context(lock)
                    return
                lock.release()
            # Another save saw it before it was locked, and took it for abandoned; it may even be
            # the folder of a third one by now.
        raise CheckpointWriteError(
            f"No folder could be made in {self._target}: others make and remove them there all the "
            "time. Nothing was written. Save to another path."
        )


def make_directories(path: Path, file_system: FileSystem) -> None:
    """Make a directory and all around it that are missing, so that a loss of power leaves them."""
    if path.is_dir():
        return
    make_directories(path.parent, file_system)
    try:
        file_system.make_directory(path)
    except FileExistsError:
        if not path.is_dir():
            raise
    file_system.sync_directory(path.parent)


def remove_checkpoint(path: Path, file_system: FileSystem) -> None:
    """Remove a checkpoint, its manifest first: whenever this ends, it is complete or gone.

    Files that are not part of it stay where they are. One that another process has just removed is
    passed over. What cannot be removed once it is gone is logged.
    """
    named = _named_if_readable(path)
    with contextlib.suppress(FileNotFoundError):
        file_system.remove_file(path / MANIFEST_FILE)
        file_system.sync_directory(path)  # else it may come back without its files
    clear(path, file_system, ended={named})
    _remove_if_empty(path, file_system)
    with contextlib.suppress(FileNotFoundError):
        if any(FOLDER_NAME.fullmatch(entry.name) is None for entry in path.iterdir()):
            _LOGGER.warning("%s holds files that belong to no checkpoint; they stay there.", path)


def remove_unfinished(parent: Path, file_system: FileSystem) -> None:
    """Remove what killed saves and removals left in a directory of checkpoints.

    An empty directory may be anybody's, and stays unless it is called by a number, as these are.
    """
    for path in [parent / name for name in directories_in(parent)]:
        if is_unfinished(path) and (path.name.isdecimal() or _save_folders(path)):
            clear(path, file_system)
            _remove_if_empty(path, file_system)


def is_unfinished(path: Path) -> bool:
    """Return whether a directory holds nothing but folders of saves, none of which has ended."""
    try:
        return all(_holds_only_ours(entry) for entry in path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def clear(
    path: Path,
    file_system: FileSystem,
    *,
    ended: Collection[str | None] = (),
    is_synced: bool = False,
) -> None:
    """Remove the folders in a checkpoint's directory that are not of it and that nobody holds.

    Args:
        path: the directory; it need not hold a checkpoint.
        file_system: what to remove with.
        ended: names of folders that no process writes to, for where there are no locks.
        is_synced: whether the manifest is on the disk; else an older one may come back, whose files
            must then be there.
    """
    try:
        named = _named_in(path)
        others = [path / name for name in _save_folders(path) if name != named]
        if others and named is not None and not is_synced:
            file_system.sync_directory(path)
    except (CheckpointError, OSError):
        return  # which of them is the checkpoint's cannot be told
    for folder in others:
        _clear_folder(folder, file_system, ended=ended)


def _clear_folder(folder: Path, files: FileSystem, *, ended: Collection[str | None]) -> None:
    try:
        with PathLock(folder) as lock:
            is_over = lock.is_real or folder.name in ended or _is_old(folder)
            # Asked under the lock: from now on no manifest begins to name it.
            if is_over and folder.name != _named_in(folder.parent):
                _remove_folder(folder, files)
    except (BlockingIOError, FileNotFoundError):
        return  # another process works there, or has removed it
    except (CheckpointError, OSError) as error:
        _LOGGER.warning("%s could not be removed completely: %s", folder, error)


def _remove_folder(folder: Path, files: FileSystem) -> None:
    for entry in sorted(folder.iterdir()):
        if _is_ours(entry):
            files.remove_file(entry)
    files.remove_directory(folder)


def _remove_if_empty(path: Path, files: FileSystem) -> None:
    with contextlib.suppress(OSError):
        files.remove_directory(path)


def _named_in(path: Path) -> str | None:
    """Return the name of the folder that a checkpoint's manifest names; None without a manifest.

    Raises:
        CheckpointError: if it cannot be read.
    """
    try:
        return load_manifest(path).folder
    except CheckpointCorruptError:
        if os.path.lexists(path / MANIFEST_FILE):
            raise
        return None


def _named_if_readable(path: Path) -> str | None:
    with contextlib.suppress(CheckpointError):
        return _named_in(path)
    return None


def _save_folders(path: Path) -> list[str]:
    return [name for name in directories_in(path) if FOLDER_NAME.fullmatch(name)]


def _new_name(path: Path) -> str:
    """Return a name for the folder of a save that nothing in a directory has."""
    names = [entry.name for entry in path.iterdir() if FOLDER_NAME.fullmatch(entry.name)]
    return f"files-{1 + max((int(name.rpartition('-')[2]) for name in names), default=0)}"


def _is_old(folder: Path) -> bool:
    return time.time() - folder.stat().st_mtime > _A_DAY_S


def _is_ours(entry: Path) -> bool:
    name = entry.name
    is_our_name = name in (MANIFEST_FILE, CODE_FILE) or is_payload_name(name)
    return is_our_name and regular_file_size(entry) is not None


def _holds_only_ours(folder: Path) -> bool:
    """Return whether a directory is the folder of a save, with nothing else in it."""
    if FOLDER_NAME.fullmatch(folder.name) is None or folder.is_symlink():
        return False
    try:
        return all(_is_ours(entry) for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_target(target: Path) -> None:
    """Raise unless nothing, an empty directory, a checkpoint or an unfinished one is at `target`.

    One whose manifest is damaged counts.
    """
    names: list[str] = []
    for _ in range(_MAX_TRIES):
        before = names
        names = _names_in(target)
        if not names or _holds_our_manifest(target):
            return
        if any(_holds_only_ours(target / name) for name in names):
            return
        if names == before:  # else another process saves or removes there
            break
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    raise CheckpointWriteError(
        f"{target} is not empty and not a checkpoint (it holds {shown}). Nothing was written, so "
        "that files of others are not mixed with ours. Pass a new or empty directory, such as "
        f"{str(target / 'checkpoint')!r}."
    )


def _names_in(target: Path) -> list[str]:
    if not os.path.lexists(target):
        return []
    try:
        return sorted(entry.name for entry in target.iterdir())
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise CheckpointWriteError(
            f"{target} is a file, and a checkpoint is a directory. Nothing was written. "
            "Pass the path of a directory that does not exist yet."
        ) from error


def _holds_our_manifest(target: Path) -> bool:
    try:
        data = read_regular_file(target / MANIFEST_FILE, max_bytes=MAX_MANIFEST_BYTES)
    except CheckpointCorruptError:
        return False
    return names_our_format(data)

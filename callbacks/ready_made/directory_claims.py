"""Which directories this process keeps checkpoints in, so that other processes keep away from them.

Two runs in one directory would replace and remove each other's checkpoints, and neither would know.
The claim is a lock that the operating system takes back when the process ends, however it ends; it
ends earlier when the algorithm is stopped, or when nobody holds it any more. Within one process
algorithms share their claims: one that was restored goes on where another one was.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from callbacks.views import AlgorithmView
from checkpoints import CheckpointWriteError
from checkpoints.directory import make_directories
from checkpoints.directory_lock import DirectoryLock
from checkpoints.file_system import FileSystem


class _SharedLock:
    """A lock that is released when nobody needs it any more."""

    def __init__(self, path: Path) -> None:
        self.lock: Final = DirectoryLock(path)
        weakref.finalize(self, self.lock.release)


# Global because the directories are; weak, so that they keep neither algorithms nor locks alive.
_LOCKS: Final[WeakValueDictionary[Path, _SharedLock]] = WeakValueDictionary()
_CLAIMS: Final[WeakKeyDictionary[AlgorithmView, dict[Path, _SharedLock]]] = WeakKeyDictionary()


def claim_directory(path: Path, algorithm: AlgorithmView) -> None:
    """Note that an algorithm of this process keeps checkpoints in a directory, which is made.

    Where the file system has no locks, nobody is kept away.

    Args:
        path: the directory, absolute.
        algorithm: who; the claim lasts no longer than its run.

    Raises:
        CheckpointWriteError: another process does, or the directory cannot be made.
    """
    claims = _CLAIMS.setdefault(algorithm, {})
    mine = claims.get(path)
    if mine is not None and mine.lock.holds(path):
        return
    shared = _LOCKS.get(path)
    if shared is None or not shared.lock.holds(path):  # it may have been removed and made again
        shared = _locked(path)
    _LOCKS[path] = claims[path] = shared


def release_directories(algorithm: AlgorithmView) -> None:
    """Give up all that an algorithm claimed; for one whose run is over."""
    _CLAIMS.pop(algorithm, None)


def _locked(path: Path) -> _SharedLock:
    try:
        make_directories(path, FileSystem())
        return _SharedLock(path)
    except BlockingIOError as error:
        raise CheckpointWriteError(
            f"{path} is in use: the run of another process keeps its checkpoints there. Two runs "
            "in one directory would replace and remove each other's. Nothing was written. Give "
            "each run a directory of its own, or stop the other one first."
        ) from error
    except OSError as error:
        raise CheckpointWriteError(
            f"Checkpoints cannot be kept in {path}: {error}. Nothing was written. Check what is "
            "there, free space and permissions, or give another directory."
        ) from error

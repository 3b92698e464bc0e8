"""Which directories an algorithm keeps checkpoints in, so that all others keep away from them.

Two runs in one directory would replace and remove each other's checkpoints, and neither would know.
The claim is a lock that the operating system takes back when the process ends, however it ends; it
ends earlier when the algorithm is stopped, or when nobody holds it any more; then another one, such
as one that was restored from its checkpoints, can go on there.
"""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from callbacks.views import AlgorithmView
from checkpoints import CheckpointWriteError
from checkpoints.directory import make_directories
from checkpoints.directory_lock import DirectoryLock
from checkpoints.file_system import FileSystem


class _Claim:
    """A lock that is released when nobody needs it any more."""

    def __init__(self, path: Path) -> None:
        self.lock: Final = DirectoryLock(path)
        weakref.finalize(self, self.lock.release)


# Global because the directories are; weak, so that it keeps no algorithm alive.
_CLAIMS: Final[WeakKeyDictionary[AlgorithmView, dict[Path, _Claim]]] = WeakKeyDictionary()


def claim_directory(path: Path, algorithm: AlgorithmView) -> None:
    """Note that an algorithm of this process keeps checkpoints in a directory, which is made.

    Where the file system has no locks, other processes are not kept away.

    Args:
        path: the directory, absolute.
        algorithm: who; the claim lasts no longer than its run.

    Raises:
        CheckpointWriteError: another algorithm does, here or in another process, or the directory
            cannot be made.
    """
    claims = _CLAIMS.setdefault(algorithm, {})
    mine = claims.get(path)
    if mine is not None and mine.lock.holds(path):
        return
    if _is_claimed_beside(algorithm, path):
        gc.collect()  # an algorithm that nobody holds may still hold itself
        if _is_claimed_beside(algorithm, path):
            raise CheckpointWriteError(
                f"{path} is in use: another algorithm of this process keeps its checkpoints there. "
                "Two runs in one directory would replace and remove each other's. Nothing was "
                "written. Give each a directory of its own, or call stop() of the other one first."
            )
    claims[path] = _claimed(path)  # mine may be of a directory that was removed and made again


def _is_claimed_beside(algorithm: AlgorithmView, path: Path) -> bool:
    for other, claims in list(_CLAIMS.items()):
        if other.is_stopped:
            claims.clear()
    return any(path in claims and other is not algorithm for other, claims in list(_CLAIMS.items()))


def release_directories(algorithm: AlgorithmView) -> None:
    """Give up all that an algorithm claimed; for one whose run is over."""
    _CLAIMS.pop(algorithm, None)


def _claimed(path: Path) -> _Claim:
    try:
        make_directories(path, FileSystem())
        return _Claim(path)
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

"""Which files and directories an algorithm writes, so that all others keep away from them.

Two runs in one directory would replace and remove each other's checkpoints, two in one file mix
their rows, and neither would know. A claim is a lock that the operating system takes back when the
process ends, however it ends. It ends earlier when the algorithm is stopped, or when nothing refers
to it any more; then another one, such as one that was restored from its checkpoints, can go on
there. Where the file system has no locks, other processes are not kept away.
"""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from callbacks.views import AlgorithmView
from trainer_toolkit.files import PathLock


class _Claim:
    """A lock that is released when it is needed no more."""

    def __init__(self, path: Path) -> None:
        self.lock: Final = PathLock(path)
        weakref.finalize(self, self.lock.release)


# Global because the paths are; weak, so that it keeps no algorithm alive.
_CLAIMS: Final[WeakKeyDictionary[AlgorithmView, dict[Path, _Claim]]] = WeakKeyDictionary()


def claim(path: Path, algorithm: AlgorithmView) -> None:
    """Takes a file or directory that exists for an algorithm, until its run is over.

    Raises:
        BlockingIOError: another algorithm has it; says whose it is.
        OSError: it cannot be opened.
    """
    claims = _CLAIMS.setdefault(algorithm, {})
    mine = claims.get(path)
    if mine is not None and mine.lock.holds(path):
        return
    if _is_claimed_beside(algorithm, path):
        gc.collect()  # an algorithm without references may still hold itself
        if _is_claimed_beside(algorithm, path):
            raise BlockingIOError("another algorithm of this process")
    try:
        claims[path] = _Claim(path)  # mine may be of what was removed and made again
    except BlockingIOError as error:
        raise BlockingIOError("the run of another process") from error


def _is_claimed_beside(algorithm: AlgorithmView, path: Path) -> bool:
    for other, claims in list(_CLAIMS.items()):
        if getattr(other, "is_stopped", False):  # a stand-in need not have it
            claims.clear()
    return any(path in claims and other is not algorithm for other, claims in list(_CLAIMS.items()))


def release_claims(algorithm: AlgorithmView) -> None:
    """Gives up all that an algorithm claimed; for one whose run is over."""
    _CLAIMS.pop(algorithm, None)

"""Which algorithm of this process writes to which path, so that a second one keeps away from it.

A file tells who wrote to it last, but not whether that run is over. Within one process it can be
known: it is over when its algorithm was stopped, or when nobody holds it any more.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from callbacks.views import AlgorithmView

# Global because the files are; weak, so that it keeps no algorithm alive.
_WRITERS: Final[WeakValueDictionary[Path, AlgorithmView]] = WeakValueDictionary()


def claim_path(path: Path, algorithm: AlgorithmView, *, takes_over: bool) -> bool:
    """Notes that an algorithm writes to a path from now on, unless another one still does.

    Args:
        path: where to, absolute.
        algorithm: who.
        takes_over: it goes on with a checkpoint, and so with what the other one wrote.

    Returns:
        whether the path is its own now.
    """
    if not takes_over and _is_taken(path, algorithm):
        gc.collect()  # an algorithm that was dropped holds itself by its callbacks
        if _is_taken(path, algorithm):
            return False
    _WRITERS[path] = algorithm
    return True


def _is_taken(path: Path, algorithm: AlgorithmView) -> bool:
    writer = _WRITERS.get(path)
    if writer is None or writer is algorithm:
        return False
    return not getattr(writer, "is_stopped", False)  # a stand-in need not have it

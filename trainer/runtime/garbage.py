"""Garbage collection while many small objects are made."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def sparing_old_objects() -> Iterator[None]:
    """Lets garbage collections inside the block look at objects that were made inside it only.

    Sampling makes so many objects that Python keeps looking through everything that the program has
    ever imported. Measured for CartPole: a fifth of the median time of a request.
    """
    if gc.get_freeze_count():  # the user froze objects; ours would be thawed with them
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

"""States that are used at once need no copies of their arrays.

`get_state()` gives out arrays of its own, which stay as they are whatever the object does next.
Whoever writes them to a file before anything can change them does not need that, and a copy of a
large replay buffer may not fit into memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_ARE_SHOWN: Final = ContextVar("_ARE_SHOWN", default=False)


@contextlib.contextmanager
def states_shown_live() -> Iterator[None]:
    """Within, in this thread, `get_state()` may give out arrays that it goes on using."""
    token = _ARE_SHOWN.set(True)
    try:
        yield
    finally:
        _ARE_SHOWN.reset(token)


def state_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what `get_state()` is to give out for an array: a copy, or within the block itself."""
    return array if _ARE_SHOWN.get() else np.array(array)

"""States so large that they must not be in memory twice.

Saving: `get_state()` gives out arrays of its own, which stay as they are whatever the object does
next. Whoever writes them to a file before anything can change them does not need that, and a copy
of a large replay buffer may not fit into memory.

Restoring: an object that keeps its arrays in memory of its own shape lets the reader fill that
memory itself, and undoes a restore that fails without having been copied before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from checkpoints.array_files import NewArray

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


@runtime_checkable
class HasLargeArrays(Protocol):
    """What a part offers besides `get_state` and `set_state` if its arrays must not be copied."""

    def restoring_large_arrays(self) -> AbstractContextManager[NewArray]:
        """Return the block within which `set_state` may be called once.

        An exception that leaves the block undoes what was done in it; nobody else keeps the
        previous state. It gives a function that makes the large arrays of the state, from dtype and
        shape: they are filled before `set_state` gets them, which may keep their memory.
        """

"""States so large that they must not be in memory twice.

Saving: `get_state()` gives out arrays of its own, which stay as they are whatever the object does
next. Whoever writes them to a file before anything can change them does not need that, and a copy
of a large replay buffer may not fit into memory.

Restoring: an object that keeps its arrays in memory of its own shape lets the reader fill that
memory itself, and undoes a restore that fails without having been copied before.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from checkpoints.array_files import NewArray

_State = TypeVar("_State")
_ARE_SHOWN: Final = ContextVar("_ARE_SHOWN", default=False)


def live_state(get_state: Callable[[], _State]) -> _State:
    """Return what `get_state()` gives, which may show arrays that the object goes on using.

    In a context of its own, so that there is nothing to put back: an interrupt in between that left
    arrays shown from then on would make states change behind everybody's back.
    """
    context = contextvars.copy_context()
    context.run(_ARE_SHOWN.set, True)
    return context.run(get_state)


def state_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what `get_state()` is to give out for an array: a copy; itself in `live_state`."""
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

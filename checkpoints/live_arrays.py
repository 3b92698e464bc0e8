"""States that show arrays which go on being used: so large that they must not be in memory twice.

`get_state()` gives out arrays of its own, which stay as they are whatever the object does next. A
writer that puts them into a file before anything can change them does not need that, and a copy of
a large replay buffer may not fit into memory.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

_State = TypeVar("_State")
_ARE_SHOWN: Final = ContextVar("_ARE_SHOWN", default=False)


def live_state(get_state: Callable[[], _State]) -> _State:
    """Return what `get_state()` gives, which may show arrays that the object goes on using.

    In a context of its own, so that there is nothing to put back: an interrupt in between that left
    arrays shown from then on would make states change unnoticed.
    """
    context = contextvars.copy_context()
    context.run(_ARE_SHOWN.set, True)
    return context.run(get_state)


def state_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what `get_state()` is to give out for an array: a copy; itself in `live_state`."""
    return array if _ARE_SHOWN.get() else np.array(array)


def are_arrays_shown() -> bool:
    """Return whether a state is asked for in `live_state`: what it shows will not be changed."""
    return _ARE_SHOWN.get()

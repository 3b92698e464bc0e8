"""`no_op`: turns a documented method into one that does nothing and accepts anything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., None])


def no_op(method: Method) -> Method:
    """A method that looks like `method` but does nothing, whatever it is given.

    An override may thus call `super().on_episode_end(episode=episode, **kwargs)` with the arguments
    it happens to have, under their old names too.
    """

    @functools.wraps(method)
    def nothing(*_: Any, **__: Any) -> None:
        return None

    return cast("Method", nothing)

"""`no_op`: turns a documented method into one that does nothing and accepts anything."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def no_op(method: Callable[..., None]) -> Callable[..., None]:
    """A method that looks like `method` but does nothing, whatever it is given.

    For type checkers it takes anything, too: so an override may be annotated with RLlib's classes,
    name only what it needs, and leave `**kwargs` out.

    An override may thus call `super().on_episode_end(episode=episode, **kwargs)` with the arguments
    it happens to have, under their old names too.
    """

    @functools.wraps(method)
    def nothing(*_: Any, **__: Any) -> None:
        return None

    return nothing

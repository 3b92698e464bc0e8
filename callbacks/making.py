"""How one entry of a configuration becomes a callback object."""

from __future__ import annotations

import copy
from typing import Any

from callbacks.errors import CallbackConfigError, CallbackError
from callbacks.events import EVENTS
from callbacks.naming import name_of
from callbacks.problems import is_instance_entry


def new_object(entry: Any, where: str) -> Any:
    """The callback object for one entry of a spec.

    A class or factory is called, a pattern is copied.

    Args:
        entry: One entry of `CallbackSpec.classes`.
        where: Which process this is, for errors.

    Raises:
        CallbackConfigError: A factory returned no callback object, or a pattern cannot be copied.
        CallbackError: A class or factory raised.
    """
    if is_instance_entry(entry):
        return _copy_of(entry)
    try:
        made = entry()
    except (Exception, SystemExit) as error:
        raise CallbackError(
            f"{name_of(entry)}()", "callback objects were made", where=where, original=error
        ) from error
    if made is None or isinstance(made, type) or not any(hasattr(made, e) for e in EVENTS):
        raise CallbackConfigError(
            [
                f"the function {name_of(entry)} returned {made!r:.80}; expected a callback object "
                "with methods named like events, such as an instance of a subclass of "
                "RLlibCallback. A function for one event is given under the name of the event, for "
                "example `on_episode_end=...`"
            ]
        )
    return made


def _copy_of(pattern: Any) -> Any:
    """A copy for this chain alone: runs must not share what their callbacks remember."""
    try:
        return copy.deepcopy(pattern)
    except Exception as error:
        name = name_of(type(pattern))
        raise CallbackConfigError(
            [
                f"the {name} object given as callback cannot be copied ({error}), but the "
                "algorithm and every env runner need one of their own; give the class, or a "
                f"function that makes it: `callbacks_class=lambda: {name}(...)`"
            ]
        ) from error

"""CallbackSpec: what the user configured, normalised and checked; it can be packed and sent.

A spec holds no callback objects of its own making: it says how to make them. `callbacks.chain`
makes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from callbacks.errors import CallbackConfigError
from callbacks.problems import class_problems, function_problems
from checkpoints.arguments import argument_error

Function = Callable[..., object]


class CallbackSpec:
    """Which callback objects and functions listen to which events; cannot be changed.

    The order in which an event calls them: methods of `classes` in their order, then the functions
    of the event in their order.

    Attributes:
        classes: What objects are made from, in order. Each is a class, a function without arguments
            that returns an object, or an object that serves as a pattern (each process gets a
            copy).
        functions: Event -> the callables of that event, in order. Events without callables are left
            out.

    Args:
        classes: None, one of the above, or a list of them.
        functions: Event -> None, a callable, or a list of callables.

    Raises:
        CallbackConfigError: Something is wrong; all problems are listed.
    """

    __slots__ = ("classes", "functions")

    classes: tuple[Any, ...]
    functions: Mapping[str, tuple[Function, ...]]

    def __init__(self, classes: Any = None, functions: Mapping[str, Any] | None = None) -> None:
        if functions is not None and not isinstance(functions, Mapping):
            raise argument_error(
                "CallbackSpec()", "functions", functions, "None or a dict by event"
            )
        listed = _listed(classes)
        by_event = {event: _listed(given) for event, given in (functions or {}).items()}
        problems = []
        for index, entry in enumerate(listed):
            problems += class_problems(entry, f"callbacks_class{_position(index, classes)}")
        for event, given in by_event.items():
            problems += function_problems(event, given)
        if problems:
            raise CallbackConfigError(problems)
        object.__setattr__(self, "classes", listed)
        kept = {event: given for event, given in by_event.items() if given}
        object.__setattr__(self, "functions", MappingProxyType(kept))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"a CallbackSpec cannot be changed (`{name}` was to be set); make a new one: "
            "CallbackSpec(classes, functions)"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a CallbackSpec cannot be changed (`{name}` was to be deleted)")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CallbackSpec):
            return NotImplemented
        return (self.classes, dict(self.functions)) == (other.classes, dict(other.functions))

    def __hash__(self) -> int:
        return hash((CallbackSpec, len(self.classes), tuple(self.functions)))

    def __bool__(self) -> bool:
        """Whether anything is configured."""
        return bool(self.classes or self.functions)

    def __repr__(self) -> str:
        return f"CallbackSpec(classes={self.classes!r}, functions={dict(self.functions)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (CallbackSpec, (self.classes, dict(self.functions)))


def _listed(given: Any) -> tuple[Any, ...]:
    """None, one thing or a list of things, as a tuple."""
    if given is None:
        return ()
    if isinstance(given, (list, tuple, deque)):
        return tuple(given)
    return (given,)


def _position(index: int, given: Any) -> str:
    """`[2]` where the user wrote a list, nothing where they wrote one thing."""
    return f"[{index}]" if isinstance(given, (list, tuple, deque)) else ""

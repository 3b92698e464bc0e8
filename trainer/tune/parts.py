"""What an experiment is made of besides its trainable: schedulers, searchers, stoppers, configs.

Each part remembers the arguments that it was made with. The journal's header is written from them,
and from there the same part is made again when an experiment is restored (`stored_spec.py`); so
there is no second list of arguments that could forget one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from trainer_toolkit.checks import plain_scalar
from trainer_toolkit.trees import mapped

_AnyPart = TypeVar("_AnyPart", bound="Part")


class _Arguments(dict[str, Any]):
    """What a part was made with; a copy of the part was made with the same."""

    def __deepcopy__(self, memo: object) -> _Arguments:
        return self


class Part:
    """Remembers its arguments, by name and defaults included, also where `__init__` is a user's."""

    _arguments = _Arguments()

    def __new__(cls: type[_AnyPart], *arguments: Any, **named: Any) -> _AnyPart:
        """Notes the arguments."""
        made = super().__new__(cls)
        # Some parts are frozen, and users' may have a `__setattr__` of their own.
        object.__setattr__(made, "_arguments", _by_name(cls, arguments, named))
        return made

    def describe(self) -> dict[str, Any]:
        """Its class and arguments, for the journal's header and for comparing."""
        return {"type": type(self).__name__, **self._arguments}


def keys_of(part: Any) -> Sequence[str] | None:
    """The keys of rows that a part looks at; None: any.

    A user's class derived from a ready-made one may look at more than that: at any, unless it
    names its `keys`.
    """
    for cls in type(part).__mro__:
        if cls.__module__.startswith("trainer.tune."):
            is_ready_made = cls is type(part) or cls.__mro__[1] is Part
            return part.keys if is_ready_made else None
        if "keys" in vars(cls):
            return cls.keys  # type: ignore[no-any-return, attr-defined]
    return None


def _by_name(cls: type[Part], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> _Arguments:
    if cls.__init__ is object.__init__:
        if arguments or named:
            raise TypeError(f"{cls.__name__}() takes no arguments.")
        return _Arguments()
    try:
        bound = inspect.signature(cls.__init__).bind(None, *arguments, **named)
    except TypeError:
        return _Arguments()  # `__init__` refuses them; or it is copied, and gets all later
    bound.apply_defaults()
    _, *pairs = bound.arguments.items()
    # Copies of lists and dicts: who gave them may change them later. And JSON knows no NumPy.
    return _Arguments({name: mapped(plain_scalar, value) for name, value in pairs})

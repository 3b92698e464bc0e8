"""One setting: its default, what it accepts, and how it is read from and written to a config.

A `Setting` is declared in the class body of a section, once; the attribute, its default, its
validation, the dict forms and the documentation all come from that declaration:

    class FaultTolerance(ConfigValues):
        restart_failed_env_runners = Setting(True, boolean())

It is a descriptor, so type checkers know `config.restart_failed_env_runners` as a bool. What a
setting *means* is documented in the docstring of its section method, and nowhere else.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from trainer.config.checks import Check


class _NotProvidedType:
    """The type of `NotProvided`."""

    def __repr__(self) -> str:
        return "NotProvided"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        # Pickled by name, so that there is one object in every process.
        return "NotProvided"


NotProvided: Final[Any] = _NotProvidedType()
"""Stands for an argument that was not given; None is a value like any other."""


class Merge(enum.Enum):
    """What a section method or a dict config does with a dict that is already there."""

    REPLACE = "replace"
    """The new value replaces the old one."""
    DEEP = "deep"
    """Keys are merged on every level; None replaces."""
    BY_TYPE = "by type"
    """Keys are merged unless the key `type` changes: then the new dict replaces the old one."""


T = TypeVar("T")


class Holder(Protocol):
    """What a setting needs of the object it is read from."""

    def read_value(self, name: str) -> Any:
        """The value of the setting `name`."""

    def write_value(self, name: str, value: Any) -> None:
        """Replace the value of the setting `name`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """The declaration of one setting.

    Attributes:
        default: its value until it is set. Containers are copied before anyone can change them.
        check: which values it accepts; applied by `validate()`, not when the value is set.
        unit: of numbers: "s", "env steps", "episodes", ...; empty for pure numbers.
        merge: what sections and dict configs do with a dict that is already there.
        normalize: turns other spellings of a value into the stored one, whenever it is set.
        holds_settings: the value is a dict of settings of the same config; its keys are checked
            when it is set.
        keeps_default: an assigned dict is laid over the default of the class; None is the default.
        name: filled in from the class body.
        section: the section method that takes it; filled in from the signatures of the methods.
    """

    default: T
    check: Check
    unit: str = ""
    merge: Merge = Merge.REPLACE
    normalize: Callable[[Any], Any] | None = None
    holds_settings: bool = False
    keeps_default: bool = False
    name: str = ""
    section: str = ""

    @overload
    def __get__(self, holder: None, owner: type) -> Setting[T]: ...

    @overload
    def __get__(self, holder: Holder, owner: type) -> T: ...

    def __get__(self, holder: Holder | None, owner: type) -> Setting[T] | T:
        if holder is None:
            return self
        value: T = holder.read_value(self.name)
        return value

    def __set__(self, holder: Holder, value: T) -> None:
        holder.write_value(self.name, value)

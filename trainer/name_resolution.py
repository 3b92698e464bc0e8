"""The one door through which a text becomes a class or a function.

Ready-made parts are found in the registries of their rooms (`EXPLORATIONS`, `REPLAY_BUFFERS`,
registered envs …), which import nothing. Every other name is imported here or nowhere; whether it
is depends on where it was read. `tests/architecture/test_name_resolution.py` refuses a second door.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

from checkpoints import CodeNotAllowedError


@dataclass(frozen=True)
class Source:
    """Where settings were read, and so which names in them may be imported.

    It travels with what was read: a config keeps its source in all copies, and a trial has that of
    its experiment.

    Attributes:
        is_trusted: the program or its user wrote it, so all names may be imported.
        handed_in: names that the caller gave besides; they may be imported wherever they stand.
        remedy: what to write instead, as a sentence of an error.
    """

    is_trusted: bool
    handed_in: frozenset[str] = frozenset()
    remedy: str = ""

    def trusts(self, name: str) -> bool:
        """Whether to import a name."""
        return self.is_trusted or name in self.handed_in

    def joined(self, other: Source) -> Source:
        """The source of settings that come from both: trusted if both are."""
        if other.is_trusted:
            return self
        if self.is_trusted:
            return other
        return Source(False, self.handed_in & other.handed_in, other.remedy)

    def handing_in(self, *given: Any) -> Source:
        """The same where the caller gave values besides: each text in them is the caller's word."""
        return replace(self, handed_in=self.handed_in | set(_texts(given)))

    def check(self, name: str, *, place: str) -> None:
        """Raises unless a name may be imported.

        Args:
            name: a dotted path, `package.module:name`, or the name of a module.
            place: where it stands, for messages, such as "`env`".

        Raises:
            CodeNotAllowedError: the source is not trusted, and the caller did not give this name.
        """
        if not self.trusts(name):
            raise CodeNotAllowedError(
                f"{place} names {name!r}, which is neither ready-made nor registered: to look it "
                "up would run code because a file names it. Nothing was imported. "
                f"{self.remedy}"
            )


PROGRAM: Final = Source(is_trusted=True)
"""What the running program, or its user at the command line, wrote."""


def stranger(remedy: str) -> Source:
    """The source of a file that anybody may have written; `remedy` as in `Source`."""
    return Source(is_trusted=False, remedy=remedy)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield str(value)
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for entry in value:
            yield from _texts(entry)


def imported_module(name: str, *, source: Source, place: str) -> ModuleType:
    """The module of a name, imported where it was not yet.

    Raises:
        CodeNotAllowedError: the source may not name it.
        ImportError: there is none.
    """
    source.check(name, place=place)
    try:
        return importlib.import_module(name)
    except (TypeError, ValueError) as error:  # a relative or an empty name
        raise ImportError(f"{name!r} is no name of a module: {error}") from error


def imported(name: str, *, source: Source, place: str) -> Any:
    """What `package.module:name` or `package.module.name` leads to.

    Raises:
        CodeNotAllowedError: the source may not name it.
        ImportError: there is no such module, or it does not hold the name.
    """
    source.check(name, place=place)
    module_name, colon, attribute = name.partition(":")
    if not colon:
        module_name, _, attribute = name.rpartition(".")
    module = imported_module(module_name, source=PROGRAM, place=place)  # the whole name was checked
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise ImportError(str(error)) from error

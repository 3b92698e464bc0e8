"""What there is to know about every setting, as rows for documentation.

What a setting means is read from the docstring of its section method, so that it is written in one
place.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from trainer.config.names import NameTable
from trainer.config.offered import NO_EFFECT, NOT_OFFERED
from trainer.rllib_names.config_names import OLD_NAMES

_ENTRY: Final = re.compile(r"^    (\*{0,2}\w+): (.*)$")
_BLOCKS: Final = ("Args:", "Attributes:")


@dataclasses.dataclass(frozen=True)
class SettingDescription:
    """One row.

    Attributes:
        name: the name of the setting.
        section: the section method that takes it; empty when none does.
        argument: its name there.
        default: its default in this class.
        expected: the values it accepts, in words.
        unit: the unit of numbers; may be empty.
        doc: what it means.
        old_names: other names it is known by.
        limits: why it has no effect here, or what to do since it is not offered; usually empty.
    """

    name: str
    section: str
    argument: str
    default: Any
    expected: str
    unit: str
    doc: str
    old_names: tuple[str, ...]
    limits: str


def parse_entries(docstring: str | None) -> dict[str, str]:
    """The entries of `Args:` and `Attributes:` of a Google-style docstring, each on one line."""
    entries: dict[str, str] = {}
    inside, current = False, ""
    for line in inspect.cleandoc(docstring or "").splitlines():
        match = _ENTRY.match(line)
        if line and not line.startswith(" "):
            inside, current = line in _BLOCKS, ""
        elif inside and match:
            current = match.group(1)
            entries[current] = match.group(2)
        elif inside and current and line.strip():
            entries[current] += " " + line.strip()
    return entries


def describe(
    cls: type, names: NameTable, section_methods: Mapping[str, list[Callable[..., Any]]]
) -> list[SettingDescription]:
    """One row per setting, in order of declaration.

    Args:
        cls: the config class.
        names: its names.
        section_methods: all methods of each section, those of subclasses first.
    """
    class_doc: dict[str, str] = {}
    for ancestor in cls.__mro__:
        class_doc = {**parse_entries(vars(ancestor).get("__doc__")), **class_doc}
    rows = []
    for name, setting in names.settings.items():
        argument = names.argument(setting.section, name)
        doc = class_doc.get(name, "")
        for method in section_methods.get(setting.section, ()):
            doc = doc or parse_entries(method.__doc__).get(argument, "")
        limits = NO_EFFECT.get(name, "")
        if name in NOT_OFFERED:
            limits = f"Not offered in this version. {NOT_OFFERED[name].advice}"
        elif limits:
            limits = f"No effect here. {limits}"
        rows.append(
            SettingDescription(
                name=name,
                section=setting.section,
                argument=argument,
                default=setting.default,
                expected=setting.check.expected,
                unit=setting.unit,
                doc=doc,
                old_names=tuple(old for old, entry in OLD_NAMES.items() if entry.new == name),
                limits=limits,
            )
        )
    return rows

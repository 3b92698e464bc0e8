"""The names of a config class: its settings, its sections, and what old and wrong names mean.

Every way to name a setting — argument, attribute, item, dict key, `overrides` — goes through
`translate`, so that old names work and unknown names are refused in all of them alike.

Settings that are known but do less here than in RLlib: refused for now, or without effect.
Nothing is ignored silently: a setting is either listed in one of these two tables or does what its
section says. When a feature lands, its line in `OLD_NAMES.not_offered` is removed.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from trainer.config.settings import (
    Merge,
    NotProvided,
    Problem,
    Setting,
    assignment,
    copy_value,
    deep_merge,
    is_schedule,
    nearest,
    same_value,
    without_numpy_scalars,
)
from trainer.old_names import OLD_NAMES, OldName
from trainer.types import ToBeDrawn

# ---- offered


def not_offered_problems(
    settings: Mapping[str, Setting[Any]], values: Mapping[str, Any]
) -> Iterator[Problem]:
    """The settings that ask for something that this version does not offer.

    Args:
        settings: the settings of a config class.
        values: the value of each of them.
    """
    for name, limit in OLD_NAMES.not_offered.items():
        value = values[name]
        if same_value(value, settings[name].default) or limit.allowed(value):
            continue
        yield Problem(
            assignment(name, value), "not offered in this version.", limit.advice, (name,)
        )


# ---- names

_OF_THE_USERS_OWN: Final = frozenset({"env_config", "learner_config_dict"})
"""Settings whose values are kept as they are, down to their types."""

MULTI_AGENT_KEY: Final = "multiagent"
"""The key of dict configs that holds arguments of `multi_agent()`."""

_NOT_OFFERED_SECTION = "it is one of RLlib's section methods and not offered here."
_NOT_OFFERED_SETTING = "it is one of RLlib's settings and not offered here."


@dataclasses.dataclass(frozen=True)
class NameTable:
    """The names that one config class knows.

    Attributes:
        settings: every setting by its name, in order of declaration.
        sections: the argument names of every section method.
        owners: gives the algorithms whose configs know a name, for hints.
    """

    settings: Mapping[str, Setting[Any]]
    sections: Mapping[str, tuple[str, ...]]
    owners: Callable[[str], Sequence[str]] = lambda _: ()

    def resolve(self, name: str, section: str = "") -> str | None:
        """The setting that `name` means, or None; arguments may leave out `<section>_`."""
        if name in self.settings:
            return name
        if f"{section}_{name}" in self.settings:
            return f"{section}_{name}"
        old = self.old_name(name)
        return None if old is None else old.new

    def old_name(self, name: str) -> OldName | None:
        """What an old name stands for, when this class has the setting it stands for."""
        old = OLD_NAMES.settings.get(name)
        return old if old is not None and old.new in self.settings else None

    def read_old(self, old: OldName, value: Any) -> Any:
        """What an old name shows of the value of its setting."""
        if old.key:
            return {**self.settings[old.new].default, **(value or {})}.get(old.key)
        return None if old.beats_number and not is_schedule(value) else value

    def accepts(self, section: str, name: str, setting: str) -> bool:
        """Whether the section method takes `name`, which means `setting`."""
        old = OLD_NAMES.settings.get(name)
        if name in self.sections.get(section, ()) or (old is not None and section in old.sections):
            return True
        return setting in self.settings_of(section)

    def settings_of(self, section: str) -> set[str]:
        """The settings that a section method takes."""
        found: set[str] = set()
        for part in OLD_NAMES.sections.get(section, (section,)):
            found.update(self.resolve(name, part) or "" for name in self.sections.get(part, ()))
        return found - {""}

    def argument(self, section: str, setting: str) -> str:
        """The name that a section method has for a setting; empty when it does not take it."""
        arguments = self.sections.get(section, ())
        if setting in arguments:
            return setting
        named = [name for name in arguments if self.resolve(name, section) == setting]
        return named[0] if named else ""

    def unknown(self, name: str, value: Any, section: str) -> Problem:
        """The problem that nobody knows `name`, with the nearest spelling and its section."""
        what = assignment(name, value)
        if name in OLD_NAMES.refused_sections:
            return Problem(
                what, _NOT_OFFERED_SECTION, OLD_NAMES.refused_sections[name], unknown=True
            )
        if name in self.sections:
            advice = f"`{name}` is a section method; give its arguments: `config.{name}(...)`."
            return Problem(what, "this is not a setting.", advice, unknown=True)
        owners = self.owners(next(iter(OLD_NAMES.dicts.get(name, {name: name}).values())))
        if owners:
            advice = f"It belongs to {' and '.join(owners)}; leave it out."
            return Problem(what, "this algorithm has no such setting.", advice, unknown=True)
        method = None if section else nearest(name, self.sections, similarity=0.9)
        if method is not None and nearest(name, self.settings, similarity=0.9) is None:
            advice = (
                f"Did you mean the section method `{method}`? It is called: `config.{method}(...)`."
            )
            return Problem(what, "no setting has this name.", advice, unknown=True)
        # What the section takes comes first, unless it looks much less like it.
        arguments = self.sections.get(section, ())
        old_names = [old for old in OLD_NAMES.settings if self.old_name(old)]
        match = nearest(name, arguments, similarity=0.8)
        match = match or nearest(name, [*arguments, *self.settings, *old_names])
        if match is None:
            return Problem(what, "no setting has this name.", self._known(section), unknown=True)
        setting = self.settings[self.resolve(match, section) or match]
        spelled = setting.name if self.old_name(match) else match
        home = f", an argument of {setting.section}()" if setting.section else ""
        advice = f"Did you mean `{spelled}`{home}?"
        return Problem(what, "no setting has this name.", advice, unknown=True)

    def unknown_attribute(self, name: str, methods: Iterable[str]) -> Problem:
        """The problem that a config has no attribute `name`: a setting or method was misspelt.

        Args:
            name: what was written after the dot.
            methods: the public methods of the config, sections included.
        """
        if name in OLD_NAMES.refused_settings:
            return Problem(
                f"`{name}`", _NOT_OFFERED_SETTING, OLD_NAMES.refused_settings[name], unknown=True
            )
        if name in OLD_NAMES.refused_sections:
            advice = OLD_NAMES.refused_sections[name]
            return Problem(f"`{name}`", _NOT_OFFERED_SECTION, advice, unknown=True)
        match = nearest(name, [*methods, *self.settings], similarity=0.75)
        if match is None or match in self.settings:
            return dataclasses.replace(self.unknown(name, None, ""), what=f"`{name}`")
        kind = "section method" if match in self.sections else "method"
        return Problem(
            f"`{name}`",
            "no setting and no method has this name.",
            f"Did you mean the {kind} `{match}()`?",
            unknown=True,
        )

    def _known(self, section: str) -> str:
        if section not in self.sections:
            return "`describe_settings()` lists all settings."
        return f"{section}() takes {', '.join(self.sections[section])}."


@dataclasses.dataclass
class Translation:
    """What a set of given names means, and what is wrong with it.

    Attributes:
        writes: the values to set, by the present names of the settings; copies of what was given.
        partial: settings of which only some entries were given, to be merged in any case.
        problems: what was wrong; nothing may be written unless this is empty.
        spellings: the name by which each of `writes` was given.
        is_whole_dict: a dict config was given, which may hold all defaults by their present names.
    """

    writes: dict[str, Any] = dataclasses.field(default_factory=dict)
    partial: set[str] = dataclasses.field(default_factory=set)
    problems: list[Problem] = dataclasses.field(default_factory=list)
    spellings: dict[str, str] = dataclasses.field(default_factory=dict)
    is_whole_dict: bool = False

    def add(self, setting: Setting[Any], spelling: str, value: Any, old: OldName | None) -> None:
        """Add one value; the order of additions makes no difference to the outcome."""
        name = setting.name
        if name not in self.writes:
            self.writes[name], self.spellings[name] = value, spelling
            return
        earlier = self.writes[name]
        if same_value(earlier, value):
            return
        if _can_merge(setting, earlier, value):
            self.writes[name] = deep_merge(earlier, value)
        elif name in OLD_NAMES.no_effect:
            return  # whichever wins, nothing follows from it
        elif self._is_default_of_dict(setting, self.spellings[name], earlier):
            self.writes[name], self.spellings[name] = value, spelling
        elif self._is_default_of_dict(setting, spelling, value):
            return
        elif self._schedule_wins(name, old) and is_schedule(value) != is_schedule(earlier):
            self.writes[name] = value if is_schedule(value) else earlier
        else:
            both = sorted([assignment(self.spellings[name], earlier), assignment(spelling, value)])
            self.problems.append(
                Problem(
                    " and ".join(both),
                    "these are two names of one setting, with different values.",
                    f"Give only `{name}`.",
                    (name,),
                )
            )

    def _is_default_of_dict(self, setting: Setting[Any], spelling: str, value: Any) -> bool:
        """Whether a value merely stands in a dict that has all settings, as `to_dict()` gives.

        An old name that was added to such a dict means another value.
        """
        is_present = self.is_whole_dict and spelling == setting.name
        return is_present and same_value(value, setting.default)

    def _schedule_wins(self, name: str, old: OldName | None) -> bool:
        return any(
            spelled is not None and spelled.beats_number
            for spelled in (old, OLD_NAMES.settings.get(self.spellings[name]))
        )


def _can_merge(setting: Setting[Any], first: Any, second: Any) -> bool:
    """Whether two dicts given for one setting say nothing different about any key."""
    if setting.merge is not Merge.DEEP or not isinstance(first, dict):
        return False
    if not isinstance(second, dict):
        return False
    shared = first.keys() & second.keys()
    return all(same_value(first[key], second[key]) for key in shared)


def translate(names: NameTable, given: Mapping[Any, Any], section: str = "") -> Translation:
    """Find the settings that the given names mean.

    Args:
        names: the names of the config class.
        given: values by name, present or old; not changed.
        section: the section method they were given to; empty for attributes and dicts.
    """
    result = Translation(is_whole_dict=not section)
    for name, value in given.items():
        if value is NotProvided:
            continue
        if name == MULTI_AGENT_KEY and isinstance(value, Mapping):
            _translate_into(result, names, value, "multi_agent")
        else:
            _translate_into(result, names, {name: value}, section)
    return result


def _translate_into(
    result: Translation, names: NameTable, given: Mapping[Any, Any], section: str
) -> None:
    for name, value in given.items():
        if name in OLD_NAMES.dicts and _takes_entries(names, name, value, section):
            known = {
                OLD_NAMES.dicts[name][key]: value[key]
                for key in value
                if key in OLD_NAMES.dicts[name]
            }
            result.problems.extend(_unknown_entries(name, value))
            _translate_into(result, names, known, section)
            continue
        setting = names.resolve(name, section) if isinstance(name, str) else None
        if setting is None:
            result.problems.extend(_without_setting(names, str(name), value, section))
        elif section and not names.accepts(section, name, setting):
            home = names.settings[setting].section
            result.problems.append(
                Problem(
                    assignment(name, value),
                    f"{section}() does not take this setting.",
                    f"It belongs to {home}(): `config.{home}({name}=...)`.",
                    unknown=True,
                )
            )
        else:
            _translate_one(result, names, names.settings[setting], name, value)


def _takes_entries(names: NameTable, name: str, value: Any, section: str) -> bool:
    """Whether an old dict was given whose entries are settings of this config today."""
    has_settings = all(entry in names.settings for entry in OLD_NAMES.dicts[name].values())
    return has_settings and isinstance(value, Mapping) and section in ("", "training")


def _unknown_entries(name: str, value: Mapping[Any, Any]) -> Iterable[Problem]:
    """The entries of an old dict that it never had."""
    for key in value.keys() - OLD_NAMES.dicts[name].keys():
        match = nearest(str(key), OLD_NAMES.dicts[name])
        advice = (
            f"Did you mean {match!r}?" if match else f"It takes {', '.join(OLD_NAMES.dicts[name])}."
        )
        yield Problem(f"`{name}[{key!r}]`", "there is no such entry.", advice, unknown=True)


def _without_setting(names: NameTable, name: str, value: Any, section: str) -> Iterable[Problem]:
    if name not in OLD_NAMES.refused_settings:
        return [names.unknown(name, value, section)]
    asks_for_nothing = isinstance(value, (int, float, Mapping, list, tuple)) and not value
    if value is None or (asks_for_nothing and name not in OLD_NAMES.refused_even_if_false):
        return []  # "horizon": None in an old dict config asks for nothing.
    return [
        Problem(assignment(name, value), _NOT_OFFERED_SETTING, OLD_NAMES.refused_settings[name])
    ]


def _translate_one(
    result: Translation, names: NameTable, setting: Setting[Any], name: str, value: Any
) -> None:
    old = names.old_name(name) if name != setting.name else None
    if old is not None and old.none_is_silent and value is None:
        return
    if setting.normalize is not None and not isinstance(value, ToBeDrawn):
        value = setting.normalize(value)
    if setting.holds_settings and isinstance(value, Mapping):
        inner = translate(names, value)
        result.problems.extend(
            dataclasses.replace(problem, what=f"{name}: {problem.what}")
            for problem in inner.problems
        )
        value = inner.writes
    if old is not None and old.key:
        value = {old.key: value}
        result.partial.add(setting.name)
    value = copy_value(value)
    if setting.name not in _OF_THE_USERS_OWN:
        value = without_numpy_scalars(value)
    result.add(setting, name, value, old)
    for also, also_value in old.sets.items() if old is not None else ():
        result.add(names.settings[also], name, also_value, None)


# ---- description
#
# What there is to know about every setting, as rows for documentation. What a setting means is
# read from the docstring of its section method, so that it is written in one place.

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
        limits = OLD_NAMES.no_effect.get(name, "")
        if name in OLD_NAMES.not_offered:
            limits = f"Not offered in this version. {OLD_NAMES.not_offered[name].advice}"
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
                old_names=tuple(
                    old for old, entry in OLD_NAMES.settings.items() if entry.new == name
                ),
                limits=limits,
            )
        )
    return rows

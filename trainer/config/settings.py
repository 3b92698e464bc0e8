"""Settings: what each is and accepts, how problems are told, values as data; and their names."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import (
    Any,
    Final,
    Generic,
    NoReturn,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

import numpy as np
from gymnasium import spaces

from trainer.config.names_elsewhere import ADVICE_ELSEWHERE, NAMES_ELSEWHERE
from trainer.errors import ConfigError, FrozenConfigError, UnknownSettingError
from trainer.old_names import OLD_NAMES, OldName
from trainer.types import ToBeDrawn
from trainer_toolkit.checks import Check, anything, number, plain_scalar, shown
from trainer_toolkit.nearest_names import nearest
from trainer_toolkit.trees import mapped, same

# ---- checks
#
# What settings accept: the checks of all arguments, and those of lists and schedules. A check says
# nothing about other settings; rules that involve several live in `trainer.config.validation`.


def space() -> Check:
    """A gymnasium space."""
    return Check("a gymnasium space", lambda value: isinstance(value, spaces.Space))


def is_schedule(value: Any) -> bool:
    """Whether a value is meant as a schedule: a list of pairs, right or wrong."""
    return isinstance(value, (list, tuple))


def schedule(minimum: float | None = None, *, above: float | None = None) -> Check:
    """A number, or a piecewise linear schedule over env steps.

    A schedule is a list `[[env_steps, value], ...]` of at least two pairs whose first entry is at 0
    and whose env steps ascend.

    Args:
        minimum: the smallest value allowed, for the number and for every entry.
        above: instead, a number must be greater, and the entries of a schedule may come down to it.
    """
    constant, entry = number(minimum, above=above), number(minimum if above is None else above)

    def accepts(value: Any) -> bool:
        if constant.accepts(value):
            return True
        return is_schedule(value) and _is_ascending(value, entry)

    return Check(
        f"{constant.expected}, or a schedule [[env_steps, value], ...] of at least two pairs "
        "that starts at 0 and ascends",
        accepts,
    )


def _is_ascending(pairs: Sequence[Any], entry: Check) -> bool:
    steps = number(0)
    if len(pairs) < 2:
        return False
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            return False
        if not steps.accepts(pair[0]) or not entry.accepts(pair[1]):
            return False
    starts_at_zero = float(pairs[0][0]) == 0.0
    return starts_at_zero and all(
        earlier[0] < later[0] for earlier, later in itertools.pairwise(pairs)
    )


# ---- setting
#
# One setting: its default, what it accepts, what it means. A `Setting` is declared in the class
# body of a section, once; the attribute, the argument of the section method with its
# documentation, the check, the dict forms, `docs/settings.md` and the stub for editors all come
# from there:
#
#     class FaultToleranceSection(ConfigValues, section="fault_tolerance"):
#         restart_failed_env_runners = Setting(True, boolean(), "replace a failed runner")
#
# It is a descriptor, so type checkers know `config.restart_failed_env_runners` as a bool.


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


GivenSchedule = float | list[list[float]]
"""A number, or the pairs of a piecewise linear schedule over env steps."""

INSTEAD_IN_EVALUATION: Final = {
    "num_env_runners": "evaluation_num_env_runners",
    "batch_mode": "evaluation_duration_unit",
    "rollout_fragment_length": "evaluation_duration",
}
"""Settings of runners, and what decides about them in evaluation."""


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


@dataclass(eq=False)  # not frozen: `Setting[float](…)` notes its type in the object
class Setting(Generic[T]):
    """The declaration of one setting.

    Attributes:
        default: its value until it is set. Containers are copied before anyone can change them.
        check: which values it accepts; applied by `validate()`, not when the value is set.
        doc: what it means, as an entry of a docstring: "the discount factor".
        section: the section method that takes it; None for that of the class which declares it,
            empty for none.
        argument: its name there, if it is another one.
        is_positional: whether it may be given there without its name.
        also_in: further section methods that take it.
        unit: of numbers: "s", "env steps", "episodes", ...; empty for pure numbers.
        merge: what sections and dict configs do with a dict that is already there.
        normalize: turns other spellings of a value into the stored one, whenever it is set.
        holds_settings: the value is a dict of settings of the same config; its keys are checked
            when it is set.
        keeps_default: an assigned dict is laid over the default of the class; None is the default.
        is_saved: checkpoints hold it; False for what says where a run happens, not what it is.
        name: filled in from the class body.
        annotation: the type of its values as text; filled in from the class body: `T`, or the type
            of the default.
    """

    default: T
    check: Check = anything()  # noqa: RUF009 - a frozen value
    doc: str = ""
    section: str | None = None
    argument: str = ""
    is_positional: bool = False
    also_in: tuple[str, ...] = ()
    unit: str = ""
    merge: Merge = Merge.REPLACE
    normalize: Callable[[Any], Any] | None = None
    holds_settings: bool = False
    keeps_default: bool = False
    is_saved: bool = True
    name: str = ""
    annotation: str = ""

    @property
    def takes_keys(self) -> bool:
        """Whether its value may be a dict."""
        return "Mapping" in self.annotation or "dict" in self.annotation

    def declared(self, name: str, section: str) -> Setting[T]:
        """The setting as a class holds it that declares it under this name in its body."""
        given = getattr(self, "__orig_class__", None)  # of `Setting[float](…)`
        annotation = self.annotation or type_text(
            type(self.default) if given is None else get_args(given)[0]
        )
        return dataclasses.replace(
            self,
            name=name,
            section=section if self.section is None else self.section,
            argument=self.argument or name,
            annotation=annotation,
        )

    def is_argument_of(self, section: str) -> bool:
        """Whether a section method takes it."""
        return section == self.section or section in self.also_in

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


def type_text(annotation: Any) -> str:
    """A type as it is written in a signature: "float | None"."""
    if annotation is type(None):
        return "None"
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(type_text, arguments))
    if isinstance(annotation, list):  # the arguments of a `Callable`
        return f"[{', '.join(map(type_text, annotation))}]"
    name = "..." if annotation is ... else getattr(annotation, "__name__", str(annotation))
    if not arguments:
        return name
    if arguments[0] is ...:
        return f"{name}[..., {type_text(arguments[1])}]"
    return f"{name}[{', '.join(map(type_text, arguments))}]"


# ---- problems
#
# How problems with settings are told: all of one call at once, each with what to do about it.

_MOST_PRINTED_BITS = 1024
_LONGEST_VALUE_CHARS = 120


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        what: the setting and its value, e.g. "`gamma=2.0`".
        expected: what was expected or why it matters, a sentence.
        advice: what to do, a sentence; empty where `expected` says it all.
        settings: the settings involved; rules about them are not checked any more.
        unknown: whether the problem is an unknown name.
    """

    what: str
    expected: str
    advice: str = ""
    settings: tuple[str, ...] = ()
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.expected}" + (f" {self.advice}" if self.advice else "")

    def inside(self, place: str) -> Problem:
        """The same problem, told to be in a part of the config."""
        return dataclasses.replace(self, what=f"{place}: {self.what}")


class _Printer(reprlib.Repr):
    """Shortens values; of integers that Python does not print, says how long they are."""

    def repr_int(self, value: int, level: int) -> str:
        if value.bit_length() > _MOST_PRINTED_BITS:
            return f"<int of {value.bit_length():,} bits>"
        return super().repr_int(value, level)


def assignment(name: str, value: Any) -> str:
    """`name=value` as a user would write it, with long values shortened."""
    printer = _Printer()
    printer.maxstring = printer.maxother = _LONGEST_VALUE_CHARS
    return f"`{name}={printer.repr(value)}`"


def raise_problems(where: str, problems: Sequence[Problem]) -> None:
    """Raise one error that lists all problems; return when there are none.

    Args:
        where: the config or the call that is wrong, e.g. "PPOConfig.training()".
        problems: what was found.

    Raises:
        UnknownSettingError: at least one of the problems is an unknown name.
        ConfigError: there are other problems only.
    """
    if not problems:
        return
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"{where}: {count}"]
    lines += [f"  {position}. {problem}" for position, problem in enumerate(problems, start=1)]
    unknown = any(problem.unknown for problem in problems)
    raise (UnknownSettingError if unknown else ConfigError)("\n".join(lines))


def value_problems(
    settings: Mapping[str, Setting[Any]], values: Mapping[str, Any]
) -> Iterator[Problem]:
    """The values that their settings do not accept; what is to be drawn is not judged."""
    for name, value in values.items():
        setting = settings[name]
        is_default = value is None and setting.keeps_default
        if is_default or setting.check.accepts(value) or _place_of_space(value) is not None:
            continue
        unit = f" ({setting.unit})" if setting.unit else ""
        where = f"See {setting.section}()." if setting.section else ""
        expected = f"expected {setting.check.expected}{unit}."
        yield Problem(assignment(name, value), expected, where, (name,))


def unused_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """The settings that nothing reads and whose values ask for what this version does not offer.

    Args:
        values: what such settings were given, by their present names.
    """
    for name, value in values.items():
        setting = OLD_NAMES.unused_settings[name]
        if setting.is_refused and not same(value, setting.default):
            yield Problem(
                assignment(name, value), "not offered in this version.", setting.reason, (name,)
            )


def search_space_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Settings that are to be drawn for each trial of an experiment, and are not drawn yet."""
    for name, value in values.items():
        place = _place_of_space(value)
        if place is None:
            continue
        where = f"{name}{place}"
        yield Problem(
            assignment(name, value),
            f"{where} is a search space, which is drawn for each trial.",
            "Give the config to `tune.Tuner`: Tuner('PPO', param_space=config).fit(); to build one "
            "algorithm, give it a value.",
            (name,),
        )


def _place_of_space(value: Any) -> str | None:
    """Where in a value something is to be drawn, such as "['lr']"; None: nowhere."""
    if isinstance(value, ToBeDrawn):
        return ""
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, list | tuple):
        entries = enumerate(value)
    for key, entry in entries:
        place = _place_of_space(entry)
        if place is not None:
            return f"[{key!r}]{place}"
    return None


# ---- read only
#
# Copies of values, and read-only copies: how a frozen config stays frozen down to its last list.
# Containers (dict, list, tuple, set) and NumPy arrays are copied; other objects — classes,
# functions, spaces, what a user keeps in `env_config` — are shared, because not every object can
# be copied.

_ADVICE = (
    "This value belongs to a frozen config, which cannot be changed because processes already "
    "work with it. Change a copy instead: `config.copy(copy_frozen=False)`."
)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise FrozenConfigError(_ADVICE)


_COPIED: Final = (set, np.ndarray)
_UNCHANGEABLE: Final = frozenset({type(None), bool, int, float, str, bytes})


class ReadOnlyDict(dict[Any, Any]):
    """A dict that cannot be changed; equal to a dict with the same entries."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return ReadOnlyDict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        copied: dict[Any, Any] = copy_value(self)
        return copied


class ReadOnlyList(list[Any]):
    """A list that cannot be changed; equal to a list with the same entries."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return ReadOnlyList, (list(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        copied: list[Any] = copy_value(self)
        return copied


def copy_value(value: Any) -> Any:
    """A copy whose containers and arrays can be changed without changing `value`.

    Raises:
        ConfigError: it is nested too deep, or holds itself.
    """
    try:
        return mapped(lambda leaf: leaf.copy() if isinstance(leaf, _COPIED) else leaf, value)
    except RecursionError as cause:
        raise ConfigError(
            f"A value is nested very deep, or holds itself: {shown(value)}. Settings are flat or a "
            "few levels deep; give an object of a class of your own for more."
        ) from cause


def copied_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same names with copies; most values cannot be changed, and every result has them all."""
    return {
        name: value if type(value) in _UNCHANGEABLE else copy_value(value)
        for name, value in values.items()
    }


def freeze_value(value: Any) -> Any:
    """A copy whose containers and arrays refuse to be changed, on every level."""
    return mapped(_frozen, value, dict_type=ReadOnlyDict, list_type=ReadOnlyList)


def _frozen(value: Any) -> Any:
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, np.ndarray):
        frozen = value.copy()
        frozen.flags.writeable = False
        return frozen
    return value


# ---- values
#
# Pure functions on the values of settings: merging, comparing, telling data from code.


def deep_merge(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    """A new dict with the entries of both; dicts in both are merged, otherwise `new` wins."""
    return _merged(old, new, deep_merge)


def merge_by_type(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    """Like `deep_merge`, but on every level a dict of another `type` replaces the old one.

    Its other entries are arguments of that type.
    """
    if "type" in new and not same(new["type"], old.get("type")):
        replaced: dict[Any, Any] = copy_value(dict(new))
        return replaced
    return _merged(old, new, merge_by_type)


def _merged(
    old: Mapping[Any, Any],
    new: Mapping[Any, Any],
    merge: Callable[[Mapping[Any, Any], Mapping[Any, Any]], dict[Any, Any]],
) -> dict[Any, Any]:
    merged: dict[Any, Any] = copy_value(dict(old))
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = copy_value(value)
    return merged


def is_plain_data(value: Any) -> bool:
    """Whether a value is data that a checkpoint can hold: no classes, functions or objects."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, dict):
        return all(is_plain_data(key) and is_plain_data(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return not hasattr(value, "_fields") and all(map(is_plain_data, value))
    return False


# ---- names
#
# The names of a config class: its settings, its sections, and what old and wrong names mean.
# Every way to name a setting — argument, attribute, item, dict key, `overrides` — goes through
# `translate`, so that old names work and unknown names are refused in all of them alike.
#
#
# Settings of RLlib's that nothing here reads are kept apart: `OLD_NAMES.unused_settings`.

_OF_THE_USERS_OWN: Final = frozenset({"env_config", "learner_config_dict"})
"""Settings whose values are kept as they are, down to their types."""

_CLOSE: Final = 0.85
"""How similar a name is that was probably misspelt."""

MULTI_AGENT_KEY: Final = "multiagent"
"""The key of dict configs that holds arguments of `multi_agent()`."""

_NOT_OFFERED_SECTION = "it is one of RLlib's section methods and not offered here."
_NOT_OFFERED_SETTING = "it is one of RLlib's settings and not offered here."


@dataclass(frozen=True)
class NameTable:
    """The names that one config class knows.

    Attributes:
        settings: every setting by its name, in order of declaration.
        owners: gives the algorithms whose configs know a name, for hints.
        methods: the section methods of the class, each made when it is first looked at.
    """

    settings: Mapping[str, Setting[Any]]
    owners: Callable[[str], Sequence[str]] = lambda _: ()
    methods: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def sections(self) -> Mapping[str, tuple[str, ...]]:
        """The argument names of every section method."""
        found: dict[str, list[str]] = {}
        for setting in self.settings.values():
            for section in filter(None, (setting.section, *setting.also_in)):
                found.setdefault(section, []).append(setting.argument)
        for name, old in OLD_NAMES.settings.items():
            if old.doc and old.new in self.settings:
                home = self.settings[old.new].section
                found.setdefault(next(iter(old.sections), home) or "", []).append(name)
        return {section: tuple(arguments) for section, arguments in found.items()}

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
        if old is not None and section in old.sections:
            return True
        return setting in self.settings_of(section)

    def settings_of(self, section: str) -> set[str]:
        """The settings that a section method takes."""
        parts = OLD_NAMES.sections.get(section, (section,))
        return {
            name
            for name, setting in self.settings.items()
            if any(setting.is_argument_of(part) for part in parts)
        }

    def is_far_from_all(self, name: str) -> bool:
        """Whether a name is none of a setting or section, old or of elsewhere, nor close to one."""
        tables = (
            *(OLD_NAMES.settings, OLD_NAMES.unused_settings, OLD_NAMES.refused_settings),
            *(OLD_NAMES.dicts, OLD_NAMES.refused_sections, NAMES_ELSEWHERE, ADVICE_ELSEWHERE),
        )
        known = [*self.settings, *self.sections]
        is_known = name in known or any(name in table for table in tables) or self.owners(name)
        return (
            not is_known and name.isidentifier() and nearest(name, known, similarity=_CLOSE) is None
        )

    def unknown(self, name: str, value: Any, section: str) -> Problem:
        """The problem that `name` is unknown, and which one was probably meant."""
        what = assignment(name, value)
        if name in OLD_NAMES.refused_sections:
            return Problem(
                what, _NOT_OFFERED_SECTION, OLD_NAMES.refused_sections[name], unknown=True
            )
        if name in self.sections:
            given = ", ".join(f"`{key}`" for key in value) if isinstance(value, Mapping) else ""
            advice = (
                f"`{name}` is a section method, `config.{name}(...)`; its arguments are settings "
                f"without it around them: {given or 'see describe_settings()'}."
            )
            return Problem(what, "this is not a setting.", advice, unknown=True)
        if "." in name:
            return Problem(
                what, "no setting has this name.", self._undotted(name, value), unknown=True
            )
        owners = self.owners(next(iter(OLD_NAMES.dicts.get(name, {name: name}).values())))
        if owners:
            named = " and ".join(filter(None, (", ".join(owners[:-1]), owners[-1])))
            advice = f"It belongs to {named}; leave it out."
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
        elsewhere = ADVICE_ELSEWHERE.get(name, {})
        for marker, advice in elsewhere.items():
            if not marker or marker in self.settings:
                return Problem(what, "no setting has this name.", advice, unknown=True)
        match = NAMES_ELSEWHERE.get(name)
        if match not in self.settings:
            match = nearest(name, arguments, similarity=0.8)
        unused = OLD_NAMES.unused_settings
        match = match or nearest(name, [*arguments, *self.settings, *old_names, *unused])
        if match in unused:
            advice = f"Did you mean `{match}`, which nothing here reads? {unused[match].reason}"
            return Problem(what, "no setting has this name.", advice, unknown=True)
        if match is None:
            return Problem(what, "no setting has this name.", self._known(section), unknown=True)
        setting = self.settings[self.resolve(match, section) or match]
        spelled = setting.name if self.old_name(match) else match
        home = f", an argument of {setting.section}()" if setting.section else ""
        advice = f"Did you mean `{spelled}`{home}?"
        return Problem(what, "no setting has this name.", advice, unknown=True)

    def _undotted(self, name: str, value: Any) -> str:
        """What to write instead of `section.setting` or `setting.key`, which are no names."""
        first, _, rest = name.partition(".")
        setting = self.settings.get(self.resolve(first) or "")
        if setting is not None and setting.takes_keys:
            return f"Give a dict: {assignment(first, {rest: value})}; what it leaves out stays."
        if setting is not None:
            return f"`{first}` has no keys; give a value: `{first}=...`."
        if self.resolve(rest) is not None:
            return f"Leave `{first}.` out: settings have names of their own: `{rest}`."
        if first in self.sections:
            return self.unknown(rest, value, first).advice
        return "Names have no dots. `describe_settings()` lists all settings."

    def unknown_attribute(self, name: str, methods: Iterable[str]) -> Problem:
        """The problem that a config with these public methods has no attribute `name`."""
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
            return (
                "`describe_settings()` lists all settings. A config class of yours declares more "
                "in its body: `name = Setting(default)` (from trainer.config)."
            )
        return f"{section}() takes {', '.join(self.sections[section])}."


@dataclass
class Translation:
    """What a set of given names means, and what is wrong with it.

    Attributes:
        writes: the values to set, by the present names of the settings; copies of what was given.
        unused: values of settings that nothing reads, by their present names.
        partial: settings of which only some entries were given, to be merged in any case.
        problems: what was wrong; nothing may be written unless this is empty.
        spellings: the name by which each of `writes` was given.
        is_whole_dict: a dict config was given, which may hold all defaults by their present names.
    """

    writes: dict[str, Any] = dataclasses.field(default_factory=dict)
    unused: dict[str, Any] = dataclasses.field(default_factory=dict)
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
        if same(earlier, value):
            return
        if _can_merge(setting, earlier, value):
            self.writes[name] = deep_merge(earlier, value)
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
        return is_present and same(value, setting.default)

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
    return all(same(first[key], second[key]) for key in shared)


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
    if result.problems:  # else `validate()` judges the values, when all settings are there
        result.problems.extend(value_problems(names.settings, result.writes))
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
        unused = OLD_NAMES.unused_setting(str(name)) if setting is None else ""
        if unused:
            result.unused[unused] = copy_value(value)
        elif setting is None:
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
    if name not in OLD_NAMES.refused_settings or f"{name}_" in names.settings:
        return [names.unknown(name, value, section)]  # `input`, where there is `input_`
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
        result.problems.extend(problem.inside(name) for problem in inner.problems)
        value = {**inner.writes, **inner.unused}
    if old is not None and old.key:
        value = {old.key: value}
        result.partial.add(setting.name)
    value = copy_value(value)
    if setting.name not in _OF_THE_USERS_OWN:
        # `np.int64(4)` passes every check that `4` does, and is the same everywhere afterwards.
        value = mapped(plain_scalar, value)
    result.add(setting, name, value, old)
    for also, also_value in old.sets.items() if old is not None else ():
        result.add(names.settings[also], name, also_value, None)

"""The values of a config: reading, writing, freezing; and the decorator that makes section methods.

A config stores only what was set; everything else is read from the declarations of its class. Names
are resolved in `trainer.config.names`, values are judged in `trainer.config.validation`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast

from checkpoints.arguments import argument_error
from trainer.config.names import NameTable, Translation, translate
from trainer.config.problems import assignment, raise_problems
from trainer.config.read_only import copy_value, freeze_value
from trainer.config.setting import Merge, Setting
from trainer.config.values import deep_merge, merge_by_type
from trainer.errors import ConfigError, FrozenConfigError
from trainer.rllib_names.refused_overrides import CONFIG_OVERRIDES, refuse_overrides

ConfigT = TypeVar("ConfigT", bound="ConfigValues")
MethodT = TypeVar("MethodT", bound=Callable[..., Any])

_SECTION_MARK = "section_arguments"


def section(method: MethodT) -> MethodT:
    """Make a method a section: it sets the settings named by its arguments and returns the config.

    Only arguments that were really given are set, so None is a value like any other. Unknown
    arguments raise `UnknownSettingError`, all of one call at once; old names are understood. The
    body of the method has nothing to do but `return self`.
    """
    parameters = list(inspect.signature(method).parameters.values())[1:]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    arguments = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
    name = method.__name__

    @functools.wraps(method)
    def set_arguments(config: ConfigValues, *args: Any, **given: Any) -> Any:
        if len(args) > len(positional):
            raise TypeError(
                f"{name}() takes {len(positional)} positional argument(s) "
                f"({', '.join(positional) or 'none'}), not {len(args)}. Give several things for "
                f"one argument as a list, {name}([a, b]), and other settings by name."
            )
        for argument, value in zip(positional, args, strict=False):
            if argument in given:
                raise TypeError(f"{name}() got two values for the argument `{argument}`")
            given[argument] = value
        config.set_from_section(name, given)
        return method(config)

    setattr(set_arguments, _SECTION_MARK, arguments)
    set_arguments.checks_arguments = True  # type: ignore[attr-defined]  # validate() judges them
    return cast(MethodT, set_arguments)


class ConfigValues:
    """Holds the values of the settings that its class, and the sections it inherits, declare.

    Subclasses add settings in their class body (`my_setting = Setting(1.0, number())`) and change
    the defaults of inherited ones with `changed_defaults = {"lr": 3e-4}`.
    """

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Defaults of inherited settings that this class changes."""

    _names: ClassVar[NameTable] = NameTable({}, {})
    _fields: ClassVar[frozenset[str]] = frozenset({"_values", "_is_frozen", "_algo_class"})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls, CONFIG_OVERRIDES)
        for name, member in list(vars(cls).items()):
            if isinstance(member, Setting):
                setattr(cls, name, dataclasses.replace(member, name=name))
            elif name in cls._names.settings:
                raise ConfigError(
                    f"{cls.__name__}.{name} hides the setting `{name}`. To give it another "
                    f"default, write `changed_defaults = {{'{name}': ...}}` in the class body."
                )
        cls._names = _collect_names(cls)

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._is_frozen = False

    # ---- reading

    def read_value(self, name: str) -> Any:
        """The value of a setting by its present name; read-only where the config is frozen."""
        if isinstance(name, str) and name in self._values:
            return self._values[name]
        if not isinstance(name, str):
            raise argument_error("read_value()", "name", name, "the name of a setting")
        if name not in self._names.settings:
            raise_problems(type(self).__name__, [self._names.unknown(name, None, "")])
        default = self._names.settings[name].default
        if not isinstance(default, (dict, list)):
            return default
        if self._is_frozen:
            return freeze_value(default)
        # The caller may change what it gets, and expects to change the config.
        return self._values.setdefault(name, copy_value(default))

    def __getattr__(self, name: str) -> Any:
        # Only called for names that are no setting, method or field.
        if name.startswith("__") or name in self._fields:
            raise AttributeError(name)
        return self._read_by_any_name(name)

    def _read_by_any_name(self, name: str) -> Any:
        if name in self._names.settings:
            return self.read_value(name)
        old = self._names.old_name(name)
        if old is None:
            raise_problems(
                type(self).__name__, [self._names.unknown_attribute(name, _methods(type(self)))]
            )
            raise AttributeError(name)  # never reached; for type checkers
        return self._names.read_old(old, self.read_value(old.new))

    # ---- writing

    def write_value(self, name: str, value: Any) -> None:
        """Replace the value of a setting by its present name.

        Raises:
            FrozenConfigError: the config is frozen.
            UnknownSettingError: the value is a dict of settings, and one of them does not exist.
        """
        self._apply(self._translated({name: value}, "", name), merge=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fields or isinstance(inspect.getattr_static(self, name, None), property):
            object.__setattr__(self, name, value)
        else:
            self._apply(self._translated({name: value}, "", ""), merge=False)

    def __delattr__(self, name: str) -> None:
        raise ConfigError(
            f"`{name}` cannot be deleted from a {type(self).__name__}: it always has all its "
            f"settings. To set the default again, use `config.pop('{name}')`."
        )

    def set_from_section(self, section_name: str, given: Mapping[str, Any]) -> None:
        """Set what the arguments of a section method name.

        Args:
            section_name: the method, e.g. "training".
            given: values by argument name, present or old.

        Raises:
            UnknownSettingError: names that do not exist or belong to another section; all of them.
            ConfigError: two names of one setting were given different values.
            FrozenConfigError: the config is frozen.
        """
        where = f"{section_name}()"
        self._apply(self._translated(given, section_name, where), merge=True)

    def _translated(self, given: Mapping[Any, Any], section_name: str, where: str) -> Translation:
        translation = translate(self._names, given, section_name)
        title = f"{type(self).__name__}.{where}" if where else type(self).__name__
        raise_problems(title, translation.problems)
        return translation

    def _apply(self, translation: Translation, *, merge: bool) -> None:
        if self._is_frozen and translation.writes:
            changes = ", ".join(assignment(n, v) for n, v in translation.writes.items())
            raise FrozenConfigError(
                f"{changes}: this {type(self).__name__} is frozen, because an algorithm already "
                "works with it. Change a copy instead: `config.copy(copy_frozen=False)`."
            )
        for name, value in translation.writes.items():
            setting = self._names.settings[name]
            if merge or name in translation.partial:
                value = merged_value(setting, value, self.read_value(name))
            elif setting.keeps_default:
                value = merged_value(setting, value, setting.default)
            if value is None and setting.keeps_default:
                value = copy_value(setting.default)
            self._values[name] = value

    # ---- copying and freezing

    @property
    def is_frozen(self) -> bool:
        """Whether the config refuses to be changed."""
        return self._is_frozen

    def freeze(self) -> None:
        """Refuse changes from now on, also of the dicts and lists that the config holds."""
        if not self._is_frozen:
            frozen = {name: freeze_value(value) for name, value in self._values.items()}
            self._values, self._is_frozen = frozen, True

    def copy(self: ConfigT, copy_frozen: bool | None = None) -> ConfigT:
        """A copy that shares no dict, list or array with this config.

        Args:
            copy_frozen: whether the copy is frozen; None keeps what this config is.
        """
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied._values = {name: copy_value(value) for name, value in self._values.items()}
        copied._is_frozen = False
        if self._is_frozen if copy_frozen is None else copy_frozen:
            copied.freeze()
        return copied

    def __copy__(self: ConfigT) -> ConfigT:
        return self.copy()

    def __deepcopy__(self: ConfigT, memo: dict[int, Any]) -> ConfigT:
        return self.copy()

    def given_settings(self) -> dict[str, Any]:
        """The settings that were set, in contrast to those that have their default; a copy."""
        return {name: copy_value(value) for name, value in self._values.items()}


def merged_value(setting: Setting[Any], value: Any, old: Any) -> Any:
    """A new value of a setting, merged into the old one as the setting says."""
    if setting.merge is Merge.REPLACE or not (isinstance(value, dict) and isinstance(old, dict)):
        return value
    return (deep_merge if setting.merge is Merge.DEEP else merge_by_type)(old, value)


def _methods(cls: type) -> list[str]:
    """The names of the public methods of a class."""
    public = (name for name in dir(cls) if not name.startswith("_"))
    return [name for name in public if callable(inspect.getattr_static(cls, name))]


def section_methods(cls: type) -> dict[str, list[Callable[..., Any]]]:
    """The methods of each section of a class, those of subclasses first."""
    found: dict[str, list[Callable[..., Any]]] = {}
    for ancestor in cls.__mro__:
        for name, member in vars(ancestor).items():
            if hasattr(member, _SECTION_MARK):
                found.setdefault(name, []).append(member)
    return found


def _collect_names(cls: type[ConfigValues]) -> NameTable:
    """The names of a class: its own declarations first, then those of the sections it inherits."""
    settings: dict[str, Setting[Any]] = {}
    defaults: dict[str, Any] = {}
    sections: dict[str, list[str]] = {}
    for ancestor in cls.__mro__:
        for name, member in vars(ancestor).items():
            if isinstance(member, Setting):
                settings.setdefault(name, member)
            for argument in getattr(member, _SECTION_MARK, ()):
                known = sections.setdefault(name, [])
                if argument not in known:
                    known.append(argument)
        for name, default in vars(ancestor).get("changed_defaults", {}).items():
            defaults.setdefault(name, default)
    arguments = {name: tuple(known) for name, known in sections.items()}
    table = NameTable(settings, arguments, owners=_algorithms_with)
    raise_problems(
        f"{cls.__name__}.changed_defaults",
        [table.unknown(name, defaults[name], "") for name in defaults if name not in settings],
    )
    for name, setting in settings.items():
        default = defaults.get(name, setting.default)
        settings[name] = dataclasses.replace(setting, section=_home(table, name), default=default)
    return table


def _algorithms_with(name: str) -> list[str]:
    """The algorithms of this package whose configs know a name, present or old."""
    found: set[str] = set()
    waiting = list(ConfigValues.__subclasses__())
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        algorithm = getattr(cls, "default_algo_class", None)
        # A subclass that a user made belongs to the algorithm of its parent.
        is_ours = algorithm is not None and algorithm.__module__.startswith("trainer.")
        if algorithm is not None and is_ours and cls._names.resolve(name) is not None:
            found.add(algorithm.__name__)
    return sorted(found)


def _home(table: NameTable, name: str) -> str:
    """The first section method that takes a setting, under its present name if possible."""
    for section_name, arguments in table.sections.items():
        if name in arguments or name.removeprefix(f"{section_name}_") in arguments:
            return section_name
    for section_name in table.sections:
        if table.argument(section_name, name):
            return section_name
    return ""

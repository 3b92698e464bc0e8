"""The values of a config: reading, writing, freezing.

A config stores only what was set; everything else is read from the declarations of its class. Names
are resolved in `trainer.config.settings`, values are judged in `trainer.config.validation`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import (
    Callable,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from trainer.config.section_methods import SectionMethod
from trainer.config.settings import (
    MULTI_AGENT_KEY,
    Merge,
    NameTable,
    NotProvided,
    Problem,
    Setting,
    Translation,
    assignment,
    copied_values,
    copy_value,
    deep_merge,
    freeze_value,
    is_plain_data,
    merge_by_type,
    raise_problems,
    translate,
)
from trainer.errors import ConfigError, FrozenConfigError
from trainer.name_resolution import PROGRAM, Source, stranger
from trainer.old_names import OLD_NAMES, refuse_overrides
from trainer_toolkit.arguments import require_keys, takes
from trainer_toolkit.checks import anything, boolean, mapping
from trainer_toolkit.trees import same

_IF_TRUSTED: Final = (
    "If it is yours, give the class beside the file, such as from_checkpoint(path, env=MyEnv) or "
    "--env package.module.MyEnv, or register it before: register_env(name, …). Pass "
    "allow_code=True (--allow-code) only if you trust the file like a program."
)

# ---- config values

ConfigT = TypeVar("ConfigT", bound="ConfigValues")


class ConfigValues:
    """Holds the values of the settings that its class, and the sections it inherits, declare.

    It can be used like the dict configs of old, and be made from them. Keys are the names of
    settings, present or old; `keys()` and `to_dict()` use the present ones.

    Subclasses add settings in their class body (`my_setting = Setting(1.0, number(), "what it
    means")`) and change the defaults of inherited ones with `changed_defaults = {"lr": 3e-4}`. What
    the `__init__` of a class of the user's sets (`self.my_setting = 1.0`, RLlib's way) becomes one,
    too, if its name is not close to another.

    Args:
        section: given with the class, `class Mine(ConfigValues, section="mine")`: the name of the
            section method that takes its settings. Its docstring begins with that of the class.
    """

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Defaults of inherited settings that this class changes."""

    _names: ClassVar[NameTable] = NameTable({})
    _section_of_settings: ClassVar[str] = ""  # of those that subclasses declare
    _fields: ClassVar[frozenset[str]] = frozenset(
        {"_values", "_unused", "_is_frozen", "_algo_class", "_source", "_making"}
    )
    _making: ClassVar[type[ConfigValues] | None] = None
    """The class of the user's whose `__init__` is at work in an object."""

    def __init_subclass__(cls, *, section: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls, OLD_NAMES.config_overrides)
        if section:
            setattr(cls, section, SectionMethod(section, cls.__doc__ or ""))
        for name, member in list(vars(cls).items()):
            if isinstance(member, Setting):
                setattr(cls, name, member.declared(name, section or cls._section_of_settings))
            elif name in cls._names.settings:
                raise ConfigError(
                    f"{cls.__name__}.{name} hides the setting `{name}`. To give it another "
                    f"default, write `changed_defaults = {{'{name}': ...}}` in the class body."
                )
        cls._names = _collect_names(cls)
        if "__init__" in vars(cls) and not cls.__module__.startswith("trainer."):
            cls.__init__ = _declaring(cls, cls.__init__)  # type: ignore[method-assign]

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._unused: dict[str, Any] = {}
        self._is_frozen = False
        self._source = PROGRAM

    @property
    def source(self) -> Source:
        """Where the settings were read, and so which names in them may be imported."""
        return self._source

    # ---- reading

    def read_value(self, name: str) -> Any:
        """The value of a setting by its present name; read-only where the config is frozen."""
        if name in self._values:
            return self._values[name]
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
        if unused := OLD_NAMES.unused_setting(name):
            default = copy_value(OLD_NAMES.unused_settings[unused].default)
            return self._unused.get(unused, default)
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
            if self._making is not None and self._names.is_far_from_all(name):
                _declare(self._making, name, value)
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
        given = {**translation.writes, **translation.unused}
        if self._is_frozen and given:
            changes = ", ".join(assignment(n, v) for n, v in given.items())
            raise FrozenConfigError(
                f"{changes}: this {type(self).__name__} is frozen, because an algorithm already "
                "works with it. Change a copy instead: `config.copy(copy_frozen=False)`."
            )
        self._unused.update(translation.unused)
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
        copied._unused = copy_value(self._unused)
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
        given = {**self._values, **self._unused}
        return {name: copy_value(value) for name, value in given.items()}

    def unused_settings(self) -> dict[str, Any]:
        """The settings that were set and that nothing reads, where they ask for something."""
        defaults = OLD_NAMES.unused_settings
        return {n: v for n, v in self._unused.items() if not same(v, defaults[n].default)}

    # ---- dict configs

    @takes(config_dict=mapping())
    def update_from_dict(
        self: ConfigT, config_dict: Mapping[str, Any], *, source: Source = PROGRAM
    ) -> ConfigT:
        """Set what a dict config says; the order of its keys makes no difference.

        `env_config`, `model`, `evaluation_config` and other dicts are merged into earlier values.
        The dict and what is in it are not changed.

        Args:
            config_dict: values by the names of settings, present or old; `multiagent` holds
                arguments of `multi_agent()`.
            source: where the dict was read. The config keeps the least trusted of its sources.

        Raises:
            UnknownSettingError: keys that do not exist; all of them.
            ConfigError: two keys that mean the same setting have different values.
            FrozenConfigError: the config is frozen.
        """
        self._apply(self._translated(config_dict, "", "update_from_dict()"), merge=True)
        self._source = self._source.joined(source)
        return self

    @classmethod
    def from_dict(cls: type[ConfigT], config_dict: Mapping[str, Any]) -> ConfigT:
        """A config with the defaults of its class, and what a dict says; see `update_from_dict`."""
        return cls().update_from_dict(config_dict)

    def to_dict(self) -> dict[str, Any]:
        """All settings by their present names; a copy that may be changed.

        Old names read and write it, too: `d["num_workers"] = 0` sets `num_env_runners`, and
        `d["callbacks"]` and `d["multiagent"]` are there, as in RLlib.
        """
        return SettingsDict(self._names, self._copies())

    def _copies(self) -> dict[str, Any]:
        defaults = {name: setting.default for name, setting in self._names.settings.items()}
        return copied_values({**defaults, **self._values})

    @classmethod
    def overrides(cls, **settings: Any) -> dict[str, Any]:
        """Some settings as a plain dict, checked to exist, e.g. for `evaluation_config`.

        Raises:
            UnknownSettingError: names that do not exist; all of them.
        """
        translation = translate(cls._names, settings)
        raise_problems(f"{cls.__name__}.overrides()", translation.problems)
        return {**translation.writes, **translation.unused}

    @classmethod
    def settings_by_name(cls) -> Mapping[str, Setting[Any]]:
        """The declarations of all settings, with the defaults that they have in this class."""
        return cls._names.settings

    # ---- item access

    def __getitem__(self, name: str) -> Any:
        return self._read_by_any_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return self._names.resolve(name) is not None or bool(OLD_NAMES.unused_setting(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.settings)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting, or `default` when there is no such setting."""
        if name not in self:
            return default
        return self[name]

    def present_name(self, name: str) -> str:
        """The name today of a setting that was only renamed; any other name as it is."""
        old = self._names.old_name(name)
        return name if old is None or old.key or old.beats_number or old.sets else old.new

    def pop(self, name: str, default: Any = NotProvided) -> Any:
        """The value of a setting, which then has its default again.

        Args:
            name: the setting; an old name is understood.
            default: given back when there is no such setting.

        Raises:
            UnknownSettingError: there is no such setting, and no `default` was given.
            FrozenConfigError: the config is frozen.
        """
        if name not in self and default is not NotProvided:
            return default
        value = copy_value(self[name])
        setting = self._names.resolve(name) or OLD_NAMES.unused_setting(name)
        if setting in OLD_NAMES.unused_settings:
            self.write_value(setting, OLD_NAMES.unused_settings[setting].default)
            return value
        old = self._names.old_name(name)
        if old is not None and old.key:
            kept = {key: entry for key, entry in self[setting].items() if key != old.key}
            self.write_value(setting, kept)
        else:
            self.write_value(setting, self._names.settings[setting].default)
            self._values.pop(setting, None)
        return value

    def keys(self) -> KeysView[str]:
        """The present names of all settings."""
        return self._copies().keys()

    def values(self) -> ValuesView[Any]:
        """The values of all settings, as copies."""
        return self._copies().values()

    def items(self) -> ItemsView[str, Any]:
        """Names and values of all settings, as copies."""
        return self._copies().items()

    # ---- state

    def get_state(self) -> dict[str, Any]:
        """What can be written without code: plain data only.

        Returns:
            `class`: the name of the class; `settings`: the values of all settings that are plain
                data; `code`: the
            names of the settings that hold something else — classes, functions, other objects.
        """
        saved = self._saved()
        code = _names_of_code(saved)
        settings = {name: value for name, value in saved.items() if name not in code}
        return {"class": type(self).__name__, "settings": settings, "code": code}

    def names_of_code(self) -> list[str]:
        """The settings that hold something else than plain data: classes, functions, objects."""
        return _names_of_code(self._saved())

    def _saved(self) -> dict[str, Any]:
        """Copies of the values of all settings that belong into checkpoints."""
        settings = self._names.settings
        return {name: value for name, value in self._copies().items() if settings[name].is_saved}

    @classmethod
    @takes(allow_code=boolean())
    def from_state(
        cls: type[ConfigT],
        state: Mapping[str, Any],
        *,
        code: Mapping[str, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
        allow_code: bool = False,
    ) -> ConfigT:
        """The config of a state that `get_state` gave.

        Args:
            state: the state.
            code: the settings that hold code, which a state does not; others given here win over
                the state.
            changes: settings to change; dicts among them are merged into those of the state, as in
                `update_from_dict`.
            allow_code: let the state name envs and strategies that would have to be imported.

        Raises:
            ConfigError: settings that held code are missing; all of them.
            UnknownSettingError: the state has settings that this class does not know.
        """
        require_keys(f"{cls.__name__}.from_state()", "state", state, ("settings", "code"))
        given = cls.overrides(**(code or {}))
        missing = [name for name in state["code"] if name not in given]
        raise_problems(
            f"{cls.__name__}.from_state()",
            [
                Problem(
                    f"`{name}`",
                    "its value was code, which a state does not hold.",
                    f"Give it: `code={{'{name}': ...}}`.",
                )
                for name in missing
            ],
        )
        config = cls()
        saved: dict[str, Any] = cls.overrides(**state["settings"])
        keeping = {name for name, setting in cls._names.settings.items() if setting.keeps_default}
        for name, value in {**saved, **given}.items():
            config.write_value(name, value)
            if name not in given and name in keeping:
                # It is whole: a default of a later release is not laid below it.
                config._values[name] = copy_value(value)
        config.update_from_dict(changes or {})
        if not allow_code:
            config._source = stranger(_IF_TRUSTED).handing_in(given, changes)
        return config

    # ---- comparing and showing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigValues):
            return NotImplemented
        return type(self) is type(other) and all(
            same(self.read_value(name), other.read_value(name)) for name in self._names.settings
        )

    __hash__ = None  # type: ignore[assignment]  # configs change

    def changed_settings(self) -> dict[str, Any]:
        """The settings whose value is not the default of the class; a copy."""
        given = self.given_settings()
        return {
            name: given[name]
            for name, setting in self._names.settings.items()
            if name in given and not same(given[name], setting.default)
        }

    def __repr__(self) -> str:
        changed = [f"{name}={value!r}" for name, value in self.changed_settings().items()]
        one_line = f"{type(self).__name__}({', '.join(changed)})"
        if len(one_line) <= 100:
            return one_line
        return f"{type(self).__name__}(\n    " + ",\n    ".join(changed) + ",\n)"


def merged_value(setting: Setting[Any], value: Any, old: Any) -> Any:
    """A new value of a setting, merged into the old one as the setting says."""
    if setting.merge is Merge.REPLACE or not (isinstance(value, dict) and isinstance(old, dict)):
        return value
    return (deep_merge if setting.merge is Merge.DEEP else merge_by_type)(old, value)


def _names_of_code(settings: Mapping[str, Any]) -> list[str]:
    return [name for name, value in settings.items() if not is_plain_data(value)]


def _methods(cls: type) -> list[str]:
    """The names of the public methods of a class."""
    public = (name for name in dir(cls) if not name.startswith("_"))
    return [name for name in public if callable(getattr(cls, name))]


def _collect_names(cls: type[ConfigValues]) -> NameTable:
    """The names of a class: its own declarations first, then those of the sections it inherits."""
    settings: dict[str, Setting[Any]] = {}
    defaults: dict[str, Any] = {}
    for ancestor in cls.__mro__:
        for name, member in vars(ancestor).items():
            if isinstance(member, Setting):
                settings.setdefault(name, member)
        for name, default in vars(ancestor).get("changed_defaults", {}).items():
            defaults.setdefault(name, default)
    table = NameTable(settings, owners=_algorithms_with)
    raise_problems(
        f"{cls.__name__}.changed_defaults",
        [table.unknown(name, defaults[name], "") for name in defaults if name not in settings],
    )
    for name, default in defaults.items():
        settings[name] = dataclasses.replace(settings[name], default=default)
    return table


def _declaring(cls: type[ConfigValues], init: Callable[..., None]) -> Callable[..., None]:
    """An `__init__` of the user's in which new names become settings of its class."""

    @functools.wraps(init)
    def declaring(self: ConfigValues, *args: Any, **kwargs: Any) -> None:
        before = self._making
        object.__setattr__(self, "_making", cls)
        try:
            init(self, *args, **kwargs)
        finally:
            object.__setattr__(self, "_making", before)

    return declaring


def _declare(cls: type[ConfigValues], name: str, value: Any) -> None:
    """Makes a setting of a class, with this default; known to the classes derived from it."""
    setting = Setting[Any](copy_value(value), anything(), f"set by `{cls.__name__}.__init__`.")
    setattr(cls, name, setting.declared(name, cls._section_of_settings))
    for each in _with_subclasses(cls):
        each._names = _collect_names(each)


def _with_subclasses(cls: type[ConfigValues]) -> list[type[ConfigValues]]:
    """A class and all below it, each once and after all that it inherits from."""
    found = {cls}
    waiting = [cls]
    while waiting:
        new = set(waiting.pop().__subclasses__()) - found
        found |= new
        waiting += new
    return sorted(found, key=lambda each: len(each.__mro__))


def _algorithms_with(name: str) -> list[str]:
    """The algorithms of this package whose configs know a name, present or old."""
    found: set[str] = set()
    for cls in _with_subclasses(ConfigValues):
        algorithm = getattr(cls, "default_algo_class", None)
        # A subclass that a user made belongs to the algorithm of its parent.
        is_ours = algorithm is not None and algorithm.__module__.startswith("trainer.")
        if algorithm is not None and is_ours and cls._names.resolve(name) is not None:
            found.add(algorithm.__name__)
    return sorted(found)


# ---- dictionary


class SettingsDict(dict[str, Any]):
    """All settings of a config as a dict, which old names read and write like the present ones.

    Only the present names are keys. Pickling gives a plain dict.
    """

    def __init__(self, names: NameTable, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._names = names

    def __missing__(self, name: str) -> Any:
        if name == MULTI_AGENT_KEY:
            # Read-only: a change could not be noticed.
            keys = self._names.settings_of("multi_agent")
            return MappingProxyType({key: self[key] for key in self if key in keys})
        if unused := OLD_NAMES.unused_setting(name):
            return OLD_NAMES.unused_settings[unused].default
        old = self._names.old_name(name)
        if old is None:
            raise KeyError(name)
        return self._names.read_old(old, self[old.new])

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or name == MULTI_AGENT_KEY:
            return True
        return isinstance(name, str) and self._names.old_name(name) is not None

    def __setitem__(self, name: str, value: Any) -> None:
        if super().__contains__(name) or name not in self:
            super().__setitem__(name, value)  # of an unknown name, update_from_dict() will tell
            return
        translation = translate(self._names, {name: value})
        raise_problems(f"`{name}`", translation.problems)
        for setting_name, new in translation.writes.items():
            setting = self._names.settings[setting_name]
            if setting_name in translation.partial:
                new = merged_value(setting, new, self[setting_name])
            super().__setitem__(setting_name, new)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting, or `default` when there is no such key."""
        try:
            return self[name]
        except KeyError:
            return default

    def update(self, *given: Any, **settings: Any) -> None:
        """Sets several settings, as `d[name] = value` does."""
        for name, value in dict(*given, **settings).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value of a setting; all are there already."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Takes a setting out of the dict, so that the dict says nothing about it."""
        old = None if super().__contains__(name) else self._names.old_name(name)
        if old is None:
            return super().pop(name, *default)
        value = self[name]
        super().pop(old.new, None)
        return value

    def copy(self) -> SettingsDict:
        """A shallow copy."""
        return SettingsDict(self._names, self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> SettingsDict:
        return SettingsDict(self._names, copy_value(dict(self)))

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)


# ---- description


@dataclass(frozen=True)
class SettingDescription:
    """What there is to know about a setting, as a row for documentation.

    Attributes:
        name: the name of the setting.
        section: the section method that takes it; empty when none does.
        argument: its name there.
        default: its default in this class.
        expected: the values it accepts, in words.
        unit: the unit of numbers; may be empty.
        doc: what it means.
        old_names: other names it is known by.
    """

    name: str
    section: str
    argument: str
    default: Any
    expected: str
    unit: str
    doc: str
    old_names: tuple[str, ...]


def describe(names: NameTable) -> list[SettingDescription]:
    """One row per setting, in order of declaration."""
    return [
        SettingDescription(
            name=name,
            section=setting.section or "",
            argument=setting.argument if setting.section else "",
            default=setting.default,
            expected=setting.check.expected,
            unit=setting.unit,
            doc=setting.doc,
            old_names=old_names_of(name),
        )
        for name, setting in names.settings.items()
    ]


def old_names_of(name: str) -> tuple[str, ...]:
    """The old names that stand for a setting."""
    return tuple(old for old, entry in OLD_NAMES.settings.items() if entry.new == name)

"""A config as a dict: item access, dict configs, and the state that a checkpoint holds."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, TypeVar

from checkpoints.arguments import require_keys
from trainer.config.config_values import ConfigValues, merged_value
from trainer.config.foreign_names import refuse_foreign_names
from trainer.config.names import MULTI_AGENT_KEY, NameTable, translate
from trainer.config.problems import Problem, raise_problems
from trainer.config.read_only import copy_value
from trainer.config.setting import NotProvided
from trainer.config.values import is_plain_data, same_value

ConfigT = TypeVar("ConfigT", bound="DictAccess")


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


class DictAccess(ConfigValues):
    """Lets a config be used like the dict configs of old, and be made from them.

    Keys are the names of settings, present or old; `keys()` and `to_dict()` use the present ones.
    """

    # ---- dict configs

    def update_from_dict(self: ConfigT, config_dict: Mapping[str, Any]) -> ConfigT:
        """Set what a dict config says; the order of its keys makes no difference.

        `env_config`, `model`, `evaluation_config` and other dicts are merged into what is there.
        The dict and what is in it are not changed.

        Args:
            config_dict: values by the names of settings, present or old; `multiagent` holds
                arguments of `multi_agent()`.

        Raises:
            UnknownSettingError: keys that do not exist; all of them.
            ConfigError: two keys that mean the same setting have different values.
            FrozenConfigError: the config is frozen.
        """
        self._apply(self._translated(config_dict, "", "update_from_dict()"), merge=True)
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
        return {name: copy_value(self.read_value(name)) for name in self._names.settings}

    @classmethod
    def overrides(cls, **settings: Any) -> dict[str, Any]:
        """Some settings as a plain dict, checked to exist, e.g. for `evaluation_config`.

        Raises:
            UnknownSettingError: names that do not exist; all of them.
        """
        translation = translate(cls._names, settings)
        raise_problems(f"{cls.__name__}.overrides()", translation.problems)
        return translation.writes

    # ---- item access

    def __getitem__(self, name: str) -> Any:
        return self._read_by_any_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._names.resolve(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.settings)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting, or `default` when there is no such setting."""
        if name not in self:
            return default
        return self[name]

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
        setting = self._names.resolve(name) or name
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
        values = self._copies()
        code = [name for name, value in values.items() if not is_plain_data(value)]
        settings = {name: value for name, value in values.items() if name not in code}
        return {"class": type(self).__name__, "settings": settings, "code": code}

    def names_of_code(self) -> list[str]:
        """The settings that hold something else than plain data: classes, functions, objects."""
        return [name for name, value in self._copies().items() if not is_plain_data(value)]

    @classmethod
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
            CodeNotAllowedError: it names some, and that is not allowed.
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
        for name, value in {**cls.overrides(**state["settings"]), **given}.items():
            config.write_value(name, value)
        config.update_from_dict(changes or {})
        if not allow_code:
            users = {**given, **cls.overrides(**(changes or {}))}
            refuse_foreign_names(config.given_settings(), given=users)
        return config

    # ---- comparing and showing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DictAccess):
            return NotImplemented
        return type(self) is type(other) and all(
            same_value(self.read_value(name), other.read_value(name))
            for name in self._names.settings
        )

    __hash__ = None  # type: ignore[assignment]  # configs change

    def changed_settings(self) -> dict[str, Any]:
        """The settings whose value is not the default of the class; a copy."""
        given = self.given_settings()
        return {
            name: given[name]
            for name, setting in self._names.settings.items()
            if name in given and not same_value(given[name], setting.default)
        }

    def __repr__(self) -> str:
        changed = [f"{name}={value!r}" for name, value in self.changed_settings().items()]
        one_line = f"{type(self).__name__}({', '.join(changed)})"
        if len(one_line) <= 100:
            return one_line
        return f"{type(self).__name__}(\n    " + ",\n    ".join(changed) + ",\n)"

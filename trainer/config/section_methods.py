"""Section methods: what a class calls them with, shows of them, and documents."""

from __future__ import annotations

import inspect
import textwrap
from types import MethodType
from typing import Any

from trainer.config.settings import NameTable, NotProvided
from trainer.old_names import OLD_NAMES

_COLUMNS = 96
_OTHERS = "old_names"


class SectionMethod:
    """A section in the body of a class, found in each class with a signature of its own.

    It sets the settings named by its arguments and returns the config. Only arguments that were
    really given are set, so None is a value like any other. `help()` and completion show all
    arguments that the class takes, with their defaults there: `PPOConfig().training(` offers
    `lr=5e-05`, which PPO's own declaration leaves to that of all algorithms.

    Args:
        name: of the section.
        summary: what it says, the beginning of its docstring.
    """

    def __init__(self, name: str, summary: str) -> None:
        self.name = name
        self.summary = inspect.cleandoc(summary)

    def __get__(self, config: object | None, owner: type) -> Any:
        names: NameTable = owner._names  # type: ignore[attr-defined]
        if self.name not in names.methods:  # a new table if names are added to the class later
            names.methods[self.name] = self._made_for(owner, names)
        function = names.methods[self.name]
        return function if config is None else MethodType(function, config)

    def _made_for(self, owner: type, names: NameTable) -> Any:
        parameters = self._parameters(names)
        name = self.name
        positional = [p.name for p in parameters[1:] if p.kind is p.POSITIONAL_OR_KEYWORD]

        def set_arguments(config: Any, *args: Any, **given: Any) -> Any:
            if len(args) > len(positional):
                raise TypeError(
                    f"{name}() takes {len(positional)} positional argument(s) "
                    f"({', '.join(positional) or 'none'}), not {len(args)}. Give several things "
                    f"for one argument as a list, {name}([a, b]), and other settings by name."
                )
            for argument, value in zip(positional, args, strict=False):
                if argument in given:
                    raise TypeError(f"{name}() got two values for the argument `{argument}`")
                given[argument] = value
            config.set_from_section(name, given)
            return config

        made: Any = set_arguments
        made.__name__, made.__qualname__ = name, f"{owner.__qualname__}.{name}"
        made.__module__ = owner.__module__
        made.__signature__ = inspect.Signature(parameters)
        made.__doc__ = self._docstring(names, parameters)
        return made

    def _parameters(self, names: NameTable) -> list[inspect.Parameter]:
        taken = [s for s in names.settings.values() if s.is_argument_of(self.name)]
        taken.sort(key=lambda setting: not setting.is_positional)
        shown = [
            inspect.Parameter(
                setting.argument,
                inspect.Parameter.POSITIONAL_OR_KEYWORD
                if setting.is_positional
                else inspect.Parameter.KEYWORD_ONLY,
                default=setting.default,
                annotation=setting.annotation if setting.normalize is None else "Any",
            )
            for setting in taken
        ]
        known = {parameter.name for parameter in shown}
        shown += [
            inspect.Parameter(
                argument, inspect.Parameter.KEYWORD_ONLY, default=NotProvided, annotation="Any"
            )
            for argument in names.sections.get(self.name, ())
            if argument not in known
        ]
        myself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        others = inspect.Parameter(_OTHERS, inspect.Parameter.VAR_KEYWORD, annotation="Any")
        return [myself, *shown, others]

    def _docstring(self, names: NameTable, parameters: list[inspect.Parameter]) -> str:
        docs = {
            setting.argument: setting.doc
            for setting in names.settings.values()
            if setting.is_argument_of(self.name)
        }
        shown = [parameter.name for parameter in parameters[1:-1]]
        entries = [
            f"{name}: {docs[name] if name in docs else OLD_NAMES.settings[name].doc}"
            for name in shown
        ]
        entries.append(f"**{_OTHERS}: old names of these settings.")
        lines = [
            textwrap.fill(
                entry,
                _COLUMNS,
                initial_indent=" " * 4,
                subsequent_indent=" " * 8,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for entry in entries
        ]
        raises = "Raises:\n    UnknownSettingError: a setting does not exist."
        return "\n".join([self.summary, "", "Args:", *lines, "", raises])

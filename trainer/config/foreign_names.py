"""What texts in the settings of a file may name: nothing that would have to be imported or called.

A config that is read from a checkpoint or a crash file is made in one place, `from_state`, and all
texts of its settings that the library would look up are judged here, nested settings included:

    env                     a registered id, an env class that this program has imported already, or
                            a harmless one of `trainer.testing`
    exploration_config      every `type` in it: a name of `EXPLORATIONS` or `SCHEDULES`
    replay_buffer_config    every `type` in it: a name of `REPLAY_BUFFERS`

What the caller gives besides is the caller's, and may name anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from checkpoints import CodeNotAllowedError
from trainer.envs.env_factory import leads_to_new_code
from trainer.exploration import is_ready_made
from trainer.replay import names_replay_buffer

_TYPED: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {"exploration_config": is_ready_made, "replay_buffer_config": names_replay_buffer}
)
"""Settings in which each `type` is a name, and which names there are."""

_TRUST: Final = (
    "Pass allow_code=True (--allow-code) only if you trust the checkpoint like a program."
)


@dataclass(frozen=True)
class _Named:
    """A text that the library would look up.

    Attributes:
        place: the setting and the keys that lead to it.
        name: the text.
    """

    place: tuple[object, ...]
    name: str

    @property
    def is_foreign(self) -> bool:
        """Whether to look it up would import or call something that is not there yet."""
        known = [_TYPED[step] for step in self.place if isinstance(step, str) and step in _TYPED]
        return not known[0](self.name) if known else leads_to_new_code(self.name)

    def told(self) -> str:
        """What an error says."""
        setting, *keys = self.place
        where = f"{setting}{''.join(f'[{key!r}]' for key in keys)}"
        if self.place[-1] == "env":
            return (
                f"The saved `{where}` names the env {self.name!r}, which this program has not "
                "imported, or which fails on purpose: to make it would run code because a file "
                "names it. Nothing was made. If it is one of yours, import its class before, or "
                "give it: from_checkpoint(path, env=...), or --env package.module.MyEnv on the "
                f"command line. {_TRUST}"
            )
        return (
            f"The saved `{where}` is {self.name!r}, which is none of the ready-made ones: to look "
            "it up would import a module and call what is in it because a file names it. Nothing "
            f"was imported. If it is yours, give the class: from_checkpoint(path, {setting}="
            f"{{'type': MyClass}}). {_TRUST}"
        )


def refuse_foreign_names(settings: Mapping[str, Any], *, given: Mapping[str, Any]) -> None:
    """Raises if settings from a file name code that is not ready-made or imported.

    Args:
        settings: those that would be used, by their present names.
        given: those of them that the caller gave: the same name at the same place is trusted.

    Raises:
        CodeNotAllowedError: they do; names the first.
    """
    own = set(_named(given))
    for found in _named(settings):
        if found not in own and found.is_foreign:
            raise CodeNotAllowedError(found.told())


def foreign_names(settings: Mapping[str, Any]) -> list[str]:
    """The names in settings that would be refused if a file held them, the first ones first."""
    return [found.name for found in _named(settings) if found.is_foreign]


def _named(settings: Mapping[Any, Any], place: tuple[object, ...] = ()) -> Iterator[_Named]:
    for setting, value in settings.items():
        inside = (*place, setting)
        if setting == "env" and isinstance(value, str):
            yield _Named(inside, str(value))
        elif setting in _TYPED:
            yield from _types(value, inside)
        elif setting == "evaluation_config" and isinstance(value, Mapping):
            yield from _named(value, inside)


def _types(value: Any, place: tuple[object, ...]) -> Iterator[_Named]:
    """Every text under the key `type`, at any depth."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            # A strategy may also be given by its name alone.
            is_name = key in ("type", "sub_exploration") and isinstance(entry, str)
            if is_name:
                yield _Named((*place, key), str(entry))
            else:
                yield from _types(entry, (*place, key))
    elif isinstance(value, list | tuple | set | frozenset):
        for index, entry in enumerate(value):
            yield from _types(entry, (*place, index))

"""Where names of RLlib that nothing here uses are entered, and what they mean; empty until filled.

The rest of the package looks names up here and knows none of them itself. `trainer.rllib_names`
enters them, from outside, when `trainer` is imported: without it everything works, under the
present names only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainer.errors import ConfigError


@dataclass(frozen=True)
class OldName:
    """What an old name of a setting stands for.

    Attributes:
        new: the name of the setting today.
        sections: further section methods that accepted the old name (the section of `new` always
            does).
        key: when not empty, the old name is one entry `key` of the dict-valued setting `new`.
        none_is_silent: None means "not given" and changes nothing.
        beats_number: given together with a plain number for `new`, the old name wins (a schedule
            over a constant).
        sets: further settings that come along, by their present names.
        doc: what `help()` says of it, for those that are shown as arguments; else empty.
    """

    new: str
    sections: tuple[str, ...] = ()
    key: str = ""
    none_is_silent: bool = False
    beats_number: bool = False
    sets: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    doc: str = ""


@dataclass(frozen=True)
class UnusedSetting:
    """A setting of RLlib's that nothing here reads.

    Attributes:
        default: RLlib's, which is what reading it gives until it is set.
        reason: why it has no effect; of one that is refused, what to do instead; a sentence.
        is_refused: values that ask for something are refused; else they are accepted, and logged.
    """

    default: Any
    reason: str
    is_refused: bool = False


@dataclass(frozen=True)
class OldNames:
    """All tables; each is filled once and then only read.

    Attributes:
        settings: old names of settings.
        filters: old values of `observation_filter`, with those of today.
        sections: old section methods that were divided, with the sections whose arguments they
            accept.
        dicts: old dicts whose entries are settings of their own today: arguments of `training()`.
        refused_settings: names without successor, with what to do; refused unless their value asks
            for nothing.
        refused_even_if_false: names without successor of which False asks for something, so that
            only None is silent.
        refused_sections: section methods that are not here, with what to do.
        unused_settings: those that nothing here reads: without effect, or refused.
        config_overrides: methods that are never called on configs, with what to write instead.
        algorithm_overrides: likewise on algorithms.
        learner_overrides: likewise on learners.
        algorithms: algorithms that are not here, in upper case without dashes and underscores, with
            those of ours that solve such tasks.
        result_keys: old keys of results; a function finds the value in a result or one of its
            parts and raises a KeyError if there is none.
        reductions: what RLlib calls reductions of metrics, and how they are written here.
        replay_arguments: old arguments of replay buffers, with those of today.
        refused_replay_arguments: arguments that replay buffers here lack, with what there is
            instead.
        idle_replay_arguments: values of such arguments that ask for what buffers here do anyway.
        refused_explorations: exploration strategies that are not here, with the reason.
        model_configs: functions from a `model_config` to one in the keys of today, and what is
            wrong with the others.
        homes: modules of Ray (their names with blanks between), the module that holds their names
            here, and these names: `Name`, `Name=Other`, `Name=.` for the module itself, `*` for
            all public names of it, `?=Other` for every name.
        other_ways: modules and names of Ray that are not here, and what to write instead.
        not_here: those of which nothing small takes the place, and why.
        members: members of RLlib's objects that are not here, and what to write instead.
        options: options of RLlib's commands, with those of today.
        samples: functions from the list of episodes that a runner has played to one with old names.
        module_paths: functions from where RLlib keeps modules in checkpoints to where they are.
    """

    settings: dict[str, OldName] = dataclasses.field(default_factory=dict)
    filters: dict[str, str] = dataclasses.field(default_factory=dict)
    sections: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    dicts: dict[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    refused_settings: dict[str, str] = dataclasses.field(default_factory=dict)
    refused_even_if_false: set[str] = dataclasses.field(default_factory=set)
    refused_sections: dict[str, str] = dataclasses.field(default_factory=dict)
    unused_settings: dict[str, UnusedSetting] = dataclasses.field(default_factory=dict)
    config_overrides: dict[str, str] = dataclasses.field(default_factory=dict)
    algorithm_overrides: dict[str, str] = dataclasses.field(default_factory=dict)
    learner_overrides: dict[str, str] = dataclasses.field(default_factory=dict)
    algorithms: dict[str, str] = dataclasses.field(default_factory=dict)
    result_keys: dict[str, Callable[[Mapping[str, Any]], Any]] = dataclasses.field(
        default_factory=dict
    )
    reductions: dict[str, str] = dataclasses.field(default_factory=dict)
    replay_arguments: dict[str, str] = dataclasses.field(default_factory=dict)
    refused_replay_arguments: dict[str, str] = dataclasses.field(default_factory=dict)
    idle_replay_arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    refused_explorations: dict[str, str] = dataclasses.field(default_factory=dict)
    model_configs: list[Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[str]]]] = (
        dataclasses.field(default_factory=list)
    )
    homes: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    other_ways: dict[str, str] = dataclasses.field(default_factory=dict)
    not_here: dict[str, str] = dataclasses.field(default_factory=dict)
    members: dict[str, str] = dataclasses.field(default_factory=dict)
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    samples: list[Callable[[list[Any]], list[Any]]] = dataclasses.field(default_factory=list)
    module_paths: list[Callable[[Any], Any]] = dataclasses.field(default_factory=list)

    def unused_setting(self, name: str) -> str:
        """The present name of a setting that nothing here reads; empty for any other name."""
        present = self.settings[name].new if name in self.settings else name
        return present if present in self.unused_settings else ""


ANSWERS_RAY: Final = "LOCAL_TRAINER_ANSWERS_RAY"
"""Environment variable that tells processes of a script for RLlib to answer `import ray`."""

OLD_NAMES: Final = OldNames()
"""The tables of this process."""


def present_module_path(path: Any) -> Any:
    """Where modules are in a checkpoint, of a path that may name RLlib's place for them."""
    for translated in OLD_NAMES.module_paths:
        path = translated(path)
    return path


def refuse_overrides(cls: type, advice: Mapping[str, str]) -> None:
    """Refuses a class of the user's that overrides what is never called.

    Args:
        cls: the new class.
        advice: what to write instead, by the name of the method.

    Raises:
        ConfigError: it does; names every such method.
    """
    if cls.__module__.startswith("trainer."):
        return
    found = [name for name in advice if name in vars(cls)]
    if found:
        raise ConfigError(
            f"{cls.__name__} overrides what nothing here calls: "
            + " ".join(f"`{name}`. {advice[name]}" for name in found)
        )

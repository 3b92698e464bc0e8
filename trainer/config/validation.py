"""Judging a config: single values, what is not offered, callbacks, rules; all problems at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from callbacks.errors import CallbackConfigError
from trainer.config.problems import Problem, assignment
from trainer.config.rule import Rule
from trainer.config.sections import Sections
from trainer.config.setting import Setting
from trainer.errors import ConfigError
from trainer.modules import DefaultModelConfig, RLModuleSpec


def value_problems(
    settings: Mapping[str, Setting[Any]], values: Mapping[str, Any]
) -> Iterator[Problem]:
    """The values that their settings do not accept."""
    for name, setting in settings.items():
        if setting.check.accepts(values[name]):
            continue
        unit = f" ({setting.unit})" if setting.unit else ""
        where = f"See {setting.section}()." if setting.section else ""
        expected = f"expected {setting.check.expected}{unit}."
        yield Problem(assignment(name, values[name]), expected, where, (name,))


def callback_problems(config: Sections) -> Iterator[Problem]:
    """What is wrong with the configured callbacks."""
    try:
        config.callback_spec()
    except CallbackConfigError as error:
        for text in error.problems:
            yield Problem("callbacks()", text, settings=("callbacks_class",))


def module_problems(config: Sections) -> Iterator[Problem]:
    """What is wrong with `model_config`, when the ready-made network reads it."""
    spec = config.rl_module_spec
    if spec is not None and (not isinstance(spec, RLModuleSpec) or spec.module_class is not None):
        return
    model_config = config.model_config if spec is None else spec.model_config
    try:
        DefaultModelConfig.from_setting(model_config)
    except ConfigError as error:
        yield Problem("`model_config`", str(error), settings=("model_config",))


def rule_problems(
    config: Sections, rules: Sequence[Rule], earlier: Iterable[Problem]
) -> Iterator[Problem]:
    """The rules that are broken, of those whose settings have no problem yet."""
    doubtful = {name for problem in earlier for name in problem.settings}
    for rule in rules:
        if not doubtful.isdisjoint(rule.settings):
            continue
        try:
            yield from list(rule.find(config))
        except Exception:
            # A rule may look at more settings than it judges; those that are wrong are told.
            if not doubtful:
                raise


def in_place(problem: Problem, place: str) -> Problem:
    """The same problem, told to be in a part of the config."""
    return dataclasses.replace(problem, what=f"{place}: {problem.what}")

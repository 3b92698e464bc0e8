"""Writes docs/settings.md from what the config classes say about themselves.

    python docs/make_settings.py            writes the page
    python docs/make_settings.py --check    exit code 1 if the page is out of date; writes nothing

Nothing about a setting is written here: names, defaults, checks
and meanings come from the declarations (`AlgorithmConfig.describe_settings`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from made_page import write_or_check

import trainer
from callbacks import EVENTS
from trainer import AlgorithmConfig, PPOConfig
from trainer.config.config_values import SettingDescription, old_names_of
from trainer.rllib_names.config import UNUSED_SETTINGS

PAGE: Final = Path(__file__).with_name("settings.md")

_CONFIGS: Final[tuple[type[AlgorithmConfig], ...]] = tuple(
    getattr(trainer, f"{name}Config")
    for name in ["PPO", "APPO", "IMPALA", "PG", "DQN", "SAC", "TD3", "DDPG", "BC", "MARWIL", "CQL"]
)
"""The configs in the order of docs/algorithms.md."""

_ORDER: Final = ("environment", "env_runners", "training", "rl_module", "callbacks", "evaluation")
"""Sections that come first; the others follow in the order of their declaration."""

_INTRODUCTION: Final = """\
# Settings

Here you look up a setting: its name, its default, what it accepts and what it means.

The [settings of all algorithms](#environment) come first, with PPO's defaults, by the section
method that takes them. Then follow [those of some algorithms](#settings-of-some-algorithms), the
[defaults](#other-defaults) in which other algorithms differ from PPO, and RLlib's settings that are
[accepted without effect](#accepted-without-effect) or [not offered](#not-offered-in-this-version).

```python
from trainer import PPOConfig

config = PPOConfig()
config.environment("CartPole-v1")
config.training(lr=3e-4, train_batch_size=2048)
config.lr = 1e-4  # or as an attribute
config.update_from_dict({"num_sgd_iter": 4})  # or in a dict, by any of its names
assert config["num_epochs"] == 4
config.validate()
```

An unknown name is an error where it is written. All other problems of a config are reported at
once, when it is validated or built. "Old names" work wherever the name does.

## Schedules

`lr=[[0, 3e-4], [1_000_000, 0.0]]` is a learning rate that decays to 0 over a million
env steps. A schedule has at least two pairs `[env_steps, value]`, the first at 0; between two of
them the value changes linearly. Old names such as `lr_schedule` take the same.

This page is made by `docs/make_settings.py`; do not edit it by hand.
"""

_SOME: Final = """\
## Settings of some algorithms

Where algorithms have different defaults, all are given.
"""

_OTHER_DEFAULTS: Final = """\
## Other defaults

Defaults of the settings of all algorithms that are not those of PPO.
"""

_NO_EFFECT: Final = """\
## Accepted without effect

These can stay in a config that was written for RLlib. They change nothing here.
"""

_NOT_OFFERED: Final = """\
## Not offered in this version

These are refused with a `ConfigError`, unless their value asks for nothing: None, 0 or `{}`.
"""

_EVENTS: Final = (
    f"{', '.join(f'`{event}`' for event in EVENTS)}",
    "`None`",
    "None, a callable or a list of callables",
    "Functions called at an [event](callback-events.md). As an attribute: `callbacks_on_…`.",
)
"""One row for the functions of all events, which differ in nothing else."""

_SCHEDULE: Final = (
    ", or a schedule [[env_steps, value], ...] of at least two pairs that starts at 0 and ascends"
)
"""What checks say of schedules, which the introduction says here."""

Defaults = list[tuple[str, str]]
"""Configs and their defaults of a setting."""


def page() -> str:
    """The whole page as text."""
    common = {_key(row) for row in AlgorithmConfig.describe_settings()}
    rows = [row for row in PPOConfig.describe_settings() if row.section and _key(row) in common]
    parts = [_INTRODUCTION]
    for section in dict.fromkeys((*_ORDER, *(row.section for row in rows))):
        mine = [_row(row, f"`{row.default!r}`") for row in rows if row.section == section]
        if section == "callbacks":
            mine = [*(cells for cells in mine if not cells[0].startswith("`on_")), _EVENTS]
        parts.append(f"## `{section}()`\n\n{_settings_table(mine)}")
    parts += [_SOME, *_of_some(common)]
    parts.append(f"{_OTHER_DEFAULTS}\n{_other_defaults(rows)}")
    parts.append(f"{_NO_EFFECT}\n{_unused_table('why', are_refused=False)}")
    parts.append(f"{_NOT_OFFERED}\n{_unused_table('what to do instead', are_refused=True)}")
    return "\n".join(parts)


def _key(row: SettingDescription) -> tuple[str, str, str]:
    """What makes a setting the same in two configs; its default may differ."""
    return row.name, row.expected, row.doc


def _of_some(common: Collection[tuple[str, str, str]]) -> Iterator[str]:
    """A part for each set of algorithms that have settings which not all have."""
    found: dict[tuple[str, str, str], SettingDescription] = {}
    defaults: dict[tuple[str, str, str], Defaults] = {}
    for config_class in _CONFIGS:
        for row in config_class.describe_settings():
            if row.section and _key(row) not in common:
                found.setdefault(_key(row), row)
                name = config_class.__name__.removesuffix("Config")
                defaults.setdefault(_key(row), []).append((name, f"`{row.default!r}`"))
    groups: dict[tuple[str, tuple[str, ...]], list[Sequence[str]]] = {}
    for key, row in found.items():
        owners = tuple(f"`{name}Config`" for name, _ in defaults[key])
        groups.setdefault((row.section, owners), []).append(_row(row, _defaults(defaults[key])))
    for (section, owners), rows in groups.items():
        last = f" and {owners[-1]}" if len(owners) > 1 else owners[-1]
        heading = f"### `{section}()` of {', '.join(owners[:-1])}{last}"
        yield f"{heading}\n\n{_settings_table(rows)}"


def _defaults(defaults: Defaults) -> str:
    """The default, or all of them with the algorithms that have them."""
    values: dict[str, list[str]] = {}
    for name, default in defaults:
        values.setdefault(default, []).append(name)
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in values.items())


def _other_defaults(rows: Sequence[SettingDescription]) -> str:
    """By algorithm: its defaults that differ from those of some rows."""
    lines = []
    for config_class in _CONFIGS[1:]:
        defaults = {_key(row): row.default for row in config_class.describe_settings()}
        others = [
            f"`{row.argument}={defaults[_key(row)]!r}`"
            for row in rows
            if defaults.get(_key(row), row.default) != row.default
        ]
        lines.append((f"`{config_class.__name__}`", ", ".join(others)))
    return _table(("config", "defaults"), lines)


def _row(row: SettingDescription, default: str) -> tuple[str, str, str, str]:
    unit = f" ({row.unit})" if row.unit else ""
    doc = _sentence(row.doc)
    if row.old_names:
        old = ", ".join(f"`{name}`" for name in row.old_names)
        doc = f"{doc} Old {'names' if len(row.old_names) > 1 else 'name'}: {old}."
    if row.argument != row.name:
        doc = f"{doc} As an attribute: `{row.name}`."
    expected = row.expected.partition(", because ")[0].replace(_SCHEDULE, " or a schedule")
    return f"`{row.argument}`", default, f"{expected}{unit}", doc


def _settings_table(rows: Iterable[Sequence[str]]) -> str:
    return _table(("argument", "default", "accepts", "meaning"), rows)


def _unused_table(heading: str, *, are_refused: bool) -> str:
    """A row per reason, with all settings that it is the reason for."""
    names: dict[str, list[str]] = {}
    for name, setting in UNUSED_SETTINGS.items():
        if setting.is_refused is are_refused:
            names.setdefault(setting.reason, []).extend((name, *old_names_of(name)))
    lines = [(", ".join(f"`{name}`" for name in all_), why) for why, all_ in names.items()]
    return _table(("settings", heading), lines)


def _sentence(text: str) -> str:
    first, rest = text[:1], text[1:]
    return (first.upper() if first.isascii() else first) + rest


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    return write_or_check(PAGE, page, arguments, script="make_settings.py")


if __name__ == "__main__":
    raise SystemExit(main())

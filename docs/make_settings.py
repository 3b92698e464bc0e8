"""Writes docs/settings.md from what the config classes say about themselves.

    python docs/make_settings.py            writes the page
    python docs/make_settings.py --check    exit code 1 if the page is out of date; writes nothing

Nothing about a setting is written here: names, defaults, checks
and meanings come from the declarations (`AlgorithmConfig.describe_settings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from made_page import write_or_check

import trainer
from trainer import AlgorithmConfig, PPOConfig
from trainer.config.config_values import SettingDescription, old_names_of
from trainer.rllib_names.config import UNUSED_SETTINGS

PAGE: Final = Path(__file__).with_name("settings.md")

_OTHERS: Final[tuple[type[AlgorithmConfig], ...]] = tuple(
    offered
    for offered in (getattr(trainer, name) for name in trainer.__all__)
    if isinstance(offered, type) and issubclass(offered, AlgorithmConfig)
    if offered not in (AlgorithmConfig, PPOConfig)
)
"""Configs of which only what differs from `AlgorithmConfig` is listed."""

_ORDER: Final = ("environment", "env_runners", "training", "rl_module", "callbacks", "evaluation")
"""Sections that come first; the others follow in the order of their declaration."""

_INTRODUCTION: Final = """\
# Settings

This page is made by `docs/make_settings.py`; do not edit it by hand.

It lists every setting of `PPOConfig`, and [below](#settings-of-dqnconfig) what the configs of the
other algorithms add or change. A setting is given to the section method it is listed under:

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

All problems of a config are reported at once, when it is validated or built. An unknown
name is an error where it is written. Defaults are those of PPO; "PPO" marks those that differ
from `AlgorithmConfig`, and settings that only PPO has. "Old names" work wherever the name does.

Two kinds of settings stand apart, at the end of the page: those that are accepted and change
nothing, and those that this version refuses unless they ask for nothing.
"""

_NO_EFFECT: Final = """\
## Accepted without effect

These can stay in a config that was written for RLlib. They change nothing here.
"""

_NOT_OFFERED: Final = """\
## Not offered in this version

These are refused with a `ConfigError`, unless their value asks for nothing (the default does).
"""


def page() -> str:
    """The whole page as text."""
    rows = [row for row in PPOConfig.describe_settings() if row.section]
    parts = [_INTRODUCTION]
    for section in dict.fromkeys((*_ORDER, *(row.section for row in rows))):
        mine = [row for row in rows if row.section == section]
        if mine:
            parts.append(f"## `{section}()`\n\n{_settings_table(mine)}")
    parts += [_differences(config_class) for config_class in _OTHERS]
    parts.append(f"{_NO_EFFECT}\n{_unused_table('why', are_refused=False)}")
    parts.append(f"{_NOT_OFFERED}\n{_unused_table('what to do instead', are_refused=True)}")
    return "\n".join(parts)


def _differences(config_class: type[AlgorithmConfig]) -> str:
    """What an algorithm adds to the common settings, and which defaults it changes."""
    common = {row.name: row.default for row in AlgorithmConfig.describe_settings()}
    rows = [
        row
        for row in config_class.describe_settings()
        if row.section and (row.name not in common or common[row.name] != row.default)
    ]
    return f"## Settings of `{config_class.__name__}`\n\n{_settings_table(rows, mark='')}"


def _settings_table(rows: Iterable[SettingDescription], *, mark: str = " (PPO)") -> str:
    common = {row.name: row.default for row in AlgorithmConfig.describe_settings()}
    lines = []
    for row in rows:
        is_of_ppo = row.name not in common or common[row.name] != row.default
        default = f"`{row.default!r}`" + (mark if is_of_ppo else "")
        unit = f" ({row.unit})" if row.unit else ""
        doc = _sentence(row.doc)
        if row.old_names:
            old = ", ".join(f"`{name}`" for name in row.old_names)
            doc = f"{doc} Old {'names' if len(row.old_names) > 1 else 'name'}: {old}."
        if row.argument != row.name:
            doc = f"{doc} As an attribute: `{row.name}`."
        lines.append((f"`{row.argument}`", default, f"{row.expected}{unit}", doc))
    return _table(("argument", "default", "accepts", "meaning"), lines)


def _unused_table(heading: str, *, are_refused: bool) -> str:
    lines = [
        (f"`{name}`", ", ".join(f"`{old}`" for old in old_names_of(name)), setting.reason)
        for name, setting in UNUSED_SETTINGS.items()
        if setting.is_refused is are_refused
    ]
    return _table(("setting", "old names", heading), lines)


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

"""Which checkpoint the user means: a directory of a run stands for its newest one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from checkpoints import latest_checkpoint
from checkpoints.leftovers import is_damaged_name
from checkpoints.listing import damages_in
from checkpoints.run_directories import newest_whole
from trainer.cli.run_plan import RUN_FILE
from trainer.errors import ConfigError

_MAX_SHOWN: Final = 3


def checkpoint_at(path: str) -> Path:
    """The checkpoint at a path: itself, or the newest of a run's directory.

    Raises:
        ConfigError: nothing is there, or the directory of a run that has not saved anything.
    """
    given = _existing(path)
    for directory in (given / "checkpoints", given):
        if directory.is_dir() and not (directory / "manifest.json").exists():
            found = latest_checkpoint(directory)
            if found is not None:
                return found
    whole = given.resolve()
    damages = [text for place in (whole / "checkpoints", whole) for text in damages_in(place)]
    if damages and not (given / "manifest.json").exists():
        raise ConfigError(_all_damaged(given, damages))
    if (given / RUN_FILE).is_file():
        raise ConfigError(
            f"{given.resolve()} is the directory of a run without a checkpoint: it ended before "
            "it saved one. Start again: local-trainer train --run-dir, with what it was started "
            "with."
        )
    return given


def newest_whole_at(path: str) -> Path:
    """The checkpoint at a path: itself, or the newest of a run's directory that is not damaged.

    Complete ones whose bytes are not as their hashes say are passed over, with a warning.

    Raises:
        ConfigError: nothing is there, or the directory of a run that has not saved anything.
    """
    newest = checkpoint_at(path)
    if newest == _existing(path):
        return newest
    return newest_whole(newest.parent) or newest  # reading it tells


def all_checkpoints_at(path: str) -> list[Path]:
    """The checkpoint at a path, or all of a run's directory, damaged ones included, by name.

    Raises:
        ConfigError: nothing is there, or the directory of a run that has not saved anything.
    """
    given = _existing(path)
    for directory in (given, given / "checkpoints"):
        if not directory.is_dir() or (directory / "manifest.json").exists():
            continue
        found = sorted(
            entry
            for entry in directory.iterdir()
            if not entry.name.startswith(".")
            and not is_damaged_name(entry.name)
            and os.path.lexists(entry / "manifest.json")
        )
        if found:
            return found
    return [checkpoint_at(path)]


def _all_damaged(given: Path, damages: list[str]) -> str:
    shown = "\n".join(f"  {text}" for text in damages[:_MAX_SHOWN])
    if len(damages) > _MAX_SHOWN:
        shown += f"\n  and {len(damages) - _MAX_SHOWN} more"
    what = "1 checkpoint, which is" if len(damages) == 1 else f"{len(damages)} checkpoints, all"
    return (
        f"{given.resolve()} holds {what} damaged:\n{shown}\nNothing was changed. Put back copies "
        "of their files if there are any; else start again with another --run-dir."
    )


def _existing(path: str) -> Path:
    given = Path(path).expanduser()
    if not os.path.lexists(given):  # which never raises, whatever the name
        raise ConfigError(
            f"{given.absolute()} does not exist. Give the directory of a run, such as runs/<run>, "
            "or one of the checkpoints in it."
        )
    return given

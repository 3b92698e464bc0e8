"""Links in folders that may come from strangers: those that lead out of the folder are refused.

A run, an experiment or a trial that was unpacked from an archive may hold symbolic links to any
file that its reader can open. Written through, they would destroy that file; read through, they
would put it into a report. So before anything in such a folder is read or written, all of it is
looked through, once: when a run is locked or read, when an experiment is restored or read. After
that no other file needs to think of links. A folder itself may be a link: its user named it.

Links that are made while a program works there are not looked for: that takes another user of this
machine, whom file modes keep out.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from checkpoints.errors import LinkError
from checkpoints.strict_files import unreadable
from trainer_toolkit.files import NOTHING_THERE

_ENDLESS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_inside(path: Path, folder: Path) -> None:
    """Raises a LinkError if a path in a folder leads out of it, through whichever link."""
    try:
        target, whole = path.resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise LinkError(f"{path} is a link that leads nowhere: {error}. {_advice(path)}") from error
    if not target.is_relative_to(whole):
        raise LinkError(
            f"{path} is a link that leads out of {folder}, to {target}: what is read or written "
            f"there would be a file that is no part of it. Nothing was changed. {_advice(path)}"
        )


def check_links(folder: Path) -> None:
    """Looks through a folder, which need not be there, for links that lead out of it.

    Pipes and devices are refused, too: reading one may never end.

    Raises:
        LinkError: names the first of them, and where it leads.
        CheckpointUnreadableError: a folder in it cannot be listed.
    """
    waiting = [folder]
    while waiting:
        for entry in _entries(waiting.pop()):
            if entry.is_symlink():
                check_inside(Path(entry.path), folder)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            elif not entry.is_file(follow_symlinks=False):
                _check_ends(Path(entry.path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        if error.errno in NOTHING_THERE:  # a run that is under way removes some
            return []
        raise unreadable(folder, error) from error


def _check_ends(path: Path) -> None:
    """Raises for what can be read for ever; a socket cannot be opened at all."""
    try:
        kind = _ENDLESS.get(stat.S_IFMT(path.lstat().st_mode))
    except FileNotFoundError:
        return
    if kind is not None:
        raise LinkError(
            f"{path} is {kind}, no file: reading it may never end. Nothing was changed. Remove it."
        )


def _advice(path: Path) -> str:
    return (
        f"Remove {path.name}, or put a copy of what it leads to in its place; to keep the whole "
        "folder elsewhere, let a link lead to the folder itself."
    )

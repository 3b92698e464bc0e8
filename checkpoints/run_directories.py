"""Which checkpoint is meant by the directory of a run: the newest that is whole."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from checkpoints.errors import CheckpointCorruptError, CheckpointError
from checkpoints.leftovers import parse_leftover
from checkpoints.listing import PathLike, find_checkpoints, resolve_path
from checkpoints.manifest import MANIFEST_FILE
from checkpoints.reader import verify

_LOGGER: Final = logging.getLogger(__name__)

CHECKPOINTS: Final = "checkpoints"
"""The directory with the checkpoints in the directory of a run of the command line."""


def checkpoint_of_run(path: PathLike) -> PathLike:
    """Return the newest whole checkpoint if a path is a directory of several, else the path itself.

    Looked at are `<path>/checkpoints` and the path itself. Which one was taken is logged, and so is
    each that was passed over because its bytes are not as its hashes say. If all are damaged, the
    newest is returned: reading it tells.

    Raises:
        CheckpointError: if the path cannot be one.
    """
    given = resolve_path(path)
    if not given.is_dir() or (given / MANIFEST_FILE).exists() or parse_leftover(given) is not None:
        return path
    for directory in (given / CHECKPOINTS, given):
        newest = newest_whole(directory)
        if newest is not None:
            _LOGGER.info("%s is a directory of checkpoints: %s is taken.", given, newest)
            return newest
    return path


def newest_whole(directory: Path) -> Path | None:
    """Return the newest checkpoint in a directory that is not damaged; None if there is none.

    If all are damaged, the newest of them.
    """
    if not directory.is_dir():
        return None
    found = find_checkpoints(directory)
    for checkpoint in reversed(found):
        try:
            verify(checkpoint.path)
        except CheckpointCorruptError as error:
            _LOGGER.warning("The newest checkpoint is passed over for an older one: %s", error)
            continue
        except CheckpointError:  # of a newer version, or being replaced: reading it tells
            return checkpoint.path
        return checkpoint.path
    return found[-1].path if found else None

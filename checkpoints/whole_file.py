"""Writing one file for others to read: it appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from checkpoints.errors import CheckpointWriteError
from checkpoints.file_system import FileSystem
from checkpoints.listing import PathLike, resolve_path


def write_whole_file(
    file: PathLike, write: Callable[[BinaryIO], None], *, overwrite: bool = False
) -> Path:
    """Let `write` fill a file beside its place, put it there, and return its absolute path.

    Whenever the process or the machine stops, the old content or the new one is there, whole.

    Raises:
        CheckpointWriteError: if something is there already and `overwrite` is false, or if it
            cannot be written.
    """
    target = resolve_path(file)
    if os.path.lexists(target) and not overwrite:
        raise CheckpointWriteError(
            f"{target} exists, and would be lost. Give another name, or allow it with "
            "`overwrite=True` (`--overwrite`)."
        )
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        unfinished = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                write(opened)
                # Or a power failure could leave the new name on an empty file.
                FileSystem().sync_file(opened)
            unfinished.chmod(0o644)  # temporary files are for their owner only
            unfinished.replace(target)
            FileSystem().sync_directory(target.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CheckpointWriteError(
            f"{target} could not be written: {error}. Check that its folder exists, free space and "
            "permissions."
        ) from error
    return target

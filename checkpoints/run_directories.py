"""Directories of runs: the checkpoint to go on from, and paths that follow a copied run."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from checkpoints.errors import CheckpointCorruptError, CheckpointError
from checkpoints.listing import PathLike, find_checkpoints, parse_leftover, resolve_path
from checkpoints.manifest import MANIFEST_FILE
from checkpoints.reader import verify

# ---- run directories
#
# Which checkpoint is meant by the directory of a run: the newest that is whole.

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


# ---- moved paths
#
# Paths inside saved code, which follow the checkpoint when its project is copied or moved.
# Objects that write files, such as callbacks, are pickled with absolute paths. If the checkpoint
# is found elsewhere than it was saved, those paths are of another run, whose files are not ours
# to replace or remove. So an object that owns a path asks `moved_path` for it while it is
# unpickled:
#
#     def __setstate__(self, state):
#         self.__dict__.update(state, path=moved_path(state["path"]))
#
# The manifest says where a checkpoint with code was saved (`SAVED_AT`). What the two places have
# in common at their end is what was copied along: `/a/proj/saves/000005` that is found as
# `/b/copy/saves/000005` takes all of `/a/proj` to `/b/copy`.

SAVED_AT: Final = "saved_at"
"""The key of the manifest's metadata; only checkpoints with code have it."""


@dataclasses.dataclass(frozen=True)
class _Move:
    """From where a checkpoint was saved to where it is now; both are its own directory."""

    source: Path
    target: Path

    def apply(self, path: Path) -> Path:
        """Where that path of the run is now."""
        path = path.resolve()
        if path.is_relative_to(self.target.parent):
            return path  # a copy within the run's own directory, such as `best` beside `saves`
        old_root, new_root = self._roots()
        if path.is_relative_to(old_root):
            return new_root / path.relative_to(old_root)
        if not self.source.parent.exists():
            return path  # moved, not copied: nobody else writes there
        moved = new_root / path.name
        _LOGGER.warning(
            "The checkpoint %s is a copy of %s, whose run writes to %s, outside of what was "
            "copied. This run writes to %s instead. Give the callbacks anew "
            "(from_checkpoint(path, callbacks=[...])) for another place.",
            self.target,
            self.source,
            path,
            moved,
        )
        return moved

    def _roots(self) -> tuple[Path, Path]:
        """The directories that correspond: without what both paths have in common at the end."""
        old, new = self.source, self.target
        while old.name == new.name and old != old.parent and new != new.parent:
            old, new = old.parent, new.parent
        if old == self.source:  # renamed: what was beside it is beside it
            return old.parent, new.parent
        return old, new


_MOVE: Final[ContextVar[_Move | None]] = ContextVar("_MOVE", default=None)


@contextlib.contextmanager
def paths_following(saved_at: object, path: PathLike) -> Iterator[None]:
    """Lets `moved_path` take paths to where a checkpoint is now.

    Args:
        saved_at: what its manifest says; None or anything else than a text moves nothing.
        path: where it is now.
    """
    target = resolve_path(path)
    is_known = isinstance(saved_at, str) and Path(saved_at).is_absolute()
    move = _Move(Path(str(saved_at)), target) if is_known else None
    if move is not None and _is_same(move.source, target):
        move = None
    token = _MOVE.set(move)
    try:
        yield
    finally:
        _MOVE.reset(token)


def moved_path(path: Path) -> Path:
    """Where a path of a saved object is, inside `paths_following`; elsewhere the path itself."""
    move = _MOVE.get()
    return path if move is None else move.apply(path)


def _is_same(first: Path, second: Path) -> bool:
    if first == second:
        return True
    try:
        return first.samefile(second)  # one place with two names, such as a mount
    except (OSError, ValueError):
        return False

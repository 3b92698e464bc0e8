"""A directory in which one callback keeps checkpoints of one run, named by their iteration.

It writes, lists and removes; what to keep is decided by those who use it. Only directories that are
named as this file names them are ever counted or removed: what a user saves beside them stays.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from callbacks.views import AlgorithmView
from checkpoints import (
    CheckpointWriteError,
    FileSystem,
    FoundCheckpoint,
    WhenOver,
    find_checkpoints,
    latest_checkpoint,
    verify,
)
from checkpoints.code import moved_path
from checkpoints.directory import (
    is_unfinished,
    make_directories,
    remove_checkpoint,
    remove_unfinished,
)
from checkpoints.links import check_inside
from checkpoints.listing import PathLike, resolve_path
from trainer_toolkit.files import DirectoryLock, numbered_beside, remedy

# ---- directory claims
#
# Which directories an algorithm keeps checkpoints in, so that all others keep away from them. Two
# runs in one directory would replace and remove each other's checkpoints, and neither would know.
# The claim is a lock that the operating system takes back when the process ends, however it ends;
# it ends earlier when the algorithm is stopped, or when nothing refers to it any more; then another
# one, such as one that was restored from its checkpoints, can go on there.


class _Claim:
    """A lock that is released when it is needed no more."""

    def __init__(self, path: Path) -> None:
        self.lock: Final = DirectoryLock(path)
        weakref.finalize(self, self.lock.release)


# Global because the directories are; weak, so that it keeps no algorithm alive.
_CLAIMS: Final[WeakKeyDictionary[AlgorithmView, dict[Path, _Claim]]] = WeakKeyDictionary()


def claim_directory(path: Path, algorithm: AlgorithmView) -> None:
    """Note that an algorithm of this process keeps checkpoints in a directory, which is made.

    Where the file system has no locks, other processes are not kept away. The claim lasts no longer
    than the algorithm's run.

    Raises:
        CheckpointWriteError: another algorithm does, here or in another process, or the directory
            cannot be made.
    """
    claims = _CLAIMS.setdefault(algorithm, {})
    mine = claims.get(path)
    if mine is not None and mine.lock.holds(path):
        return
    if _is_claimed_beside(algorithm, path):
        gc.collect()  # an algorithm without references may still hold itself
        if _is_claimed_beside(algorithm, path):
            raise CheckpointWriteError(
                f"{path} is in use: another algorithm of this process keeps its checkpoints there. "
                "Two runs in one directory would replace and remove each other's. Nothing was "
                "written. Give each a directory of its own, or call stop() of the other one first."
            )
    claims[path] = _claimed(path)  # mine may be of a directory that was removed and made again


def _is_claimed_beside(algorithm: AlgorithmView, path: Path) -> bool:
    for other, claims in list(_CLAIMS.items()):
        if other.is_stopped:
            claims.clear()
    return any(path in claims and other is not algorithm for other, claims in list(_CLAIMS.items()))


def release_directories(algorithm: AlgorithmView) -> None:
    """Give up all that an algorithm claimed; for one whose run is over."""
    _CLAIMS.pop(algorithm, None)


def _claimed(path: Path) -> _Claim:
    try:
        make_directories(path, FileSystem())
        return _Claim(path)
    except BlockingIOError as error:
        raise CheckpointWriteError(
            f"{path} is in use: the run of another process keeps its checkpoints there. Two runs "
            "in one directory would replace and remove each other's. Nothing was written. Give "
            "each run a directory of its own, or stop the other one first."
        ) from error
    except OSError as error:
        raise CheckpointWriteError(
            f"Checkpoints cannot be kept in {path}: {error}. Nothing was written. {remedy(error)}; "
            "or give another directory."
        ) from error


# ---- checkpoint directory

_LOGGER: Final = logging.getLogger(__name__)


def checkpoint_name(iteration: int) -> str:
    """The name of a checkpoint: its iteration with at least six digits, so that names sort."""
    return f"{iteration:06d}"


class CheckpointDirectory:
    """Checkpoints of a run by their iteration: `<path>/000010`, `<path>/000020` and so on.

    Args:
        path: the directory, resolved once; made when the first checkpoint is saved.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = resolve_path(path)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, path=moved_path(state["path"]))

    def save(self, algorithm: AlgorithmView, *, in_background: WhenOver | None = None) -> Path:
        """Saves the algorithm under the name of its iteration, and returns where.

        One of this name is replaced, a damaged one, too.

        Args:
            algorithm: what to save.
            in_background: called when the checkpoint is there or will never be, while training goes
                on; None to wait for it.

        Raises:
            CheckpointError: it cannot be saved; a checkpoint that was there before is whole.
            LinkError: a link of this name leads elsewhere.
        """
        target = self.path / checkpoint_name(algorithm.training_iteration)
        check_inside(target, self.path)
        if in_background is None:
            return Path(algorithm.save_to_path(target))
        return Path(algorithm.save_to_path(target, background=True, when_over=in_background))

    def find(self) -> list[FoundCheckpoint]:
        """The complete checkpoints, oldest first."""
        return [
            found
            for found in find_checkpoints(self.path)
            if found.path.name == checkpoint_name(found.manifest.training_iteration)
        ]

    def holds_any(self) -> bool:
        """Whether anything is there that may be a checkpoint, a damaged one included."""
        if latest_checkpoint(self.path) is not None:
            return True
        return self.path.is_dir() and any(not is_unfinished(path) for path in self.path.iterdir())

    def remove_older(self, *, keep: int, until: int, is_verified: bool = False) -> None:
        """Removes all but the newest, counted back from an iteration.

        Later checkpoints are of another run, or of what this run did before it was restored from an
        older one. They neither count nor go, so that they cannot push out what was just saved.

        Args:
            keep: how many stay.
            until: the iteration of the newest that counts.
            is_verified: whether the newest was already read back and compared.

        Raises:
            CheckpointError: the newest is damaged, or one cannot be removed.
        """
        own = [found for found in self.find() if found.manifest.training_iteration <= until]
        names = [found.path.name for found in own[:-keep]]
        self.remove(names, saved=checkpoint_name(until), is_verified=is_verified)

    def remove(self, names: Sequence[str], *, saved: str, is_verified: bool = False) -> None:
        """Removes checkpoints by name, after one that was just saved has been verified.

        What killed saves and removals left goes, too.

        Args:
            names: what to remove; names that do not exist are passed over.
            saved: the name of the new one, which has to be whole before others go.
            is_verified: whether it was already read back and compared.

        Raises:
            CheckpointError: the new one is damaged, or one cannot be removed.
        """
        present = [self.path / name for name in names if (self.path / name).is_dir()]
        if present and not is_verified:
            verify(self.path / saved)
        for path in present:
            remove_checkpoint(path, FileSystem())
        remove_unfinished(self.path, FileSystem())

    def set_later_aside(self, iteration: int, *, files: Sequence[str] = ()) -> Path | None:
        """Moves checkpoints of later iterations out of the directory, to a new one beside it.

        Args:
            iteration: the last that stays.
            files: names of files to move along; those that do not exist are passed over.

        Returns:
            where they are now; None if there were none.

        Raises:
            OSError: they cannot be moved.
        """
        later = [found for found in self.find() if found.manifest.training_iteration > iteration]
        if not later:
            return None
        aside = numbered_beside(self.path, "-set-aside-")
        aside.mkdir()
        for found in later:
            found.path.rename(aside / found.path.name)
        for file in [self.path / name for name in files]:
            if file.is_file():
                file.rename(aside / file.name)
        return aside

    def set_older_run_aside(self, files: Sequence[str]) -> None:
        """Moves all checkpoints to a new directory beside this one, and says so.

        Raises:
            CheckpointError, OSError: they cannot be moved.
        """
        aside = self.set_later_aside(0, files=files)
        if aside is not None:
            _LOGGER.warning(
                "%s held checkpoints of another run, which this one does not go on with. They are "
                "now in %s.",
                self.path,
                aside,
            )

    def warn_of_later(self, iteration: int) -> None:
        """Says that there are checkpoints of later iterations, if there are."""
        later = [found for found in self.find() if found.manifest.training_iteration > iteration]
        names = [found.path.name for found in later]
        if names:
            _LOGGER.warning(
                "%s holds checkpoints of later iterations than %d (%s): of another run, or of this "
                "one before it was restored from an older checkpoint. They stay until they are "
                "replaced, and latest_checkpoint() would choose them. Move them away, or give "
                "another directory, if they are not wanted.",
                self.path,
                iteration,
                names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}",
            )


# ---- path claims
#
# Which algorithm of this process writes to which path, so that a second one keeps away from it. A
# file tells who wrote to it last, but not whether that run is over. Within one process it can be
# known: it is over when its algorithm was stopped, or when nothing refers to it any more.

# Global because the files are; weak, so that it keeps no algorithm alive.
_WRITERS: Final[WeakValueDictionary[Path, AlgorithmView]] = WeakValueDictionary()


def claim_path(path: Path, algorithm: AlgorithmView, *, takes_over: bool) -> bool:
    """Notes that an algorithm writes to a path from now on, unless another one still does.

    `takes_over`: it goes on with a checkpoint, and so with what the other one wrote.

    Returns:
        whether the path is its own now.
    """
    if not takes_over and _is_taken(path, algorithm):
        gc.collect()  # an algorithm that was dropped holds itself by its callbacks
        if _is_taken(path, algorithm):
            return False
    _WRITERS[path] = algorithm
    return True


def _is_taken(path: Path, algorithm: AlgorithmView) -> bool:
    writer = _WRITERS.get(path)
    if writer is None or writer is algorithm:
        return False
    return not getattr(writer, "is_stopped", False)  # a stand-in need not have it

"""A directory in which one callback keeps checkpoints of one run, named by their iteration.

It writes, lists and removes; what to keep is decided by those who use it. Only directories that are
named as this file names them are ever counted or removed: what a user saves beside them stays.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from callbacks.ready_made.claims import claim
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
from trainer_toolkit.files import numbered_beside, remedy

# ---- claiming


def claim_directory(path: Path, algorithm: AlgorithmView) -> None:
    """Has an algorithm of this process keep its checkpoints in a directory, which is made.

    Raises:
        CheckpointWriteError: another algorithm does, here or in another process, or the directory
            cannot be made.
    """
    try:
        make_directories(path, FileSystem())
        claim(path, algorithm)
    except BlockingIOError as error:
        raise CheckpointWriteError(
            f"{path} is in use: {error} keeps its checkpoints there. Two runs in one directory "
            "would replace and remove each other's. Nothing was written. Give each a directory of "
            "its own, or stop the other one first: `stop()`, or the end of its process."
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

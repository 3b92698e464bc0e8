"""Directories that appear whole or not at all, and how the previous one survives every crash.

Saving to the target T goes through these steps; N and O are names beside T (see
`checkpoints.listing`), so all renames stay within one file system:

    1. make N; write and sync every file, `manifest.json` last; sync N
    2. rename T to O               (only if something is at T)
    3. rename N to T; sync the directory that holds them
    4. move files of others from O to T; remove O, its manifest first; sweep what dead processes
       left here: what is whole and nowhere else comes to its place, the rest goes

Why no crash loses both: until step 2, T is untouched, and N is either incomplete (it has no valid
manifest) or complete. Between 2 and 3, T does not exist, and O and N are both complete; a reader
finds N, or else O (`checkpoints.listing.locate`). From step 3 on, T is the new one.
POSIX systems can exchange two directories in one step, but Python offers no way to ask for it,
hence the instant between 2 and 3. After a loss of power, names or contents that were not yet synced
may be gone: N is synced before T moves, so whatever carries a valid manifest has its files; and a
torn manifest fails its own checksum.

An error instead of a crash is undone where possible: O goes back to T, N is removed. If going back
fails too, both stay where they are and remain findable. A leftover is removed only when no
process works in it (a save locks N and O, see `checkpoints.listing`) and it is not needed: it
is incomplete, or the checkpoint that it belongs to is complete.

Several processes may save to T at once. If step 3 finds that another one has come to T since step
2, it goes back to step 2: the last one wins, and each O is removed only by the one that moved it,
after its own N is in place. So at every moment one of T, an O or an N is complete.

Only files of ours are ever removed (`manifest.json`, `code.pkl`, `*.state`, `*.<number>.array`),
one by one. What others put into a checkpoint's directory, such as notes, is in the new one
afterwards; a crash before that leaves it in O, and the next save brings it back.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from checkpoints.component_paths import is_payload_name
from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointUnreadableError,
    CheckpointVersionError,
    CheckpointWriteError,
)
from checkpoints.listing import (
    DirectoryLock,
    FoundCheckpoint,
    Leftover,
    PathLike,
    damaged_path,
    find_checkpoints,
    identity_of,
    leftover_path,
    leftovers_in,
    load_manifest,
    look_at,
    parse_leftover,
    rescue,
    resolve_path,
)
from checkpoints.manifest import (
    CODE_FILE,
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    names_our_format,
)
from checkpoints.reader import verify
from checkpoints.strict_files import read_regular_file, regular_file_size
from trainer_toolkit.files import FileSystem, remedy
from trainer_toolkit.interrupts import signals_deferred
from trainer_toolkit.trees import at_path

# ---- directory

_LOGGER: Final = logging.getLogger(__name__)
_MAX_TRIES: Final = 100
_IS_TAKEN: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY})


class Replacement:
    """One directory on its way to its place. Its life:

    `with Replacement(target, file_system) as replacement:` checks the target and makes `new`;
    the caller fills `new`; `replacement.install()` puts it into place. Leaving the block without
    `install()` having succeeded undoes everything.
    """  # noqa: D415 - the first line announces the list

    def __init__(self, target: Path, file_system: FileSystem) -> None:
        self._target = target
        self._files = file_system
        self._old: list[Path] = []
        self._installed = False
        self._locks = contextlib.ExitStack()
        self.new = leftover_path(target, "new")

    def __enter__(self) -> Replacement:
        _check_target(self._target)
        make_directories(self._target.parent, self._files)
        try:
            with signals_deferred():
                self._make_new()
        except (KeyboardInterrupt, SystemExit):  # it has waited until all was there
            self.__exit__()
            raise
        return self

    def install(self) -> None:
        """Put the filled directory into its place, and remove what was there."""
        self._files.sync_directory(self.new)
        for _ in range(_MAX_TRIES):
            self._move_aside()
            try:
                self._files.rename(self.new, self._target)
                break
            except OSError as error:
                if error.errno not in _IS_TAKEN:
                    raise
        else:
            raise OSError(errno.EBUSY, "others save to the same path all the time")
        self._installed = True
        self._files.sync_directory(self._target.parent)
        for old in self._old:
            _bring_back_foreign_files(old, self._target, self._files)
            remove_directory_of_ours(old, self._files)
        sweep(self._target.parent, self._files)

    def __exit__(self, *_: object) -> None:
        # Released first: where no further file can be opened, a directory cannot be listed either.
        self._locks.close()
        if not self._installed and self._put_back():
            remove_directory_of_ours(self.new, self._files)

    def _make_new(self) -> None:
        """Make the new directory, locked from the first moment that anybody can know of."""
        for _ in range(_MAX_TRIES):
            self._files.make_directory(self.new)
            try:
                lock = self._locks.enter_context(DirectoryLock(self.new))
            except (BlockingIOError, FileNotFoundError):
                lock = None
            except OSError:
                self._files.remove_directory(self.new)  # it is empty
                raise
            if lock is not None and lock.holds(self.new):
                return
            # A sweep saw it before it was locked, and took it for abandoned.
            self.new = leftover_path(self._target, "new")
        raise OSError(errno.EBUSY, "others remove all that is new there")

    def _move_aside(self) -> None:
        """Rename what is at the target; another process may do so at the same time."""
        if not os.path.lexists(self._target):
            return
        _check_target(self._target)  # a save may take long: it may be something else by now
        with contextlib.suppress(OSError):  # the process that holds it replaces it, too
            self._locks.enter_context(DirectoryLock(self._target))
        old = leftover_path(self._target, "old")
        self._old.append(old)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(self._target, old)

    def _put_back(self) -> bool:
        """Undo `_move_aside`; return whether something is at the target then, or never was."""
        for old in reversed(self._old):
            if os.path.lexists(self._target) or not os.path.lexists(old):
                continue
            try:
                self._files.rename(old, self._target)
            except OSError as problem:
                _LOGGER.warning("The previous checkpoint stays in %s: %s", old, problem)
                return False
        return True


def make_directories(path: Path, file_system: FileSystem) -> None:
    """Make a directory and all around it that are missing, so that a loss of power leaves them."""
    if path.is_dir():
        return
    make_directories(path.parent, file_system)
    try:
        file_system.make_directory(path)
    except FileExistsError:
        if not path.is_dir():
            raise
    file_system.sync_directory(path.parent)


def remove_checkpoint(path: Path, file_system: FileSystem) -> None:
    """Remove a checkpoint so that a crash leaves it either complete or gone.

    Files that are not part of it stay where they are. One that another process has just removed is
    passed over.
    """
    with contextlib.suppress(FileNotFoundError):
        if all(_is_ours(entry) for entry in path.iterdir()):
            condemned = leftover_path(path, "del")
            file_system.rename(path, condemned)
            path = condemned
        remove_directory_of_ours(path, file_system)


def remove_directory_of_ours(path: Path, file_system: FileSystem) -> None:
    """Remove our files from a directory, the manifest first, and the directory if it is then empty.

    Failures are logged and not raised: what stays has no manifest, or is swept by a later save.
    """
    try:
        entries = sorted(path.iterdir(), key=lambda entry: entry.name != MANIFEST_FILE)
        ours = [entry for entry in entries if _is_ours(entry)]
        # What is gone by now was ours: another process removes the same directory.
        has_others = any(os.path.lexists(entry) for entry in entries if entry not in ours)
        for entry in ours:
            file_system.remove_file(entry)
        if not has_others:
            file_system.remove_directory(path)
        elif ours:
            _LOGGER.warning("%s holds files that belong to no checkpoint; they stay there.", path)
    except FileNotFoundError:
        return  # another process removed it
    except OSError as error:
        _LOGGER.warning("%s could not be removed completely: %s", path, error)


def set_damaged_aside(target: Path, file_system: FileSystem) -> Path | None:
    """Rename a checkpoint whose manifest is missing or not valid, so that its name is free.

    Returns:
        where it is now; None if something else is at `target`: nothing, a checkpoint that says what
        it is, a link, or a directory in which there are files of others.

    Raises:
        OSError: it cannot be renamed.
    """
    before = identity_of(target)
    if before is None or target.is_symlink() or not target.is_dir():
        return None
    entries = list(target.iterdir())
    if not entries or not all(_is_ours(entry) for entry in entries):
        return None
    try:
        load_manifest(target)
    except (CheckpointVersionError, CheckpointUnreadableError):
        return None
    except (CheckpointCorruptError, CheckpointNotFoundError):
        if identity_of(target) == before:  # else it is just being replaced
            aside = damaged_path(target)
            file_system.rename(target, aside)
            file_system.sync_directory(target.parent)
            return aside
    return None


def _bring_back_foreign_files(old: Path, target: Path, file_system: FileSystem) -> None:
    """Move what is not ours from a replaced checkpoint to the one that took its place.

    Failures are logged and not raised: what stays is named when the rest is removed.
    """
    try:
        foreign = [entry for entry in sorted(old.iterdir()) if not _is_ours(entry)]
        for entry in foreign:
            if not os.path.lexists(target / entry.name):
                file_system.rename(entry, target / entry.name)
    except FileNotFoundError:
        return  # another process did it
    except OSError as error:
        _LOGGER.warning("Files could not be moved from %s to %s: %s", old, target, error)


def sweep(parent: Path, file_system: FileSystem) -> None:
    """Clear up what dead processes of this machine left in `parent`.

    A checkpoint that is whole and nowhere else gets the name that it was meant to have.
    """
    for leftover in leftovers_in(parent):
        with leftover.claimed() as is_abandoned:
            if is_abandoned:
                _clear_up(leftover, leftovers_in(parent), file_system)


def _clear_up(leftover: Leftover, others: Sequence[Leftover], file_system: FileSystem) -> None:
    target = leftover.target
    is_whole = rescue(target, [leftover]) is not None
    if is_whole and not os.path.lexists(target):
        best = rescue(target, others)
        if best is not None and best.path == leftover.path:
            try:
                file_system.rename(leftover.path, target)
                file_system.sync_directory(target.parent)
            except OSError as error:
                _LOGGER.warning("%s stays where it is: %s", leftover.path, error)
        return
    if look_at(target) is not None:
        if leftover.role == "old":
            _bring_back_foreign_files(leftover.path, target, file_system)
    elif is_whole or leftover.role == "old":
        return  # it may be the only copy
    remove_directory_of_ours(leftover.path, file_system)


def _is_ours(entry: Path) -> bool:
    name = entry.name
    is_our_name = name in (MANIFEST_FILE, CODE_FILE) or is_payload_name(name)
    return is_our_name and regular_file_size(entry) is not None


def _check_target(target: Path) -> None:
    """Raise unless nothing, an empty directory or a checkpoint is at `target`."""
    if parse_leftover(target) is not None:
        raise CheckpointWriteError(
            f"{target} has a name that is reserved for unfinished saves, which are swept. "
            "Save to a name of your own."
        )
    for _ in range(_MAX_TRIES):
        before = identity_of(target)
        if before is None:
            return
        try:
            names = sorted(entry.name for entry in target.iterdir())
        except FileNotFoundError:
            continue
        except NotADirectoryError as error:
            raise CheckpointWriteError(
                f"{target} is a file, and a checkpoint is a directory. Nothing was written. "
                "Pass the path of a directory that does not exist yet."
            ) from error
        if not names or _holds_our_manifest(target):
            return
        if identity_of(target) == before:  # else another process is replacing it
            break
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    raise CheckpointWriteError(
        f"{target} is not empty and not a checkpoint (it holds {shown}); saving there would "
        "replace files that are not ours. Pass a new or empty directory, such as "
        f"{str(target / 'checkpoint')!r}."
    )


def _holds_our_manifest(target: Path) -> bool:
    try:
        data = read_regular_file(target / MANIFEST_FILE, max_bytes=MAX_MANIFEST_BYTES)
    except CheckpointCorruptError:
        return False
    return names_our_format(data)


# ---- retention
#
# Which checkpoints of a directory to keep: the last n, the best k, and always the newest. The
# decision is read from the manifests each time, so it survives restarts and needs no file of its
# own. Call `apply_retention` after the new checkpoint has been written: the newest is verified
# before anything older goes. Directories that are not complete checkpoints of ours are never
# touched.

_MAX_LOOKS: Final = 20


@dataclass(frozen=True)
class Retention:
    """How many checkpoints stay. With neither number set, all do.

    Attributes:
        keep_last: how many of the newest stay, at least 1; None for no such rule.
        keep_best: how many of the best by `metric` stay, at least 1; None for no such rule.
        metric: a number in the metadata; slashes lead into nested dicts
            (`"env_runners/episode_return_mean"`). Checkpoints without it are never among the best.
        mode: whether "max" or "min" is best; of equals, the newer one is.
    """

    keep_last: int | None = None
    keep_best: int | None = None
    metric: str | None = None
    mode: Literal["max", "min"] = "max"

    def __post_init__(self) -> None:
        problems = []
        for name in ("keep_last", "keep_best"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                problems.append(f"`{name}={value!r}` must be an int of at least 1, or None for all")
        if (self.keep_best is None) != (self.metric is None):
            problems.append("`keep_best` and `metric` go together: give both or neither")
        if self.mode not in ("max", "min"):
            problems.append(f"`mode={self.mode!r}` must be 'max' or 'min'")
        if problems:
            raise CheckpointError(f"Retention cannot be set up: {'; '.join(problems)}.")


def choose_removals(
    checkpoints: Sequence[FoundCheckpoint], retention: Retention
) -> list[FoundCheckpoint]:
    """Return those that need not stay, oldest first.

    Args:
        checkpoints: ordered from oldest to newest, as `find_checkpoints` gives them.
        retention: the rules; one that applies is enough to stay.
    """
    if retention.keep_last is None and retention.keep_best is None:
        return []
    kept = {found.path for found in checkpoints[-(retention.keep_last or 1) :]}
    if retention.keep_best is not None and retention.metric is not None:
        sign = 1 if retention.mode == "max" else -1
        scored = [
            (sign * value, age, found.path)
            for age, found in enumerate(checkpoints)
            if (value := _number(found.manifest.metadata, retention.metric)) is not None
        ]
        kept |= {path for _, _, path in sorted(scored)[-retention.keep_best :]}
    return [found for found in checkpoints if found.path not in kept]


def apply_retention(
    directory: PathLike, retention: Retention, *, file_system: FileSystem | None = None
) -> list[Path]:
    """Remove the checkpoints in a directory that need not stay, and return their former paths.

    Raises:
        CheckpointCorruptError: if the newest is damaged; nothing is removed then.
        CheckpointWriteError: if one cannot be removed; the others to keep are untouched.
    """
    files = file_system or FileSystem()
    removals = _verified_removals(resolve_path(directory), retention, files)
    removed = []
    for found in removals:
        try:
            remove_checkpoint(found.path, files)
        except OSError as error:
            raise CheckpointWriteError(
                f"The old checkpoint {found.path} could not be removed: {error}. It is still "
                f"complete. {remedy(error)}."
            ) from error
        removed.append(found.path)
    return removed


def _verified_removals(
    directory: Path, retention: Retention, files: FileSystem
) -> list[FoundCheckpoint]:
    """Return what need not stay beside a newest one that is whole."""
    for attempt in range(_MAX_LOOKS):
        sweep(directory, files)
        # A copy beside a path that is still there after that belongs to a save that is going on.
        checkpoints = [
            found for found in find_checkpoints(directory) if parse_leftover(found.path) is None
        ]
        removals = choose_removals(checkpoints, retention)
        if not removals:
            break
        try:
            verify(checkpoints[-1].path)
            return removals
        except CheckpointNotFoundError:  # others have saved newer ones since, and removed it
            if attempt + 1 == _MAX_LOOKS:
                raise
    return []


def _number(metadata: Mapping[str, Any], metric: str) -> float | int | None:
    """Return the metric of one checkpoint; None if it has none, or null for NaN."""
    value = metadata[metric] if metric in metadata else at_path(metadata, metric)
    return value if type(value) in (int, float) else None

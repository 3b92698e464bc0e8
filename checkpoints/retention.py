"""Which checkpoints of a directory to keep: the last n, the best k, and always the newest.

The decision is read from the manifests each time, so it survives restarts and needs no file of its
own. Call `apply_retention` after the new checkpoint has been written: the newest is verified before
anything older goes. Directories that are no checkpoints of ours are never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from checkpoints.directory import remove_checkpoint, remove_unfinished
from checkpoints.errors import CheckpointError, CheckpointNotFoundError, CheckpointWriteError
from checkpoints.listing import FoundCheckpoint, PathLike, find_checkpoints, resolve_path
from checkpoints.reader import verify
from trainer_toolkit.files import FileSystem, remedy
from trainer_toolkit.trees import at_path

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
    parent = resolve_path(directory)
    removals = _verified_removals(parent, retention)
    remove_unfinished(parent, files)
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


def _verified_removals(directory: Path, retention: Retention) -> list[FoundCheckpoint]:
    """Return what need not stay beside a newest one that is whole."""
    for attempt in range(_MAX_LOOKS):
        checkpoints = find_checkpoints(directory)
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

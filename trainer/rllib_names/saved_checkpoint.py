"""What RLlib's `save()` returns: a result with a checkpoint; here it is also the path as text."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class CheckpointHandle:
    """A directory with a checkpoint, in the manner of `ray.tune.Checkpoint`.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"CheckpointHandle({self.path!r})"

    def to_directory(self, path: str | os.PathLike[str]) -> str:
        """Copies the checkpoint to a directory and returns that."""
        return str(shutil.copytree(self.path, Path(path), dirs_exist_ok=True))

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Gives the directory itself."""
        yield self.path


class SavedCheckpoint(str):
    """The path that was saved to, as old RLlib returns it, with the attributes of the newer result.

    Attributes:
        checkpoint: has the `path`.
        metrics: where the run stood: `training_iteration`, `env_runners/episode_return_mean`, ….
    """

    __slots__ = ("checkpoint", "metrics")

    checkpoint: CheckpointHandle
    metrics: dict[str, Any]

    def __new__(cls, path: str, metadata: Mapping[str, Any]) -> SavedCheckpoint:
        """See the class; `metadata` are those of the manifest."""
        made = super().__new__(cls, path)
        made.checkpoint = CheckpointHandle(path)
        names = ("training_iteration", "num_env_steps_sampled_lifetime", "time_total_s")
        made.metrics = {name: metadata.get(name) for name in names}
        made.metrics["env_runners"] = {
            "episode_return_mean": metadata.get("episode_return_mean"),
            "num_episodes_lifetime": metadata.get("num_episodes_lifetime"),
        }
        return made


def path_of_checkpoint(given: Any) -> Any:
    """The path of whatever RLlib's `restore()` takes: a path, a checkpoint, a result."""
    checkpoint = getattr(given, "checkpoint", given)
    return getattr(checkpoint, "path", checkpoint)

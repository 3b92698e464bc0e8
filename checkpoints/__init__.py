"""Saving and restoring state, exactly, safely, and so that no crash loses a checkpoint.

    from checkpoints import Checkpointable, latest_checkpoint

    class Counter(Checkpointable):
        def __init__(self):
            self.count = 0

        def get_state(self, components=None, *, not_components=None):
            return {"count": self.count}

        def set_state(self, state):
            self.count = state["count"]

    counter = Counter()
    path = counter.save_to_path("runs/counter-1")
    counter = Counter.from_checkpoint(path)

What this package promises:

- *Exact*: what comes back has the same types and the same bytes (`codec`).
- *Whole*: a checkpoint appears complete or not at all, and replacing one keeps the previous one
  until the new one is complete (`directory`).
- *Verified*: sizes and SHA-256 of every file are compared before anything is restored (`reader`).
- *Safe*: loading never runs code, unless the caller asks for the one file of code (`code`).

It knows nothing of reinforcement learning: it sees named components whose states are plain data.
Every error is a `CheckpointError`; the tree is drawn in `checkpoints.errors`.
"""

from checkpoints.checkpointable import Checkpointable
from checkpoints.code import pack_code, read_code
from checkpoints.codec import NewArray, decode, encode
from checkpoints.comparison import (
    CheckpointDifference,
    ComponentDifference,
    Difference,
    diff_checkpoints,
)
from checkpoints.component_paths import is_selected
from checkpoints.components import HasState
from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    CheckpointNotFoundError,
    CheckpointUnreadableError,
    CheckpointVersionError,
    CheckpointWriteError,
    CodeNotAllowedError,
    LinkError,
    StateError,
)
from checkpoints.listing import (
    FoundCheckpoint,
    PathLike,
    find_checkpoints,
    latest_checkpoint,
)
from checkpoints.live_arrays import state_array
from checkpoints.manifest import FileEntry, Manifest, version_differences
from checkpoints.reader import CheckpointContents, read_checkpoint, read_manifest, verify
from checkpoints.restoring import HasLargeArrays
from checkpoints.retention import Retention, apply_retention
from checkpoints.state_shapes import check_shape
from checkpoints.weights import export_weights, load_weights
from checkpoints.writer import WhenOver, write_checkpoint
from trainer_toolkit.checks import like
from trainer_toolkit.files import FileSystem

__all__ = [
    "CheckpointContents",
    "CheckpointCorruptError",
    "CheckpointDifference",
    "CheckpointError",
    "CheckpointMismatchError",
    "CheckpointNotFoundError",
    "CheckpointUnreadableError",
    "CheckpointVersionError",
    "CheckpointWriteError",
    "Checkpointable",
    "CodeNotAllowedError",
    "ComponentDifference",
    "Difference",
    "FileEntry",
    "FileSystem",
    "FoundCheckpoint",
    "HasLargeArrays",
    "HasState",
    "LinkError",
    "Manifest",
    "NewArray",
    "PathLike",
    "Retention",
    "StateError",
    "WhenOver",
    "apply_retention",
    "check_shape",
    "decode",
    "diff_checkpoints",
    "encode",
    "export_weights",
    "find_checkpoints",
    "is_selected",
    "latest_checkpoint",
    "like",
    "load_weights",
    "pack_code",
    "read_checkpoint",
    "read_code",
    "read_manifest",
    "state_array",
    "verify",
    "version_differences",
    "write_checkpoint",
]

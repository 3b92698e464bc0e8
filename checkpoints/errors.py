"""The errors of checkpoints: one class per situation, so that callers can catch what they mean.

    CheckpointError
    ├── CheckpointNotFoundError (FileNotFoundError)   there is none; says what was found
    ├── CheckpointCorruptError                        missing, cut, altered or hostile content
    │   └── CheckpointUnreadableError (OSError)       the system does not let it be read
    ├── CheckpointVersionError                        written by a newer format or another Python
    ├── CheckpointMismatchError                       whole, but not made for this object
    ├── CheckpointWriteError (OSError)                it could not be saved; says what is there now
    ├── LinkError                                     a link leads out of the folder of a run
    ├── CodeNotAllowedError                           loading would run code, and was not allowed to
    └── StateError (TypeError)                        the state is not plain data; names the place

Every message says what happened, why it matters and what to do.
"""

from __future__ import annotations


class CheckpointError(Exception):
    """Root of every error that this package raises on purpose."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at this place; the message says what is there instead."""


class CheckpointCorruptError(CheckpointError):
    """A file is missing, cut short, altered, or does not hold what a checkpoint may hold."""


class CheckpointUnreadableError(CheckpointCorruptError, OSError):
    """The system does not let a file be read: permissions, a failing disk. It may be whole."""


class CheckpointVersionError(CheckpointError):
    """The checkpoint was written by a version that this one cannot read."""


class CheckpointMismatchError(CheckpointError):
    """The checkpoint is whole, but does not fit the object that wants to be restored."""


class CheckpointWriteError(CheckpointError, OSError):
    """The checkpoint could not be saved; what was there before is whole."""


class LinkError(CheckpointError):
    """A link in a run's or experiment's folder leads out of it; names the link and its target."""


class CodeNotAllowedError(CheckpointError):
    """Loading this would run code from the checkpoint, which was not allowed."""


class StateError(CheckpointError, TypeError):
    """A state holds something else than plain data; the message names the place."""

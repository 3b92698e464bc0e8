"""Saving while the object goes on: what is written is a copy, and a thread of its own writes it.

The thread runs our code alone: what came from the user (`get_state`, events, functions to call) is
asked before it begins or called after it has ended, in the thread that saves. It is no daemon, so
the end of the program waits for it. A process that is killed leaves what a killed blocking save
leaves: the previous checkpoint, whole (`checkpoints.directory`).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import Any, Final, Protocol

from checkpoints.errors import CheckpointError, CheckpointWriteError
from checkpoints.listing import PathLike, resolve_target
from checkpoints.reader import verify
from checkpoints.writer import EncodedCheckpoint, write_encoded

_LOGGER: Final = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 1.0
_WRITER: Final = "writer"


class WhenOver(Protocol):
    """What is called when a save is over."""

    def __call__(self, error: CheckpointError | None, /) -> object:
        """Hear of it: None says that the checkpoint is complete, else this is the reason."""


class BackgroundSave:
    """One save in the background; whoever owns it keeps one at most, for each holds a copy.

    Life: `start()` · the owner goes on · `wait()`, or look whether it `is_over` · `tell()`.

    All but its own thread's work is for one thread, the owner's. A copy of it is None, because
    threads cannot be copied; in a forked process it `is_void`.

    Attributes:
        path: where the checkpoint will be, absolute.
        when_over: what the owner is to call.
        is_over: whether the checkpoint is there, or will never be.

    Args:
        path: as for `write_encoded`.
        encoded: what to write; may change as soon as this is made.
        when_over: kept for the owner.
    """

    def __init__(
        self, path: PathLike, encoded: EncodedCheckpoint, *, when_over: WhenOver | None = None
    ) -> None:
        self.path: Final = resolve_target(path)
        self.when_over: Final = when_over
        self.is_over = False
        self._encoded: EncodedCheckpoint | None = encoded.detached()
        self._iteration: Final = encoded.metadata.get("training_iteration")
        self._error: BaseException | None = None  # set by the thread, before is_over
        self._pid: Final = os.getpid()
        # Who writes: the thread, or nobody. Whoever sets it first decides, in one step that no
        # interrupt can divide.
        self._decided: Final[dict[str, str]] = {}
        self._has_started = False
        self._end: Final = threading.Lock()
        self._end.acquire()
        self._thread: Final = threading.Thread(
            target=self._run, name=f"saves {self.path.name}", daemon=False
        )

    @property
    def is_void(self) -> bool:
        """Whether nothing will come of it: it never began, or in the process we forked from."""
        return self._decided.get(_WRITER) == "nobody" or self._pid != os.getpid()

    def start(self) -> None:
        """Begin to write. If anything is raised, it either goes on all the same or is void.

        Raises:
            CheckpointWriteError: if no thread can be started; nothing is written.
        """
        atexit.register(self._tell_at_exit)
        try:
            self._thread.start()
            self._has_started = True
        except BaseException as error:
            self._withdraw()
            if isinstance(error, RuntimeError):
                raise CheckpointWriteError(
                    f"No thread could be started that saves {self.path} ({error}). Nothing was "
                    "written. Save without `background=True`, or end some threads."
                ) from error
            raise

    def wait(self) -> None:
        """Wait until it is over. May be interrupted anywhere, as `start` may, and called again."""
        if not self._has_started:  # as far as we know; if the thread does run, this changes nothing
            self._withdraw()
        while not (self.is_over or self.is_void):
            # Not Thread.join(), nor a condition: an interrupt may leave their locks taken.
            self._end.acquire(timeout=_LOOK_AGAIN_S)
        if not self.is_void:
            self._thread.join()

    def tell(self) -> CheckpointWriteError | None:
        """Return why it failed, or None; from now on the owner knows."""
        atexit.unregister(self._tell_at_exit)
        return self._write_error()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return (type(None), ())

    def _withdraw(self) -> None:
        if self._decided.setdefault(_WRITER, "nobody") == "nobody":
            self._encoded = None
            atexit.unregister(self._tell_at_exit)

    def _run(self) -> None:
        if self._decided.setdefault(_WRITER, "thread") != "thread":
            return
        try:
            self._write()
        except BaseException as error:  # noqa: BLE001 - told by the owner, who has to go on
            self._error = error
        finally:
            self.is_over = True
            self._end.release()

    def _write(self) -> None:
        encoded, self._encoded = self._encoded, None
        assert encoded is not None  # noqa: S101 - only the thread takes it, once
        write_encoded(self.path, encoded)
        # Nobody waits here, and older ones may be removed then without another look. The copy goes
        # first: what is read to be compared takes its place in the memory.
        del encoded
        verify(self.path)

    def _write_error(self) -> CheckpointWriteError | None:
        if self._error is None:
            return None
        which = "" if self._iteration is None else f" of training iteration {self._iteration}"
        reason = str(self._error) or type(self._error).__name__
        error = CheckpointWriteError(
            f"The checkpoint {self.path}{which} was being saved in the background, and that "
            f"failed: {reason.rstrip('.')}. Nothing else was affected: go on, and save again."
        )
        error.__cause__ = self._error
        return error

    def _tell_at_exit(self) -> None:
        # The interpreter has waited for the thread; in a forked process it never is over.
        if self.is_over and self._error is not None:
            _LOGGER.error("%s", self._write_error())

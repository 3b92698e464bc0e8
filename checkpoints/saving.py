"""How an object saves: at once or in the background, one at a time, and who hears of the end."""

from __future__ import annotations

import tempfile
from pathlib import Path

from checkpoints.background import BackgroundSave, WhenOver
from checkpoints.errors import CheckpointWriteError
from checkpoints.listing import PathLike
from checkpoints.writer import EncodedCheckpoint, write_encoded


class Saving:
    """Writes what `Checkpointable` has encoded, and owns the save that is under way."""

    _save_under_way: BackgroundSave | None = None
    """Of an instance only while a save in the background is under way, or its end unnoticed."""

    _is_telling_of_save: bool = False
    """Of an instance only while `_on_checkpoint_saved` runs."""

    def finish_saving(self) -> None:
        """Wait until a save in the background is over; does nothing if there is none.

        Raises:
            CheckpointWriteError: if it failed. It is over all the same, and told only once.
        """
        self._notice_end_of_save(wait=True)

    def _write_checkpoint(
        self,
        path: PathLike | None,
        encoded: EncodedCheckpoint,
        *,
        background: bool,
        when_over: WhenOver | None,
    ) -> str:
        """Save what was encoded after `finish_saving()`; see `Checkpointable.save_to_path`."""
        if when_over is not None and not background:
            raise TypeError(
                "save_to_path() was given `when_over` for a save that is over when it returns, and "
                "that raises if it fails. Add `background=True`, or leave it out."
            )
        if path is None:
            path = Path(tempfile.mkdtemp(prefix="checkpoint-")) / "checkpoint"
        if background:
            self._save_under_way = save = BackgroundSave(path, encoded, when_over=when_over)
            self._start_save(save)
            return str(save.path)
        written = str(write_encoded(path, encoded))
        self._tell_of_save(written)
        return written

    def _start_save(self, save: BackgroundSave) -> None:
        """Start it; to be extended where Ctrl-C is put off, which `Thread.start` bears badly."""
        save.start()

    def _tell_of_save(self, path: str) -> None:
        self._is_telling_of_save = True
        try:
            self._on_checkpoint_saved(path)
        finally:
            del self._is_telling_of_save  # not False: a state may show all attributes

    def _refuse_while_telling(self) -> None:
        """Raise if what is told of a save wants to save once more, which would never end."""
        if self._is_telling_of_save:
            raise CheckpointWriteError(
                f"save_to_path() of a {type(self).__name__} was called from on_checkpoint_saved "
                "of the same object: that save would be followed by on_checkpoint_saved again, "
                "without end. Nothing was written by it; the checkpoint before is complete. Copy "
                "its directory, or save from another event."
            )

    def _on_checkpoint_saved(self, path: str) -> None:
        """Do what has to follow a checkpoint that is complete. To be overridden."""

    def _notice_end_of_save(self, *, wait: bool) -> None:
        """Tell those concerned how the save in the background ended, if there is one.

        Args:
            wait: whether to wait for its end.
        """
        save = self._save_under_way
        if save is None or not (wait or save.is_over):
            return
        save.wait()
        del self._save_under_way  # not None: a state may show all attributes of an instance
        if save.is_void:
            return
        error = save.tell()
        if error is None:
            self._tell_of_save(str(save.path))
        if save.when_over is not None:
            save.when_over(error)
        elif error is not None:
            raise error

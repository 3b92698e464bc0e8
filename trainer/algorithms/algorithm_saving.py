"""How an algorithm saves: at once or in the background; what is saved is said elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoints import Checkpointable, CheckpointWriteError, PathLike, WhenOver
from checkpoints.code import check_switch
from checkpoints.writer import BackgroundSave, EncodedCheckpoint
from trainer.algorithms.algorithm_parts import AlgorithmParts
from trainer.errors import ActorDiedError
from trainer.runtime.signals import signals_deferred


class AlgorithmSaving(AlgorithmParts, Checkpointable):
    """Adds `save_to_path` to an algorithm."""

    def save_to_path(
        self,
        path: PathLike | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        filesystem: object = None,
        use_msgpack: bool | None = None,
        background: bool = False,
        when_over: WhenOver | None = None,
    ) -> str:
        """Saves everything that is needed to go on, and returns the directory's absolute path.

        With `background=True`, training goes on while the files are written; they hold the state of
        this moment. When the checkpoint is complete, `on_checkpoint_saved` fires, and if it failed,
        that is raised, whichever of these calls comes next: `train()`, before it begins;
        `finish_saving()`, `save_to_path()`, `restore_from_path()` and `stop()`, which wait for it.

        Args:
            path: a directory that does not exist, is empty, or holds a checkpoint, which is
                replaced once the new one is complete. None makes a temporary directory.
            state: a whole state that `get_state()` gave, instead of the present one.
            filesystem: must be None: paths are local.
            use_msgpack: of no effect: states are never pickles.
            background: whether to return before the checkpoint is there.
            when_over: as in `Checkpointable`.

        Raises:
            StateError: something is not plain data; names the place. Nothing is written then.
            CheckpointWriteError: the directory cannot be written, or an actor is gone whose state
                belongs into the checkpoint; what was there before is whole. Or an earlier save in
                the background failed; nothing else is done then.
        """
        check_switch("background", background)
        self._refuse_while_telling()
        self.finish_saving()
        self.env_runner_group.check_tasks_can_be_saved()
        return super().save_to_path(
            path,
            state=state,
            filesystem=filesystem,
            use_msgpack=use_msgpack,
            background=background,
            when_over=when_over,
        )

    def _encoded(self, state: Mapping[str, Any] | None = None) -> EncodedCheckpoint:
        try:
            return super()._encoded(state)
        except ActorDiedError as error:
            raise CheckpointWriteError(
                f"No checkpoint was saved, and those that were saved before are whole. {error}"
            ) from error

    def _start_save(self, save: BackgroundSave) -> None:
        with signals_deferred():
            super()._start_save(save)

    def _on_checkpoint_saved(self, path: str) -> None:
        self.callbacks.fire(
            "on_checkpoint_saved", algorithm=self, metrics_logger=self.metrics, path=path
        )

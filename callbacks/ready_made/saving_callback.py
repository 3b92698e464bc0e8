"""What callbacks that save checkpoints share: when in an iteration, and what if it fails.

They save last of all, after every callback has heard of the complete result and has decided, so
that a run that is restored goes on exactly as this one.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Any, Final, Literal

from callbacks.callback import RLlibCallback
from callbacks.errors import CallbackConfigError
from callbacks.naming import name_of
from callbacks.ready_made.checkpoint_directory import CheckpointDirectory, checkpoint_name
from callbacks.ready_made.choices import choice_problems, directory_problems, raise_if_any
from callbacks.ready_made.fault_counts import NUM_FAILED_SAVES, count_fault
from callbacks.ready_made.siblings import objects_beside
from callbacks.views import AlgorithmView
from checkpoints import CheckpointError, PathLike

OnError = Literal["raise", "warn"]
"""What a failed save does: end `train()`, or be logged and counted."""

_LOGGER: Final = logging.getLogger(__name__)


class SavingCallback(RLlibCallback):
    """Saves checkpoints at the very end of iterations; subclasses say which, and what to keep.

    Attributes:
        directory: where the checkpoints are.
        num_failed_saves: how many saves failed in this run, restored parts included.

    Args:
        directory: where to save.
        on_error: what a failed save does.
        background: whether training goes on while a checkpoint is written.
        problems: what the subclass found wrong with its own arguments.

    Raises:
        CallbackConfigError: lists these and all other problems.
    """

    saves_last = False
    """Whether the checkpoint that it saves is the one to go on from, which all others precede.

    It says what the other callbacks keep. So if the process is killed between two of them, the
    iteration is made again, and what they keep is there.
    """

    def __init__(
        self, directory: PathLike, *, on_error: OnError, background: bool, problems: list[str]
    ) -> None:
        problems = [
            *directory_problems(directory),
            *choice_problems("on_error", on_error, ("raise", "warn")),
            *problems,
        ]
        raise_if_any(name_of(type(self)), problems)
        self.directory = CheckpointDirectory(directory)
        self.num_failed_saves = 0
        self._on_error = on_error
        self._is_background = background
        self._causes_told: set[tuple[str, int | None]] = set()
        self._has_looked = False
        self._is_new_run = True

    # ---- what subclasses implement

    def _decide(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        """Takes note of a complete result; all callbacks do so before the first one saves."""

    def _wants_to_save(self, result: dict[str, Any]) -> bool:
        """Whether this iteration is to be saved."""
        raise NotImplementedError

    def _begin(self) -> Any:
        """Takes note that this iteration is saved now; what it returns is given to the next two."""

    def _remove_others(self, saved: str, begun: Any, *, is_verified: bool) -> None:
        """Removes what need not stay after a checkpoint of this name was saved."""

    def _forget(self, begun: Any) -> None:
        """Takes back what was noted of an iteration, because it was not saved after all."""

    def _own_files(self) -> list[str]:
        """Names of the files beside the checkpoints that tell about them."""
        return []

    # ---- events

    def on_algorithm_init(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Refuses to share a directory: two callbacks would remove each other's checkpoints."""
        shared = [
            other
            for other in objects_beside(algorithm, SavingCallback)
            if other.directory.path == self.directory.path
        ]
        if len(shared) > 1:
            names = " and ".join(name_of(type(other)) for other in shared)
            raise CallbackConfigError(
                [
                    f"{names} save to the same directory, {self.directory.path}; each would remove "
                    "what the other keeps. Give each a directory of its own"
                ]
            )

    def on_checkpoint_loaded(self, **_: Any) -> None:
        """From now on, the checkpoints that are there are those of this run."""
        self._is_new_run = False

    def on_train_result(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Decides when the result is complete, and saves when all have decided."""
        algorithm.after_train_result(partial(self._on_complete, algorithm))

    def _on_complete(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        count_fault(result, NUM_FAILED_SAVES, self.num_failed_saves)
        self._decide(algorithm, result)
        algorithm.after_train_result(partial(self._on_decided, algorithm))

    def _on_decided(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        if self.saves_last:
            algorithm.after_train_result(partial(self._save, algorithm))
        else:
            self._save(algorithm, result)

    def _save(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        if not self._wants_to_save(result):
            return
        # One at a time. Here, so that whoever began the earlier one is who hears of its failure,
        # and so that what it then notes is in this checkpoint, however fast the disk is.
        algorithm.finish_saving()
        begun = self._begin()
        if result.get("non_finite"):
            _LOGGER.warning(
                "Iteration %d is not saved: NonFiniteGuard found %s.",
                algorithm.training_iteration,
                "; ".join(result["non_finite"]),
            )
            self._forget(begun)
            return
        try:
            self.directory.claim(algorithm)
            self._look_at_what_is_there(algorithm.training_iteration)
            if self._is_background:
                name = checkpoint_name(algorithm.training_iteration)
                self.directory.save(
                    algorithm, in_background=partial(self._on_background_save_over, name, begun)
                )
                return
            saved = self.directory.save(algorithm)
        except (CheckpointError, OSError) as error:
            self._forget(begun)
            self._fail(error, result)
            return
        self._clear_up(saved.name, begun, result)

    def _on_background_save_over(
        self, name: str, begun: Any, error: CheckpointError | None
    ) -> None:
        """Hears, in the main thread, how a save ended that was begun in an earlier iteration."""
        if error is None:
            self._clear_up(name, begun, None)
        else:
            self._forget(begun)
            self._fail(error, None)

    def _clear_up(self, name: str, begun: Any, result: dict[str, Any] | None) -> None:
        try:
            self._remove_others(name, begun, is_verified=self._is_background)
        except (CheckpointError, OSError) as error:
            self._fail(error, result)

    def _look_at_what_is_there(self, iteration: int) -> None:
        """Makes room before the first save of a new run; says what is there if the run goes on."""
        if self._has_looked:
            return
        if self._is_new_run:
            self.directory.set_older_run_aside(self._own_files())
        else:
            with contextlib.suppress(CheckpointError, OSError):  # saving will tell
                self.directory.warn_of_later(iteration)
        self._has_looked = True  # not before it worked: nothing may be replaced

    def _fail(self, error: Exception, result: dict[str, Any] | None) -> None:
        """Raises the error, or counts it and tells each cause once.

        Without a result, the next one shows the count.
        """
        if self._on_error == "raise":
            raise error
        self.num_failed_saves += 1
        if result is not None:
            count_fault(result, NUM_FAILED_SAVES, 1)
        cause = _cause_of(error)
        if cause not in self._causes_told:
            self._causes_told.add(cause)
            _LOGGER.warning(
                "A checkpoint could not be saved; training goes on, and further failures of this "
                "kind are only counted, in fault_tolerance/%s. %s",
                NUM_FAILED_SAVES,
                error,
            )


def _cause_of(error: BaseException) -> tuple[str, int | None]:
    """What two failures have in common although their messages name different files."""
    number = None
    cause: BaseException | None = error
    while cause is not None:
        number = getattr(cause, "errno", None) or number
        cause = cause.__cause__
    return (type(error).__name__, number)

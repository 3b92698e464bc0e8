"""`PeriodicCheckpoint`: saves a run every so many iterations, steps, episodes or seconds."""

from __future__ import annotations

from typing import Any, Final

from callbacks.ready_made.choices import choice_problems, count_problems, is_word, number_problems
from callbacks.ready_made.counts import COUNTS, Unit
from callbacks.ready_made.saving_callback import OnError, SavingCallback
from callbacks.views import AlgorithmView
from checkpoints import PathLike


class PeriodicCheckpoint(SavingCallback):
    """Saves checkpoints at regular distances, and the last one of a run.

        config.callbacks([PeriodicCheckpoint("runs/mine", every=10, keep_last=3)])
        ...
        algo = PPO.from_checkpoint(latest_checkpoint("runs/mine"), callbacks=[...])

    A restored run goes on exactly as if it had never stopped. The distance is counted from the
    beginning of the run: with `every=1000, unit="env_steps"`, each iteration in which a multiple of
    1000 steps was reached is saved. A save that failed is tried again after the next iteration.

    Args:
        directory: where to save, as `<directory>/<iteration>`; of this callback alone.
        every: the distance; any positive number of seconds, else an int.
        unit: "iterations", "env_steps", "episodes" or "seconds" (of training).
        keep_last: how many of the newest stay; None for all.
        at_end: whether to save when the result says that training is over (see `EarlyStopping`).
        on_error: "raise" ends `train()` if a save fails, and the iteration is undone; "warn" logs
            each cause once, counts in `fault_tolerance/num_failed_saves_lifetime`, and goes on.
        background: whether training goes on while a checkpoint is written. It holds the same bytes,
            but is there later, and needs a copy of the state in memory; a failure is known after
            the iteration, which is not undone then: the next `train()` raises before it begins.

    Raises:
        CallbackConfigError: an argument makes no sense; lists all problems.
    """

    saves_last = True

    def __init__(
        self,
        directory: PathLike,
        *,
        every: float = 10,
        unit: Unit = "iterations",
        keep_last: int | None = None,
        at_end: bool = True,
        on_error: OnError = "raise",
        background: bool = False,
    ) -> None:
        problems = choice_problems("unit", unit, tuple(COUNTS))
        problems += (
            number_problems("every", every, above=0.0)
            if is_word(unit, "seconds")
            else count_problems("every", every)
        )
        problems += count_problems("keep_last", keep_last, none="all")
        super().__init__(directory, on_error=on_error, background=background, problems=problems)
        self._every: Final = every
        self._unit: Final = unit
        self._keep_last: Final = keep_last
        self._at_end: Final = at_end
        self._is_overdue = False
        self._was_overdue = False

    def get_state(self) -> dict[str, Any]:
        """Failures so far; the distance is counted in the run itself."""
        return {"num_failed_saves": self.num_failed_saves, "is_overdue": self._is_overdue}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; directory and distance stay those of the config."""
        self.num_failed_saves = state["num_failed_saves"]
        self._is_overdue = state["is_overdue"]

    def _decide(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        del algorithm, result
        # Before any callback saves: a checkpoint of this iteration is not to ask for another one.
        self._was_overdue, self._is_overdue = self._is_overdue, False

    def _wants_to_save(self, result: dict[str, Any]) -> bool:
        is_due = COUNTS[self._unit].has_passed_multiple(result, self._every)
        is_end = self._at_end and bool(result.get("done"))
        return is_due or is_end or self._was_overdue

    def _begin(self) -> None:
        self._is_overdue = False  # also if an earlier save turned out to have failed just now

    def _remove_others(self, saved: str, begun: None, *, is_verified: bool) -> None:
        del begun
        if self._keep_last is not None:
            self.directory.remove_older(
                keep=self._keep_last, until=int(saved), is_verified=is_verified
            )

    def _forget(self, begun: None) -> None:
        del begun
        self._is_overdue = True

"""Callbacks that save checkpoints: every so often, or whenever a metric is among the best."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from callbacks.callback import RLlibCallback
from callbacks.errors import CallbackConfigError
from callbacks.ready_made.checkpoint_directory import (
    CheckpointDirectory,
    checkpoint_name,
    claim_directory,
)
from callbacks.ready_made.metric_values import (
    NUM_FAILED_SAVES,
    RETURN,
    WatchedMetric,
    choice_problems,
    count_fault,
    count_problems,
    directory_problems,
    is_word,
    number_problems,
    path_problems,
    raise_if_any,
)
from callbacks.ready_made.result_loggers import objects_beside
from callbacks.ready_made.stopping import COUNTS, Mode, Unit
from callbacks.spec import name_of
from callbacks.views import AlgorithmView
from checkpoints import CheckpointError, PathLike
from trainer_toolkit.files import replacing

# ---- saving callback
#
# What callbacks that save checkpoints share: when in an iteration, and what if it fails. They
# save last of all, after every callback has heard of the complete result and has decided, so that
# a run that is restored goes on exactly as this one.

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

    saves_in_phase = "save"
    """"save_last" if its checkpoint is the one to go on from: it says what the others keep.

    So if the process is killed between two of them, the iteration is made again.
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
        self._causes_logged: set[tuple[str, int | None]] = set()
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

    def on_checkpoint_loaded(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """From now on, the checkpoints that are there are those of this run."""
        del algorithm
        self._is_new_run = False

    def on_train_result(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Decides when the result is complete, and saves when all have decided."""
        algorithm.after_train_result(partial(self._on_complete, algorithm))
        algorithm.after_train_result(partial(self._save, algorithm), phase=self.saves_in_phase)

    def _on_complete(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        count_fault(result, NUM_FAILED_SAVES, self.num_failed_saves)
        self._decide(algorithm, result)

    def _save(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        if not self._wants_to_save(result):
            return
        # One at a time. Here, so that the one who began the earlier save hears of its failure,
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
            claim_directory(self.directory.path, algorithm)
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
        if cause not in self._causes_logged:
            self._causes_logged.add(cause)
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


# ---- periodic checkpoint


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

    saves_in_phase = "save_last"

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


# ---- best checkpoint

SCORES_FILE: Final = "best.json"
"""The list of the kept checkpoints with their scores, for people and scripts."""


_Entry = tuple[float, int]  # score and iteration


@dataclass(frozen=True)
class _Decision:
    """One iteration that is among the best.

    Attributes:
        new: its entry.
        before, after: what was kept without it, and what is kept with it; the best first.
    """

    new: _Entry
    before: list[_Entry]
    after: list[_Entry]


class BestCheckpoint(SavingCallback):
    """Keeps the checkpoints with the best scores.

        config.evaluation(evaluation_interval=5)
        config.callbacks(
            [BestCheckpoint("runs/best", metric="evaluation/env_runners/episode_return_mean")]
        )

    The score is a metric of the result. NaN and infinite values are never among the best, nor is an
    evaluation that was made in an earlier iteration, with other weights. Of equal scores the
    earlier one stays. Scores survive a restore: a restored run goes on as if it had never stopped.

    `<directory>/best.json` lists the checkpoints with their scores, the best first.

    Args:
        directory: where to save, as `<directory>/<iteration>`; of this callback alone.
        metric: slash path of the score.
        mode: whether "max" or "min" is best.
        keep: how many of the best stay.
        on_error: as for `PeriodicCheckpoint`.
        background: as for `PeriodicCheckpoint`. Scores that were not good enough beside one whose
            save then failed are not saved belatedly.

    Raises:
        CallbackConfigError: an argument makes no sense; lists all problems.
    """

    def __init__(
        self,
        directory: PathLike,
        *,
        metric: str = RETURN,
        mode: Mode = "max",
        keep: int = 1,
        on_error: OnError = "raise",
        background: bool = False,
    ) -> None:
        problems = [
            *path_problems("metric", metric),
            *choice_problems("mode", mode, ("max", "min")),
            *count_problems("keep", keep),
        ]
        super().__init__(directory, on_error=on_error, background=background, problems=problems)
        self._metric: Final = WatchedMetric(metric)
        self._mode: Final = mode
        self._keep: Final = keep
        self._kept: list[_Entry] = []
        self._decision: _Decision | None = None  # None: the newest result is not among the best
        self._loaded: tuple[Any, list[_Entry] | None] = (None, None)  # root seed, and what is kept

    @property
    def scores(self) -> dict[str, float]:
        """Name of the checkpoint → score, of those that are kept, the best first."""
        return {checkpoint_name(iteration): score for score, iteration in self._kept}

    def get_state(self) -> dict[str, Any]:
        """Scores and iterations of what is kept."""
        return {
            "kept": [[score, iteration] for score, iteration in self._kept],
            **self._metric.get_state(),
            "num_failed_saves": self.num_failed_saves,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; directory and metric stay those of the config.

        Scores of another metric are no scores.
        """
        is_of_metric = self._metric.set_state(state)
        kept = state["kept"] if is_of_metric else ()
        self._kept = [(score, iteration) for score, iteration in kept]
        self.num_failed_saves = state["num_failed_saves"]

    def on_checkpoint_loaded(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Takes note of what was loaded: a clone does not go on with it."""
        super().on_checkpoint_loaded(algorithm=algorithm)
        self._loaded = (_root_seed(algorithm), self._kept)

    def _decide(self, algorithm: AlgorithmView, result: dict[str, Any]) -> None:
        seed, loaded = self._loaded
        # While nothing was added to it, so that an undone iteration is judged alike. A clone that
        # is made again later finds fewer in its list: only those that others outdid meanwhile.
        if self._kept == loaded and seed != _root_seed(algorithm):
            self._kept = self._own_entries(before=algorithm.training_iteration)
        score = self._metric.read(result, config=algorithm.config)
        self._decision = None
        if score is None:
            return
        new, before = (score, algorithm.training_iteration), self._kept
        kept = self._best_of([*before, new])
        if new in kept:  # else there may be more than are kept, by a config of before
            self._kept = kept
            self._decision = _Decision(new, before, kept)

    def _best_of(self, entries: list[_Entry]) -> list[_Entry]:
        sign = -1.0 if self._mode == "max" else 1.0
        # Stable: of equals, the earlier is first.
        return sorted(entries, key=lambda entry: sign * entry[0])[: self._keep]

    def _wants_to_save(self, result: dict[str, Any]) -> bool:
        del result
        return self._decision is not None

    def _begin(self) -> _Decision | None:
        return self._decision

    def _remove_others(self, saved: str, begun: _Decision, *, is_verified: bool) -> None:
        dropped = [entry for entry in begun.before if entry not in begun.after]
        names = [checkpoint_name(iteration) for _, iteration in dropped]
        self._write_scores(begun.after, saved)
        self.directory.remove(names, saved=saved, is_verified=is_verified)

    def _forget(self, begun: _Decision) -> None:
        self._kept = self._without(begun, self._kept)
        later = self._decision
        if later is not None and later is not begun:  # it is about to be saved
            before = self._without(begun, later.before)
            self._decision = dataclasses.replace(later, before=before, after=self._kept)

    def _without(self, failed: _Decision, kept: list[_Entry]) -> list[_Entry]:
        """What would be kept now if an iteration had not been among the best."""
        if failed.new not in kept:
            return kept  # the iteration was undone, or better ones have taken its place
        later = [entry for entry in kept if entry not in failed.after]
        return self._best_of([*failed.before, *later])

    def _own_files(self) -> list[str]:
        return [SCORES_FILE]

    def _write_scores(self, kept: list[_Entry], saved: str) -> None:
        # A run that went on from another run's checkpoint, as clones in tuning do, has that run's
        # scores. What it had saved itself by then keeps the score that was written down with it.
        own = self._written_scores()
        own.pop(int(saved), None)
        entries = [
            {"name": checkpoint_name(iteration), "score": score}
            for score, iteration in self._best_of(
                [(own.get(each, score), each) for score, each in kept]
            )
            if self._is_there(iteration)
        ]
        text = json.dumps(
            {"metric": self._metric.path, "mode": self._mode, "checkpoints": entries}, indent=2
        )
        file = self.directory.path / SCORES_FILE
        with replacing(file, file.with_suffix(".tmp"), must_sync=False) as opened:
            opened.write(f"{text}\n".encode())

    def _own_entries(self, *, before: int) -> list[_Entry]:
        return self._best_of(
            [
                (score, iteration)
                for iteration, score in self._written_scores().items()
                if iteration < before and self._is_there(iteration)
            ]
        )

    def _is_there(self, iteration: int) -> bool:
        return (self.directory.path / checkpoint_name(iteration)).is_dir()

    def _written_scores(self) -> dict[int, float]:
        """What the list says now, by iteration; empty if there is none, or none of this metric."""
        try:
            written = json.loads((self.directory.path / SCORES_FILE).read_bytes())
            if written["metric"] != self._metric.path:
                return {}
            return {int(each["name"]): float(each["score"]) for each in written["checkpoints"]}
        except (OSError, ValueError, TypeError, KeyError):  # it is written anew, whatever it was
            return {}


def _root_seed(algorithm: AlgorithmView) -> Any:
    return getattr(algorithm, "root_seed", None)  # a stand-in need not have it

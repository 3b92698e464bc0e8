"""The loop of `train` and `resume`: iterations, progress, results, checkpoints, ended by Ctrl-C."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final

from callbacks.ready_made.display import LineOutput, live_surface
from callbacks.ready_made.metric_values import number_at
from callbacks.ready_made.progress import TrainingProgress
from callbacks.ready_made.result_loggers import ResultLogger, objects_beside
from trainer.algorithms.algorithm import Algorithm
from trainer.cli.run_directory import RunDirectory, RunPlan
from trainer.cli.run_trackers import RunTrackers
from trainer.runtime.signals import CutShort, OrderlyEnd

# Together with saving and Python's own end, less than 3 s.
_FINISHING_S: Final = 1.5
_STOPPING_S: Final = 0.5


class TrainingRun:
    """Trains until a criterion is met or the user presses Ctrl-C.

    It uses what the ready-made callbacks are made of, but registers no callbacks: checkpoints of
    the command line hold no code.

    Args:
        algo: what is trained.
        directory: where results and checkpoints go.
        plan: when the run ends, and what is kept.
        is_live: whether a terminal shows one display that is redrawn, if rich is installed, instead
            of a line per iteration.
    """

    def __init__(
        self,
        algo: Algorithm,
        directory: RunDirectory,
        plan: RunPlan,
        *,
        is_live: bool = True,
    ) -> None:
        self._algo = algo
        self._directory = directory
        self._plan = plan
        self._stops = plan.stops
        self._output = LineOutput()
        self._is_live = is_live
        self._trackers = RunTrackers(algo, directory, plan)
        self._end = OrderlyEnd(on_asked=self._confirm_interrupt)

    @property
    def was_interrupted(self) -> bool:
        """Whether the run ended by Ctrl-C or SIGTERM."""
        return self._end.was_asked

    def run(self) -> str:
        """Runs to the end; returns why it ended, as a sentence.

        An algorithm whose run was interrupted is stopped, too.
        """
        self._output.write(
            f"Training {type(self._algo).__name__} on {self._algo.env_runner_group.env_name}, "
            f"seed {self._algo.root_seed}, results in {self._directory.path}"
        )
        with self._trackers, self._end:
            progress = self._progress()
            try:
                return self._train(progress)
            finally:
                progress.close()
                if self.was_interrupted:
                    self._stop_soon()

    def _progress(self) -> TrainingProgress:
        env, seed = self._algo.env_runner_group.env_name, self._algo.root_seed
        return TrainingProgress(
            self._stops,
            title=f"{type(self._algo).__name__} on {env}, seed {seed}",
            output=self._output,
            surface=live_surface() if self._is_live else None,
        )

    def _train(self, progress: TrainingProgress) -> str:
        if self._algo.training_iteration == 0:
            self._trackers.begin_anew()
        else:
            self._trackers.follow()  # what they lack since the last end
        last = self._directory.last_result()
        # A run that has ended already makes no further iteration, however often it is resumed.
        reason = None if last is None else self._reason(last)
        if reason is not None:
            reason = f"Nothing was trained, since the run has ended already. {reason}"
        saved_at = self._algo.training_iteration
        has_checkpoint = saved_at > 0
        while reason is None:
            started_at = time.monotonic()
            result = self._iteration()
            if result is not None:
                elapsed_s = time.monotonic() - started_at
                progress.show(result, elapsed_s=elapsed_s)
                if not self._has_logger_of_its_own():
                    self._directory.append_result(result)
                self._trackers.follow()
                reason = self._reason(result)
            iteration = self._algo.training_iteration
            if reason is None and self.was_interrupted:
                reason = _why_stopped(iteration, was_finished=result is not None)
            is_unsaved = iteration > saved_at or not has_checkpoint
            is_due = iteration - saved_at >= self._plan.checkpoint_every
            if is_due or (is_unsaved and reason is not None):
                path = self._directory.save_checkpoint(self._algo, keep=self._plan.keep)
                self._trackers.send_checkpoint(path)
                saved_at, has_checkpoint = iteration, True
        return reason

    def _has_logger_of_its_own(self) -> bool:
        """Whether a callback of the run writes the same rows to the same file."""
        loggers = objects_beside(self._algo, ResultLogger)
        return any(logger.rows_path == self._directory.results_file for logger in loggers)

    def _iteration(self) -> Mapping[str, Any] | None:
        """A result; None if the run is to end, and it would have taken too long."""
        try:
            with self._end.limited(_FINISHING_S):
                return self._algo.train()
        except CutShort:
            return None

    def _stop_soon(self) -> None:
        # Once for the training runners and once for those of the evaluation, if they do not close.
        with contextlib.suppress(CutShort), self._end.limited(_STOPPING_S, again_s=_STOPPING_S):
            self._algo.stop()

    def _confirm_interrupt(self) -> None:
        self._output.write("\nFinishing the iteration, then saving; Ctrl-C again stops at once.")

    def _reason(self, result: Mapping[str, Any]) -> str | None:
        return self._stops.reason(result, value=number_at(result, self._stops.metric))


def _why_stopped(iteration: int, *, was_finished: bool) -> str:
    if was_finished:
        return "Stopped by you; the iteration was finished and saved."
    return (
        f"Stopped by you; iteration {iteration + 1} would have taken longer and was not finished, "
        f"iteration {iteration} is saved."
    )

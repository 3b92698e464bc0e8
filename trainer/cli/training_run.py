"""The loop of `train` and `resume`: iterations, progress, results, checkpoints, ended by Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from callbacks.ready_made.line_output import LineOutput
from callbacks.ready_made.metric_values import number_at
from callbacks.ready_made.progress_lines import ProgressLines
from callbacks.ready_made.stop_criteria import StopCriteria
from trainer.algorithms.algorithm import Algorithm
from trainer.cli.run_directory import RunDirectory


class TrainingRun:
    """Trains until a criterion is met or the user presses Ctrl-C.

    It uses what the ready-made callbacks are made of, but registers no callbacks: checkpoints of
    the command line hold no code.

    Attributes:
        was_interrupted: the run ended by Ctrl-C or SIGTERM.
    """

    def __init__(
        self,
        algo: Algorithm,
        directory: RunDirectory,
        stops: StopCriteria,
        *,
        checkpoint_every: int,
        keep: int,
    ) -> None:
        self.was_interrupted = False
        self._algo = algo
        self._directory = directory
        self._stops = stops
        self._checkpoint_every = checkpoint_every
        self._keep = keep
        self._output = LineOutput()

    def run(self) -> str:
        """Runs to the end; returns why it ended, as a sentence."""
        self._output.write(
            f"Training {type(self._algo).__name__} on {self._algo.env_runner_group.env_name}, "
            f"seed {self._algo.root_seed}, results in {self._directory.path}"
        )
        progress = ProgressLines(self._stops)
        last = self._directory.last_result()
        # A run that has ended already makes no further iteration, however often it is resumed.
        reason = None if last is None else self._reason(last)
        saved_at = self._algo.training_iteration
        with self._interruptible():
            while reason is None:
                started_at = time.monotonic()
                result = self._algo.train()
                elapsed_s = time.monotonic() - started_at
                self._output.write(progress.line(result, elapsed_s=elapsed_s))
                self._directory.append_result(result)
                reason = self._reason(result)
                if reason is None and self.was_interrupted:
                    reason = "Stopped by you; the iteration was finished and saved."
                if (
                    reason is not None
                    or result["training_iteration"] - saved_at >= self._checkpoint_every
                ):
                    self._directory.save_checkpoint(self._algo, keep=self._keep)
                    saved_at = result["training_iteration"]
        return reason

    def _reason(self, result: Mapping[str, Any]) -> str | None:
        return self._stops.reason(result, value=number_at(result, self._stops.metric))

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Lets the first Ctrl-C (or SIGTERM) end the run after its iteration, a second at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            if self.was_interrupted:
                signal.default_int_handler(number, frame)
            self.was_interrupted = True
            self._output.write(
                "\nFinishing the iteration, then saving; Ctrl-C again stops at once."
            )

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

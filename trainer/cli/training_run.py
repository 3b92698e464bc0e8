"""The loop of `train` and `resume`: iterations, progress, results, checkpoints, ended by Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from trainer.algorithms.algorithm import Algorithm
from trainer.cli.progress import ProgressLines
from trainer.cli.run_directory import RunDirectory


@dataclass(frozen=True)
class StopCriteria:
    """When a run ends; None never ends it.

    Attributes:
        episode_return: mean return of the last episodes, at least this.
        env_steps: env steps of the whole run.
        iterations: iterations of the whole run.
    """

    episode_return: float | None = None
    env_steps: int | None = None
    iterations: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `run.json`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StopCriteria:
        """What `to_dict` gave; unknown entries are left out."""
        return cls(**{field.name: values.get(field.name) for field in dataclasses.fields(cls)})

    def updated(self, newer: StopCriteria) -> StopCriteria:
        """The criteria of a resumed run: any given now replace all that were given before."""
        return newer if newer != StopCriteria() else self

    def reason(self, result: Mapping[str, Any]) -> str | None:
        """Why a run ends with this result, as a sentence; None if it goes on."""
        mean = result["env_runners"]["episode_return_mean"]
        steps = result["num_env_steps_sampled_lifetime"]
        if self.episode_return is not None and mean >= self.episode_return:
            return f"Solved: mean return {mean:.1f} after {steps:,} env steps."
        if self.env_steps is not None and steps >= self.env_steps:
            return f"Stopped after {steps:,} env steps."
        if self.iterations is not None and result["training_iteration"] >= self.iterations:
            return f"Stopped after {result['training_iteration']} iterations."
        return None


class TrainingRun:
    """Trains until a criterion is met or the user presses Ctrl-C.

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
        self._checkpoint_every = max(1, checkpoint_every)
        self._keep = max(1, keep)

    def run(self) -> str:
        """Runs to the end; returns why it ended, as a sentence."""
        print(
            f"Training {type(self._algo).__name__} on {self._algo.env_runner_group.env_name}, "
            f"seed {self._algo.root_seed}, results in {self._directory.relative_path}"
        )
        progress = ProgressLines(self._stops, start_iteration=self._algo.training_iteration)
        last = self._directory.last_result()
        # A run that has ended already makes no further iteration, however often it is resumed.
        reason = None if last is None else self._stops.reason(last)
        saved_at = self._algo.training_iteration
        with self._interruptible():
            while reason is None:
                started_at = time.monotonic()
                result = self._algo.train()
                print(progress.line(result, elapsed_s=time.monotonic() - started_at), flush=True)
                self._directory.append_result(result)
                reason = self._stops.reason(result)
                if reason is None and self.was_interrupted:
                    reason = "Stopped by you; the iteration was finished and saved."
                if (
                    reason is not None
                    or result["training_iteration"] - saved_at >= self._checkpoint_every
                ):
                    self._directory.save_checkpoint(self._algo, keep=self._keep)
                    saved_at = result["training_iteration"]
        return reason

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
            print("\nFinishing the iteration, then saving; Ctrl-C again stops at once.", flush=True)

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

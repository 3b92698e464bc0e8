"""The files of one run: its plan, its results, its checkpoints.

runs/PPO-CartPole-v1-20261121-101500/
    run.json                when to stop and what to keep, for `resume`
    results.jsonl           a result per line; NaN is null
    checkpoints/000010/     see docs/checkpoint-format.md
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from callbacks.ready_made.checkpoint_directory import CheckpointDirectory
from callbacks.ready_made.jsonl_results import JSONLinesResults
from callbacks.ready_made.result_values import row_of
from checkpoints import CheckpointWriteError
from trainer.algorithms.algorithm import Algorithm
from trainer.cli.run_plan import RUN_FILE, RunPlan, read_plan
from trainer.errors import ConfigError, TrainerError

_LOGGER = logging.getLogger(__name__)


class RunDirectory:
    """Where a run keeps its files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().resolve()
        self.results_file = self.path / "results.jsonl"
        self.checkpoints = CheckpointDirectory(self.path / "checkpoints")
        self._plan_file = self.path / RUN_FILE
        self._results = JSONLinesResults(self.results_file)
        self._made: list[Path] = []

    @property
    def relative_path(self) -> Path:
        """The path as a user in the current folder would type it."""
        try:
            return self.path.relative_to(Path.cwd())
        except ValueError:
            return self.path

    def create(self, plan: RunPlan) -> None:
        """Makes the directory of a new run.

        One that was killed before it saved anything cannot be gone on with, so the new one takes
        its place; the results that it wrote stay in `results.jsonl.1`.

        Args:
            plan: when the run ends and what it keeps, for `resume`.

        Raises:
            ConfigError: it holds a run already, or cannot be written.
        """
        if self.checkpoints.holds_any():
            raise ConfigError(
                f"{self.path} holds a run already. Go on with it "
                f"(local-trainer resume {self.relative_path}), or give another --run-dir."
            )
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with self._refusals_told():
                self._results.start_anew({"training_iteration": 1})
            self.write_plan(plan)
        except (OSError, CheckpointWriteError) as error:
            raise ConfigError(
                f"{self.path} cannot be written: {error}. Results and checkpoints go there. Give "
                "another --run-dir, or make room or permissions for it."
            ) from error

    def write_plan(self, plan: RunPlan) -> None:
        """Writes down when the run ends and what it keeps, for `resume`.

        Raises:
            CheckpointWriteError: it cannot be written; what was there before is whole.
        """
        plan.write(self._plan_file)

    def remove_if_unused(self) -> None:
        """Removes what `create` made for a run that never began; other files stay."""
        self._plan_file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds something else
            for path in self._made:
                path.rmdir()

    def read_plan(self) -> RunPlan:
        """What the run was started with; defaults that remove nothing if it is not there.

        Raises:
            ConfigError: `run.json` is damaged.
        """
        return read_plan(self._plan_file)

    def append_result(self, result: Mapping[str, Any]) -> None:
        """Writes one result as a line; the config is left out, the checkpoint has it."""
        with self._refusals_told():
            self._results.append(row_of(result))

    def last_result(self) -> dict[str, Any] | None:
        """The newest result that can be read; None if there is none."""
        with self._refusals_told():
            result = self._results.last()
        if result is None or "env_runners" not in result:
            return None
        runners = result["env_runners"]
        if runners["episode_return_mean"] is None:  # JSON has no NaN
            runners["episode_return_mean"] = math.nan
        return result

    def forget_results_after(self, iteration: int) -> None:
        """Removes the results of iterations that will be made again, and a torn last line.

        Args:
            iteration: the iteration to go on from; results that are missing before it are told.
        """
        with self._refusals_told():
            self._results.forget_after(iteration)
            last = self._results.last_iteration()
        if last < iteration:
            _LOGGER.warning(
                "%s %s: the results of iterations %d to %d, which the checkpoint counts, are not "
                "there and cannot be made again. Training is not affected: it goes on exactly from "
                "iteration %d, whose result is the next that is written. Whether the run has met "
                "its stop criteria is judged then.",
                self.results_file,
                "is cut short" if self.results_file.exists() else "is gone",
                last + 1,
                iteration,
                iteration + 1,
            )

    @contextlib.contextmanager
    def _refusals_told(self) -> Iterator[None]:
        """Turns what the file system refuses into an error that says what to do."""
        try:
            yield
        except OSError as error:
            raise TrainerError(
                f"Results cannot be kept in {self.results_file}: {error}. Make room or permissions "
                "for the file; then go on from the newest checkpoint with: local-trainer resume "
                f"{self.relative_path}"
            ) from error

    def save_checkpoint(self, algo: Algorithm, *, keep: int | None) -> Path:
        """Saves a checkpoint of this iteration, then removes all but the newest `keep`, if any."""
        path = self.checkpoints.save(algo)
        if keep is not None:
            self.checkpoints.remove_older(keep=keep, until=algo.training_iteration)
        return path

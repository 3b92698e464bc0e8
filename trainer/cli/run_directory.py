"""The files of one run: its stop criteria, its results, its checkpoints.

runs/PPO-CartPole-v1-20261121-101500/
    run.json                when to stop, for `resume`
    results.jsonl           a result per line; NaN is null
    checkpoints/000010/     see docs/checkpoint-format.md
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import Retention, apply_retention
from trainer.algorithms.algorithm import Algorithm
from trainer.errors import ConfigError


class RunDirectory:
    """Where a run keeps its files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().resolve()
        self.results_file = self.path / "results.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self._stops_file = self.path / "run.json"
        self._made: list[Path] = []

    @property
    def relative_path(self) -> Path:
        """The path as a user in the current folder would type it."""
        try:
            return self.path.relative_to(Path.cwd())
        except ValueError:
            return self.path

    def create(self, stops: Mapping[str, Any]) -> None:
        """Makes the directory of a new run.

        Args:
            stops: when the run ends, for `resume`.

        Raises:
            ConfigError: it holds a run already, or cannot be written.
        """
        if self.results_file.exists() or self.checkpoints.exists():
            raise ConfigError(
                f"{self.path} holds a run already. Go on with it "
                f"(local-trainer resume {self.relative_path}), or give another --run-dir."
            )
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_stops(stops)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written: {error}. Results and checkpoints go there. Give "
                "another --run-dir, or make room or permissions for it."
            ) from error

    def write_stops(self, stops: Mapping[str, Any]) -> None:
        """Writes down when the run ends, for `resume`."""
        text = json.dumps({"stop": dict(stops)}, indent=2) + "\n"
        self._stops_file.write_text(text, encoding="utf-8")

    def remove_if_unused(self) -> None:
        """Removes what `create` made for a run that never began; other files stay."""
        self._stops_file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds something else
            for path in self._made:
                path.rmdir()

    def read_stops(self) -> dict[str, Any]:
        """The stop criteria that the run was started with; none if the file is not there."""
        try:
            stops: dict[str, Any] = json.loads(self._stops_file.read_text(encoding="utf-8"))["stop"]
        except (OSError, ValueError, KeyError):
            return {}
        return stops

    def append_result(self, result: Mapping[str, Any]) -> None:
        """Writes one result as a line; the config is left out, the checkpoint has it."""
        row = {key: _jsonable(value) for key, value in result.items() if key != "config"}
        with self.results_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def last_result(self) -> dict[str, Any] | None:
        """The newest result that was written; None if there is none."""
        if not self.results_file.exists():
            return None
        lines = self.results_file.read_text(encoding="utf-8").splitlines()
        if not lines:
            return None
        result: dict[str, Any] = json.loads(lines[-1])
        runners = result["env_runners"]
        if runners["episode_return_mean"] is None:  # JSON has no NaN
            runners["episode_return_mean"] = math.nan
        return result

    def forget_results_after(self, iteration: int) -> None:
        """Removes the results of iterations that will be made again, and a torn last line."""
        if not self.results_file.exists():
            return
        kept = []
        for line in self.results_file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row.get("training_iteration", 0) <= iteration:
                kept.append(line)
        temporary = self.results_file.with_suffix(".tmp")
        temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        temporary.replace(self.results_file)

    def save_checkpoint(self, algo: Algorithm, *, keep: int) -> Path:
        """Saves a checkpoint of this iteration, then removes all but the newest `keep`."""
        path = Path(algo.save_to_path(self.checkpoints / f"{algo.training_iteration:06d}"))
        apply_retention(self.checkpoints, Retention(keep_last=keep))
        return path


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        return _jsonable(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)

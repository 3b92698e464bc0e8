"""What a run left behind, read back: its results, its settings, its recordings.

Only files are read: no algorithm is built, no code of a checkpoint is run, nothing is changed. So
runs that are under way can be read, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from callbacks.ready_made.metric_values import RETURN, number_at, numbers_in
from callbacks.ready_made.rows_file import RowsFile
from checkpoints import CheckpointError, latest_checkpoint, read_checkpoint, read_manifest
from checkpoints.links import check_links
from trainer.errors import ReportError
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.trees import named_leaves

X_AXES: Final[Mapping[str, tuple[str, str]]] = {
    "env_steps": ("num_env_steps_sampled_lifetime", "env steps"),
    "time": ("time_total_s", "training time (s)"),
    "iteration": ("training_iteration", "iteration"),
}
"""Name of a horizontal axis → (slash path of its number in a result, label with unit)."""

RESULTS_FILE: Final = "results.jsonl"
_RECORDINGS: Final = {"videos": (".mp4", ".gif", ".webm"), "episodes": (".npz",)}
_MAX_RECORDINGS: Final = 200
_MAX_KNOWN: Final = 8


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        path: its directory, or the file of its results.
        rows: its results in their order.
        settings: the settings of its config that are plain data, by name; {} if it has saved no
            checkpoint.
        metadata: what its newest checkpoint says of itself; {} without one.
        videos: recorded videos below the directory.
        episodes: recorded episodes below the directory.
    """

    path: Path
    rows: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    videos: Sequence[Path] = ()
    episodes: Sequence[Path] = ()

    @property
    def name(self) -> str:
        """The name of the directory or file, as people know the run."""
        return self.path.parent.name if self.path.name == RESULTS_FILE else self.path.name

    @property
    def algorithm(self) -> str:
        """The name of the algorithm; empty if no checkpoint tells."""
        return str(self.metadata.get("algorithm", ""))

    @property
    def env(self) -> str:
        """The env as text; empty if no checkpoint tells."""
        return str(self.metadata.get("env", ""))

    @property
    def seed(self) -> int | None:
        """The root seed; None if no checkpoint tells."""
        seed = self.metadata.get("root_seed")
        return seed if isinstance(seed, int) else None

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest result; {} before the first."""
        return self.rows[-1] if self.rows else {}

    def series(
        self, metric: str = RETURN, x: str = "env_steps"
    ) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
        """A metric over the run; results that lack it, or a number on the axis, are left out.

        Args:
            metric: slash path of a number in the results.
            x: a name in `X_AXES`.

        Returns:
            Positions on the axis, increasing, and values, both float64 of shape (n,).

        Raises:
            ReportError: there is no such axis, or none of the results has such a number.
        """
        if x not in X_AXES:
            raise ReportError(f"`x={x!r}` is no axis; expected one of {', '.join(X_AXES)}.")
        points = [(number_at(row, X_AXES[x][0]), number_at(row, metric)) for row in self.rows]
        found = [(at, value) for at, value in points if at is not None and value is not None]
        if not found:
            raise ReportError(self._why_nothing(metric, x))
        xs, ys = np.array(found, dtype=np.float64).T
        order = np.argsort(xs, kind="stable")
        return xs[order], ys[order]

    def _why_nothing(self, metric: str, x: str) -> str:
        if not self.rows:
            return f"{self.path} has no results yet. Wait for the first iteration."
        nothing = f"No result of {self.path} has a finite number at {metric!r}"
        known = sorted({path for row in self.rows for path, _ in numbers_in(row)})
        if metric in known:
            return (
                f"{nothing} and at {X_AXES[x][0]!r}. Returns are known when an episode has ended."
            )
        advice = did_you_mean(metric, known, most=3, similarity=0.5)
        some = f" There are {len(known)} others, such as {', '.join(known[:_MAX_KNOWN])}."
        return f"{nothing}.{advice or some}"


def read_run(path: str | Path) -> Run:
    """Reads a run.

    Args:
        path: the directory of a run of the command line, of a trial of `tune`, or any with a
            `results.jsonl`; or a file that `JSONLinesLogger` wrote.

    Raises:
        ReportError: nothing of a run is there.
        LinkError: a link in the directory leads out of it.
    """
    given = Path(path).expanduser()
    check_links(given)
    file = given if given.is_file() else given / RESULTS_FILE
    if not file.is_file():
        raise ReportError(
            f"{given.absolute()} {'holds no' if given.is_dir() else 'does not exist; expected a'} "
            f"{RESULTS_FILE}. Give the directory of a run, such as runs/<run>, or a file of "
            "JSONLinesLogger."
        )
    rows = list(RowsFile(file).rows())
    if given.is_file():
        return Run(path=given.resolve(), rows=rows)
    settings, metadata = _of_newest_checkpoint(given)
    recordings = {name: _recordings(given, endings) for name, endings in _RECORDINGS.items()}
    return Run(given.resolve(), rows, settings, metadata, **recordings)


def find_runs(folder: str | Path) -> list[Path]:
    """The directories of runs at a path and below it, by name; a ReportError without a folder."""
    given = Path(folder).expanduser()
    if not given.is_dir():
        raise ReportError(
            f"{given.absolute()} is no folder. Give the folder in which runs are, such as runs."
        )
    return sorted(file.parent for file in given.rglob(RESULTS_FILE) if file.is_file())


def _of_newest_checkpoint(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings, metadata) of the newest checkpoint that can be read; nothing of it is run."""
    for folder in (directory / "checkpoints", directory):
        try:
            newest = latest_checkpoint(folder) if folder.is_dir() else None
            if newest is None:
                continue
            config = read_checkpoint(newest, "config").components["config"]
            metadata = dict(read_manifest(newest).metadata)
        except CheckpointError:
            continue  # removed or replaced while we look; without it the results are still good
        settings = config.get("settings") if isinstance(config, Mapping) else None
        return dict(settings) if isinstance(settings, Mapping) else {}, metadata
    return {}, {}


def _recordings(directory: Path, endings: Sequence[str]) -> list[Path]:
    files = (path for path in directory.rglob("*") if path.suffix in endings and path.is_file())
    found = (path for path in files if "checkpoints" not in path.relative_to(directory).parts)
    return sorted(found)[:_MAX_RECORDINGS]


# ---- comparing settings


def differing_settings(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Settings that are not the same in all runs, as texts: name → a value per run, in order.

    The seed is among them. A run without a checkpoint has "?" everywhere.
    """
    flat = [_flattened(run.settings) for run in runs]
    names = sorted({name for settings in flat for name in settings})
    table = {
        name: [
            settings.get(name, "–") if run.settings else "?"
            for run, settings in zip(runs, flat, strict=True)
        ]
        for name in names
    }
    return {name: values for name, values in table.items() if len(set(values)) > 1}


def _flattened(settings: Mapping[str, Any]) -> dict[str, str]:
    return {path: _short(value) for path, value in named_leaves(settings, keep_empty=True)}


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    text = json.dumps(value) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"

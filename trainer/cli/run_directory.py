"""The files of one run: its plan, its results, its checkpoints.

runs/PPO-CartPole-v1-20261121-101500/
    run.json                when to stop and what to keep, for `resume`
    settings.json           what the run was begun with, for `train --config`
    results.jsonl           a result per line; NaN is null
    checkpoints/000010/     see docs/checkpoints.md
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from callbacks.ready_made.checkpoint_directory import CheckpointDirectory
from callbacks.ready_made.metric_values import count_problems
from callbacks.ready_made.rows_file import RowsFile, row_of
from callbacks.ready_made.stopping import StopCriteria
from callbacks.ready_made.tracker_services import ARTIFACT_KINDS
from checkpoints import CheckpointWriteError
from checkpoints.writer import write_whole_file
from trainer.algorithms.algorithm import Algorithm
from trainer.errors import ConfigError, TrainerError
from trainer_toolkit.files import remedy

# ---- run plan
#
# What `run.json` holds: when a run of the command line ends, and how it saves. `train` writes it,
# `resume` reads it, changes what was given anew, and writes it again. The file is replaced
# atomically; one that cannot be read is an error, because a run that goes on without its plan
# would train without end, or remove checkpoints that it was to keep.

RUN_FILE: Final = "run.json"

STOPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stop_return": "at_least",
        "stop_env_steps": "max_env_steps",
        "stop_iterations": "max_iterations",
        "stop_time_s": "max_time_s",
    }
)
"""Argument → criterion."""

STOP_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        name.removeprefix("stop_").replace("return", "episode_return"): field
        for name, field in STOPS.items()
    }
)
"""Name in `run.json` → criterion."""

_MAX_BYTES: Final = 2**20
_DEFAULT_CHECKPOINT_EVERY: Final = 10
_DEFAULT_KEEP: Final = 3


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """When a run ends, and how it saves.

    Attributes:
        stops: the stop criteria of the whole run.
        checkpoint_every: iterations from one checkpoint to the next.
        keep: how many of the newest checkpoints stay; None keeps all, as for runs that were not
            started by the command line, or by one that did not write it down.
        track: trackers that get the results, as `--track` names them.
        track_artifacts: what they get besides, as `--track-artifacts` names it.
    """

    stops: StopCriteria = dataclasses.field(default_factory=StopCriteria)
    checkpoint_every: int = _DEFAULT_CHECKPOINT_EVERY
    keep: int | None = None
    track: tuple[str, ...] = ()
    track_artifacts: tuple[str, ...] = ()

    def updated(self, arguments: argparse.Namespace) -> RunPlan:
        """The plan with what is on the command line in its place.

        Any stop criterion given replaces all that were given before.

        Raises:
            ConfigError: something is to be sent to trackers, and there is none.
        """
        stops = _given_stops(arguments)
        track = tuple(arguments.track) or self.track
        if arguments.track_artifacts and not track:
            raise ConfigError(
                f"--track-artifacts {arguments.track_artifacts[0]} sends something to a tracker, "
                "and this run has none. Name one: --track mlflow:URI, for example."
            )
        every, keep = arguments.checkpoint_every, arguments.keep
        return RunPlan(
            stops=self.stops if stops == StopCriteria() else stops,
            checkpoint_every=self.checkpoint_every if every is None else every,
            keep=self.keep if keep is None else keep,
            track=track,
            track_artifacts=tuple(arguments.track_artifacts) or self.track_artifacts,
        )

    def write(self, file: Path) -> None:
        """Writes the file, whole or not at all; a CheckpointWriteError leaves the old one whole."""
        plan = {
            "stop": {name: getattr(self.stops, field) for name, field in STOP_FIELDS.items()},
            "save": {"checkpoint_every": self.checkpoint_every, "keep": self.keep},
            "track": list(self.track),
            "track_artifacts": list(self.track_artifacts),
        }
        data = (json.dumps(plan, indent=2) + "\n").encode()
        write_whole_file(file, data, overwrite=True)


def plan_of_new_run(arguments: argparse.Namespace) -> RunPlan:
    """The plan of a run that `train` begins."""
    return RunPlan(keep=_DEFAULT_KEEP).updated(arguments)


def read_plan(file: Path) -> RunPlan:
    """What `RunPlan.write` wrote; a plan of defaults that keeps all if there is no such file.

    Raises:
        ConfigError: the file is damaged, or says what makes no sense; lists all problems.
    """
    if not file.exists() and not file.is_symlink():
        return RunPlan()
    try:
        values = json.loads(_content(file.resolve()))
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: loops, nested too deep
        raise ConfigError(_damaged(file, _reason(error))) from error
    if not isinstance(values, dict):
        raise ConfigError(_damaged(file, f"it holds a {type(values).__name__}, not an object"))
    stops, saving = values.get("stop"), values.get("save", {})
    if not isinstance(stops, dict) or not isinstance(saving, dict):
        name, part = ("save", saving) if isinstance(stops, dict) else ("stop", stops)
        raise ConfigError(_damaged(file, f'its "{name}" is {part!r:.60}, not an object'))
    return _checked(file, stops, saving, values)


def _checked(
    file: Path, stops: Mapping[str, Any], saving: Mapping[str, Any], values: Mapping[str, Any]
) -> RunPlan:
    unknown = [name for name in stops if name not in STOP_FIELDS]
    unknown += [name for name in saving if name not in ("checkpoint_every", "keep")]
    given: dict[str, Any] = {field: stops.get(name) for name, field in STOP_FIELDS.items()}
    criteria = StopCriteria(**given)
    every = saving.get("checkpoint_every", _DEFAULT_CHECKPOINT_EVERY)
    keep = saving.get("keep")
    problems = [
        *(f"{name!r:.60} is no part of it" for name in unknown),
        *criteria.problems(),
        *count_problems("checkpoint_every", every),
        *count_problems("keep", keep, none="all"),
    ]
    track, artifacts = values.get("track", []), values.get("track_artifacts", [])
    if not isinstance(track, list) or not all(isinstance(name, str) for name in track):
        problems.append(f"`track={track!r:.60}` is no list of names of trackers")
    if not isinstance(artifacts, list) or not all(kind in ARTIFACT_KINDS for kind in artifacts):
        problems.append(
            f"`track_artifacts={artifacts!r:.60}` is no list of {' and '.join(ARTIFACT_KINDS)}"
        )
    if problems:
        raise ConfigError(
            f"{file} does not say when to stop and what to keep: {'; '.join(problems)}. Nothing "
            f"was changed. {_ADVICE}"
        )
    return RunPlan(
        stops=criteria,
        checkpoint_every=every,
        keep=keep,
        track=tuple(track),
        track_artifacts=tuple(artifacts),
    )


def _content(path: Path) -> bytes:
    if not path.is_file():  # a pipe could be read for ever
        raise OSError("it is no file" if path.exists() else "it leads nowhere")
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise OSError(f"it has {size:,} bytes, more than the {_MAX_BYTES:,} it may have")
    return path.read_bytes()


def _given_stops(arguments: argparse.Namespace) -> StopCriteria:
    given: dict[str, Any] = {field: getattr(arguments, name) for name, field in STOPS.items()}
    return StopCriteria(**given)


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON ({error})" if error.doc.strip() else "it is empty"
    if isinstance(error, UnicodeDecodeError):
        return "it is no text"
    return str(error)


def _damaged(file: Path, why: str) -> str:
    return (
        f"{file} is damaged: {why}. It says when the run stops and which checkpoints stay, so it "
        f"is not guessed. Nothing was changed. {_ADVICE}"
    )


_ADVICE: Final = (
    "Correct the file, or remove it and say so again: local-trainer resume RUN --stop-iterations N "
    "--keep N (without the file, all checkpoints are kept)."
)


# ---- run directory

_LOGGER = logging.getLogger(__name__)


class RunDirectory:
    """Where a run keeps its files.

    Attributes:
        rows: its results; trackers follow them.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().resolve()
        self.results_file = self.path / "results.jsonl"
        self.checkpoints = CheckpointDirectory(self.path / "checkpoints")
        self._plan_file = self.path / RUN_FILE
        self.rows = RowsFile(self.results_file)
        self._made: list[Path] = []

    @property
    def relative_path(self) -> Path:
        """The path as a user in the current folder would type it."""
        try:
            return self.path.relative_to(Path.cwd())
        except ValueError:
            return self.path

    def require_new(self) -> None:
        """Raises a ConfigError if it holds a run that can be gone on with."""
        if self.checkpoints.holds_any():
            quoted = shlex.quote(str(self.relative_path))
            raise ConfigError(
                f"{self.path} holds a run already. Go on with it "
                f"(local-trainer resume {quoted}), or give another --run-dir."
            )

    def create(self, plan: RunPlan) -> None:
        """Makes the directory of a new run.

        One that was killed before it saved anything cannot be gone on with, so the new one takes
        its place; the results that it wrote stay in `results.jsonl.1`.

        Args:
            plan: when the run ends and what it keeps, for `resume`.

        Raises:
            ConfigError: it holds a run already, or cannot be written.
        """
        self.require_new()
        self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with self._refusals_explained():
                self.rows.set_aside()
            self.write_plan(plan)
        except OSError as error:
            is_clear = isinstance(error, CheckpointWriteError)  # says itself what to do
            reason = str(error).rstrip(".") if is_clear else f"{error}. {remedy(error)}"
            raise ConfigError(
                f"{self.path} cannot be the directory of a run: {reason}; or give another "
                "--run-dir."
            ) from error

    def write_plan(self, plan: RunPlan) -> None:
        """Writes down when the run ends and what it keeps, for `resume`; see `RunPlan.write`."""
        plan.write(self._plan_file)

    def remove_if_unused(self) -> None:
        """Removes what `create` made for a run that never began; other files stay."""
        self._plan_file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds something else
            for path in self._made:
                path.rmdir()

    def read_plan(self) -> RunPlan:
        """What the run was started with; see `read_plan`."""
        return read_plan(self._plan_file)

    def append_result(self, result: Mapping[str, Any]) -> None:
        """Writes one result as a line; the config is left out, the checkpoint has it."""
        with self._refusals_explained():
            self.rows.append(row_of(result))

    def last_result(self) -> dict[str, Any] | None:
        """The newest result that can be read; None if there is none."""
        with self._refusals_explained():
            result = self.rows.last_row()
        return None if result is None or "env_runners" not in result else result

    def forget_results_after(self, iteration: int) -> None:
        """Removes the results of iterations that will be made again, and a torn last line.

        Args:
            iteration: the iteration to go on from; results that are missing before it are told.
        """
        with self._refusals_explained():
            last = self.rows.keep(iteration)
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
    def _refusals_explained(self) -> Iterator[None]:
        """Turns what the file system refuses into an error that says what to do."""
        try:
            yield
        except OSError as error:
            raise TrainerError(
                f"Results cannot be kept in {self.results_file}: {error}. {remedy(error)}; then go "
                "on from the newest checkpoint with: local-trainer resume "
                f"{shlex.quote(str(self.relative_path))}"
            ) from error

    def save_checkpoint(self, algo: Algorithm, *, keep: int | None) -> Path:
        """Saves a checkpoint of this iteration, then removes all but the newest `keep`, if any."""
        path = self.checkpoints.save(algo)
        if keep is not None:
            self.checkpoints.remove_older(keep=keep, until=algo.training_iteration)
        return path

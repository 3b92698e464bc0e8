"""What `run.json` holds: when a run of the command line ends, and how it saves.

`train` writes it, `resume` reads it, changes what was given anew, and writes it again. The file is
replaced atomically; one that cannot be read is an error, because a run that goes on without its
plan would train without end, or remove checkpoints that it was to keep.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from callbacks.ready_made.choices import count_problems
from callbacks.ready_made.stop_criteria import StopCriteria
from checkpoints.whole_file import write_whole_file
from trainer.errors import ConfigError

RUN_FILE: Final = "run.json"

_STOPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "episode_return": "at_least",
        "env_steps": "max_env_steps",
        "iterations": "max_iterations",
        "time_s": "max_time_s",
    }
)
"""Name in `run.json` → criterion. The argument is `--stop-` and the first, or `--stop-return`."""

STOPS: Final = ("stop_return", "stop_env_steps", "stop_iterations", "stop_time_s")
"""The arguments that say when to stop."""

_MAX_BYTES: Final = 2**20
_DEFAULT_CHECKPOINT_EVERY: Final = 10
_DEFAULT_KEEP: Final = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """When a run ends, and how it saves.

    Attributes:
        stops: the stop criteria of the whole run.
        checkpoint_every: iterations from one checkpoint to the next.
        keep: how many of the newest checkpoints stay; None keeps all, as for runs that were not
            started by the command line, or by one that did not write it down.
    """

    stops: StopCriteria = dataclasses.field(default_factory=StopCriteria)
    checkpoint_every: int = _DEFAULT_CHECKPOINT_EVERY
    keep: int | None = None

    def updated(self, arguments: argparse.Namespace) -> RunPlan:
        """The plan with what is on the command line in its place.

        Any stop criterion given replaces all that were given before.
        """
        stops = _given_stops(arguments)
        every, keep = arguments.checkpoint_every, arguments.keep
        return RunPlan(
            stops=self.stops if stops == StopCriteria() else stops,
            checkpoint_every=self.checkpoint_every if every is None else every,
            keep=self.keep if keep is None else keep,
        )

    def write(self, file: Path) -> None:
        """Writes the file, whole or not at all.

        Raises:
            CheckpointWriteError: it cannot be written; what was there before is whole.
        """
        plan = {
            "stop": {name: getattr(self.stops, field) for name, field in _STOPS.items()},
            "save": {"checkpoint_every": self.checkpoint_every, "keep": self.keep},
        }
        data = (json.dumps(plan, indent=2) + "\n").encode()

        def write(opened: BinaryIO) -> None:
            opened.write(data)

        write_whole_file(file, write, overwrite=True)


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
    return _checked(file, stops, saving)


def _checked(file: Path, stops: Mapping[str, Any], saving: Mapping[str, Any]) -> RunPlan:
    unknown = [name for name in stops if name not in _STOPS]
    unknown += [name for name in saving if name not in ("checkpoint_every", "keep")]
    given: dict[str, Any] = {field: stops.get(name) for name, field in _STOPS.items()}
    criteria = StopCriteria(**given)
    every = saving.get("checkpoint_every", _DEFAULT_CHECKPOINT_EVERY)
    keep = saving.get("keep")
    problems = [
        *(f"{name!r:.60} is no part of it" for name in unknown),
        *criteria.problems(),
        *count_problems("checkpoint_every", every),
        *count_problems("keep", keep, none="all"),
    ]
    if problems:
        raise ConfigError(
            f"{file} does not say when to stop and what to keep: {'; '.join(problems)}. Nothing "
            f"was changed. {_ADVICE}"
        )
    return RunPlan(stops=criteria, checkpoint_every=every, keep=keep)


def _content(path: Path) -> bytes:
    if not path.is_file():  # a pipe could be read for ever
        raise OSError("it is no file" if path.exists() else "it leads nowhere")
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise OSError(f"it has {size:,} bytes, more than the {_MAX_BYTES:,} it may have")
    return path.read_bytes()


def _given_stops(arguments: argparse.Namespace) -> StopCriteria:
    return StopCriteria(
        at_least=arguments.stop_return,
        max_env_steps=arguments.stop_env_steps,
        max_iterations=arguments.stop_iterations,
        max_time_s=arguments.stop_time_s,
    )


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

"""`runs`, `watch`, `plot`, `report`, `check`: for people who look at runs, from any terminal.

They only read. Each takes the parsed arguments and returns an exit code.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from callbacks.ready_made.display import LineOutput, live_surface
from callbacks.ready_made.metric_values import RETURN, number_at
from callbacks.ready_made.progress import TrainingProgress, duration
from checkpoints import LinkError
from trainer.cli.output import missing_extras_explained, on_one_line, print_json, print_text
from trainer.cli.run_directory import RUN_FILE, RunDirectory
from trainer.errors import ConfigError, ReportError
from trainer.learners.learning_checks import CHECKS, Finding, findings
from trainer.reports import Run, find_runs, plot_runs, read_run, write_report
from trainer.runtime.run_lock import owner_of
from trainer.tune.events import TrialStatus
from trainer.tune.output import table_text
from trainer.tune.trial_files import ROWS_FILE, TRIAL_FILE, TrialFiles

_SHOWN_AT_FIRST: Final = 5
_HEADS: Final = ("run", "state", "iteration", "env steps", "return", "written")
_STATE_OF_TRIAL: Final[Mapping[str, str]] = MappingProxyType(
    {TrialStatus.TERMINATED.value: "done", TrialStatus.ERROR.value: "failed"}
)


def runs(arguments: argparse.Namespace) -> int:
    """Lists the runs below a folder."""
    rows = [_listed(path) for path in find_runs(arguments.path)]
    if arguments.json:
        print_json(rows)
    elif rows:
        _show_list(rows)
    else:
        print_text(f"There are no runs below {arguments.path}: local-trainer train begins one.")
    return 0


def _show_list(rows: Sequence[Mapping[str, Any]]) -> None:
    print_text(table_text(_HEADS, [[_cell(row[head], head) for head in _HEADS] for row in rows]))
    print_text("\n  ".join(["\nWhat to type next:", *_next_commands(rows)]))


def watch(arguments: argparse.Namespace) -> int:
    """Shows the iterations of a run as they come, until it ends; of a folder lists the runs."""
    path = Path(arguments.path)
    is_folder = path.is_dir() and not any((path / name).is_file() for name in (ROWS_FILE, RUN_FILE))
    if is_folder and (below := find_runs(path)):
        _show_list([_listed(each) for each in below])
        return 0
    plan = RunDirectory(path).read_plan()
    output, shown = LineOutput(), 0
    surface = None if arguments.lines else live_surface()
    progress = TrainingProgress(plan.stops, title=str(path), output=output, surface=surface)
    first = 0 if surface else -_SHOWN_AT_FIRST
    try:
        while True:
            is_running = _is_running(path)  # before reading: what it wrote last is seen
            rows = read_run(path).rows
            for row in rows[shown or first :]:
                progress.show(row, elapsed_s=number_at(row, "time_this_iter_s") or 0.0)
            shown = len(rows)
            if not is_running or output.is_silent:
                break
            time.sleep(arguments.interval)
    finally:
        progress.close()
    reason = rows and plan.stops.reason(rows[-1], value=number_at(rows[-1], plan.stops.metric))
    if not reason and (of_trial := _trial_facts(path).get("stop_reason")):
        reason = f"It has ended: {of_trial}."
    output.write(reason or f"It is not running. Go on: {_going_on(path)}")
    return 0


def plot(arguments: argparse.Namespace) -> int:
    """Draws learning curves into a file."""
    with missing_extras_explained():
        plot_runs(
            _runs_at(arguments.paths),
            metric=arguments.metric,
            x=arguments.x,
            band=arguments.band,
            smooth=arguments.smooth,
            labels=arguments.labels,
            title=arguments.title,
            file=arguments.output,
        )
    print_text(str(arguments.output))
    return 0


def report(arguments: argparse.Namespace) -> int:
    """Writes one HTML page about runs."""
    paths = _runs_at(arguments.paths)
    with missing_extras_explained():
        print_text(
            str(
                write_report(
                    paths, arguments.output, labels=arguments.labels, title=arguments.title
                )
            )
        )
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Says of runs whether learning goes wrong, why, and what to change; 3 if it does in one."""
    runs = {str(path): read_run(path) for path in _runs_at(arguments.paths)}
    if not any(run.rows for run in runs.values()):
        raise ReportError(f"There are no results to look at in {', '.join(arguments.paths)}.")
    found = {path: findings(run.rows) for path, run in runs.items()}
    if arguments.json:
        print_json({path: [*map(_as_json, of_run)] for path, of_run in found.items()})
        return 3 if any(found.values()) else 0
    for path, run in runs.items():
        of_run, missing = found[path], _num_missing(run)
        print_text(
            f"{path}: {f'{len(of_run)} found' if of_run else 'nothing was found'} in "
            f"{len(run.rows)} results"
            f"{f', {missing} are missing or cannot be read' if missing else ''}"
        )
        for each in of_run:
            print_text(f"  {on_one_line(str(each))}\n    (threshold: {CHECKS[each.check].source})")
    return 3 if any(found.values()) else 0


def _as_json(finding: Finding) -> dict[str, Any]:
    values = {**dataclasses.asdict(finding), "text": str(finding), "advice": finding.advice}
    values["figure"] = finding.figure if math.isfinite(finding.figure) else str(finding.figure)
    return {**values, "threshold": CHECKS[finding.check].source}


def _num_missing(run: Run) -> int:
    """Iterations up to the last one that have no result that can be read."""
    found = (number_at(row, "training_iteration") for row in run.rows)
    known = {int(iteration) for iteration in found if iteration is not None}
    return max(known, default=0) - len(known)


def _runs_at(paths: list[str]) -> list[Path]:
    """Each path itself if it is a run, or else the runs below it; a ReportError without any."""
    found: list[Path] = []
    for path in map(Path, paths):
        has_results = path.is_file() or (path / ROWS_FILE).is_file()
        below = [path] if has_results else find_runs(path)
        if not below and (path / RUN_FILE).is_file():
            raise ReportError(
                f"The run in {path} has no results: its first iteration has not ended yet, or it "
                "failed. What failed was said where it ran; run it again to see it."
            )
        if not below:
            raise ReportError(f"There are no runs at {path} and below it.")
        found += below
    return found


def _listed(path: Path) -> dict[str, Any]:
    try:
        run = read_run(path)
    except LinkError:  # the other runs are shown all the same
        return {**dict.fromkeys(_HEADS), "run": str(path), "state": "damaged"}
    return {
        "run": str(path),
        "state": _state_of(run),
        "iteration": number_at(run.last, "training_iteration"),
        "env steps": number_at(run.last, "num_env_steps_sampled_lifetime"),
        "return": number_at(run.last, RETURN),
        "written": time.time() - (path / ROWS_FILE).stat().st_mtime,
    }


def _state_of(run: Run) -> str:
    """running, done (it has ended as it should), stopped, failed, or damaged: `resume` says what.

    A trial is what its experiment says of it, unless `resume` has gone on with it alone.
    """
    if _is_running(run.path):
        return "running"
    if facts := _trial_facts(run.path):
        return _STATE_OF_TRIAL.get(str(facts.get("status")), "stopped")
    try:
        stops = RunDirectory(run.path).read_plan().stops
    except ConfigError:
        return "damaged"
    is_over = stops.reason(run.last, value=number_at(run.last, stops.metric)) is not None
    return "done" if run.rows and is_over else "stopped"


def _is_running(path: Path) -> bool:
    """Whether a process works on a run, or on a trial as part of its experiment."""
    if owner_of(path) is not None:
        return True
    facts = _trial_facts(path)
    is_open = bool(facts) and str(facts.get("status")) not in _STATE_OF_TRIAL
    return is_open and owner_of(_experiment_of(path)) is not None


def _trial_facts(path: Path) -> dict[str, Any]:
    """What the experiment says of a trial; {} for any other run."""
    return {} if (path / RUN_FILE).exists() else TrialFiles(path).read_facts()


def _experiment_of(trial: Path) -> Path:
    return trial.resolve().parent.parent


def _going_on(path: Path) -> str:
    """The command that goes on with a run, or with the experiment that a trial is part of."""
    if _trial_facts(path):
        return f"local-trainer tune-resume {shlex.quote(str(_experiment_of(path)))}"
    return f"local-trainer resume {shlex.quote(str(path))}"


def _cell(value: Any, head: str) -> str:
    if value is None:
        return "–"
    if head == "written":
        return f"{duration(max(0.0, value))} ago"
    if isinstance(value, str):
        return value
    return f"{value:,.1f}" if head == "return" else f"{value:,.0f}"


def _next_commands(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What people most likely want, and of the newest experiment its best trial."""
    trials = [Path(row["run"]) for row in rows if (Path(row["run"]) / TRIAL_FILE).is_file()]
    if not trials:
        return [_next_command(rows)]
    newest = max(trials, key=lambda trial: (trial / TRIAL_FILE).stat().st_mtime)
    folder = shlex.quote(os.path.relpath(_experiment_of(newest)))
    return [
        _next_command(rows), f"local-trainer best {folder}", f"local-trainer trials {folder}"
    ]  # fmt: skip


def _next_command(rows: Sequence[Mapping[str, Any]]) -> str:
    """What people most likely want: to watch what runs, to go on, or to compare what is done."""
    for state in ("running", "stopped", "damaged"):
        paths = [row["run"] for row in rows if row["state"] == state]
        if paths and state == "running":
            return f"local-trainer watch {shlex.quote(paths[-1])}"
        if paths:
            return _going_on(Path(paths[-1]))
    return f"local-trainer plot {shlex.join(row['run'] for row in rows[-5:])} -o curves.png"

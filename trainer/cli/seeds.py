"""`train --seeds 0-4 --jobs 2`: the same training with several seeds, each a run of its own.

Every seed is a `local-trainer train` in a process and a folder of its own: it can be watched,
resumed, evaluated like any other, and one that fails does not end the others.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from callbacks.ready_made.display import LineOutput
from callbacks.ready_made.metric_values import RETURN, number_at
from trainer.cli.output import print_text
from trainer.cli.run_directory import RunDirectory
from trainer.errors import ReportError
from trainer.reports import Run, Summary, read_run, summary_of
from trainer.reports.run_records import RESULTS_FILE
from trainer.tune.output import table_text

_POLL_S: Final = 0.1
_MAX_SEEDS: Final = 1000
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")


def seeds(text: str) -> list[int]:
    """Reads `0-4`, `0,7`, or several of them with commas between: whole numbers, each once.

    Raises:
        argparse.ArgumentTypeError: it is something else, or more than 1,000 seeds; or a single
            number, which may be meant as that many seeds.
    """
    if text.strip().isdecimal():
        number = int(text)
        raise argparse.ArgumentTypeError(
            f"{number} is one seed: train it with --seed {number}, or write 0-{max(number - 1, 1)} "
            f"for {max(number, 2)} seeds"
        )
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if not first <= last < first + _MAX_SEEDS:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of seeds, such as 0-4 or 0,7,42 (at most {_MAX_SEEDS:,})"
            )
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


@dataclass
class _Job:
    """The training of one seed under way."""

    seed: int
    path: Path
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    num_shown: int = 0
    num_bytes: int = 0


class SeedRuns:
    """Trains with several seeds, a few at a time.

    Args:
        seeds: the seeds.
        folder: where the runs go, as `seed-0`, `seed-1` …; what each prints is in `seed-0.log`.
        words: the arguments of `train` without seeds, jobs, seed and folder.
        num_jobs: how many at the same time.
    """

    def __init__(
        self, seeds: Sequence[int], folder: Path, words: Sequence[str], *, num_jobs: int
    ) -> None:
        self._waiting = list(seeds)
        self._folder = folder
        self._words = list(words)
        self._num_jobs = num_jobs
        self._running: list[_Job] = []
        self._exit_codes: dict[int, int] = {}
        self._output = LineOutput()

    def run(self) -> int:
        """Runs to the end; the exit code is 0 if all were, 130 after Ctrl-C, else 1.

        After Ctrl-C or SIGTERM each run ends as `train` does: it saves, and can be resumed.

        Raises:
            ConfigError: one of the folders holds a run already; nothing was begun.
        """
        paths = [self._path_of(seed) for seed in self._waiting]
        for path in paths:
            RunDirectory(path).require_new()
        try:
            while self._waiting or self._running:
                while self._waiting and len(self._running) < self._num_jobs:
                    self._running.append(self._begun(self._waiting.pop(0)))
                self._look()
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            self._end_all()
            print_text(f"Stopped. The runs are saved: local-trainer runs {self._folder}")
            return 130
        except BaseException:
            self._end_all()
            raise
        self._print_end(paths)
        return 0 if not any(self._exit_codes.values()) else 1

    def _path_of(self, seed: int) -> Path:
        return self._folder / f"seed-{seed}"

    def _begun(self, seed: int) -> _Job:
        path = self._path_of(seed)
        log = path.with_suffix(".log").open("wb")
        words = [*self._words, "--seed", str(seed), "--run-dir", str(path)]
        # In a group of its own: Ctrl-C at the terminal is ours to pass on, once.
        process = subprocess.Popen(  # noqa: S603 - our own program, with the user's own words
            [sys.executable, "-m", "trainer.cli", "train", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._output.write(f"seed {seed}: begun, in {path}")
        return _Job(seed, path, process, log)

    def _look(self) -> None:
        """Shows what is new, and takes leave of runs that have ended."""
        for job in list(self._running):
            code = job.process.poll()
            self._show(job)
            if code is not None:
                self._running.remove(job)
                job.log.close()
                self._exit_codes[job.seed] = code
                if code:
                    self._output.write(f"seed {job.seed}: {_failure(job, code)}")

    def _show(self, job: _Job) -> None:
        file = job.path / RESULTS_FILE
        num_bytes = file.stat().st_size if file.is_file() else 0
        if num_bytes == job.num_bytes:
            return
        job.num_bytes = num_bytes
        rows = read_run(file).rows
        for row in rows[job.num_shown :]:
            mean = number_at(row, RETURN)
            self._output.write(
                f"seed {job.seed:<5}iter {row['training_iteration']:>4}   "
                f"{number_at(row, 'num_env_steps_sampled_lifetime') or 0:>10,.0f} steps   "
                f"return {'–' if mean is None else f'{mean:.1f}'}"
            )
        job.num_shown = len(rows)

    def _end_all(self) -> None:
        for job in self._running:
            job.process.send_signal(signal.SIGINT)
        for job in self._running:
            job.process.wait()
            job.log.close()

    def _print_end(self, paths: Sequence[Path]) -> None:
        finished = [run for path in paths if (run := _with_returns(path)) is not None]
        rows = [
            [run.name, f"{number_at(run.last, 'num_env_steps_sampled_lifetime'):,.0f}",
             f"{run.series()[1][-1]:.1f}"]
            for run in finished
        ]  # fmt: skip
        if rows:
            print_text("\n" + table_text(["run", "env steps", "return"], rows))
            print_text(_summary_text(summary_of("", finished)))
        print_text(
            f"\nWhat to type next:\n  local-trainer plot {self._folder} -o curves.png\n"
            f"  local-trainer report {self._folder} -o report.html\n"
            f"  local-trainer evaluate {paths[0]} --episodes 20"
        )


def _with_returns(path: Path) -> Run | None:
    try:
        run = read_run(path)
        run.series()
    except ReportError:
        return None
    return run


def _summary_text(summary: Summary) -> str:
    return (
        f"{summary.num_runs} runs: mean {summary.mean:.1f} ± {summary.std:.1f}, interquartile mean "
        f"{summary.iqm:.1f} (95 % interval {summary.low:.1f} – {summary.high:.1f})"
    )


def _failure(job: _Job, code: int) -> str:
    """What became of a run, with the end of what it printed."""
    log = job.path.with_suffix(".log")
    lines = log.read_text(errors="replace").strip().splitlines()
    how = f"ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
    return f"{how}; see {log}\n  " + "\n  ".join(lines[-3:])

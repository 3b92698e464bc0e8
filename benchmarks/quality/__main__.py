"""The command: makes the runs that are missing, and prints the table."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version

from benchmarks.quality import ours, runs, theirs
from benchmarks.quality.runs import OURS, PEER, Run, load, path_of, read
from benchmarks.quality.table import table
from benchmarks.quality.tasks import BY_NAME, Task

_LEARNS = {OURS: ours.learn, PEER: theirs.learn}
_PACKAGES = ("local-trainer", "numpy", "gymnasium", "stable-baselines3", "sb3-contrib", "torch")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is asked for; the exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="names, or parts of names; all without any")
    parser.add_argument("--seeds", type=int, default=5, help="of each task, from 0 on")
    parser.add_argument("--trainers", nargs="+", choices=sorted(_LEARNS), default=[OURS, PEER])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument(
        "--one", nargs=3, metavar=("TASK", "TRAINER", "SEED"), help=argparse.SUPPRESS
    )
    given = parser.parse_args(arguments)
    if given.one:
        name, trainer, seed = given.one
        _run(BY_NAME[name], trainer, int(seed))
        return 0
    chosen = [task for name, task in BY_NAME.items() if _is_meant(name, given.tasks)]
    if not chosen:
        parser.error(f"no task has {given.tasks} in its name; there are: {', '.join(BY_NAME)}")
    failed = 0 if given.show else _campaign(chosen, given.trainers, given.seeds, given.jobs)
    for line in table([(task, load(task)) for task in chosen]):
        print(line)
    return int(failed > 0)


def _is_meant(name: str, words: Sequence[str]) -> bool:
    """A task by its name or a part of it; a whole name means no other that it is a part of."""
    parts = [word.lower() for word in words if word not in BY_NAME]
    return not words or name in words or any(part in name.lower() for part in parts)


def _campaign(tasks: Sequence[Task], trainers: Sequence[str], seeds: int, jobs: int) -> int:
    """Makes the runs that have no file yet; how many failed."""
    possible = []
    for task in tasks:
        if task.is_possible:
            possible.append(task)
        else:
            print(f"without {task.name}: {task.needs} is not installed")
    if PEER in trainers and importlib.util.find_spec("stable_baselines3") is None:
        print("without peers: pip install 'local-trainer[bench]'")
        trainers = [trainer for trainer in trainers if trainer != PEER]
    missing = [
        (task, trainer, seed)
        for seed in range(seeds)  # all tasks once, before any twice
        for task in possible
        for trainer in trainers
        if trainer == OURS or task.has_peer
        if not path_of(task.name, trainer, seed).exists()
    ]
    print(f"{len(missing)} runs are missing, {jobs} at a time", flush=True)
    num_failed, pool = 0, ThreadPoolExecutor(jobs)
    try:
        waiting = {pool.submit(_in_a_process, *each): each for each in missing}
        for number, done in enumerate(as_completed(waiting), 1):
            task, trainer, seed = waiting[done]
            problem = done.result()
            num_failed += bool(problem)
            what = problem or _shown(read(path_of(task.name, trainer, seed)), task)
            print(
                f"[{number}/{len(missing)}] {task.name}, {trainer}, seed {seed}: {what}", flush=True
            )
    finally:  # an interrupt ends the campaign, not only the runs that are under way
        pool.shutdown(cancel_futures=True)
    return num_failed


def _in_a_process(task: Task, trainer: str, seed: int) -> str:
    """Makes a run in a process of its own; what went wrong, or nothing."""
    command = [sys.executable, "-m", "benchmarks.quality", "--one", task.name, trainer, str(seed)]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env={**os.environ, **one_thread}, capture_output=True, text=True, check=False
    )
    return f"FAILED\n{done.stderr[-2000:]}" if done.returncode else ""


def _run(task: Task, trainer: str, seed: int) -> None:
    runs.measured(task, trainer, seed, _LEARNS[trainer], _versions()).save()


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _shown(run: Run, task: Task) -> str:
    reached = run.steps_to_wanted and f"{run.steps_to_wanted:,} steps to {task.wanted_return:g}"
    return (
        f"mean {run.area:.1f}, at the end {run.final_return:.1f}, "
        f"{reached or f'{task.wanted_return:g} not reached'}, {run.processor_s:.0f} s"
        f"{', found: ' + ', '.join(run.findings) if run.findings else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())

"""Runs the benchmarks that are named, or all."""

from __future__ import annotations

import sys

from benchmarks import (
    actors,
    callbacks,
    checkpointing,
    evaluation,
    large_checkpoints,
    learning,
    off_policy,
    repair,
    replay,
    sampling,
    startup,
    tasks,
    torch_modules,
    tuning,
)
from benchmarks.machine import describe_machine

BENCHMARKS = {
    "sampling": sampling.main,
    "callbacks": callbacks.main,
    "startup": startup.main,
    "repair": repair.main,
    "evaluation": evaluation.main,
    "checkpoints": checkpointing.main,
    "large_checkpoints": large_checkpoints.main,
    "replay": replay.main,
    "actors": actors.main,
    "learning": learning.main,
    "off_policy": off_policy.main,
    "tasks": tasks.main,
    "torch_modules": torch_modules.main,
    "tuning": tuning.main,
}


def main(names: list[str]) -> int:
    """Runs them in order; returns an exit code."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"There is no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}.")
        return 2
    print(describe_machine(), flush=True)
    for name in names or BENCHMARKS:
        print()
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

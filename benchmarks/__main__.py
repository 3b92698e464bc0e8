"""Prints the comparison with peers as one table, or runs the benchmarks that are named.

python -m benchmarks                 the table: see `comparison`
python -m benchmarks table:1 memory  the table with one pair per line, then `memory`
python -m benchmarks all             every benchmark, one after the other
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import (
    actors,
    callbacks,
    checkpointing,
    comparison,
    evaluation,
    large_checkpoints,
    learning,
    memory,
    multi_agent,
    multi_agent_tasks,
    normalized_rewards,
    off_policy,
    repair,
    replay,
    sample_ahead,
    sampling,
    scale_out,
    self_play,
    startup,
    tasks,
    torch_modules,
    trackers,
    tuning,
    updates,
)
from benchmarks.machine import describe_machine

BENCHMARKS: dict[str, Callable[..., None]] = {
    "table": comparison.main,
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
    "memory": memory.main,
    "off_policy": off_policy.main,
    "tasks": tasks.main,
    "normalized_rewards": normalized_rewards.main,
    "torch_modules": torch_modules.main,
    "sample_ahead": sample_ahead.main,
    "scale_out": scale_out.main,
    "tuning": tuning.main,
    "trackers": trackers.main,
    "multi_agent": multi_agent.main,
    "multi_agent_rllib": multi_agent.against_rllib,
    "multi_agent_tasks": multi_agent_tasks.main,
    "self_play": self_play.main,
    "updates": updates.main,
}


def main(names: list[str]) -> int:
    """Runs them in order; returns an exit code.

    Args:
        names: each the name of a benchmark, or `NAME:REPEATS` for one that takes the number of its
            repetitions; empty prints the table, and `all` runs every benchmark.
    """
    named = list(BENCHMARKS) if names == ["all"] else names or ["table"]
    wanted = [name.partition(":")[::2] for name in named]
    unknown = sorted({name for name, _ in wanted} - set(BENCHMARKS))
    if unknown:
        print(f"There is no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}.")
        return 2
    print(describe_machine(), flush=True)
    for name, repeats in wanted:
        print()
        BENCHMARKS[name](*([int(repeats)] if repeats else []))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

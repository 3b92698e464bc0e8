"""The whole comparison as one table: what `make bench` prints.

Each line is measured in pairs, ours and theirs in turn, and its ratio is the median of the pairs'
ratios. What is compared with a peer that is not installed is named and left out.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import off_policy, sampling, startup, updates
from benchmarks.figures import Figure, alternate, ratio
from benchmarks.learning import ppo_speed_config
from benchmarks.peers import sb3_sac_rate, sbx_sac_rate
from benchmarks.sample_ahead import built, share
from benchmarks.scale_out import timed
from benchmarks.tasks import sac_pendulum
from trainer import AlgorithmConfig

Measured = tuple[Figure, Figure | None]
"""Ours; and theirs, if it is a comparison."""

REPEATS: Final = 5


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        what: is measured.
        peer: what it is compared with; empty if what counts is the figure itself.
        needs: the module that the peer is; empty if it is always there.
        wanted: of the ratio, or of the figure.
        seconds_each: about so long takes one pair, on two cores.
        measure: measures so many pairs.
    """

    what: str
    peer: str
    needs: str
    wanted: str
    seconds_each: float
    measure: Callable[[int], Measured]

    @property
    def is_possible(self) -> bool:
        """Whether the peer is installed."""
        try:
            return not self.needs or importlib.util.find_spec(self.needs) is not None
        except ModuleNotFoundError:  # not even the package that it would be in
            return False


# ---- what is measured


def process_seconds(code: str) -> float:
    """Seconds from the start of a Python process to its end; what it compiled is there already."""
    root = Path(__file__).parents[1]
    for package in ("benchmarks", "trainer", "trainer_toolkit", "callbacks", "checkpoints"):
        compileall.compile_dir(root / package, quiet=2)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code]
    return timed(lambda: subprocess.run(command, check=True, capture_output=True, env=environment))


def to_450(config: str, peer: str, repeats: int) -> Measured:
    """Seconds of whole processes that solve CartPole-v1, a seed each.

    Args:
        config: the function in `benchmarks.learning` that makes ours.
        peer: the one in `benchmarks.peers` that solves it, too.
        repeats: how many of each.
    """
    mine, other = [], []
    for seed in range(repeats):
        mine.append(
            process_seconds(
                f"from benchmarks.learning import {config}, run\n"
                f"run({config}().debugging(seed={seed}))"
            )
        )
        other.append(process_seconds(f"from benchmarks.peers import {peer}\n{peer}({seed})"))
    return Figure(mine, "s"), Figure(other, "s")


def off_policy_rates(
    config: Callable[[], AlgorithmConfig],
    make_theirs: Callable[[], Callable[[], float]],
    num_steps: int,
    repeats: int,
) -> Measured:
    """Env steps per second with learning."""
    made = config().debugging(seed=0)
    return off_policy.rates(made, make_theirs, num_steps=num_steps, repeats=repeats)


def sample_rates(num_envs: int, mode: str, repeats: int) -> Measured:
    """Env steps per second of `sample()`."""
    return sampling.rates(num_envs, mode, repeats=repeats)


def two_runners(repeats: int) -> Measured:
    """Seconds of iterations with two runners, and with none."""
    with ExitStack() as stack:
        two, none = (
            stack.enter_context(ppo_speed_config(number).debugging(seed=0).build_algo())
            for number in (2, 0)
        )
        return alternate(
            lambda: timed(lambda: [two.train() for _ in range(5)]),
            lambda: timed(lambda: [none.train() for _ in range(5)]),
            unit="s",
            repeats=repeats,
        )


def slow_share(num_runners: int, waits: str, is_ahead: bool, repeats: int) -> Measured:
    """The share of the ideal throughput."""
    with built(num_runners, waits=waits, is_ahead=is_ahead) as algo:
        return Figure([share(algo, 2) for _ in range(repeats)], "of ideal"), None


def start(has_bytecode: bool, repeats: int) -> Measured:
    """Seconds from nothing to the first result; the first process fills the system's caches."""
    all_ = [startup.seconds(has_bytecode=has_bytecode) for _ in range(repeats + 1)]
    return Figure(all_[1:], "s"), None


# ---- the table

_SB3: Final = "Stable-Baselines3"
_PPO: Final = "PPO, CartPole to 450, whole process"
_SAC: Final = "SAC, Pendulum, 256×256, batch 256, an update per step"
_SAC_STEPS: Final = off_policy.NUM_SAC_STEPS

LINES: Final = (
    Line(
        f"{_PPO}, the same settings",
        _SB3,
        "stable_baselines3",
        "≤ 0.08",
        30,
        partial(to_450, "ppo_speed_config", "sb3_solves"),
    ),
    Line(
        f"{_PPO}, each tuned",
        "Stable-Baselines3, tuned",
        "stable_baselines3",
        "≤ 0.10",
        20,
        partial(to_450, "ppo_tuned_config", "sb3_tuned_solves"),
    ),
    Line(
        f"{_PPO}, each tuned",
        "RLlib, tuned",
        "ray.rllib",
        "≤ 0.03",
        70,
        partial(to_450, "ppo_tuned_config", "rllib_tuned_solves"),
    ),
    Line(
        "DQN, CartPole, one env, 64×64, batch 64, an update per 4 steps",
        _SB3,
        "stable_baselines3",
        "≥ 4.5",
        8,
        partial(
            off_policy_rates,
            off_policy.short_dqn_config,
            off_policy.sb3_short_dqn,
            off_policy.NUM_SHORT_STEPS,
        ),
    ),
    Line(
        _SAC,
        _SB3,
        "stable_baselines3",
        "≥ 2.2",
        25,
        partial(
            off_policy_rates, sac_pendulum, partial(sb3_sac_rate, num_steps=_SAC_STEPS), _SAC_STEPS
        ),
    ),
    Line(
        _SAC,
        "SBX",
        "sbx",
        "≥ 1.2",
        25,
        partial(
            off_policy_rates, sac_pendulum, partial(sbx_sac_rate, num_steps=_SAC_STEPS), _SAC_STEPS
        ),
    ),
    Line(
        "PPO, 256×256, 16 envs, minibatches of 2,048",
        f"{_SB3}, all cores",
        "stable_baselines3",
        "≥ 1.6",
        8,
        partial(updates.rates, updates.LARGE_MINIBATCHES),
    ),
    Line(
        "PPO, 376 numbers as Humanoid has, 256×256, minibatches of 64",
        f"{_SB3}, all cores",
        "stable_baselines3",
        "≥ 3",
        12,
        partial(updates.rates, updates.AS_HUMANOID),
    ),
    Line(
        "PPO, LSTM(64), seconds per iteration",
        "64×64 without memory",
        "",
        "≤ 4",
        2,
        updates.price_of_memory,
    ),
    Line(
        "sample(), 8 envs",
        "SyncVectorEnv(8), random",
        "",
        "≥ 0.6",
        0.5,
        partial(sample_rates, 8, "SYNC"),
    ),
    Line(
        "sample(), CartPoleVectorEnv(64)",
        "SyncVectorEnv(64), random",
        "",
        "≥ 3",
        0.5,
        partial(sample_rates, 64, "VECTOR_ENTRY_POINT"),
    ),
    Line(
        "sample(), EnvPool, 64 CartPoles",
        "a bare pool, random",
        "envpool",
        "≥ 0.5",
        0.5,
        partial(sample_rates, 64, "ENVPOOL"),
    ),
    Line("two env runners, CartPole, 8 envs", "no env runners", "", "≤ 1.0", 2, two_runners),
    *(
        Line(
            f"env of 5 ms, {waits}, {num} runner(s){', sample_ahead' if is_ahead else ''}",
            "",
            "",
            "≥ 0.97" if is_ahead else "≥ 0.93",
            3.5,
            partial(slow_share, num, waits, is_ahead),
        )
        for waits in ("constant", "exponential")
        for num in (1, 4, 8)
        for is_ahead in (False, True)
    ),
    Line("import, build with 2 runners, train()", "", "", "≤ 0.7", 1.5, partial(start, True)),
    Line("the same without bytecode files", "", "", "≤ 1.0", 2.5, partial(start, False)),
)

_LONGER: Final = (
    "Not in here, for it takes half an hour: how steady DQN and SAC are "
    "(python -m benchmarks.steadiness)."
)


def main(repeats: int = REPEATS) -> None:
    """Measures all lines and prints the table.

    Args:
        repeats: pairs per line.
    """
    possible = [line for line in LINES if line.is_possible]
    missing = sorted({line.peer for line in LINES} - {line.peer for line in possible})
    minutes = sum(line.seconds_each * (repeats + 1) for line in possible) / 60
    print(f"comparison: {len(possible)} lines, {repeats} pairs each, about {minutes:.0f} min")
    if missing:
        print(
            f"not installed, so left out: {', '.join(missing)} "
            "(pip install stable-baselines3 sbx-rl 'ray[rllib]')"
        )
    rows = []
    for number, line in enumerate(possible, start=1):
        against = f" against {line.peer}" if line.peer else ""
        print(f"  {number}/{len(possible)} {line.what}{against} …", flush=True)
        started_at = time.perf_counter()
        rows.append(row_of(line, line.measure(repeats)))
        print(f"      {rows[-1][4]} ({time.perf_counter() - started_at:.0f} s)", flush=True)
    print()
    head = ("what", "against", "ours", "theirs", "ratio or share (lowest – highest)", "wanted")
    print(drawn([head, *rows]))
    print(_LONGER, flush=True)


def row_of(line: Line, measured: Measured) -> tuple[str, ...]:
    """The cells of a line."""
    ours, theirs = measured
    if theirs is None:
        counts, cells = ours, ("", "")
    else:
        counts = ratio(ours, theirs)
        cells = (f"{ours.median:,.4g} {ours.unit}", f"{theirs.median:,.4g} {theirs.unit}")
    low, high = min(counts.values), max(counts.values)
    spread = f"{counts.median:.3g} ({low:.3g} – {high:.3g}, n={len(counts.values)})"
    return (line.what, line.peer, *cells, spread, line.wanted)


def drawn(rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown whose columns stand below each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])

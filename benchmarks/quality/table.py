"""The results of a campaign as a table, a line for each task."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from benchmarks.quality.runs import OURS, PEER, Run
from benchmarks.quality.statistics import (
    interquartile_mean,
    interval,
    probability_of_improvement,
)
from benchmarks.quality.tasks import Task

Campaign = Sequence[tuple[Task, Sequence[Run]]]
"""Tasks, each with all of its runs."""

FEWEST: Final = 3
"""Seeds of each side that a comparison is made from."""

_HEAD: Final = (
    "| task | seeds | mean of the run (IQM) | of the peer, 95 % | below | better in | at the end "
    "| of the peer | bound | steps to it | of the peer | processor time |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def table(campaign: Campaign) -> list[str]:
    """The lines, of each task that has runs of ours."""
    lines = [*_HEAD]
    for task, all_ in campaign:
        mine, other = sides(all_)
        if mine:
            lines.append(_line(task, mine, other))
    return lines


def sides(all_: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Our runs, and those of the peer."""
    return [run for run in all_ if run.trainer == OURS], [
        run for run in all_ if run.trainer == PEER
    ]


def is_below(mine: Sequence[Run], other: Sequence[Run]) -> bool:
    """Whether our interquartile mean is below the interval of the peer's."""
    low, _ = interval(interquartile_mean, [run.area for run in other])
    return interquartile_mean([run.area for run in mine]) < low


def time_ratio(mine: Sequence[Run], other: Sequence[Run]) -> float | None:
    """The median over seeds of our processor time divided by the peer's; None without pairs."""
    theirs = {run.seed: run.processor_s for run in other}
    ratios = [run.processor_s / theirs[run.seed] for run in mine if run.seed in theirs]
    return median(ratios) if ratios else None


def _line(task: Task, mine: Sequence[Run], other: Sequence[Run]) -> str:
    areas, their_areas = [r.area for r in mine], [r.area for r in other]
    cells = [task.name, f"{len(mine)}, {len(other)}", f"{interquartile_mean(areas):.1f}"]
    if min(len(mine), len(other)) >= FEWEST:
        low, high = interval(interquartile_mean, their_areas)
        cells += [
            f"{interquartile_mean(their_areas):.1f} ({low:.1f} – {high:.1f})",
            "yes" if is_below(mine, other) else "no",
            f"{probability_of_improvement(areas, their_areas):.2f}",
        ]
    else:
        cells += [f"{interquartile_mean(their_areas):.1f}" if other else "", "", ""]
    cells += [_final(mine), _final(other)]
    cells += [f"{task.wanted_return:g}", _steps(mine), _steps(other)]
    ratio = time_ratio(mine, other)
    cells.append("" if ratio is None else f"{ratio:.2f}")
    return f"| {' | '.join(cells)} |"


def _final(all_: Sequence[Run]) -> str:
    return f"{median(run.final_return for run in all_):.1f}" if all_ else ""


def _steps(all_: Sequence[Run]) -> str:
    """The median of those that came to the bound, and how many did."""
    reached = [run.steps_to_wanted for run in all_ if run.steps_to_wanted is not None]
    if not all_:
        return ""
    return f"{f'{median(reached):,.0f}, ' if reached else ''}{len(reached)} of {len(all_)}"

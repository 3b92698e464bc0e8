"""Writes `docs/results.md` and its pictures from the files of the campaign.

python -m benchmarks.quality.page
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from benchmarks.quality.published import CLEANRL, SOURCE
from benchmarks.quality.runs import NUM_EPISODES, NUM_POINTS, Run, load
from benchmarks.quality.table import FEWEST, Campaign, is_below, sides, table, time_ratio
from benchmarks.quality.tasks import TASKS, Task
from checkpoints.writer import write_whole_file
from trainer.reports.figures import save_figure

PAGE: Final = Path(__file__).parents[2] / "docs" / "results.md"
_COLUMNS: Final = 4
_SEEDS: Final = (3, 5, 10)
_BY_CHANCE: Final = (0.18, 0.10, 0.08)
"""How often one of two that learn alike is called below, by seeds; simulated, see the page."""

_LOOKED_INTO: Final = """\
## What was looked into

- **PPO learns the same from the same.** `python -m benchmarks.quality.same_update TASK` gives our
  learner the peer's weights and the episodes that the peer played: after all epochs our weights
  are where the peer's are, up to 2·10⁻⁴ of the way that they went (Pendulum, CartPole, Hopper;
  terminated and truncated episodes; 32 bits). First weights have the same norms.
- **Chance.** Pendulum, Hopper and MountainCarContinuous were below after five seeds (-586 against
  -564, -582 – -538; 696 against 921, 745 – 1315; 61.6 against 69.3, 61.7 – 85.6), and Ant after
  three. These tasks were then given more seeds, after which none is below; verdicts that come
  about like this are weaker evidence.
- **Statistics that move within a batch.** The peer's normalisation moves with each step, ours
  with each batch. Hopper, 120,000 steps, mean of the run ± its error: ours 424 ± 26 (19 seeds),
  ours with gymnasium's wrappers, which move with each step, 482 ± 30 (18 seeds), the peer 442 ±
  31 (4 seeds). Ant, 300,000 steps: ours -32 (5 seeds), with the wrappers -29 (4 seeds), the peer
  -29 (5 seeds). Statistics that begin with random steps made no difference (Hopper, 5 seeds). Both
  envs hint at a small gain of statistics that move with each step; they depend on how envs are
  spread over processes, so ours stay as they are, and the wrappers can be used. These runs are not
  among the files.
- **The critics' loss of SAC** is Huber's in RLlib and here, the squared error in the paper and in
  the peer. Where errors are large, the gradients differ: on Pendulum's first batch ours was 0.14
  of the peer's and pointed elsewhere (cosine 0.995). With `td_error_loss_fn="mse"` it is the same
  up to a factor of two, which Adam does not see. Recipes have that setting.
- **First weights of SAC** are orthogonal here, with larger hidden layers than those of Torch. The
  campaign and the recipes have `initializer="uniform"`, as Torch draws them. Neither that nor the
  loss made a difference on Pendulum (6,000 steps, means of the run from -1088 to -996, 2 seeds).
- **Bytes that are normalised.** The peer keeps the observations of a batch in the dtype of the env,
  also after it has normalised them. MiniGrid shows bytes, so normalised numbers were rounded to
  whole ones, and it learnt nothing in 3 runs. The task shows both sides 32-bit floats instead.
- SAC's policy learns from the critics as they were before the update here, as in RLlib, and from
  the updated ones in the peer: the first gradient of the policy differs by 0.5 %.
"""

_HELD_OUT: Final = """
How much these checks find: `python -m benchmarks.quality.ruined` trains with 29 mistakes that were
written down after the checks (learning rate × 300, rewards × 10,000, a clip of next to nothing …),
each with the check that should report it. Of the first 15, three still learnt; of the other 12, 8
were reported with their cause and 4 not at all. The checks were mended, then tried on 14 others: 10
were reported with their cause and one as entropy that collapses; one was not reported, and a
threshold was moved for it afterwards; in two the return was still rising, which excuses these
signs.
"""

_INTRODUCTION: Final = """\
# How well it learns

This page is made by `python -m benchmarks.quality.page` from the files in
`benchmarks/quality/results`; do not edit it by hand.

Both sides, ours and [Stable-Baselines3](https://github.com/DLR-RM/stable-baselines3) (sb3-contrib
where there is memory), have the settings of
[RL Baselines3 Zoo](https://github.com/DLR-RM/rl-baselines3-zoo), which
`benchmarks/quality/tasks.py` spells out, and the same envs, budgets and evaluation. Any run can be
made again, in a clone of the project:

```sh
pip install ".[bench]" mujoco "gymnasium[box2d]" MinAtar minigrid
python -m benchmarks.quality Hopper --seeds 5 --jobs 2     # the runs that have no file yet
```

- **mean of the run**: the mean return of the last {episodes} episodes of training, averaged over
  {points} points of the run: the area under the learning curve, divided by the budget. The table
  shows its interquartile mean over seeds (without the ⌊n/4⌋ lowest and highest) and, in brackets,
  the 95 % interval of that mean, a percentile bootstrap over runs ([Agarwal et al. 2021](https://arxiv.org/abs/2108.13264)).
- **below**: our interquartile mean is below that interval of the peer; empty with fewer than
  {fewest} seeds. Of two that learn alike, one is called below in 18 of 100 cases with 3 seeds, in
  10 with 5 and in 8 with 10 (normal distributions).
- **better in**: the share of pairs of runs in which ours has the higher mean.
- **at the end**: the median of {episodes} episodes without exploration after training. It differs
  much from run to run, in both directions, and is not what is compared.
- **steps to it**: the median of env steps until the mean of {episodes} episodes of training reached
  the bound, over the runs that reached it, and how many did.
- In names of tasks, "defaults" are what the Zoo calls its defaults for MuJoCo, "3 steps" are
  returns over n = 3 steps, and "without velocities" tasks are learnt with an LSTM.
- **processor time**: ours divided by the peer's of the same seed, the median over seeds; one thread
  each, beside other work. A few pairs were made on two machines.
"""


def page_of(campaign: Campaign) -> str:
    """The page."""
    blocks = [
        _INTRODUCTION.format(episodes=NUM_EPISODES, points=NUM_POINTS, fewest=FEWEST),
        _summary(campaign),
    ]
    for algorithm, of_algorithm in _by_algorithm(campaign).items():
        blocks += [
            f"## {algorithm}\n",
            "\n".join(table(of_algorithm)) + "\n",
            f"![Learning curves of {algorithm}]({_picture(algorithm)})\n",
        ]
    blocks.append(
        "Curves: the median over seeds, and the middle half of the seeds as a band; ours solid, "
        "the peer dashed. The dotted line is\nthe bound.\n"
    )
    return "\n".join([*blocks, _LOOKED_INTO, _beside_published(campaign), _found(campaign)])


def _summary(campaign: Campaign) -> str:
    compared = [
        (task, mine, other)
        for task, runs in campaign
        for mine, other in (sides(runs),)
        if min(len(mine), len(other)) >= FEWEST
    ]
    if not compared:
        return f"No task has {FEWEST} seeds on both sides yet.\n"
    below = [task for task, mine, other in compared if is_below(mine, other)]
    ratios = [time_ratio(mine, other) for _, mine, other in compared]
    known = [ratio for ratio in ratios if ratio is not None]
    by_chance = sum(_below_by_chance(min(len(mine), len(other))) for _, mine, other in compared)
    lines = [
        f"Of {len(compared)} tasks with at least {FEWEST} seeds on both sides, "
        f"{len(compared) - len(below)} are not below the peer in the mean of the run; if all were "
        f"learnt alike, {by_chance:.1f} would be below by chance."
    ]
    if known:
        lines.append(f"The median of the processor times is {median(known):.2f} of the peer's.")
    if below:
        lines += ["", *(f"- {task.name} is below." for task in below)]
    return "\n".join(lines) + "\n"


def _below_by_chance(num_seeds: int) -> float:
    return _BY_CHANCE[bisect(_SEEDS, num_seeds) - 1]


def _beside_published(campaign: Campaign) -> str:
    """Ours beside what CleanRL reports."""
    mine = {task.name: (task, runs) for task, all_ in campaign for runs in (sides(all_)[0],)}
    lines = [
        "## Beside CleanRL's published figures\n",
        "Their settings differ, and their budgets are larger: returns of training at its end, with "
        f"the deviation over 3 seeds\n({SOURCE}). Ours: the median at the end, as above; of "
        "MuJoCo's envs it is version 5.\n",
        "| task | theirs | after env steps | ours | after env steps |",
        "|---|---|---|---|---|",
    ]
    for theirs in CLEANRL:
        if theirs.task in mine:
            task, runs = mine[theirs.task]
            final = median(run.final_return for run in runs)
            lines.append(
                f"| {task.algorithm} {theirs.env_name} "
                f"| {theirs.mean:.1f} ± {theirs.deviation:.1f} | {theirs.num_env_steps:,} "
                f"| {final:.1f} | {task.num_env_steps:,} |"
            )
    return "\n".join(lines) + "\n"


def _found(campaign: Campaign) -> str:
    """What the checks of learning found in our runs."""
    looked = [
        (task.name, run.findings)
        for task, runs in campaign
        for run in sides(runs)[0]
        if run.findings is not None
    ]
    found = Counter((name, check) for name, checks in looked for check in checks)
    lines = [
        "## What the checks of learning found\n",
        "[Checks of learning](metrics.md#when-learning-goes-wrong) looked at "
        f"{len(looked)} of our runs, with the checks of the day of the run, and found "
        f"{'this:' if found else 'nothing.'}\n",
        *(
            f"- {name}: `{check}` in {count} of {sum(other == name for other, _ in looked)} runs"
            for (name, check), count in sorted(found.items())
        ),
        _HELD_OUT,
    ]
    return "\n".join(lines) + "\n"


def _by_algorithm(campaign: Campaign) -> dict[str, list[tuple[Task, Sequence[Run]]]]:
    found: dict[str, list[tuple[Task, Sequence[Run]]]] = {}
    for task, runs in campaign:
        found.setdefault(task.algorithm, []).append((task, runs))
    return found


def _picture(algorithm: str) -> str:
    return f"results-{algorithm.lower()}.svg"


def _draw(campaign: Campaign, path: Path) -> None:
    """A small picture for each task, side by side."""
    num_rows = -(-len(campaign) // _COLUMNS)
    figure = Figure(figsize=(3.2 * _COLUMNS, 2.3 * num_rows), layout="constrained")
    grid = list(figure.subplots(num_rows, _COLUMNS, squeeze=False).flat)
    for axes, (task, runs) in zip(grid, campaign, strict=False):
        _draw_task(axes, task, runs)
    for axes in grid[len(campaign) :]:
        axes.remove()
    write_whole_file(path, lambda file: save_figure(figure, file, kind=".svg"), overwrite=True)


def _draw_task(axes: Any, task: Task, runs: Sequence[Run]) -> None:
    at = np.arange(1, NUM_POINTS + 1) * task.num_env_steps / NUM_POINTS / 1000.0
    for of_side, colour, line in zip(sides(runs), ("#0072B2", "#D55E00"), ("-", "--"), strict=True):
        if of_side:
            low, middle, high = np.percentile([run.curve for run in of_side], [25, 50, 75], axis=0)
            axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(at, middle, color=colour, linestyle=line, linewidth=1.6)
    axes.axhline(task.wanted_return, color="#000000", linestyle=":", linewidth=0.8)
    axes.set_title(task.name.removeprefix(f"{task.algorithm} "), fontsize=9)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("1,000 env steps", fontsize=7)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def campaign_so_far() -> Campaign:
    """Of each task that has runs of ours, all runs that there are."""
    found = [(task, load(task)) for task in TASKS]
    return [(task, runs) for task, runs in found if sides(runs)[0]]


if __name__ == "__main__":
    write_whole_file(PAGE, page_of(campaign_so_far()).encode(), overwrite=True)
    for name, tasks in _by_algorithm(campaign_so_far()).items():
        _draw(tasks, PAGE.with_name(_picture(name)))

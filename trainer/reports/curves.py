"""Several runs as one curve, and as one line of a table: medians, bands, confidence intervals.

Runs whose settings differ by the seed alone belong together. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from callbacks.ready_made.metric_values import RETURN
from trainer.errors import ReportError
from trainer.reports.run_records import Run, differing_settings

Array = np.ndarray[Any, np.dtype[np.float64]]
Band = Literal["iqr", "minmax", "none"]
"""What the band around a median holds: the middle half of the runs, all runs, or no band."""

_NUM_POINTS: Final = 200
_NUM_RESAMPLES: Final = 2000
_MAX_LABEL: Final = 60


@dataclass(frozen=True)
class Curve:
    """A metric of runs that belong together.

    Attributes:
        label: what tells them from the others.
        runs: the runs.
        members: (positions, values) of each run, float64 of shapes (n,).
        x: positions that all runs have reached, float64 of shape (m,).
        median: the median over the runs at `x`, float64 of shape (m,).
        low: the lower edge of the band at `x`; the median itself for one run.
        high: the upper edge.
    """

    label: str
    runs: tuple[Run, ...]
    members: tuple[tuple[Array, Array], ...]
    x: Array
    median: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Summary:
    """How runs that belong together ended.

    Attributes:
        label: what tells them from the others.
        num_runs: how many there are.
        mean: mean of their last values.
        std: standard deviation over the runs (divided by n - 1); 0.0 for one run.
        iqm: interquartile mean, see `interquartile_mean`.
        low: lower end of the 95 % confidence interval of the interquartile mean.
        high: upper end.
        minimum: the worst last value.
        maximum: the best.
    """

    label: str
    num_runs: int
    mean: float
    std: float
    iqm: float
    low: float
    high: float
    minimum: float
    maximum: float


def grouped(runs: Sequence[Run], labels: Sequence[str] | None = None) -> dict[str, list[Run]]:
    """Runs by label, in order of their first run.

    Args:
        runs: the runs.
        labels: one per run, the same for those that belong together. None finds them: runs belong
            together if their settings are equal but for the seed; runs without settings (nothing
            was saved) stay alone.

    Raises:
        ReportError: the labels are no list, or not as many as the runs.
    """
    if labels is None:
        labels = _found_labels(runs)
    elif isinstance(labels, str):
        raise ReportError(
            f"`labels={labels!r}` is one text; expected a list with one per run. Write "
            f"labels=[{labels!r}] * {len(runs)} for runs that belong together."
        )
    elif len(labels) != len(runs):
        raise ReportError(
            f"{len(labels)} labels were given for {len(runs)} runs. Give one per run, the same one "
            "to runs that belong together."
        )
    groups: dict[str, list[Run]] = {}
    for label, run in zip(labels, runs, strict=True):
        groups.setdefault(label, []).append(run)
    return groups


def curve_of(
    label: str,
    runs: Sequence[Run],
    *,
    metric: str = RETURN,
    x: str = "env_steps",
    band: Band = "iqr",
    smooth: int = 1,
) -> Curve:
    """The median of runs with its band, where all of them have values.

    Each run is interpolated linearly between its results. The median ends where the shortest run
    ends: runs that stopped early, often because they were good, would bend it if they dropped out.

    Args:
        label: what tells the runs from others.
        runs: at least one.
        metric: slash path of a number in the results.
        x: the axis, see `Run.series`.
        band: what the band holds.
        smooth: each value becomes the mean of the last so many of its run; 1 leaves them.

    Raises:
        ReportError: a run has no such number.
    """
    members = tuple(
        (at, _trailing_means(values, smooth))
        for at, values in (run.series(metric, x) for run in runs)
    )
    begin = max(at[0] for at, _ in members)
    end = max(begin, min(at[-1] for at, _ in members))
    if len(members) == 1:
        positions, median = members[0]
        return Curve(label, tuple(runs), members, positions, median, median, median)
    positions = np.linspace(begin, end, _NUM_POINTS)
    table = np.stack([np.interp(positions, at, values) for at, values in members])
    low, high = {"iqr": (25.0, 75.0), "minmax": (0.0, 100.0), "none": (50.0, 50.0)}[band]
    edges = np.percentile(table, [low, 50.0, high], axis=0)
    return Curve(label, tuple(runs), members, positions, edges[1], edges[0], edges[2])


def summary_of(label: str, runs: Sequence[Run], metric: str = RETURN) -> Summary:
    """How runs ended, by the last value of a metric.

    The confidence interval is the percentile bootstrap of the interquartile mean over runs, as
    Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS
    2021, https://arxiv.org/abs/2108.13264), recommend; drawn with a fixed seed.

    Raises:
        ReportError: a run has no such number.
    """
    last = np.array([run.series(metric)[1][-1] for run in runs])
    drawn = np.random.default_rng(0).choice(last, size=(_NUM_RESAMPLES, len(last)))
    low, high = np.percentile(interquartile_mean(drawn), [2.5, 97.5])
    return Summary(
        label=label,
        num_runs=len(last),
        mean=float(last.mean()),
        std=float(last.std(ddof=1)) if len(last) > 1 else 0.0,
        iqm=float(interquartile_mean(last)),
        low=float(low),
        high=float(high),
        minimum=float(last.min()),
        maximum=float(last.max()),
    )


def interquartile_mean(values: Array) -> Array:
    """The mean of the middle half of the last axis: ⌊n/4⌋ values are left out at either end.

    The definition of `rliable` (Agarwal et al. 2021): `scipy.stats.trim_mean(values, 0.25)`.

    Args:
        values: float64 of shape (..., n).

    Returns:
        float64 of shape (...).
    """
    cut = values.shape[-1] // 4
    middle = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut]
    means: Array = middle.mean(axis=-1)
    return means


def _trailing_means(values: Array, window: int) -> Array:
    """The mean of the last `window` values at each place, of fewer at the beginning."""
    if window <= 1:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - window)
    means: Array = (sums[ends] - sums[begins]) / (ends - begins)
    return means


def _found_labels(runs: Sequence[Run]) -> list[str]:
    """A label per run: algorithm, env if there are several, and settings that differ."""
    differing = {
        name: values
        for name, values in differing_settings(runs).items()
        if name not in ("seed", "env")
    }
    several_envs = len({run.env for run in runs}) > 1
    kinds = [
        (run.algorithm, run.env, *(values[i] for values in differing.values()))
        if run.settings
        else run.name
        for i, run in enumerate(runs)
    ]
    same_algorithm: Callable[[str], int] = [run.algorithm for run in runs].count
    labels: dict[Any, str] = {}
    for i, (run, kind) in enumerate(zip(runs, kinds, strict=True)):
        if kind in labels:
            continue
        parts = [run.algorithm or run.name, *([run.env] if several_envs and run.env else [])]
        if run.settings and same_algorithm(run.algorithm) > kinds.count(kind):
            parts += _distinguishing(differing, runs, i)
        label = ", ".join(parts)
        label = label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"
        taken = set(labels.values())
        labels[kind] = label if label not in taken else f"{label} ({run.name})"
    return [labels[kind] for kind in kinds]


def _distinguishing(
    differing: Mapping[str, Sequence[str]], runs: Sequence[Run], index: int
) -> list[str]:
    """Settings in which runs of one algorithm differ, as `name=value`."""
    peers = [i for i, run in enumerate(runs) if run.algorithm == runs[index].algorithm]
    return [
        f"{name}={values[index]}"
        for name, values in differing.items()
        if len({values[i] for i in peers}) > 1
    ]

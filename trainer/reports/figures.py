"""Learning curves as pictures, with matplotlib: readable in grey, and at 800 pixels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO

from callbacks.optional_import import optional_module
from callbacks.ready_made.display import printable
from callbacks.ready_made.metric_values import RETURN
from checkpoints.writer import write_whole_file
from trainer.errors import ReportError
from trainer.reports.curves import Band, Curve, curve_of, grouped
from trainer.reports.run_records import X_AXES, Run, read_run

# Okabe and Ito, "Color Universal Design" (2008): told apart by people who see few colours. The
# first four differ in brightness, too, and each has a line style of its own: for print in grey.
_COLOURS: Final = ("#0072B2", "#E69F00", "#000000", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
_LINES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_SIZE: Final = (8.0, 4.8)
_DPI: Final = 150
_MOST_NAMED_INSIDE: Final = 7
_MOST_NAMED: Final = 24
_LONGEST: Final = 40
"""Characters of a name beside the curves."""
_FORMATS: Final = frozenset({".png", ".svg", ".pdf"})
_MANY_SECONDS: Final = 600.0


def plot_runs(
    paths: str | Path | Sequence[str | Path],
    *,
    metric: str = RETURN,
    x: str = "env_steps",
    labels: Sequence[str] | None = None,
    band: Band = "iqr",
    smooth: int = 1,
    title: str | None = None,
    file: str | Path | None = None,
) -> Any:
    """Draws learning curves: the median over seeds with a band, and every run as a thin line.

        plot_runs(["runs/ppo-0", "runs/ppo-1", "runs/dqn-0"], file="curves.png")

    Args:
        paths: directories of runs, or files of `JSONLinesLogger`.
        metric: slash path of a number in the results.
        x: "env_steps", "time" or "iteration".
        labels: one per run, the same for runs that belong together; None puts those together
            whose settings differ by the seed alone.
        band: "iqr" (the middle half of the runs), "minmax" (all) or "none".
        smooth: each value becomes the mean of the last so many of its run.
        title: above the picture.
        file: a `.png`, `.svg` or `.pdf` to write, replaced if it is there; None writes none.

    Returns:
        The figure, a `matplotlib.figure.Figure`: a notebook shows it, and it can be changed.

    Raises:
        ImportError: matplotlib is not installed.
        ReportError: a run is not there or has no such metric; a bad argument.
        CheckpointWriteError: the file cannot be written.
    """
    runs = [read_run(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    target = _checked(runs, band, smooth, file)
    curves = [
        curve_of(label, members, metric=metric, x=x, band=band, smooth=smooth)
        for label, members in grouped(runs, labels).items()
    ]
    figure = figure_of(curves, metric=metric, x=x, band=band, title=title)
    if target is not None:
        kind = target.suffix.lower()
        write_whole_file(target, lambda file: save_figure(figure, file, kind=kind), overwrite=True)
    return figure


def save_figure(figure: Any, target: BinaryIO | TextIO, *, kind: str) -> None:
    """Writes a figure, the same bytes for the same figure.

    Args:
        figure: a `matplotlib.figure.Figure`.
        target: where to.
        kind: ".png", ".svg" or ".pdf".
    """
    matplotlib = optional_module("matplotlib", user="plot_runs", extra="plot")
    # Without this, each file has its time of writing and random names in it.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind)
    with matplotlib.rc_context({"svg.hashsalt": "local-trainer"}):
        figure.savefig(target, dpi=_DPI, format=kind[1:], metadata=metadata)


def figure_of(
    curves: Sequence[Curve], *, metric: str, x: str, band: Band, title: str | None = None
) -> Any:
    """One figure with all curves; see `plot_runs`."""
    matplotlib = optional_module("matplotlib", user="plot_runs", extra="plot")
    figures = optional_module("matplotlib.figure", user="plot_runs", extra="plot")
    with matplotlib.rc_context({"font.size": 11.0}):
        # Not pyplot: a picture for a file needs no window, and leaves no figure behind.
        figure = figures.Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        scale, unit = _scale_of(curves, x)
        for curve, (colour, line) in zip(curves, _styles(), strict=False):
            _draw(axes, curve, colour=colour, line=line, scale=scale, shows_band=band != "none")
        axes.set_xlabel(unit)
        # Names are of users: `$` begins no formula, and bytes that are no characters are escaped.
        axes.set_ylabel(printable(metric_label(metric)), parse_math=False)
        axes.set_title(printable(title or ""), parse_math=False)
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if x == "env_steps":
            axes.xaxis.set_major_formatter(_thousands)
        _add_legend(figure, axes)
    return figure


def _add_legend(figure: Any, axes: Any) -> None:
    """Names the curves: few within the axes, many beside them, where they cover none."""
    handles, names = axes.get_legend_handles_labels()
    if len(names) <= _MOST_NAMED_INSIDE:
        _as_plain_text(axes.legend(frameon=False, loc="best"))
        return
    names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names]
    num_left = len(names) - _MOST_NAMED
    if num_left > 0:
        (nothing,) = axes.plot([], [], linestyle="none")
        handles = [*handles[:_MOST_NAMED], nothing]
        names = [*names[:_MOST_NAMED], f"and {num_left} more"]
    beside: dict[str, Any] = {"loc": "outside right upper", "fontsize": "x-small"}
    _as_plain_text(figure.legend(handles, names, frameon=False, **beside))


def _as_plain_text(legend: Any) -> None:
    """Dollar signs in names begin no formula."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def metric_label(metric: str) -> str:
    """What an axis says of a metric: the last part of its path, in words."""
    section, _, name = metric.rpartition("/")
    words = name.replace("_", " ")
    return f"{words} ({section})" if section and section != "env_runners" else words


def _draw(
    axes: Any, curve: Curve, *, colour: str, line: Any, scale: float, shows_band: bool
) -> None:
    many = len(curve.runs) > 1
    label = printable(f"{curve.label} ({len(curve.runs)} runs)" if many else curve.label)
    for at, values in curve.members if many else ():
        axes.plot(at / scale, values, color=colour, linewidth=0.7, alpha=0.35)
    if many and shows_band:
        edges = (curve.low, curve.high)
        axes.fill_between(curve.x / scale, *edges, color=colour, alpha=0.18, linewidth=0)
    axes.plot(
        curve.x / scale, curve.median, color=colour, linestyle=line, linewidth=2.0, label=label
    )


def _styles() -> Iterator[tuple[str, Any]]:
    """Pairs of colour and line; after seven, the same colours with other lines."""
    for turn in itertools.count():
        for index, colour in enumerate(_COLOURS):
            yield colour, _LINES[(index + turn) % len(_LINES)]


def _scale_of(curves: Sequence[Curve], x: str) -> tuple[float, str]:
    """(what positions are divided by, label of the axis with its unit)."""
    longest = max(at[-1] for curve in curves for at, _ in curve.members)
    if x == "time" and longest > _MANY_SECONDS:
        return 60.0, "training time (min)"
    return 1.0, X_AXES[x][1]


def _thousands(value: float, _: Any) -> str:
    """12,000 as 12k, 1,500,000 as 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _checked(runs: Sequence[Run], band: str, smooth: Any, file: str | Path | None) -> Path | None:
    """The file to write; everything that is wrong is told at once."""
    target = None if file is None else Path(file).expanduser()
    problems = []
    if not runs:
        problems.append("`paths` is empty; expected at least one run")
    if band not in ("iqr", "minmax", "none"):
        problems.append(f'`band={band!r}` must be "iqr", "minmax" or "none"')
    if not isinstance(smooth, int) or smooth < 1:
        problems.append(f"`smooth={smooth!r}` must be an int of at least 1")
    if target is not None and target.suffix.lower() not in _FORMATS:
        problems.append(f"`file={str(file)!r}` must end in {', '.join(sorted(_FORMATS))}")
    if problems:
        raise ReportError(f"Nothing was drawn: {'; '.join(problems)}.")
    return target

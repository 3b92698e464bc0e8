"""One HTML page about runs, for people who did not make them. It needs no network and no server.

Texts of runs may come from anywhere; Jinja escapes all of them.
"""

from __future__ import annotations

import base64
import io
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from callbacks.optional_import import optional_module
from callbacks.ready_made.display import printable
from callbacks.ready_made.metric_values import RETURN, number_at, numbers_in
from callbacks.ready_made.progress import duration
from checkpoints.writer import write_whole_file
from trainer.algorithms.building import algorithm_class
from trainer.errors import ConfigError, ReportError
from trainer.learners.learning_checks import findings
from trainer.reports.curves import curve_of, grouped, summary_of
from trainer.reports.figures import figure_of, metric_label, save_figure
from trainer.reports.run_records import (
    RESULTS_FILE,
    X_AXES,
    Run,
    differing_settings,
    read_run,
)

_MAX_LOSSES: Final = 8
_MAX_EMBEDDED_BYTES: Final = 20 * 2**20
_EVALUATION_RETURN: Final = f"evaluation/{RETURN}"
_KINDS: Final = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}


def write_report(
    paths: str | Path | Sequence[str | Path],
    file: str | Path,
    *,
    labels: Sequence[str] | None = None,
    title: str = "Training report",
) -> Path:
    """Writes one self-contained HTML page about runs.

        write_report(["runs/ppo-0", "runs/ppo-1", "runs/dqn-0"], "report.html")

    Learning curves by env steps and by time, final returns with their spread over seeds, the
    runs, the settings that differ, faults and repairs, where the time went, losses, recordings, and
    the command line of each run.

    Args:
        paths: directories of runs, or files of `JSONLinesLogger`.
        file: the `.html` file; replaced if it is there.
        labels: as for `plot_runs`.
        title: of the page.

    Returns:
        The file.

    Raises:
        ImportError: matplotlib or Jinja is not installed.
        ReportError: a run is not there, or has no results yet.
        CheckpointWriteError: the file cannot be written.
    """
    jinja = optional_module("jinja2", user="write_report", extra="plot")
    target = Path(file).expanduser()
    runs = [read_run(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not runs or target.suffix.lower() not in (".html", ".htm"):
        raise ReportError(
            f"Nothing was written to {str(file)!r} about {len(runs)} runs: expected at least one "
            "run, and a file that ends in .html."
        )
    environment = jinja.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    content = environment.from_string(_TEMPLATE).render(title=title, **_tables(runs, labels))
    data = content.encode(errors="backslashreplace")  # bytes of paths that are no characters
    write_whole_file(target, data, overwrite=True)
    return target


# ---- what the page shows


def _tables(runs: Sequence[Run], labels: Sequence[str] | None) -> dict[str, Any]:
    groups = grouped(runs, labels)
    names = _names(runs)
    returns = [(RETURN, "env_steps"), (RETURN, "time"), (_EVALUATION_RETURN, "env_steps")]
    losses = [(path, "env_steps") for path in _losses(runs)]
    return {
        "curves": list(_figures(groups, returns)),
        "losses": list(_figures(groups, losses)),
        "summaries": [
            summary_of(label, having)
            for label, members in groups.items()
            if (having := [run for run in members if _has(run, RETURN, "env_steps")])
        ],
        "runs": [_facts(run, name) for name, run in zip(names, runs, strict=True)],
        "names": names,
        "labels": list(groups),
        "is_any_repeated": any(len(members) > 1 for members in groups.values()),
        "differing": _differing_by_label(groups),
        "faults": {
            name: found for name, run in zip(names, runs, strict=True) if (found := _faults(run))
        },
        "findings": {
            name: [printable(str(finding)) for finding in wrong]
            for name, run in zip(names, runs, strict=True)
            if (wrong := findings(run.rows))
        },
        "are_settings_known": any(run.settings for run in runs),
        "timings": {
            label: split for label, members in groups.items() if (split := _time_split(members))
        },
        "videos": list(_videos(runs)),
        "episodes": [path for run in runs for path in run.episodes],
        "commands": [command for run in runs if (command := _command(run))],
    }


def _names(runs: Sequence[Run]) -> list[str]:
    """What runs are called on the page: with the folder they lie in where names repeat."""
    plain = [run.name for run in runs]
    if len(set(plain)) == len(plain):
        return plain
    folders = [run.path.parents[run.path.name == RESULTS_FILE] for run in runs]
    return [f"{folder.name}/{name}" for folder, name in zip(folders, plain, strict=True)]


def _figures(
    groups: Mapping[str, Sequence[Run]], wanted: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """(caption, SVG) of each (metric, axis) that a run has."""
    for metric, x in wanted:
        members = {
            label: having
            for label, group in groups.items()
            if (having := [run for run in group if _has(run, metric, x)])
        }
        if members:
            curves = [
                curve_of(label, having, metric=metric, x=x) for label, having in members.items()
            ]
            figure = figure_of(curves, metric=metric, x=x, band="iqr")
            yield f"{metric_label(metric)} by {x.replace('_', ' ')}", _svg(figure)


def _differing_by_label(groups: Mapping[str, Sequence[Run]]) -> dict[str, list[str]]:
    """Settings that differ: name → the values of each group, different ones side by side."""
    runs = [run for group in groups.values() for run in group]
    ends = list(itertools.accumulate(len(group) for group in groups.values()))
    spans = list(zip([0, *ends], ends, strict=False))
    return {
        name: [", ".join(dict.fromkeys(values[begin:end])) for begin, end in spans]
        for name, values in differing_settings(runs).items()
    }


def _has(run: Run, metric: str, x: str) -> bool:
    """Whether there is a point to draw; a ReportError if the run has no results at all."""
    if not run.rows:
        run.series()
    wanted = (metric, X_AXES[x][0])
    return any(all(number_at(row, path) is not None for path in wanted) for row in run.rows)


def _losses(runs: Sequence[Run]) -> list[str]:
    """Losses and what is watched beside them, of all modules that were trained."""
    found = {
        path
        for run in runs
        for path, _ in numbers_in(run.last)
        if re.fullmatch(r"learners/.+/(.*_loss|entropy|vf_explained_var|qf_mean)", path)
    }
    return sorted(found)[:_MAX_LOSSES]


def _svg(figure: Any) -> str:
    """The picture as an element of a page: without the head of a file."""
    text = io.StringIO()
    save_figure(figure, text, kind=".svg")
    picture = text.getvalue()
    return picture[picture.index("<svg") :]


def _facts(run: Run, name: str) -> dict[str, str]:
    last = run.last
    seconds = number_at(last, "time_total_s")
    mean = number_at(last, RETURN)
    return {
        "run": name,
        "algorithm": run.algorithm or "–",
        "env": run.env or "–",
        "seed": "–" if run.seed is None else str(run.seed),
        "iterations": f"{number_at(last, 'training_iteration') or 0:.0f}",
        "env steps": f"{number_at(last, 'num_env_steps_sampled_lifetime') or 0:,.0f}",
        "time": "–" if seconds is None else duration(seconds),
        "last return": "–" if mean is None else f"{mean:,.1f}",
    }


def _faults(run: Run) -> dict[str, str]:
    """What failed and was repaired, counted over the run."""
    section = run.last.get("fault_tolerance")
    counts = numbers_in(section) if isinstance(section, Mapping) else ()
    return {
        path.replace("_", " "): f"{count:g}"
        for path, count in counts
        if count and path != "num_healthy_workers"
    }


def _time_split(runs: Sequence[Run]) -> list[tuple[str, float]]:
    """(timer, share of the time of iterations in %), the largest first."""
    totals: dict[str, float] = {}
    for run in runs:
        for row in run.rows:
            timers = row.get("timers")
            timers = {**timers} if isinstance(timers, Mapping) else {}
            timers.pop("split", None)  # the same time, divided another way
            for path, seconds in numbers_in(timers):
                totals[path] = totals.get(path, 0.0) + seconds
    whole = totals.pop("training_iteration", 0.0)
    shares = [(name, 100 * seconds / whole) for name, seconds in totals.items() if whole]
    return sorted(shares, key=lambda share: -share[1])


def _videos(runs: Sequence[Run]) -> Iterator[dict[str, str]]:
    """Videos in the page itself, until they are too many; then links."""
    left = _MAX_EMBEDDED_BYTES
    for run in runs:
        for path in run.videos:
            size = path.stat().st_size
            kind = _KINDS[path.suffix]
            source = path.absolute().as_uri()
            if size <= left:
                left -= size
                source = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
            yield {"name": f"{run.name}/{path.name}", "kind": kind, "source": source}


def _command(run: Run) -> str | None:
    """The command line that trains the same again; None if its settings are not known."""
    try:
        defaults = algorithm_class(run.algorithm).get_default_config().to_dict()
    except ConfigError:  # of the user: its module is not imported because a file names it
        return None
    own = {"env", "seed"}
    changed = {
        name: value
        for name, value in run.settings.items()
        if name not in own and value != defaults.get(name)
    }
    words = ["local-trainer", "train", "--algo", run.algorithm, "--env", run.env]
    words += [] if run.seed is None else ["--seed", str(run.seed)]
    for name, value in changed.items():
        words += ["--set", f"{name}={value!r}" if not isinstance(value, str) else f"{name}={value}"]
    return shlex.join(words)


_TEMPLATE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
         color: #1b1b1b; background: #fff; }
  h1, h2 { line-height: 1.2; }
  h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; font-size: .9rem; }
  th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
  th:first-child, td:first-child { text-align: left; }
  figure { margin: 1.5rem 0; }
  figure svg, video, img { max-width: 100%; height: auto; }
  figcaption { color: #555; font-size: .9rem; }
  pre { background: #f5f5f5; padding: .7rem; overflow-x: auto; font-size: .85rem; }
  .bar { display: inline-block; height: .7rem; background: #0072B2; }
  @media (prefers-color-scheme: dark) {
    body { color: #e4e4e4; background: #161616; }
    h2, th, td { border-color: #444; }
    a { color: #7ab8e6; }
    figcaption { color: #aaa; }
    pre { background: #262626; }
    figure svg { filter: invert(.91) hue-rotate(180deg); }  /* paper dark, colours as they were */
  }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p>{{ runs|length }} {{ "run" if runs|length == 1 else "runs" }}:
{{ names|join(", ") }}.</p>

<h2>Learning curves</h2>
{% if is_any_repeated %}
<p>Thick: median over the runs of a kind, up to the end of the shortest. Band: the middle half of
them. Thin: each run.</p>
{% endif %}
{% for caption, svg in curves %}
<figure>{{ svg|safe }}<figcaption>{{ caption }}</figcaption></figure>
{% endfor %}

{% if findings %}
<h2>Learning goes wrong</h2>
{% for name, found in findings.items() %}
<p>{{ name }}:</p>
<ul>{% for finding in found %}<li>{{ finding }}</li>{% endfor %}</ul>
{% endfor %}
{% endif %}

{% if is_any_repeated %}
<h2>Final returns</h2>
<div class="wide"><table>
<tr><th>runs</th><th>n</th><th>mean ± std</th><th>interquartile mean</th><th>95 % interval</th>
<th>min</th><th>max</th></tr>
{% for s in summaries %}
<tr><td>{{ s.label }}</td><td>{{ s.num_runs }}</td>
{% if s.num_runs == 1 %}
<td>{{ "%.1f"|format(s.mean) }}</td><td></td><td></td><td></td><td></td></tr>
{% else %}
<td>{{ "%.1f ± %.1f"|format(s.mean, s.std) }}</td><td>{{ "%.1f"|format(s.iqm) }}</td>
<td>{{ "%.1f – %.1f"|format(s.low, s.high) }}</td><td>{{ "%.1f"|format(s.minimum) }}</td>
<td>{{ "%.1f"|format(s.maximum) }}</td></tr>
{% endif %}
{% endfor %}
</table></div>
<p>The last mean return of each run. Interval: percentile bootstrap of the interquartile mean over
runs; with fewer than about five runs it says little.</p>
{% endif %}

<h2>Runs</h2>
<div class="wide"><table>
<tr>{% for name in runs[0] %}<th>{{ name }}</th>{% endfor %}</tr>
{% for run in runs %}
<tr>{% for value in run.values() %}<td>{{ value }}</td>{% endfor %}</tr>
{% endfor %}
</table></div>

<h2>Settings that differ</h2>
{% if differing %}
<div class="wide"><table>
<tr><th>setting</th>{% for label in labels %}<th>{{ label }}</th>{% endfor %}</tr>
{% for name, values in differing.items() %}
<tr><td>{{ name }}</td>{% for value in values %}<td>{{ value }}</td>{% endfor %}</tr>
{% endfor %}
</table></div>
{% elif are_settings_known %}
<p>None.</p>
{% else %}
<p>Not known: these runs saved no checkpoint.</p>
{% endif %}

<h2>Faults and repairs</h2>
{% for name, found in faults.items() %}
<p>{{ name }}: {% for what, count in found.items() %}{{ what }} {{ count }}{{ ", " if not loop.last
}}{% endfor %}</p>
{% else %}
<p>Nothing failed.</p>
{% endfor %}

<h2>Where the time went</h2>
{% for label, shares in timings.items() %}
<h3>{{ label }}</h3>
<table>
{% for name, share in shares %}
<tr><td>{{ name }}</td><td>{{ "%.1f"|format(share) }} %</td>
<td style="text-align: left"><span class="bar" style="width: {{ "%.0f"|format(share * 3) }}px">
</span></td></tr>
{% endfor %}
</table>
{% else %}
<p>Not known: the results hold no timers.</p>
{% endfor %}

{% if losses %}
<h2>Losses</h2>
{% for caption, svg in losses %}
<figure>{{ svg|safe }}<figcaption>{{ caption }}</figcaption></figure>
{% endfor %}
{% endif %}

{% if videos or episodes %}
<h2>Recordings</h2>
{% for video in videos %}
<figure>{% if video.kind == "image/gif" %}<img src="{{ video.source }}" alt="{{ video.name }}">
{% else %}<video controls src="{{ video.source }}"></video>{% endif %}
<figcaption>{{ video.name }}</figcaption></figure>
{% endfor %}
{% for path in episodes %}
<p>{{ path }}</p>
{% endfor %}
{% endif %}

<h2>How to make these runs again</h2>
{% for command in commands %}
<pre>{{ command }}</pre>
{% else %}
<p>The settings are not known: these runs saved no checkpoint.</p>
{% endfor %}
</body>
</html>
"""

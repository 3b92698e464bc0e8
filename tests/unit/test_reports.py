"""Curves, tables, pictures and pages of runs, from files written here."""

import itertools
import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import CheckpointWriteError
from trainer.reports import (
    ReportError,
    Run,
    curve_of,
    find_runs,
    grouped,
    plot_runs,
    read_run,
    summary_of,
    write_report,
)
from trainer.reports.curves import interquartile_mean
from trainer.reports.figures import _COLOURS, _LINES
from trainer.reports.run_records import differing_settings


def row(iteration, value, **more):
    return {
        "training_iteration": iteration,
        "num_env_steps_sampled_lifetime": 100 * iteration,
        "time_total_s": 2.0 * iteration,
        "env_runners": {"episode_return_mean": value},
        "timers": {"training_iteration": 2.0, "learner_update_timer": 1.5},
        **more,
    }


def written(folder, name, values, torn=""):
    run = folder / name
    run.mkdir(parents=True)
    lines = [json.dumps(row(i, value)) for i, value in enumerate(values, start=1)]
    (run / "results.jsonl").write_text("\n".join(lines) + "\n" + torn)
    return run


def made(values, *, algorithm="PPO", **settings):
    rows = [row(i, value) for i, value in enumerate(values, start=1)]
    settings = {"lr": 0.1, "seed": 0, **settings}
    metadata = {"algorithm": algorithm, "env": "E", "root_seed": settings["seed"]}
    return Run(Path(f"/runs/{algorithm}-{settings['seed']}"), rows, settings, metadata)


# ---- reading


def test_a_run_is_read_without_being_changed(tmp_path):
    run = written(tmp_path, "a", [1.0, None, 3.0], torn='{"training_iteration": 4, "env')
    before = (run / "results.jsonl").read_bytes()
    found = read_run(run)
    assert (found.name, len(found.rows), found.settings) == ("a", 3, {})
    xs, ys = found.series()
    assert (xs.tolist(), ys.tolist()) == ([100.0, 300.0], [1.0, 3.0])  # without the None
    assert found.series(x="time")[0].tolist() == [2.0, 6.0]
    assert (run / "results.jsonl").read_bytes() == before
    assert [path.name for path in run.iterdir()] == ["results.jsonl"]


def test_runs_are_found_below_a_folder(tmp_path):
    for name in ("b", "deep/a"):
        written(tmp_path, name, [1.0])
    (tmp_path / "no_run").mkdir()
    assert [path.name for path in find_runs(tmp_path)] == ["b", "a"]


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("env_runners/episode_reward_mean", "env_runners/episode_return_mean"),
        ("qqqqqqqqq", "such as env_runners/episode_return_mean"),
    ],
)
def test_a_metric_that_is_not_there_is_named_with_what_is(metric, words, tmp_path):
    with pytest.raises(ReportError, match=words):
        read_run(written(tmp_path, "a", [1.0])).series(metric)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ReportError, match=r"holds no results\.jsonl"):
        read_run(tmp_path)
    with pytest.raises(ReportError, match="does not exist"):
        read_run(tmp_path / "nothing")
    with pytest.raises(ReportError, match="is no axis"):
        read_run(written(tmp_path, "a", [1.0])).series(x="steps")


# ---- curves


def test_the_median_ends_with_the_shortest_run():
    curve = curve_of("a", [made([0.0, 10.0, 20.0]), made([10.0, 20.0], seed=1)])
    assert (curve.x[0], curve.x[-1]) == (100.0, 200.0)
    assert (curve.median[0], curve.median[-1]) == (5.0, 15.0)
    assert (curve.low[0], curve.high[0]) == (2.5, 7.5)
    assert [len(at) for at, _ in curve.members] == [3, 2]


def test_smoothing_is_the_mean_of_the_last_results():
    curve = curve_of("a", [made([0.0, 10.0, 20.0, 60.0])], smooth=3)
    assert curve.median.tolist() == [0.0, 5.0, 10.0, 30.0]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([5.0], 5.0), ([0.0, 1.0, 2.0, 100.0], 1.5), ([9.0, 1.0, 2.0, 3.0, -50.0], 2.0)],
)
def test_the_interquartile_mean_by_hand(values, wanted):
    assert interquartile_mean(np.array(values)) == pytest.approx(wanted)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_a_summary_is_in_order(values):
    found = summary_of("a", [made([value], seed=i) for i, value in enumerate(values)])
    slack = 1e-9 * max(1.0, *map(abs, values))
    edges = [found.minimum, found.low, found.high, found.maximum]
    assert all(a <= b + slack for a, b in itertools.pairwise(edges))
    assert found.minimum - slack <= found.iqm <= found.maximum + slack


def test_runs_that_differ_by_the_seed_alone_belong_together():
    runs = [made([1.0]), made([1.0], seed=1), made([1.0], lr=0.2), made([1.0], algorithm="DQN")]
    groups = grouped(runs)
    assert {label: len(members) for label, members in groups.items()} == {
        "PPO, lr=0.1": 2,
        "PPO, lr=0.2": 1,
        "DQN": 1,
    }
    assert differing_settings(runs[:2]) == {"seed": ["0", "1"]}
    assert list(grouped(runs, ["a", "b", "a", "b"])) == ["a", "b"]
    with pytest.raises(ReportError, match="2 labels were given for 4 runs"):
        grouped(runs, ["a", "b"])
    with pytest.raises(ReportError, match=r"`labels='four'` is one text; .*=\['four'\] \* 4 for"):
        grouped(runs, "four")


# ---- pictures and pages


def test_a_picture_is_the_same_twice(tmp_path):
    paths = [written(tmp_path, name, [1.0, 2.0, 3.0]) for name in ("a", "b")]
    for name in ("1.svg", "2.svg"):
        plot_runs(paths, file=tmp_path / name, title="<&>")
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()
    axes = plot_runs(paths, x="time", labels=["one", "one"]).axes[0]
    assert axes.get_xlabel() == "training time (s)"
    assert axes.get_ylabel() == "episode return mean"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one (2 runs)"]


@pytest.mark.parametrize("num_runs", [20, 60])
def test_the_names_of_many_curves_stand_beside_them(tmp_path, num_runs):
    paths = [written(tmp_path, f"run-{i}", [float(i), 2.0 * i]) for i in range(num_runs)]
    labels = [
        f"{i:05d} lr=0.00012345678 gamma=0.99, train_batch_size=4000" for i in range(num_runs)
    ]
    figure = plot_runs(paths, labels=labels, file=tmp_path / "many.png")
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[0] == "00000 lr=0.00012345678 gamma=0.99, trai…"
    assert names[-1] == ("00019" + names[0][5:] if num_runs == 20 else "and 36 more")
    drawn, named = axes.get_window_extent(), legend.get_window_extent()
    assert not drawn.overlaps(named)
    assert axes.get_legend() is None
    assert 0 <= named.y0 < named.y1 <= figure.bbox.y1
    assert named.x1 <= figure.bbox.x1
    assert drawn.width > 0.4 * figure.bbox.width


def lightness(colour):
    """L* of CIE 1976, 0 to 100, from the relative luminance of sRGB (IEC 61966-2-1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    luminance = float(np.dot(linear, [0.2126, 0.7152, 0.0722]))
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def smallest_difference(colours):
    return float(np.diff(sorted(map(lightness, colours))).min())


def test_the_first_four_curves_are_told_apart_in_grey():
    assert lightness("#FFFFFF") == pytest.approx(100, abs=0.1)
    assert lightness("#777777") == pytest.approx(50, abs=0.2)
    assert smallest_difference(_COLOURS[:4]) > 10
    assert max(map(lightness, _COLOURS[:4])) < 90, "on white paper"
    assert smallest_difference(_COLOURS[:5]) < 10, "from here on by their lines alone"
    assert len(set(_LINES)) == len(_LINES) == len(_COLOURS)


@pytest.mark.parametrize("name", ["file/curves.png", "folder.png"])
def test_a_picture_that_cannot_be_written_is_told_with_its_path(tmp_path, name):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    path = written(tmp_path, "a", [1.0, 2.0])
    with pytest.raises(CheckpointWriteError, match=name.partition("/")[0]):
        plot_runs(path, file=tmp_path / name)


def test_all_that_is_wrong_with_a_picture_is_told_at_once(tmp_path):
    with pytest.raises(ReportError) as caught:
        plot_runs([], band="std", smooth=0, file="curves.bmp")
    assert all(name in str(caught.value) for name in ("paths", "band", "smooth", "curves.bmp"))


def test_a_page_escapes_what_runs_are_called_and_needs_no_network(tmp_path):
    faults = {"num_remote_worker_restarts": 3}
    run = written(tmp_path, "<script>alert(1)<", [])
    lines = [json.dumps(row(i, 5.0 * i, fault_tolerance=faults)) for i in (1, 2)]
    (run / "results.jsonl").write_text("\n".join(lines))
    (run / "video.gif").write_bytes(b"GIF89a")
    title = "in \udce4"  # a byte of a path that is no character
    page = write_report(run, tmp_path / "new" / "page.html", title=title).read_text()
    assert "in \\udce4" in page
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "num remote worker restarts 3" in page
    assert "75.0 %" in page  # 1.5 s of 2.0 s
    assert "data:image/gif;base64,R0lGODlh" in page
    for picture in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        ET.fromstring(picture)
    with pytest.raises(ReportError, match=r"ends in \.html"):
        write_report(run, tmp_path / "page.txt")


def test_a_page_says_that_learning_goes_wrong_and_escapes_it(tmp_path):
    run = written(tmp_path, "a", [])
    signs = {"<b>": {"learning_rate_is_zero": 0.0}}
    lines = [json.dumps(row(i, 5.0, learning_signs=signs)) for i in range(1, 12)]
    (run / "results.jsonl").write_text("\n".join(lines))
    page = write_report(run, tmp_path / "page.html").read_text()
    assert "<li>learning_rate_is_zero (&lt;b&gt;, iteration 10): The learning rate is 0." in page
    sound = write_report(written(tmp_path, "b", [1.0]), tmp_path / "sound.html").read_text()
    assert "Learning goes wrong" not in sound


def test_a_page_about_a_relative_path_shows_its_recordings(tmp_path, monkeypatch):
    (written(tmp_path, "runs/x", [1.0]) / "small.mp4").write_bytes(b"film")
    (tmp_path / "runs/x/too large #1.mp4").write_bytes(bytes(21 * 2**20))
    monkeypatch.chdir(tmp_path)
    page = write_report("runs/x", "r.html").read_text()
    assert 'src="data:video/mp4;base64,ZmlsbQ=="' in page
    assert f'src="{tmp_path.as_uri()}/runs/x/too%20large%20%231.mp4"' in page


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_names_that_are_no_formulas_and_no_characters_are_drawn(tmp_path, ending):
    names = ["cost $a_{b$ x", os.fsdecode(b"bytes \xff"), "line\nbreak\x01"]
    runs = [written(tmp_path, f"runs/{number}", [1.0, 2.0]) for number in range(3)]
    for run in runs:
        rows = run / "results.jsonl"
        rows.write_text(rows.read_text().replace("timers", "cost $_{ $"))
    file = tmp_path / f"curves{ending}"
    metric = "cost $_{ $/learner_update_timer"
    plot_runs(runs, metric=metric, labels=names, title="all $_{ \udc80", file=file)
    page = write_report(runs, tmp_path / "r.html", labels=names, title="all $_{ \udc80")
    if ending == ".svg":
        ET.fromstring(file.read_text())
        assert "cost $a_{b$ x" in file.read_text(), "said beside the shapes of the letters"
    assert file.stat().st_size > 1000
    assert "cost $a_{b$ x" in page.read_text()


def test_runs_of_the_same_name_are_told_apart_by_their_folders(tmp_path):
    paths = [written(tmp_path / folder, "seed-0", [1.0, 2.0]) for folder in ("ppo", "dqn")]
    page = write_report(paths, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<td>ppo/seed-0</td>" in page
    assert "<td>dqn/seed-0</td>" in page


@pytest.mark.parametrize(("num_runs", "is_told"), [(1, False), (2, True)])
def test_a_spread_is_told_of_runs_that_were_repeated(num_runs, is_told, tmp_path):
    runs = [written(tmp_path, f"run{number}", [1.0, 2.0]) for number in range(num_runs)]
    page = write_report(runs, tmp_path / "page.html", labels=["a"] * num_runs).read_text()
    assert ("95 % interval" in page) is is_told
    assert ("the middle half" in page) is is_told

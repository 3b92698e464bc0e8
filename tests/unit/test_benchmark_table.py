"""The table that `make bench` prints: which lines, which ratios, what is missing."""

from benchmarks import comparison
from benchmarks.__main__ import main
from benchmarks.comparison import LINES, Line, drawn, row_of
from benchmarks.figures import Figure


def line(what, *, peer="", needs=""):
    def measure(repeats):
        ours = Figure([2.0, 3.0, 8.0][:repeats], "s")
        return ours, Figure([4.0, 4.0, 4.0][:repeats], "s") if peer else None

    return Line(what, peer, needs, "≤ 1", 1.0, measure)


def test_the_ratio_is_that_of_the_pairs_with_its_spread():
    compared = line("learning", peer="a peer")
    assert row_of(compared, compared.measure(3)) == (
        "learning", "a peer", "3 s", "4 s", "0.75 (0.5 – 2, n=3)", "≤ 1"
    )  # fmt: skip
    alone = line("starting")
    assert row_of(alone, alone.measure(1))[2:5] == ("", "", "2 (2 – 2, n=1)")


def test_missing_peers_are_named_and_the_rest_is_measured(monkeypatch, capsys):
    there, not_there = line("there"), line("gone", peer="Nobody", needs="no_such.package")
    monkeypatch.setattr(comparison, "LINES", (there, not_there))
    assert main([]) == 0
    told = capsys.readouterr().out
    assert "1 lines, 5 pairs each, about 0 min" in told
    assert "left out: Nobody" in told
    assert "1/1 there" in told
    assert "gone" not in told


def test_columns_stand_below_each_other():
    widths = {len(row) for row in drawn([("a", "long"), ("longer", "b")]).splitlines()}
    assert len(widths) == 1


def test_the_table_has_the_lines_of_the_comparison():
    peers = {line.peer for line in LINES}
    assert {"Stable-Baselines3", "SBX", "RLlib, tuned", "no env runners"} <= peers
    assert sum("sample_ahead" in line.what for line in LINES) == 6


def test_an_unknown_benchmark_is_refused(capsys):
    assert main(["tabel"]) == 2
    assert "There is no benchmark tabel; there are: table, " in capsys.readouterr().out

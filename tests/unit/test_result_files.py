"""Results files, JSON lines and CSV: what is in them after every kind of writing and damage."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callbacks.ready_made.result_files import CSVResults, JSONLinesResults, row_of

NOISE = b"\xff\xfe\x00"


class Results(Protocol):
    @property
    def path(self) -> Path: ...
    def append(self, row: Mapping[str, Any]) -> None: ...
    def start_anew(self, row: Mapping[str, Any]) -> None: ...


Opener = Callable[[], Results]


@pytest.fixture(params=[JSONLinesResults, CSVResults])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Makes an object that knows nothing yet of the one file of the test, as a new process does."""
    return lambda: request.param(tmp_path / "folder" / "results")


def row(iteration: int, **values: Any) -> dict[str, Any]:
    return {"env_runners": {"speed": iteration / 7}, "training_iteration": iteration, **values}


def write(results: Results, *iterations: int, **values: Any) -> None:
    for iteration in iterations:
        results.append(row(iteration, **values))


def iterations(path: Path) -> list[int]:
    if "\n{" in "\n" + path.read_text():
        return [json.loads(line)["training_iteration"] for line in path.read_text().splitlines()]
    return [int(cells["training_iteration"]) for cells in table(path)]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, strict=True))


def files(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


# ---- both formats


def test_rows_are_appended_also_by_the_next_process(opened: Opener) -> None:
    for iteration in (1, 2, 3):
        write(opened(), iteration)
    one = opened()
    write(one, 4, 5)
    assert iterations(one.path) == [1, 2, 3, 4, 5]
    assert files(one.path) == ["results"]


@pytest.mark.parametrize("is_known", [True, False])
def test_an_iteration_that_is_made_again_replaces_its_row_and_later_ones(
    opened: Opener, is_known: bool
) -> None:
    results = opened()
    write(results, 1, 2, 3, 4, word="old")
    before = results.path.read_bytes()
    results = results if is_known else opened()
    write(results, 3, word="new")
    assert iterations(results.path) == [1, 2, 3]
    assert results.path.read_bytes().count(b"new") == 1
    write(results, 3, 4, word="old")
    assert results.path.read_bytes() == before


def test_forgetting_keeps_the_rows_up_to_an_iteration(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = JSONLinesResults(path)
    results.forget_after(3)
    assert not results.path.exists()
    write(results, 1, 2, 3)
    before = results.path.read_bytes()
    write(results, 4, 5)
    JSONLinesResults(path).forget_after(3)
    assert results.path.read_bytes() == before
    results.forget_after(9)
    assert results.path.read_bytes() == before
    results.forget_after(0)
    results.append(row(1))
    assert iterations(results.path) == [1]


def test_a_torn_last_line_is_dropped_with_one_warning(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    results = opened()
    write(results, 1, 2)
    whole = results.path.read_bytes()
    write(results, 3)
    data = results.path.read_bytes()
    for size in range(len(whole) + 1, len(data) - 1):
        results.path.write_bytes(data[:size])
        caplog.clear()
        write(opened(), 3)
        assert results.path.read_bytes() == data, data[:size]
        assert len(caplog.messages) == 1
        assert "not written to its end" in caplog.text
    assert files(results.path) == ["results"]


def test_damage_in_the_middle_keeps_the_other_rows_and_the_damaged_file(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    results = opened()
    write(results, 1, 2, 3, 4)
    lines = results.path.read_bytes().splitlines(keepends=True)
    lines[-3] = NOISE + lines[-3]
    lines[-2] = b"half a line\n"
    damaged = b"".join(lines)
    for kept in ("results.damaged", "results.damaged.1"):
        results.path.write_bytes(damaged)
        caplog.clear()
        write(opened(), 5)
        assert iterations(results.path) == [1, 4, 5]
        assert f"2 of its {len(lines)} lines cannot be read" in caplog.text
        assert kept in caplog.text
        assert len(caplog.messages) == 1
        assert (results.path.parent / kept).read_bytes() == damaged


def test_a_file_that_holds_something_else_is_not_lost(opened: Opener) -> None:
    results = opened()
    results.path.parent.mkdir()
    results.path.write_bytes(b"Dear diary,\ntoday was " + NOISE)
    write(results, 1)
    assert iterations(results.path) == [1]
    kept = results.path.with_name("results.damaged")
    assert kept.read_bytes() == b"Dear diary,\ntoday was " + NOISE


def test_a_new_run_gives_the_file_of_an_older_one_another_name(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    older = []
    for number in range(3):
        results = opened()
        results.start_anew(row(1))
        write(results, 1, 2, number=number)
        older.append(results.path.read_bytes())
    folder = results.path.parent
    names = ["results.1", "results.2", "results"]
    assert [(folder / name).read_bytes() for name in names] == older
    assert len(caplog.messages) == 2
    assert "results.2" in caplog.messages[1]


def test_a_run_that_begins_behind_what_is_written_goes_on_with_the_file(opened: Opener) -> None:
    write(opened(), 1, 2)
    results = opened()
    results.start_anew(row(3))
    write(results, 3)
    assert iterations(results.path) == [1, 2, 3]
    assert files(results.path) == ["results"]


def test_rows_of_somebody_else_are_not_dropped(opened: Opener) -> None:
    one, other = opened(), opened()
    write(one, 1, 2, word="one")
    write(other, 3, 4, 5, word="other")
    with one.path.open("ab") as file:
        file.write(b"torn")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="got rows up to iteration 5 from another writer"):
            write(one, 3, word="one")
    assert iterations(one.path) == [1, 2, 3, 4, 5]
    write(one, 6, word="one")
    assert iterations(one.path) == [1, 2, 3, 4, 5, 6]


def test_a_file_that_is_deleted_or_emptied_begins_again(opened: Opener) -> None:
    results = opened()
    write(results, 1, 2)
    results.path.unlink()
    write(results, 3)
    assert iterations(results.path) == [3]
    results.path.write_bytes(b"")
    write(results, 4)
    assert iterations(results.path) == [4]


def test_a_row_without_its_iteration_is_refused(opened: Opener) -> None:
    with pytest.raises(ValueError, match="training_iteration=None cannot be written"):
        opened().append({"speed": 1.0})


def test_a_failed_rewriting_leaves_the_file_as_it_was(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = opened()
    write(results, 1, 2, 3)
    before = results.path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space left"):
            results.append(row(2, late=1))
    assert results.path.read_bytes() == before
    results.append(row(2, late=1))
    assert iterations(results.path) == [1, 2]
    assert files(results.path) == ["results"], "the temporary file has taken the name"


# ---- JSON lines


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_values_that_json_lacks_are_written_as_null_lists_and_text(tmp_path: Path) -> None:
    results = JSONLinesResults(tmp_path / "results.jsonl")
    nan: dict[Any, Any] = {
        "a": math.nan,
        "b": [np.float32(np.inf), -math.inf],
        "c": np.array([1.5, np.nan]),
    }
    plain: dict[Any, Any] = {
        "d": np.int64(3),
        "e": np.bool_(True),
        "f": (1, None),
        "g": Path("x"),
        5: {"h": "é"},
    }
    results.append(row_of({**nan, **plain, "config": {"lr": 1}, "training_iteration": 1}))
    assert read_jsonl(results.path) == [
        {
            "a": None, "b": [None, None], "c": [1.5, None], "d": 3, "e": True, "f": [1, None],
            "g": "x", "5": {"h": "é"}, "training_iteration": 1,
        }
    ]  # fmt: skip


def test_the_newest_row_can_be_read_without_repairing_the_file(tmp_path: Path) -> None:
    results = JSONLinesResults(tmp_path / "results.jsonl")
    assert results.last() is None
    write(results, 1, 2)
    with results.path.open("ab") as file:
        file.write(b'{"training_iteration": 3, ' + NOISE)
    assert results.last() == row(2)
    assert results.path.read_bytes().endswith(NOISE)


def test_a_whole_last_row_without_a_line_end_stays(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(JSONLinesResults(path), 1, 2)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    write(JSONLinesResults(path), 3)
    assert iterations(path) == [1, 2, 3]


def test_lines_of_the_user_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"note": "first try"}\n')
    write(JSONLinesResults(path), 1, 2)
    JSONLinesResults(path).forget_after(0)
    assert path.read_text() == '{"note": "first try"}\n'


# ---- CSV


def test_a_metric_that_appears_late_gets_its_column_and_earlier_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    for iteration in range(1, 8):
        late = {"custom": {"heat, °C": float(iteration)}} if iteration >= 5 else {}
        CSVResults(path).append(row(iteration, **late))
    rows = table(path)
    assert [cells["training_iteration"] for cells in rows] == list("1234567")
    assert [cells["env_runners/speed"] for cells in rows] == [repr(i / 7) for i in range(1, 8)]
    assert [cells["custom/heat, °C"] for cells in rows] == ["", "", "", "", "5.0", "6.0", "7.0"]


def test_a_metric_that_vanishes_leaves_an_empty_cell(tmp_path: Path) -> None:
    results = CSVResults(tmp_path / "results.csv")
    results.append(row(1, loss=0.5))
    results.append(row(2))
    assert [cells["loss"] for cells in table(results.path)] == ["0.5", ""]


def test_a_resumed_table_has_the_columns_of_an_undisturbed_one_in_their_order(
    tmp_path: Path,
) -> None:
    def made(iteration: int) -> dict[str, Any]:
        late = {"late": 1.0} if iteration == 3 else {}
        return row(iteration, **late, **({"later": 2.0} if iteration >= 4 else {}))

    whole, killed = tmp_path / "whole.csv", tmp_path / "killed.csv"
    for iteration in range(1, 7):
        CSVResults(whole).append(made(iteration))
    for iteration in (1, 2, 3, 4, 5, 2, 3, 4, 5, 6):  # killed after 5, resumed from 1
        CSVResults(killed).append(made(iteration))
    assert killed.read_bytes() == whole.read_bytes()


def test_every_row_is_one_line_whatever_its_texts_hold(tmp_path: Path) -> None:
    results = CSVResults(tmp_path / "results.csv")
    text = 'a,b\n"c"\r\x00\udc80é'
    results.append(row(1, text=text, **{"odd\nname": 1}))
    results.append(row(2, text=text, more=1))
    assert results.path.read_bytes().count(b"\n") == 3
    rows = table(results.path)
    assert [cells["text"] for cells in rows] == ['a,b\\n"c"\\r\\x00\\udc80é'] * 2
    assert rows[0]["odd\\nname"] == "1"


def test_cells_hold_what_a_table_can_hold(tmp_path: Path) -> None:
    results = CSVResults(tmp_path / "results.csv")
    values: dict[str, Any] = {
        "nan": math.nan, "inf": np.inf, "none": None, "flag": True, "small": np.arange(3),
        "image": np.zeros((40, 30), np.float32), "returns": [1.0] * 1001, "nested": [[1, math.nan]],
        "edge": [0] * 1000, "novel": "x" * 200_000, "empty": {},
    }  # fmt: skip
    results.append(row(1, **values))
    (cells,) = table(results.path)
    del cells["training_iteration"], cells["env_runners/speed"]
    assert cells == {
        "nan": "", "inf": "", "none": "", "flag": "True", "small": "[0, 1, 2]",
        "image": "array of shape (40, 30), float32", "returns": "list of 1001 values",
        "nested": "[[1, null]]", "edge": json.dumps([0] * 1000),
        "novel": "text of 200000 characters",
    }  # fmt: skip


# ---- rows


def test_a_row_shares_nothing_with_its_result() -> None:
    array, inner, returns = np.zeros(2), {"x": 1}, [1, 2]
    made = row_of({"array": array, "inner": inner, "returns": returns, "config": {}})
    array[0], inner["x"] = 9, 9
    returns.append(3)
    assert made["array"].tolist() == [0, 0]
    assert {name: made[name] for name in ("inner", "returns")} == {
        "inner": {"x": 1}, "returns": [1, 2],
    }  # fmt: skip
    assert "config" not in made


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_ROWS = st.dictionaries(
    st.text(max_size=4).filter(lambda name: name != "training_iteration"),
    st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    max_size=4,
)


@given(rows=st.lists(_ROWS, min_size=1, max_size=4), kept=st.integers(0, 4))
def test_any_results_killed_anywhere_give_the_bytes_of_an_undisturbed_run(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], kept: int
) -> None:
    made = [{"training_iteration": i, **values} for i, values in enumerate(rows, start=1)]
    for kind in (JSONLinesResults, CSVResults):
        folder = tmp_path_factory.mktemp("results")
        whole, killed = kind(folder / "whole"), kind(folder / "killed")
        for one in made:
            whole.append(one)
            killed.append(one)
        for one in made[kept:]:
            kind(folder / "killed").append(one)
        assert killed.path.read_bytes() == whole.path.read_bytes()
        assert whole.path.read_bytes().count(b"\n") == len(made) + (kind is CSVResults)
        assert files(whole.path) == ["killed", "whole"]

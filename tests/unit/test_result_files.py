"""Tables of results: what is in them after every kind of beginning, writing and damage."""

import csv
import json
import math

import numpy as np
import pytest

from callbacks.ready_made.result_files import CSVResults


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "results.csv"


def row(iteration, **values):
    return {"env_runners": {"speed": iteration / 7}, "training_iteration": iteration, **values}


def written(path, *iterations, **values):
    """A table as a new process has it, which goes on with these rows."""
    results = CSVResults(path)
    for index, iteration in enumerate(iterations):
        if index == 0:
            assert results.begin(iteration) < iteration
        results.append(iteration, row(iteration, **values))
    return results


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, strict=True))


def iterations(path):
    return [int(cells["training_iteration"]) for cells in table(path)]


def test_beginning_drops_a_row_and_later_ones_and_says_what_is_left(path):
    assert CSVResults(path).begin(1) == 0
    assert not path.exists()
    written(path, 1, 2, 3)
    before = path.read_bytes()
    written(path, 4, 5)
    assert CSVResults(path).begin(9) == 5
    assert CSVResults(path).begin(4) == 3
    assert path.read_bytes() == before
    written(path, 1, 2, 3)
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", ["torn", "in the middle", "of the header"])
def test_what_is_behind_damage_is_written_again(path, where):
    written(path, 1, 2, 3, 4)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    damaged, left = {
        "torn": (data[:-3], 3),
        "in the middle": (b"".join([*lines[:3], b"\xff" + lines[3], lines[4]]), 2),
        "of the header": (b"\xff" + data, 0),
    }[where]
    path.write_bytes(damaged)
    assert CSVResults(path).begin(5) == left
    written(path, *range(left + 1, 5))
    assert path.read_bytes() == data


def test_a_file_that_holds_something_else_is_not_lost(path, caplog):
    path.parent.mkdir()
    path.write_text("Dear diary,\ntoday was")
    written(path, 1)
    assert iterations(path) == [1]
    assert path.with_name("results.csv.1").read_text() == "Dear diary,\ntoday was"
    assert "That file is now results.csv.1" in caplog.text


def test_a_table_that_others_change_is_refused_until_it_is_looked_at(path):
    results = written(path, 1, 2)
    path.unlink()
    with pytest.raises(OSError, match="was changed by others"):
        results.append(3, row(3))
    assert results.begin(3) == 0
    path.write_text("x")
    with pytest.raises(OSError, match="was changed by others"):
        results.append(1, row(1))


def test_a_metric_that_appears_late_gets_its_column_and_earlier_rows_stay(path):
    for iteration in range(1, 8):
        late = {"custom": {"heat, °C": float(iteration)}} if iteration in (5, 6) else {}
        written(path, iteration, **late)
    rows = table(path)
    assert [cells["training_iteration"] for cells in rows] == list("1234567")
    assert [cells["env_runners/speed"] for cells in rows] == [repr(i / 7) for i in range(1, 8)]
    assert [cells["custom/heat, °C"] for cells in rows] == ["", "", "", "", "5.0", "6.0", ""]


def test_rows_are_placed_by_their_number(path):
    results = CSVResults(path)
    results.begin(1)
    for number in (1, 2):
        results.append(number, {"training_iteration": 7, "loss": 0.5})
    results.append(3, {"loss": 0.5})
    assert iterations(path) == [1, 2, 3]


def test_every_row_is_one_line_whatever_its_texts_hold(path):
    text = 'a,b\n"c"\r\x00\udc80é'
    written(path, 1, text=text, **{"odd\nname": 1})
    written(path, 2, text=text, more=1)
    assert path.read_bytes().count(b"\n") == 3
    rows = table(path)
    assert [cells["text"] for cells in rows] == ['a,b\\n"c"\\r\\x00\\udc80é'] * 2
    assert rows[0]["odd\\nname"] == "1"


def test_cells_hold_what_a_table_can_hold(path):
    values = {
        "nan": math.nan, "inf": np.inf, "none": None, "flag": True, "small": np.arange(3),
        "image": np.zeros((40, 30), np.float32), "returns": [1.0] * 1001, "nested": [[1, math.nan]],
        "edge": [0] * 1000, "novel": "x" * 200_000, "empty": {},
    }  # fmt: skip
    written(path, 1, **values)
    (cells,) = table(path)
    del cells["training_iteration"], cells["env_runners/speed"]
    assert cells == {
        "nan": "", "inf": "", "none": "", "flag": "True", "small": "[0, 1, 2]",
        "image": "array of shape (40, 30), float32", "returns": "list of 1001 values",
        "nested": "[[1, null]]", "edge": json.dumps([0] * 1000),
        "novel": "text of 200000 characters",
    }  # fmt: skip

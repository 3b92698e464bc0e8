"""The rows of a run: what is in the file, and what is read, after every writing and damage."""

import json
import math
import resource
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callbacks.ready_made.rows_file import (
    START,
    Bookmark,
    RowsFile,
    decoded_row,
    encoded_row,
    jsonable,
    row_of,
)
from trainer_toolkit.trees import same

NOISE = b"\xff\xfe\x00"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "results.jsonl"


def row(iteration, **values):
    return {"env_runners": {"speed": iteration / 7}, "training_iteration": iteration, **values}


def written(path, *iterations, **values):
    """A file that knows nothing yet, as in a new process, with these rows behind what is there."""
    rows = RowsFile(path)
    for iteration in iterations:
        rows.append(row(iteration, **values))
    return rows


def iterations(path):
    return [json.loads(line)["training_iteration"] for line in path.read_text().splitlines()]


def files(path):
    return sorted(found.name for found in path.parent.iterdir())


# ---- appending


@pytest.mark.parametrize("is_known", [True, False])
def test_an_iteration_that_is_made_again_replaces_its_row_and_later_ones(path, is_known):
    rows = written(path, 1, 2, 3, 4, word="old")
    before = path.read_bytes()
    rows = rows if is_known else RowsFile(path)
    rows.append(row(3, word="new"))
    assert iterations(path) == [1, 2, 3]
    assert path.read_bytes().count(b"new") == 1
    written(path, 3, 4, word="old")
    assert path.read_bytes() == before


def test_a_row_that_is_appended_twice_is_written_once(path):
    rows = written(path, 1, 2)
    before = path.stat()
    rows.append(row(2))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    rows.append(row(2, changed=True))
    assert iterations(path) == [1, 2]


def test_keeping_drops_the_rows_behind_one(path):
    assert RowsFile(path).keep(3) == 0
    assert not path.exists()
    written(path, 1, 2, 3)
    before = path.read_bytes()
    rows = written(path, 4, 5)
    assert RowsFile(path).keep(3) == 3
    assert path.read_bytes() == before
    assert rows.keep(9) == 3
    assert path.read_bytes() == before
    assert rows.keep(0) == 0
    rows.append(row(1))
    assert iterations(path) == [1]


def test_a_file_that_is_deleted_or_emptied_begins_again(path):
    rows = written(path, 1, 2)
    path.unlink()
    rows.append(row(3))
    assert iterations(path) == [3]
    path.write_bytes(b"")
    rows.append(row(1))
    assert iterations(path) == [1]


@pytest.mark.parametrize("iteration", [None, True, 1.0, "1"])
def test_a_row_without_its_iteration_is_refused(path, iteration):
    with pytest.raises(ValueError, match=rf"training_iteration={iteration!r} cannot be written"):
        RowsFile(path).append({"training_iteration": iteration})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/dev/full")])
def test_what_is_no_file_is_refused_and_left_alone(tmp_path, make):
    rows = RowsFile(tmp_path / "rows")
    make(rows.path)
    for act in (lambda: rows.append(row(1)), lambda: rows.set_aside(), lambda: rows.keep(1)):
        with pytest.raises(OSError, match="is no file"):
            act()
    assert [found.name for found in tmp_path.iterdir()] == ["rows"]


def test_a_failed_rewriting_leaves_the_file_as_it_was(path, monkeypatch):
    rows = written(path, 1, 2, 3)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="no space left"):
            rows.append(row(2))
    assert path.read_bytes() == before
    rows.append(row(2))
    assert iterations(path) == [1, 2]
    assert files(path) == ["results.jsonl"], "the draft has taken the name"


@pytest.mark.skipif(sys.platform == "win32", reason="limits are a thing of POSIX")
def test_a_full_disk_leaves_no_half_lines(path, caplog):
    rows = written(path, 1, 2, text="x" * 500)
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        for _ in range(3):
            with pytest.raises(OSError, match="File too large"):
                rows.append(row(3, text="x" * 500))
            assert path.stat().st_size == size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    rows.append(row(3, text="x" * 500))
    assert iterations(path) == [1, 2, 3]
    assert not caplog.messages


# ---- damage


def test_a_torn_last_line_is_dropped_with_one_warning(path, caplog):
    written(path, 1, 2)
    num_whole = path.stat().st_size
    written(path, 3)
    data = path.read_bytes()
    for size in range(num_whole + 1, len(data)):
        path.write_bytes(data[:size])
        caplog.clear()
        assert [line.end.number for line in RowsFile(path).lines()] == [1, 2]
        assert RowsFile(path).last_row() == row(2)
        assert not caplog.messages, "reading says nothing and repairs nothing"
        written(path, 3)
        assert path.read_bytes() == data, data[:size]
        (message,) = caplog.messages
        assert "not written to its end" in message
    assert files(path) == ["results.jsonl"]


def test_lines_that_are_damaged_or_no_rows_stay_and_are_passed_over(path, caplog):
    written(path, 1, 2, 3, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    spoilt = [b'{"note": "of the user"}\n', lines[0], NOISE + lines[1], b"half\n", lines[3]]
    path.write_bytes(b"".join(spoilt))
    rows = written(path, 5)
    (message,) = caplog.messages
    assert f"3 lines of {path} are no rows, or damaged" in message
    assert path.read_bytes() == b"".join([*spoilt, encoded_row(row(5))])
    assert list(rows.rows()) == [row(1), row(4), row(5)]
    ends = [line.end for line in rows.lines()]
    assert [end.offset for end in ends[:2]] == [len(spoilt[0] + spoilt[1]), len(b"".join(spoilt))]
    assert [line.end for line in rows.lines(ends[0])] == ends[1:]
    assert rows.agreed(ends) == ends
    written(path, 4)
    assert path.read_bytes() == b"".join([*spoilt[:2], encoded_row(row(4))])


def test_a_file_that_holds_something_else_is_not_lost(path, caplog):
    path.parent.mkdir()
    path.write_bytes(b"Dear diary,\ntoday was " + NOISE)
    written(path, 1)
    assert iterations(path) == [1]
    assert path.with_name("results.jsonl.1").read_bytes() == b"Dear diary,\ntoday was " + NOISE
    assert "That file is now results.jsonl.1" in caplog.text


def test_what_is_set_aside_gets_the_next_free_name(path, caplog):
    older = []
    for number in range(3):
        rows = RowsFile(path)
        rows.set_aside()
        rows.append(row(1, number=number))
        older.append(path.read_bytes())
    names = ["results.jsonl.1", "results.jsonl.2", "results.jsonl"]
    assert [path.with_name(name).read_bytes() for name in names] == older
    assert len(caplog.messages) == 2


# ---- reading


def test_the_newest_row_is_read_from_the_end_however_long_rows_are(path):
    assert RowsFile(path).last_row() is None
    rows = written(path, 1)
    rows.append(row(2, text="x" * 300_000))
    assert rows.last_row() == row(2, text="x" * 300_000)
    rows.append(row(3))
    assert rows.last_row() == row(3)
    ends = [line.end.offset for line in rows.lines()]
    assert [rows.last_row(until=end) for end in (0, *ends)] == [None, *rows.rows()]


def test_bookmarks_agree_as_far_as_the_file_is_as_it_was(path):
    rows = written(path, 1, 2, 3, 4)
    ends = [line.end for line in rows.lines()]
    assert rows.agreed(ends) == ends
    assert rows.agreed([*ends, Bookmark(5, ends[-1].offset + 1, 0)]) == ends
    assert [line.end for line in rows.lines(ends[1])] == ends[2:]
    assert rows.agreed(ends[2:], since=ends[1]) == ends[2:]
    assert rows.agreed(ends[2:], since=ends[0]) == ends[2:]
    assert rows.agreed(ends[2:], since=Bookmark(2, ends[1].offset, 7)) == []
    written(path, 3, word="new")
    assert rows.agreed(ends) == ends[:2]
    path.write_bytes(path.read_bytes().replace(b"training", b"Training", 1))
    assert rows.agreed(ends) == []
    assert rows.agreed(ends[::-1]) == []
    path.unlink()
    assert rows.agreed(ends) == []
    assert list(rows.lines(START)) == []


def test_rows_that_are_counted_are_numbered_by_their_lines(path):
    rows = RowsFile(path, counts_lines=True)
    for loss in (0.5, 0.25, 0.5):
        rows.append({"loss": loss, "training_iteration": 7})
    assert [line.end.number for line in rows.lines()] == [1, 2, 3]
    assert RowsFile(path, counts_lines=True).keep(2) == 2
    data = path.read_bytes()
    path.write_bytes(data + b'{"loss": 1, "torn')
    assert RowsFile(path, counts_lines=True).keep(9) == 2
    assert path.read_bytes() == data
    path.write_bytes(NOISE + b"\n" + data)
    assert list(rows.lines()) == [], "behind a line that cannot be read, numbers mean nothing"


# ---- values


def test_other_programs_read_null_lists_and_text_where_json_lacks_something():
    values = {
        "a": math.nan, "b": [np.float32(np.inf), -math.inf], "c": np.array([1.5, np.nan]),
        "d": np.int64(3), "e": np.bool_(True), "f": (1, None), "g": Path("x"), 5: {"h": "é"},
        "config": {"lr": 1},
    }  # fmt: skip
    text = encoded_row(row_of(values)).decode()
    read = json.loads(text, parse_constant=pytest.fail)
    del read["_exact"]
    assert read == {
        "a": None, "b": [None, None], "c": [1.5, None], "d": 3, "e": True, "f": [1, None],
        "g": "x", "5": {"h": "é"},
    }  # fmt: skip
    assert jsonable({"a": math.nan, "b": np.arange(2)}) == {"a": None, "b": [0, 1]}


_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(
        [
            np.zeros((2, 3), np.uint8), np.array([np.nan, np.inf, 1.5], np.float32),
            np.array(2.5), np.zeros(0, np.int64), np.array([True, False]),
        ]
    )
)  # fmt: skip
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
_ROWS = st.dictionaries(
    st.text(max_size=4), _VALUES | st.dictionaries(st.text(max_size=2), _VALUES), max_size=4
)


@given(values=_ROWS)
def test_rows_are_read_as_they_were(values):
    line = encoded_row(values)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert same(decoded_row(line), values)
    for size in range(len(line)):
        assert decoded_row(line[:size]) is None


@pytest.mark.parametrize(
    "odd",
    [3, [3], [[]], [[[], "nan"]], [[["a"], "nun"]], [[["a"], "object"]], [[["b", 0], "nan"]],
     [[["a", 1], "nan"]], [[["a"], "uint8"]]],
)  # fmt: skip
def test_a_forged_row_is_no_row(odd):
    forged = {"a": "x", "training_iteration": 1, "_exact": odd}
    assert decoded_row(json.dumps(forged).encode() + b"\n") is None

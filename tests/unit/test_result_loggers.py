"""Result loggers: a row is there when `train()` returns, what fails is counted, whose a file is."""

import copy
import json
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from callbacks import (
    CallbackConfigError,
    CallbackError,
    CSVLogger,
    JSONLinesLogger,
    PeriodicCheckpoint,
    ResultLogger,
    RLlibCallback,
    TrackerLogger,
)
from callbacks.ready_made import result_loggers
from callbacks.ready_made.metric_values import NUM_FAILED_SAVES, NUM_LOST_ROWS
from callbacks.ready_made.result_loggers import close_loggers
from tests.steered_algorithm import SteeredAlgorithm
from tests.unit.test_trackers import Service, Store
from trainer_toolkit.files import PathLock

REPORT = "training_iteration\n1\n2\n"


class Sink:
    """One of a user: notes what it gets, or raises instead, and may be held up."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.rows = []
        self.answers = threading.Event()
        self.answers.set()

    def __deepcopy__(self, memo):
        return self

    def append(self, row):
        self.answers.wait(60)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        self.rows.append(row["training_iteration"])

    def start_anew(self, row):
        self.rows.append("new")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def iterations(path):
    return [json.loads(line)["training_iteration"] for line in path.read_text().splitlines()]


def lost(result):
    return int(result["fault_tolerance"][NUM_LOST_ROWS])


def flushed(algorithm):
    assert all(logger.flush(10) for logger in algorithm.callbacks.objects)


def files(path):
    return sorted(found.name for found in path.parent.iterdir())


# ---- when a row is written


class Changing(RLlibCallback):
    """Changes results in a phase of their own."""

    def __init__(self, change, phase=None):
        self.change, self.phase = change, phase

    def on_train_result(self, *, algorithm, **_):
        algorithm.after_train_result(self.change, phase=self.phase)


def test_what_others_change_in_the_result_afterwards_is_written(tmp_path):
    changes = [
        Changing(lambda result: result.update(before=5)),
        CSVLogger(tmp_path / "results.csv"),
        Changing(lambda result: result.update(after=6), phase="save"),
    ]
    algorithm = SteeredAlgorithm(*changes)
    algorithm.tell({"training_iteration": 1})
    assert algorithm.callbacks.objects[1].flush(10)
    assert (tmp_path / "results.csv").read_text() == "training_iteration,before,after\n1,5,6\n"


@pytest.mark.parametrize("changes", [False, True])
def test_a_checkpoint_finds_the_row_that_it_counts_which_is_written_again_if_it_changes(
    path, changes
):
    seen = []

    def save(result):
        assert algorithm.callbacks.get_state()["objects"][1]["state"] == {"num_rows_lost": 0}
        seen.append(path.read_bytes())
        result["image"] = np.ones(2) if changes else np.zeros(2)

    algorithm = SteeredAlgorithm(Changing(save, phase="save"), JSONLinesLogger(path))
    result = {"training_iteration": 1, "score": float("nan"), "image": np.zeros(2)}
    algorithm.tell(dict(result))
    assert iterations(path) == [1]
    assert json.loads(seen[0])["image"] == [0, 0]
    assert (path.read_bytes() == seen[0]) == (not changes)
    algorithm.tell(result | {"training_iteration": 2})
    assert iterations(path) == [1, 2]


def test_a_state_taken_while_the_result_is_not_complete_writes_nothing(path):
    algorithm = SteeredAlgorithm(JSONLinesLogger(path))
    algorithm.callbacks.fire(
        "on_train_result",
        algorithm=algorithm,
        metrics_logger=None,
        result={"training_iteration": 1},
    )
    algorithm.callbacks.get_state()  # as by evaluate() in a callback that comes later
    assert not path.exists()


def test_an_undone_iteration_has_no_row_or_that_of_the_next_attempt(path):
    has_failed = []

    def fail(result):
        if result["training_iteration"] == 2 and not has_failed:
            has_failed.append(True)
            raise RuntimeError("undo this")

    for phase in ("save", "report"):
        has_failed.clear()
        algorithm = SteeredAlgorithm(JSONLinesLogger(path), Changing(fail, phase=phase))
        algorithm.tell()
        state = algorithm.callbacks.get_state()
        with pytest.raises(RuntimeError, match="undo this"):
            algorithm.tell()
        algorithm.callbacks.set_state(state)
        algorithm.callbacks.get_state()
        assert iterations(path) == ([1] if phase == "save" else [1, 2])
        algorithm.training_iteration = 1
        algorithm.tell(mean=7.0)
        assert iterations(path) == [1, 2]
        assert b"7.0" in path.read_bytes()
        algorithm.is_stopped = True


@pytest.mark.parametrize("is_saved_first", [True, False])
def test_the_row_says_that_the_save_of_its_iteration_failed(is_saved_first, tmp_path, path):
    callbacks = [
        PeriodicCheckpoint(tmp_path / "saved", every=1, on_error="warn"),
        JSONLinesLogger(path),
    ]
    algorithm = SteeredAlgorithm(*(callbacks if is_saved_first else reversed(callbacks)))
    algorithm.tell()
    algorithm.num_failures_to_come = 1
    algorithm.tell()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["fault_tolerance"][NUM_FAILED_SAVES] for row in rows] == [0, 1]


# ---- new runs and those that go on


def test_a_loaded_checkpoint_drops_no_row_before_there_is_a_new_one(tmp_path):
    def loggers():
        sink = ResultLogger(Sink(), rows=tmp_path / "rows.jsonl")
        return [JSONLinesLogger(tmp_path / "a.jsonl"), CSVLogger(tmp_path / "b.csv"), sink]

    algorithm = SteeredAlgorithm(*loggers())
    algorithm.tell_returns([1.0] * 4)
    flushed(algorithm)
    algorithm.is_stopped = True
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    algorithm = SteeredAlgorithm(*loggers()).go_on(2)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    algorithm.tell(mean=7.0)
    flushed(algorithm)
    assert iterations(tmp_path / "a.jsonl") == [1, 2, 3]
    assert (tmp_path / "b.csv").read_bytes().count(b"\n") == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(before)
    assert algorithm.callbacks.objects[2].sink.rows == [3], "it has the rows before"


def test_a_new_run_sets_the_files_of_an_older_one_aside(tmp_path, caplog):
    for mean in (1.0, 2.0):
        algorithm = SteeredAlgorithm(
            CSVLogger(tmp_path / "b.csv"), ResultLogger(sink := Sink(), rows=tmp_path / "c.jsonl")
        )
        algorithm.tell_returns([mean] * 2)
        flushed(algorithm)
        assert sink.rows == ["new", 1, 2]
        algorithm.is_stopped = True
    names = ["b.csv", "b.csv.1", "b.csv.bookmark", "b.jsonl", "b.jsonl.1"]
    names += ["c.Sink.bookmark", "c.jsonl", "c.jsonl.1"]
    assert [file.name for file in sorted(tmp_path.iterdir())] == names
    assert (tmp_path / "b.csv.1").read_text().count("\n") == 3
    assert len(caplog.messages) == 3


def test_a_run_that_begins_behind_what_is_written_goes_on_with_it(tmp_path):
    for begin in (0, 2):
        algorithm = SteeredAlgorithm(CSVLogger(tmp_path / "b.csv"))
        algorithm.training_iteration = begin
        algorithm.tell_returns([1.0] * 2)
        flushed(algorithm)
        algorithm.is_stopped = True
    assert iterations(tmp_path / "b.jsonl") == [1, 2, 3, 4]
    assert (tmp_path / "b.csv").read_text().count("\n") == 5


def test_a_logger_that_is_added_later_gets_all_rows(tmp_path):
    algorithm = SteeredAlgorithm(JSONLinesLogger(tmp_path / "b.jsonl"))
    algorithm.tell_returns([1.0] * 3)
    algorithm.is_stopped = True
    loggers = JSONLinesLogger(tmp_path / "b.jsonl"), CSVLogger(tmp_path / "b.csv")
    algorithm = SteeredAlgorithm(*loggers).go_on(3)
    algorithm.tell()
    flushed(algorithm)
    assert (tmp_path / "b.csv").read_text().count("\n") == 5


def test_a_relative_path_stays_where_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logger = JSONLinesLogger()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    SteeredAlgorithm(logger).tell()
    assert (tmp_path / "results.jsonl").exists()


def test_a_logger_in_use_can_be_copied_and_sent(tmp_path):
    algorithm = SteeredAlgorithm(CSVLogger(tmp_path / "results.csv"))
    algorithm.tell()
    flushed(algorithm)
    for copied in (copy.deepcopy(algorithm.first), pickle.loads(pickle.dumps(algorithm.first))):
        algorithm.is_stopped = True
        algorithm, number = SteeredAlgorithm(copied), algorithm.training_iteration
        algorithm.training_iteration = number
        algorithm.tell()
        flushed(algorithm)
    assert (tmp_path / "results.csv").read_text().count("\n") == 4


# ---- what fails


def test_a_row_that_a_sink_refuses_is_left_out_and_counted(tmp_path, caplog):
    sink = Sink(KeyError("loss"), None, KeyError("loss"))
    algorithm = SteeredAlgorithm(ResultLogger(sink, rows=tmp_path / "rows.jsonl"))
    results = []
    for _ in range(4):
        results.append(algorithm.tell())
        flushed(algorithm)
    assert sink.rows == ["new", 2, 4]
    assert algorithm.first.num_rows_lost == 2
    assert lost(results[-1]) == 2
    assert len(caplog.messages) == 1


class Unprintable:
    def __str__(self):
        raise RuntimeError("no text for me")


def test_a_value_that_raises_loses_its_row_only(path, caplog):
    algorithm = SteeredAlgorithm(JSONLinesLogger(path))
    itself = {}
    itself["itself"] = itself
    for more in ({}, {"odd": Unprintable()}, {"odd": itself}, {}):
        result = algorithm.tell(**more)
    assert iterations(path) == [1, 4]
    assert lost(result) == algorithm.first.num_rows_lost == 2
    assert "no text for me" in caplog.text
    assert len(caplog.messages) == 1


def test_rows_wait_for_a_disk_that_refuses_them(tmp_path, caplog):
    folder = tmp_path / "not a folder"
    folder.write_text("")
    algorithm = SteeredAlgorithm(JSONLinesLogger(folder / "a.jsonl"), CSVLogger(folder / "b.csv"))
    assert [lost(algorithm.tell()) for _ in range(3)] == [0, 2, 4], "all loggers together"
    state = algorithm.callbacks.get_state()
    assert algorithm.first.num_rows_lost == copy.deepcopy(algorithm.first).num_rows_lost == 3
    folder.unlink()
    assert [lost(algorithm.tell()), lost(algorithm.tell())] == [6, 0]
    assert algorithm.first.num_rows_lost == 0
    flushed(algorithm)
    assert iterations(folder / "a.jsonl") == [1, 2, 3, 4, 5]
    assert (folder / "b.csv").read_text().count("\n") == 6
    assert len(caplog.messages) == 2
    algorithm.callbacks.set_state(state)
    assert algorithm.first.num_rows_lost == 3, "an iteration that is undone counts no more"


# ---- stop


def test_a_run_that_is_stopped_has_its_files_complete(tmp_path):
    algorithm = SteeredAlgorithm(CSVLogger(tmp_path / "results.csv"))
    algorithm.tell({"training_iteration": 1})
    algorithm.tell({"training_iteration": 2})
    close_loggers(algorithm)
    assert (tmp_path / "results.csv").read_text() == REPORT
    algorithm.tell({"training_iteration": 3})  # a stand-in may
    close_loggers(algorithm)
    assert (tmp_path / "results.csv").read_text() == REPORT + "3\n"


def test_stop_waits_only_a_while_for_a_sink_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(ResultLogger.flush, "__defaults__", (0.05,))
    algorithm = SteeredAlgorithm(ResultLogger(sink := Sink(), rows=tmp_path / "rows.jsonl"))
    sink.answers.clear()
    algorithm.tell()
    close_loggers(algorithm)
    assert not algorithm.first.flush(0.0)
    sink.answers.set()
    flushed(algorithm)


# ---- whose a file is


@pytest.mark.parametrize("path", [5, "", "."])
def test_a_path_that_cannot_be_one_is_refused_when_configured(path):
    with pytest.raises(CallbackConfigError, match=r"CSVLogger got .*expected the path of a file"):
        CSVLogger(path)


@pytest.mark.parametrize("make", ["folder", "pipe", "device"])
def test_what_is_no_file_is_refused_when_configured(tmp_path, make):
    path = Path("/dev/full") if make == "device" else tmp_path / "it"
    if make == "folder":
        path.mkdir()
    elif make == "pipe":
        os.mkfifo(path)
    elif not path.exists():
        pytest.skip("a device of Linux")
    with pytest.raises(CallbackConfigError, match="which is no file; give the path of a file"):
        JSONLinesLogger(path)


def test_loggers_share_rows_and_refuse_to_share_anything_else(tmp_path):
    def refused(*loggers):
        with pytest.raises(CallbackError, match="write to the same place"):
            SteeredAlgorithm(*loggers)

    path = tmp_path / "results"
    refused(JSONLinesLogger(path), CSVLogger(tmp_path / "x" / ".." / "results"))
    refused(CSVLogger(path), CSVLogger(path))
    refused(ResultLogger(Sink(), rows=path), ResultLogger(Sink(), rows=path))
    service = Service(Store())
    refused(TrackerLogger(service, tmp_path / "t"), TrackerLogger(service, tmp_path / "t"))
    table, lines = CSVLogger(tmp_path / "a.csv"), JSONLinesLogger(tmp_path / "a.jsonl")
    algorithm = SteeredAlgorithm(table, lines, ResultLogger(Sink(), rows=tmp_path / "a.jsonl"))
    algorithm.tell_returns([1.0] * 2)
    assert iterations(tmp_path / "a.jsonl") == [1, 2]
    flushed(algorithm)
    assert files(tmp_path / "a") == ["a.Sink.bookmark", "a.csv", "a.csv.bookmark", "a.jsonl"]
    assert CSVLogger(tmp_path / "a.jsonl").rows_path == tmp_path / "a.jsonl.rows"


def test_the_second_of_two_algorithms_that_write_to_one_file_is_refused(path):
    first, second = (
        SteeredAlgorithm(JSONLinesLogger(path)),
        SteeredAlgorithm(CSVLogger(path.with_suffix(".csv"))),
    )
    first.tell()
    for _ in range(2):
        with pytest.raises(
            CallbackConfigError,
            match=r"CSVLogger: .*jsonl is in use, another algorithm of.*`stop\(\)`",
        ):
            second.tell()
    first.tell()
    assert iterations(path) == [1, 2]
    first.is_stopped = True
    second.training_iteration = 0
    second.tell()
    assert iterations(path) == [1]
    assert files(path)[-1] == "results.jsonl.1"


def test_a_file_of_another_process_is_refused(path):
    path.touch()
    with (
        PathLock(path),
        pytest.raises(CallbackConfigError, match="in use, the run of another process writes"),
    ):
        SteeredAlgorithm(JSONLinesLogger(path)).tell()
    SteeredAlgorithm(JSONLinesLogger(path)).tell()
    assert iterations(path) == [1]


def test_a_file_that_is_taken_away_while_training_ends_nothing(path, monkeypatch):
    algorithm = SteeredAlgorithm(JSONLinesLogger(path))
    algorithm.tell()

    def taken(path, algorithm):
        raise BlockingIOError("the run of another process")

    with monkeypatch.context() as patch:
        patch.setattr(result_loggers, "claim", taken)
        algorithm.tell()
    assert [lost(algorithm.tell()), lost(algorithm.tell())] == [1, 0]
    assert iterations(path) == [1, 2, 3, 4]

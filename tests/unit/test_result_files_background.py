"""Writing in the background: in order, counted, and never in the way of the writer."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callbacks import CallbackConfigError, CallbackError
from callbacks.chain import ResultPhases
from callbacks.ready_made import result_loggers as result_logging
from callbacks.ready_made.result_files import JSONLinesResults
from callbacks.ready_made.result_loggers import (
    BackgroundWriter,
    CSVLogger,
    JSONLinesLogger,
    ResultLogger,
)
from tests.steered_algorithm import SteeredAlgorithm
from trainer.testing.processes import wait_until

ROOT = Path(__file__).parents[2]


class Gate:
    """A sink that writes only when it is let; `with gate:` lets it in the end."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.may_write = threading.Semaphore(0)

    def append(self, row: Mapping[str, Any]) -> None:
        self.may_write.acquire()
        self.written.append(row["training_iteration"])

    def start_anew(self, row: Mapping[str, Any]) -> None:
        pass

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.may_write.release(10_000)


class Algorithm:
    """As much of an algorithm as a logger needs: it keeps what is to be called afterwards."""

    def __init__(self) -> None:
        self.afterwards = ResultPhases()

    def after_train_result(
        self, function: Callable[[Any], object], *, phase: str | None = None
    ) -> None:
        self.afterwards.add(function, phase)

    def train(self, logger: ResultLogger, result: dict[str, Any]) -> None:
        logger.on_train_result(algorithm=self, metrics_logger=None, result=result)  # type: ignore[arg-type]
        self.finish(result)

    def finish(self, result: dict[str, Any]) -> None:
        try:
            self.afterwards.run(result)
        finally:
            self.afterwards = ResultPhases()


def train(logger: ResultLogger, *iterations: int) -> None:
    for iteration in iterations:
        Algorithm().train(logger, {"training_iteration": iteration})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call waits for a row."""
    monkeypatch.setattr(result_logging, "ROW_PATIENCE_S", 0.0)
    monkeypatch.setattr(result_logging, "ROW_PATIENCE_SHARE", 0.0)
    monkeypatch.setattr(result_logging, "CHECKPOINT_PATIENCE_S", 0.0)


# ---- the writer


def test_items_are_written_in_order_on_a_thread_that_ends_when_all_is_done() -> None:
    written: list[tuple[int, bool]] = []
    writer = BackgroundWriter(
        lambda item: written.append((item, threading.current_thread().daemon)),
        name="it",
        max_waiting=1000,
    )
    before = threading.active_count()
    for number in range(300):
        writer.submit(number)
    assert writer.flush(timeout_s=10)
    assert written == [(number, True) for number in range(300)]
    assert wait_until(lambda: threading.active_count() == before)
    writer.submit(300)
    assert writer.flush(timeout_s=10)
    assert written[-1] == (300, True)


def test_what_raises_is_counted_and_the_first_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    written = []

    def write(item: int) -> None:
        if item % 3 == 0:
            raise SystemExit(f"no {item}") if item else OSError("disk full")
        written.append(item)

    writer = BackgroundWriter(write, name="results.csv", max_waiting=1000)
    for number in range(10):
        writer.submit(number)
    assert writer.flush(timeout_s=10)
    assert written == [1, 2, 4, 5, 7, 8]
    assert writer.num_lost == 4
    (message,) = caplog.messages
    assert "results.csv (OSError('disk full')). Training goes on" in message


def test_a_full_queue_loses_the_newest_items_only(caplog: pytest.LogCaptureFixture) -> None:
    with Gate() as gate:
        writer = BackgroundWriter(gate.append, name="it", max_waiting=3)
        for number in range(1, 8):
            writer.submit({"training_iteration": number})
        assert (writer.num_waiting, writer.num_lost) == (3, 4)
        assert not writer.flush(timeout_s=0.0)
        assert writer.is_behind
        gate.may_write.release(3)
        assert wait_until(lambda: not writer.is_behind), (
            "it has caught up, whether waited for or not"
        )
        writer.submit({"training_iteration": 8})
    assert writer.flush(timeout_s=10)
    assert gate.written == [1, 2, 3, 8]
    assert "3 results are waiting already" in caplog.text
    assert len(caplog.messages) == 1


def test_no_thread_can_be_started_while_the_interpreter_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    written: list[int] = []
    writer = BackgroundWriter(written.append, name="it", max_waiting=10)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        writer.submit(1)
    assert writer.num_lost == 1
    assert writer.flush(timeout_s=0.0), "nothing waits for ever"
    writer.submit(2)
    assert writer.flush(timeout_s=10)
    assert written == [2]


_ENDING = """
import sys
from callbacks.ready_made import result_loggers as background_writer
background_writer.EXIT_PATIENCE_S = float(sys.argv[1])
block = {"hangs": __import__("threading").Event().wait, "works": lambda: None}[sys.argv[2]]
def write(item):
    block()
    print("wrote", item, flush=True)
writer = background_writer.BackgroundWriter(write, name="results.csv", max_waiting=10)
for number in range(3):
    writer.submit(number)
"""


@pytest.mark.parametrize("kind", ["works", "hangs"])
def test_the_end_of_the_process_waits_for_rows_but_not_for_ever(kind: str) -> None:
    patience = "60" if kind == "works" else "0.05"
    done = subprocess.run(
        [sys.executable, "-c", _ENDING, patience, kind],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    if kind == "works":
        assert done.stdout.splitlines() == ["wrote 0", "wrote 1", "wrote 2"]
        assert done.stderr == ""
    else:
        assert done.stdout == ""
        assert done.stderr.startswith("3 results could not be written to results.csv")


# ---- the logger


def test_a_row_is_written_when_train_returns(tmp_path: Path) -> None:
    logger = JSONLinesLogger(tmp_path / "results.jsonl")
    for iteration in range(1, 20):
        train(logger, iteration)
        assert (tmp_path / "results.jsonl").read_text().count("\n") == iteration
    assert logger.num_rows_lost == 0


def test_what_others_change_in_the_result_afterwards_is_written(tmp_path: Path) -> None:
    algorithm, logger = Algorithm(), CSVLogger(tmp_path / "results.csv")
    algorithm.after_train_result(lambda result: result.update(before=5))
    result = {"training_iteration": 1}
    logger.on_train_result(algorithm=algorithm, metrics_logger=None, result=result)  # type: ignore[arg-type]
    algorithm.after_train_result(lambda result: result.update(after=6))
    algorithm.finish(result)
    assert (tmp_path / "results.csv").read_text() == "training_iteration,before,after\n1,5,6\n"


def test_a_blocked_sink_costs_bounded_time_and_gets_all_rows_in_order_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(result_logging, "ROW_PATIENCE_S", 0.02)
    monkeypatch.setattr(result_logging, "CHECKPOINT_PATIENCE_S", 0.02)
    with Gate() as gate:
        logger = ResultLogger(gate)
        waits: list[float] = []
        flush = BackgroundWriter.flush

        def counted(self: BackgroundWriter, timeout_s: float) -> bool:
            waits.append(timeout_s)
            return flush(self, timeout_s)

        monkeypatch.setattr(BackgroundWriter, "flush", counted)
        train(logger, *range(1, 50))
        for _ in range(3):
            logger.on_checkpoint_saved(algorithm=None, metrics_logger=None, path="")
        assert len(waits) == 1, "one wait was in vain, so there are no others"
        assert waits[0] < 0.03
        assert not logger.flush(0.0)
        assert gate.written == []
    assert logger.flush(10)
    assert gate.written == list(range(1, 50))
    assert logger.num_rows_lost == 0


def test_a_sink_that_is_slow_is_waited_for_a_second_and_one_per_cent_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, waits = [0.0], []

    def flush(self: BackgroundWriter, timeout_s: float) -> bool:
        waits.append(min(timeout_s, 0.4))
        now[0] += waits[-1]
        return True

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(BackgroundWriter, "flush", flush)
    monkeypatch.setattr(BackgroundWriter, "submit", lambda self, item: None)
    logger = ResultLogger(Gate())
    for iteration in range(1, 1001):
        train(logger, iteration)
        now[0] += 1.0
    assert waits[:2] == [0.4, 0.4]
    assert 0.95 * (1 + 0.01 * now[0]) <= sum(waits) <= 1 + 0.01 * now[0]


@pytest.mark.usefixtures("impatient")
def test_rows_that_no_longer_find_room_are_counted() -> None:
    with Gate() as gate:
        logger = ResultLogger(gate, max_waiting=5)
        train(logger, *range(1, 13))
        assert logger.num_rows_lost == 7
    assert logger.flush(10)
    assert gate.written == [1, 2, 3, 4, 5]


class Broken(Gate):
    def append(self, row: Mapping[str, Any]) -> None:
        raise OSError("disk full")


def test_a_sink_that_raises_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = ResultLogger(Broken())
    train(logger, 1, 2, 3)
    assert logger.flush(10)
    assert logger.num_rows_lost == 3
    (message,) = caplog.messages
    assert "Broken" in message
    assert "disk full" in message


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text for me")


def test_a_value_that_raises_loses_its_row_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = JSONLinesLogger(tmp_path / "results.jsonl")
    train(logger, 1)
    Algorithm().train(logger, {"training_iteration": 2, "odd": Unprintable()})
    itself: dict[str, Any] = {"training_iteration": 3}
    itself["itself"] = itself
    Algorithm().train(logger, itself)
    train(logger, 4)
    assert logger.num_rows_lost == 2
    assert (tmp_path / "results.jsonl").read_text().splitlines() == [
        '{"training_iteration": 1}',
        '{"training_iteration": 4}',
    ]
    assert "no text for me" in caplog.text


def test_a_failed_write_leaves_room_for_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "not a folder"
    logger = JSONLinesLogger(folder / "results.jsonl")
    folder.write_text("")
    train(logger, 1)
    folder.unlink()
    train(logger, 2)
    assert logger.num_rows_lost == 1
    assert (folder / "results.jsonl").read_text() == '{"training_iteration": 2}\n'
    assert len(caplog.messages) == 1


def test_an_older_file_that_cannot_be_set_aside_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    train(JSONLinesLogger(path), 1, 2, 3)
    before = path.read_bytes()
    logger = JSONLinesLogger(path)

    def refuse(row: object) -> None:
        raise PermissionError("no renaming here")

    logger.sink.start_anew = refuse  # type: ignore[method-assign]
    train(logger, 1, 2)
    assert logger.num_rows_lost == 2
    assert path.read_bytes() == before


def test_a_checkpoint_saved_before_the_logger_was_called_has_its_row_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.jsonl"
    logger, algorithm, seen = JSONLinesLogger(path), Algorithm(), list[str]()

    def save(result: object) -> None:
        assert logger.get_state() == {"num_rows_lost": 0}
        seen.append(path.read_text())

    algorithm.after_train_result(lambda result: algorithm.after_train_result(save))
    algorithm.train(logger, {"training_iteration": 1})
    assert seen == ['{"training_iteration": 1}\n']
    assert path.read_text() == seen[0]


@pytest.mark.parametrize("changes", [False, True])
def test_a_row_that_a_checkpoint_wanted_early_is_written_again_only_if_it_changed(
    changes: bool,
) -> None:
    with Gate() as gate:
        gate.may_write.release(10)
        logger, algorithm = ResultLogger(gate), Algorithm()

        def save(result: dict[str, Any]) -> None:
            logger.get_state()
            result["image"] = np.ones(2) if changes else np.zeros(2)

        algorithm.after_train_result(lambda result: algorithm.after_train_result(save))
        first = {"training_iteration": 1, "score": float("nan"), "image": np.zeros(2)}
        algorithm.train(logger, first)
        train(logger, 2)
        assert gate.written == ([1, 1, 2] if changes else [1, 2])


def test_a_state_taken_while_the_result_is_not_complete_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    logger, algorithm = JSONLinesLogger(path), Algorithm()
    result = {"training_iteration": 1}
    logger.on_train_result(algorithm=algorithm, metrics_logger=None, result=result)  # type: ignore[arg-type]
    logger.get_state()  # as by evaluate() in a callback that comes later
    assert not path.exists()


def test_an_undone_iteration_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    logger, algorithm = JSONLinesLogger(path), Algorithm()

    def fail(result: object) -> None:
        raise RuntimeError("undo this")

    train(logger, 1)
    algorithm.after_train_result(lambda result: algorithm.after_train_result(fail))
    with pytest.raises(RuntimeError, match="undo this"):
        algorithm.train(logger, {"training_iteration": 2})
    logger.set_state({"num_rows_lost": 0})
    logger.get_state()
    assert path.read_text() == '{"training_iteration": 1}\n'


def test_a_loaded_checkpoint_drops_no_row_before_there_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    train(JSONLinesLogger(path), 1, 2, 3, 4)
    before = path.read_bytes()
    logger = JSONLinesLogger(path)
    logger.on_checkpoint_loaded(algorithm=None, metrics_logger=None)
    assert path.read_bytes() == before
    train(logger, 3)
    assert path.read_bytes() == b"".join(before.splitlines(keepends=True)[:3])
    assert [found.name for found in tmp_path.iterdir()] == ["results.jsonl"]


def test_a_logger_in_use_can_be_copied_and_sent(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "results.csv")
    train(logger, 1)
    copies = [copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))]
    for number, copied in enumerate(copies, start=2):
        train(copied, number)
    assert (tmp_path / "results.csv").read_text() == "training_iteration\n1\n2\n3\n"


@pytest.mark.parametrize("path", [None, 5, "", ".", b"results.csv"])
def test_a_path_that_cannot_be_one_is_refused_when_configured(path: Any) -> None:
    with pytest.raises(CallbackConfigError, match=r"CSVLogger got .*expected the path of a file"):
        CSVLogger(path)


def test_a_folder_in_the_place_of_the_file_is_refused_when_configured(tmp_path: Path) -> None:
    with pytest.raises(CallbackConfigError, match="is no file; give the path of a file"):
        JSONLinesLogger(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_device_is_refused_when_configured_and_is_not_read_for_ever(tmp_path: Path) -> None:
    with pytest.raises(CallbackConfigError, match="'/dev/full', which is no file"):
        JSONLinesLogger("/dev/full")
    path = tmp_path / "results.jsonl"
    logger = JSONLinesLogger(path)
    path.symlink_to("/dev/full")
    logger.sink = JSONLinesResults(path)  # resolved anew
    train(logger, 1)
    assert logger.num_rows_lost == 1
    with pytest.raises(OSError, match="/dev/full is neither a file nor a pipe"):
        JSONLinesResults(path).append({"training_iteration": 1})


class NoPath:
    def append(self, row: Mapping[str, Any]) -> None: ...

    def start_anew(self, row: Mapping[str, Any]) -> None: ...


def test_two_loggers_for_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results"
    with pytest.raises(
        CallbackError, match="JSONLinesLogger and CSVLogger write to the same place"
    ):
        SteeredAlgorithm(JSONLinesLogger(path), CSVLogger(tmp_path / "x" / ".." / "results"))
    SteeredAlgorithm(JSONLinesLogger(path), CSVLogger(tmp_path / "results.csv"))
    SteeredAlgorithm(ResultLogger(NoPath()), ResultLogger(NoPath()))


def test_a_relative_path_stays_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logger = JSONLinesLogger()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train(logger, 1)
    assert (tmp_path / "results.jsonl").exists()


# ---- rows that are lost are counted once each


class Refusing:
    """A sink that refuses so many rows, and takes all others."""

    def __init__(self, num_refused: int) -> None:
        self.num_refused = num_refused
        self.rows: list[Mapping[str, Any]] = []

    def append(self, row: Mapping[str, Any]) -> None:
        if self.num_refused:
            self.num_refused -= 1
            raise OSError(28, "no space left")
        self.rows.append(row)

    def start_anew(self, row: Mapping[str, Any]) -> None:
        pass


def train_with_early_saves(logger: ResultLogger, num_iterations: int, *, changes: bool) -> int:
    """A process saves while the row is not written yet, and may change the result afterwards."""
    for iteration in range(1, num_iterations + 1):
        algorithm, result = Algorithm(), {"training_iteration": iteration, "fault_tolerance": {}}
        logger.on_train_result(algorithm=algorithm, metrics_logger=None, result=result)  # type: ignore[arg-type]
        algorithm.afterwards.add(lambda _: logger.get_state())
        if changes:
            algorithm.afterwards.add(lambda result: result.update(more=1))
        algorithm.finish(result)
    return int(result["fault_tolerance"]["num_lost_rows_lifetime"])  # type: ignore[index]


@pytest.mark.parametrize("changes", [False, True])
def test_a_row_that_is_written_twice_is_lost_once(
    changes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    logger = ResultLogger(Refusing(100))
    assert train_with_early_saves(logger, 5, changes=changes) == 5
    assert logger.num_rows_lost == 5
    assert len(caplog.records) == 1


@pytest.mark.parametrize("changes", [False, True])
def test_a_row_that_is_written_at_the_second_attempt_is_not_lost(changes: bool) -> None:
    sink = Refusing(1)
    logger = ResultLogger(sink)
    assert train_with_early_saves(logger, 3, changes=changes) == 0
    assert logger.num_rows_lost == 0
    assert sink.rows[0]["training_iteration"] == 1


def test_an_iteration_that_is_made_again_is_lost_again() -> None:
    logger = ResultLogger(Refusing(100))
    train(logger, 1)
    state = logger.get_state()
    train(logger, 2)
    logger.set_state(state)
    assert logger.num_rows_lost == 1
    train(logger, 2, 3)
    assert logger.num_rows_lost == 3


FULL_DISK = """
import logging, resource, signal, sys
from callbacks.ready_made.result_files import CSVResults
from callbacks.ready_made.result_files import JSONLinesResults

logging.basicConfig(format="%(message)s")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for sink in (JSONLinesResults("r.jsonl"), CSVResults("r.csv")):
    for iteration in (1, 2):
        sink.append({"training_iteration": iteration, "text": "x" * 500})
    size = sink.path.stat().st_size
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, unlimited[1]))
    for iteration in (3, 4, 5):
        try:
            sink.append({"training_iteration": iteration, "text": "x" * 500})
        except OSError:
            print("lost", iteration)
        assert sink.path.stat().st_size == size
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    sink.append({"training_iteration": 6, "text": "x"})
"""


def test_a_full_disk_leaves_no_half_lines_and_no_warnings_of_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split("\n")[:-1] == [f"lost {i}" for i in (3, 4, 5)] * 2
    assert done.stderr == ""
    rows = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    assert [row["training_iteration"] for row in rows] == [1, 2, 6]

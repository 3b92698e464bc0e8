"""Result loggers beside others: what they count in results, and whose a file is."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from callbacks import CSVLogger, JSONLinesLogger, PeriodicCheckpoint, ResultLogger
from callbacks.ready_made.metric_values import NUM_FAILED_SAVES, NUM_LOST_ROWS
from tests.steered_algorithm import SteeredAlgorithm

# ---- counting in results


def test_lost_rows_are_counted_in_results_by_all_loggers_together(tmp_path: Path) -> None:
    def loggers() -> list[ResultLogger]:
        return [CSVLogger(tmp_path / "folder" / name) for name in ("a.csv", "b.csv")]

    def told() -> Any:
        return algorithm.tell()["fault_tolerance"][NUM_LOST_ROWS]

    algorithm = SteeredAlgorithm(*loggers())
    (tmp_path / "folder").write_text("no folder")
    assert [told(), told()] == [2, 4]
    (tmp_path / "folder").unlink()
    assert told() == 4
    state = algorithm.callbacks.get_state()
    algorithm = SteeredAlgorithm(*loggers())
    algorithm.callbacks.set_state(state)
    assert told() == 4, "restored parts included"
    assert algorithm.first.num_rows_lost == copy.deepcopy(algorithm.first).num_rows_lost == 2


def test_a_row_lost_in_an_iteration_that_is_undone_does_not_count(tmp_path: Path) -> None:
    algorithm = SteeredAlgorithm(CSVLogger(tmp_path / "blocked" / "results.csv"))
    before = algorithm.callbacks.get_state()
    (tmp_path / "blocked").touch()
    for _ in range(2):
        assert algorithm.tell()["fault_tolerance"][NUM_LOST_ROWS] == 1
        algorithm.callbacks.set_state(before)
        algorithm.training_iteration = 0
    assert algorithm.first.num_rows_lost == 0


@pytest.mark.parametrize("is_saved_first", [True, False])
def test_the_row_says_that_the_save_of_its_iteration_failed(
    is_saved_first: bool, tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
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


# ---- one path, several algorithms


def test_the_second_of_two_algorithms_that_write_to_one_file_loses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "results.jsonl"

    def begun() -> SteeredAlgorithm:
        return SteeredAlgorithm(JSONLinesLogger(path))

    first, second = begun(), begun()
    for algorithm in (first, second, first, second):
        algorithm.tell()
    rows = [json.loads(line)["training_iteration"] for line in path.read_text().splitlines()]
    assert rows == [1, 2]
    assert (first.first.num_rows_lost, second.first.num_rows_lost) == (0, 2)
    assert [m.count("another algorithm of this process") for m in caplog.messages] == [1]
    first.is_stopped = True
    second.tell()
    assert second.first.num_rows_lost == 3, "half a run is not written behind another"
    third = begun()
    third.tell()
    assert third.first.num_rows_lost == 0
    assert sorted(found.name for found in tmp_path.iterdir()) == ["results.jsonl", path.name + ".1"]


@pytest.mark.parametrize("how", ["dropped", "goes on with a checkpoint"])
def test_who_follows_an_algorithm_that_was_never_stopped_writes_on(
    how: str, tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    algorithms = [SteeredAlgorithm(JSONLinesLogger(path))]
    algorithms[0].tell()
    if how == "dropped":
        algorithms[0].weights["of"] = algorithms[0]  # a cycle, as real ones have
        algorithms.clear()
    follower = SteeredAlgorithm(JSONLinesLogger(path))
    if how != "dropped":
        follower.training_iteration = 1
        follower.callbacks.fire("on_checkpoint_loaded", algorithm=follower, metrics_logger=None)
    follower.tell()
    assert follower.first.num_rows_lost == 0
    assert (tmp_path / "results.jsonl.1").exists() == (how == "dropped")

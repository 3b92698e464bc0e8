"""Periodic and best checkpoints in the background: what stays, what is remembered if saves fail."""

import json
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callbacks import BestCheckpoint, PeriodicCheckpoint
from checkpoints import CheckpointWriteError
from tests.steered_algorithm import SteeredAlgorithm
from tests.unit.test_ready_made_checkpoints import names, saved_state

scores = st.lists(
    st.tuples(st.sampled_from([-1.0, 0.0, 1.0, 2.0, math.nan]), st.booleans()),
    min_size=1,
    max_size=8,
)
"""The mean return of each iteration, and whether the save fails that it may begin."""


def play(directory, given_, *, keep, background, heard_at_once=True):
    algorithm = SteeredAlgorithm(
        BestCheckpoint(directory, keep=keep, background=background, on_error="warn")
    )
    for mean, fails in given_:
        algorithm.num_failures_to_come += fails
        algorithm.tell(mean=mean)
        if heard_at_once:
            algorithm.finish_saving()
            algorithm.num_failures_to_come = 0
    algorithm.finish_saving()
    return algorithm


def listed(directory):
    """What `best.json` lists."""
    file = directory / "best.json"
    if not file.exists():
        return []
    return [entry["name"] for entry in json.loads(file.read_text())["checkpoints"]]


@settings(max_examples=15)
@given(given_=scores, keep=st.integers(1, 3))
def test_failures_that_are_heard_at_once_end_as_those_of_blocking_saves(given_, keep):
    ends = []
    for background in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder).resolve()
            algorithm = play(directory, given_, keep=keep, background=background)
            ends.append((names(directory), listed(directory), algorithm.first.get_state()))
    assert ends[0] == ends[1]


@given(given_=scores, keep=st.integers(1, 3))
def test_whenever_failures_are_heard_what_is_remembered_is_there(given_, keep):
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder).resolve()
        algorithm = play(directory, given_, keep=keep, background=True, heard_at_once=False)
        assert sorted(algorithm.first.scores) == names(directory)
        assert listed(directory) in ([], list(algorithm.first.scores))
        values = list(algorithm.first.scores.values())
        assert values == sorted(values, reverse=True)


def test_the_older_one_goes_when_the_new_one_is_there(tmp_path):
    algorithm = SteeredAlgorithm(
        PeriodicCheckpoint(tmp_path, every=1, keep_last=1, background=True)
    )
    seen = []
    for _ in range(3):
        algorithm.tell()
        seen.append(names(tmp_path) if tmp_path.exists() else [])
    assert seen == [[], ["000001"], ["000002"]]
    algorithm.finish_saving()
    assert names(tmp_path) == ["000003"]


def test_the_list_of_the_best_never_names_one_that_is_not_there(tmp_path):
    algorithm = SteeredAlgorithm(BestCheckpoint(tmp_path, background=True))
    algorithm.tell(mean=1.0)
    algorithm.tell(mean=2.0)
    assert names(tmp_path) == listed(tmp_path) == ["000001"]
    algorithm.finish_saving()
    assert names(tmp_path) == listed(tmp_path) == ["000002"]


def test_a_failure_is_heard_before_the_next_save_and_is_in_it(tmp_path):
    algorithm = SteeredAlgorithm(
        PeriodicCheckpoint(tmp_path / "a", every=2, background=True, on_error="warn"),
        PeriodicCheckpoint(tmp_path / "b", every=3),
    )
    algorithm.num_failures_to_come = 1
    results = algorithm.tell_returns([1.0] * 5)
    # Saved at 2 in vain, which was heard when the other one saved at 3; so it was due again at 4.
    assert algorithm.saved == ["000003"], "that of 4 is not heard of yet"
    state = saved_state(tmp_path / "b" / "000003", 0)
    assert state == {"num_failed_saves": 1, "is_overdue": True}
    counts = [result["fault_tolerance"]["num_failed_saves_lifetime"] for result in results]
    assert counts == [0, 0, 0, 1, 1]
    algorithm.finish_saving()
    assert saved_state(tmp_path / "a" / "000004", 0) == {"num_failed_saves": 1, "is_overdue": False}


def test_a_failure_is_raised_to_no_other_callback(tmp_path):
    raising = PeriodicCheckpoint(tmp_path / "a", every=2, background=True)
    counting = PeriodicCheckpoint(tmp_path / "b", every=3, on_error="warn")
    algorithm = SteeredAlgorithm(raising, counting)
    algorithm.num_failures_to_come = 1
    algorithm.tell_returns([1.0] * 2)
    with pytest.raises(CheckpointWriteError):
        algorithm.tell()
    assert algorithm.callbacks.objects[1].num_failed_saves == 0


def test_a_failure_heard_by_the_next_save_asks_for_no_other(tmp_path):
    algorithm = SteeredAlgorithm(
        PeriodicCheckpoint(tmp_path, every=2, background=True, on_error="warn")
    )
    algorithm.num_failures_to_come = 1
    algorithm.tell_returns([1.0] * 5)
    algorithm.finish_saving()
    assert algorithm.saved == ["000004"], "2 failed; 4 was saved, so 5 need not be"
    assert saved_state(tmp_path / "000004", 0) == {"num_failed_saves": 1, "is_overdue": False}

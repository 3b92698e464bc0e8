"""Periodic and best checkpoints: which are saved, which stay, what a failed save does."""

import copy
import json
import math
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callbacks import (
    BestCheckpoint,
    CallbackConfigError,
    CallbackError,
    EarlyStopping,
    NonFiniteGuard,
    PeriodicCheckpoint,
    make_multi_callbacks,
)
from callbacks.ready_made.metric_values import RETURN
from checkpoints import CheckpointWriteError, StateError, latest_checkpoint, read_checkpoint
from tests.steered_algorithm import SteeredAlgorithm, result_of

EVALUATION = "evaluation/env_runners/episode_return_mean"
COUNT = "num_failed_saves_lifetime"


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def restored(callback, path):
    """An algorithm that goes on at a checkpoint of another one."""
    algorithm = SteeredAlgorithm(callback)
    algorithm.callbacks.set_state(read_checkpoint(path).components["callbacks"])
    return algorithm.go_on(int(path.name))


def saved_state(path, index):
    """The state of the callback at this place, as a checkpoint holds it."""
    return read_checkpoint(path).components["callbacks"]["objects"][index]["state"]


# ---- periodic: when


@pytest.mark.parametrize(
    ("every", "unit", "expected"),
    [
        (2, "iterations", ["000002", "000004", "000006"]),
        (250, "env_steps", ["000003", "000005"]),
        (12, "episodes", ["000003", "000005"]),
        (3.5, "seconds", ["000002", "000004", "000006"]),
        (7, "iterations", []),
    ],
)
def test_saves_whenever_a_multiple_is_passed(every, unit, expected, tmp_path):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=every, unit=unit))
    algorithm.tell_returns([1.0] * 6)
    assert algorithm.saved == expected


def test_a_restored_run_keeps_the_distance(tmp_path):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=4))
    algorithm.training_iteration = 6  # whatever the callback remembers: it is new
    algorithm.tell_returns([1.0] * 3)
    assert algorithm.saved == ["000008"]


@pytest.mark.parametrize("at_end", [True, False])
def test_the_end_of_a_run_is_saved_whatever_the_order_of_callbacks(at_end, tmp_path):
    saving = PeriodicCheckpoint(tmp_path, every=10, at_end=at_end)
    for callbacks in (
        [saving, EarlyStopping(max_iterations=3)],
        [EarlyStopping(at_least=1), saving],
    ):
        algorithm = SteeredAlgorithm(*callbacks)
        while not algorithm.tell()["done"]:
            assert algorithm.saved == []
        assert len(algorithm.saved) == at_end


def test_what_the_user_saves_there_stays_and_does_not_count(tmp_path):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1, keep_last=1))
    algorithm.tell()
    algorithm.save_to_path(tmp_path / "mine")
    (tmp_path / "notes").mkdir()
    algorithm.tell_returns([1.0] * 2)
    assert names(tmp_path) == ["000003", "mine", "notes"]


def test_later_checkpoints_neither_count_nor_go_and_are_told_once(tmp_path, caplog):
    SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1)).tell_returns([1.0] * 9)
    for name in ("000001", "000002", "000003"):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
    again = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1, keep_last=2)).go_on(0)
    again.tell_returns([1.0] * 3)
    assert {"000002", "000003", "000004", "000009"} <= set(names(tmp_path))
    assert "000001" not in names(tmp_path)
    warnings = [record.message for record in caplog.records if "later iterations" in record.message]
    assert len(warnings) == 1
    assert "(000004 … 000009)" in warnings[0]


@pytest.mark.parametrize("kind", [PeriodicCheckpoint, BestCheckpoint])
def test_a_new_run_sets_the_checkpoints_of_an_older_one_aside(kind, tmp_path, caplog):
    def run(directory, means):
        count = {"every": 1, "keep_last": 2} if kind is PeriodicCheckpoint else {"keep": 2}
        SteeredAlgorithm(kind(directory, **count)).tell_returns(means)

    def contents(directory):
        found = directory.rglob("*")
        return {str(f.relative_to(directory)): f.read_bytes() for f in found if f.is_file()}

    run(tmp_path / "a", [1.0, 2.0, 3.0])
    (tmp_path / "a" / "notes.txt").touch()
    older = contents(tmp_path / "a")
    del older["notes.txt"]
    run(tmp_path / "a", [0.1, 0.2])
    assert contents(tmp_path / "a-set-aside-1") == older
    run(tmp_path / "a", [0.3])
    assert contents(tmp_path / "a-set-aside-1") == older
    assert names(tmp_path / "a-set-aside-2") == ["000001", "000002"]
    assert names(tmp_path / "a") == ["000001"]
    assert (tmp_path / "a" / "notes.txt").exists()
    assert [record.message.count("of another run") for record in caplog.records] == [1, 1]


def test_an_older_run_that_cannot_be_set_aside_is_not_replaced(tmp_path, monkeypatch):
    SteeredAlgorithm(PeriodicCheckpoint(tmp_path / "a", every=1)).tell_returns([1.0] * 2)
    again = SteeredAlgorithm(
        PeriodicCheckpoint(tmp_path / "a", every=1, keep_last=1, on_error="warn")
    )

    def refuse(self, target):
        raise PermissionError(13, "no renaming here")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        assert again.tell()["fault_tolerance"][COUNT] == 1
    assert again.saved == []
    again.tell()
    assert names(tmp_path / "a") == ["000002"]
    # The first attempt left an empty directory behind.
    assert names(tmp_path / "a-set-aside-2") == ["000001", "000002"]


def test_a_checkpoint_saved_before_one_that_was_overdue_asks_for_no_other(tmp_path):
    algorithm = SteeredAlgorithm(
        BestCheckpoint(tmp_path / "best", on_error="warn"),
        PeriodicCheckpoint(tmp_path / "last", every=2, on_error="warn"),
    )
    algorithm.tell(mean=1.0)
    algorithm.num_failures_to_come = 2
    algorithm.tell(mean=2.0)
    algorithm.tell(mean=3.0)  # both are saved now, the best one first
    assert algorithm.saved == ["000001", "000003", "000003"]
    assert saved_state(tmp_path / "best" / "000003", 1)["is_overdue"] is False
    other = SteeredAlgorithm(PeriodicCheckpoint(tmp_path / "last", every=100))
    other.first.set_state(saved_state(tmp_path / "best" / "000003", 1))
    other.tell()
    assert other.saved == []


# ---- best: which


def test_saves_only_what_is_better(tmp_path):
    algorithm = SteeredAlgorithm(BestCheckpoint(tmp_path))
    algorithm.tell_returns([math.nan, 1.0, 3.0, 3.0, 2.0, math.nan, math.inf, 4.0, 1.0])
    assert algorithm.saved == ["000002", "000003", "000008"]
    assert names(tmp_path) == ["000008"]
    assert latest_checkpoint(tmp_path) == tmp_path / "000008"


def test_the_scores_are_listed_best_first(tmp_path):
    algorithm = SteeredAlgorithm(BestCheckpoint(tmp_path, metric="loss", mode="min", keep=2))
    for loss in (3.0, 1.0, 2.0, 5.0):
        algorithm.tell(loss=loss)
    assert algorithm.first.scores == {"000002": 1.0, "000003": 2.0}
    assert json.loads((tmp_path / "best.json").read_text()) == {
        "metric": "loss",
        "mode": "min",
        "checkpoints": [{"name": "000002", "score": 1.0}, {"name": "000003", "score": 2.0}],
    }


@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0, math.nan]), min_size=1, max_size=7),
    keep=st.integers(1, 3),
    mode=st.sampled_from(["max", "min"]),
)
def test_the_best_so_far_are_there_after_every_iteration(scores, keep, mode):
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder).resolve()
        algorithm = SteeredAlgorithm(BestCheckpoint(directory, keep=keep, mode=mode))
        sign = -1.0 if mode == "max" else 1.0
        for end, score in enumerate(scores, start=1):
            algorithm.tell(mean=score)
            known = [(sign * s, i) for i, s in enumerate(scores[:end], 1) if not math.isnan(s)]
            expected = sorted(f"{iteration:06d}" for _, iteration in sorted(known)[:keep])
            assert names(directory) == expected


def test_only_fresh_evaluations_are_scores(tmp_path):
    algorithm = SteeredAlgorithm(BestCheckpoint(tmp_path, metric=EVALUATION), evaluation_interval=2)

    def evaluation(at, mean):
        runners = {"episode_return_mean": mean, "num_episodes": 4}
        return {"evaluated_at_iteration": at, "env_runners": runners}

    algorithm.tell()
    algorithm.tell(evaluation=evaluation(2, 5.0))
    algorithm.tell(evaluation=evaluation(2, 6.0))
    algorithm.tell(evaluation=evaluation(4, 5.5))
    assert algorithm.saved == ["000002", "000004"]


def test_scores_survive_a_restore(tmp_path):
    first = SteeredAlgorithm(BestCheckpoint(tmp_path, keep=2))
    first.tell_returns([5.0, 3.0, 4.0])
    first.is_stopped = True
    again = restored(BestCheckpoint(tmp_path, keep=2), tmp_path / "000003")
    again.tell_returns([4.5, 1.0])
    assert again.saved == ["000004"]
    assert names(tmp_path) == ["000001", "000004"]


@pytest.mark.parametrize(
    ("metric", "scores", "stay"),
    [
        (RETURN, {"000005": 6.0}, ["000005"]),
        ("won", {"000005": 6.0}, ["000001", "000003", "000005"]),
        ("lost", {"000004": -1.0}, ["000001", "000003", "000004"]),
    ],
)
def test_a_config_given_anew_may_keep_fewer_or_by_another_metric(metric, scores, stay, tmp_path):
    first = SteeredAlgorithm(BestCheckpoint(tmp_path, keep=2))
    first.tell_returns([5.0, 3.0, 4.0])
    first.is_stopped = True
    again = restored(BestCheckpoint(tmp_path, metric=metric), tmp_path / "000003")
    for value in (1.0, 6.0):
        again.tell(mean=value, won=value, lost=-value)
    assert again.first.scores == scores
    assert names(tmp_path) == stay


def test_a_checkpoint_of_its_own_is_not_listed_with_a_donors_score(tmp_path):
    SteeredAlgorithm(BestCheckpoint(tmp_path / "donor", keep=3)).tell_returns([7.0, 8.0, 9.0])
    SteeredAlgorithm(BestCheckpoint(tmp_path / "own", keep=2)).tell_returns([1.0, 3.0, 2.0])
    clone = restored(BestCheckpoint(tmp_path / "own", keep=3), tmp_path / "donor" / "000003")
    clone.tell_returns([8.5])
    listed = json.loads((tmp_path / "own" / "best.json").read_text())["checkpoints"]
    scores = {each["name"]: each["score"] for each in listed}
    assert list(scores.items()) == [("000004", 8.5), ("000002", 3.0), ("000003", 2.0)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_clone_judges_by_what_it_saved_itself_also_after_an_undone_iteration(seed, tmp_path):
    SteeredAlgorithm(BestCheckpoint(tmp_path / "donor", keep=2)).tell_returns([7.0, 8.0, 9.0])
    SteeredAlgorithm(BestCheckpoint(tmp_path / "own", keep=2)).tell_returns([1.0, 3.0, 2.0, 6.0])
    clone = SteeredAlgorithm(BestCheckpoint(tmp_path / "own", keep=2))
    state = read_checkpoint(tmp_path / "donor" / "000003").components["callbacks"]
    clone.callbacks.set_state(state)
    clone.root_seed = 1
    clone.go_on(3)
    clone.root_seed = seed
    before = clone.callbacks.get_state()
    for _ in range(2):
        clone.callbacks.set_state(before)
        clone.training_iteration = 3
        clone.tell_returns([2.5])
    assert clone.saved == ([] if seed == 1 else ["000004"] * 2)  # as one run goes on: 7 is more
    assert list(clone.first.scores.values()) == ([9.0, 8.0] if seed == 1 else [3.0, 2.5])


def test_a_checkpoint_holds_its_own_score_and_what_later_callbacks_decided(tmp_path):
    callbacks = [BestCheckpoint(tmp_path), EarlyStopping(patience=9)]
    SteeredAlgorithm(*callbacks).tell_returns([1.0, 2.0])
    state = [saved_state(tmp_path / "000002", index) for index in (0, 1)]
    assert state[0]["kept"] == [[2.0, 2]]
    assert state[1]["plateau"] == {"best": 2.0, "num_values_without_progress": 0}


def test_the_directory_is_not_taken_from_the_restored_state(tmp_path):
    for kind in (BestCheckpoint, PeriodicCheckpoint):
        first, second = (SteeredAlgorithm(kind(tmp_path / name)) for name in ("a", "b"))
        second.callbacks.set_state(first.callbacks.get_state())
        assert second.first.directory.path == (tmp_path / "b").resolve()


def test_relative_paths_are_resolved_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    callback = PeriodicCheckpoint("runs", every=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    SteeredAlgorithm(callback).tell()
    assert names(tmp_path / "runs") == ["000001"]


# ---- failures


@pytest.mark.parametrize("error", [OSError(28, "full"), CheckpointWriteError("x"), StateError("y")])
def test_a_failed_save_raises(error, tmp_path):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1))
    algorithm.num_failures_to_come, algorithm.failure = 1, error
    with pytest.raises(type(error)):
        algorithm.tell()


def test_a_failed_save_is_told_once_counted_and_tried_again(tmp_path, caplog):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=2, on_error="warn"))
    algorithm.num_failures_to_come = 2
    results = algorithm.tell_returns([1.0] * 6)
    assert [result["fault_tolerance"][COUNT] for result in results] == [0, 1, 2, 2, 2, 2]
    assert algorithm.saved == ["000004", "000006"], "3 is tried again at 4, which is due as well"
    assert [record.message.count("no space left") for record in caplog.records] == [1]


def test_another_cause_is_told_as_well(tmp_path, caplog):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1, on_error="warn"))
    for error in (OSError(28, "full"), OSError(13, "denied"), StateError("open file")):
        algorithm.num_failures_to_come, algorithm.failure = 2, error
        algorithm.tell_returns([1.0] * 2)
    assert len(caplog.records) == 3


def test_failures_of_all_saving_callbacks_are_counted_together(tmp_path):
    algorithm = SteeredAlgorithm(
        PeriodicCheckpoint(tmp_path / "a", every=1, on_error="warn"),
        BestCheckpoint(tmp_path / "b", on_error="warn"),
    )
    algorithm.num_failures_to_come = 2
    assert algorithm.tell()["fault_tolerance"][COUNT] == 2
    algorithm.is_stopped = True  # else the directories are its own
    restored = SteeredAlgorithm(
        PeriodicCheckpoint(tmp_path / "a", on_error="warn"),
        BestCheckpoint(tmp_path / "b", on_error="warn"),
    )
    restored.callbacks.set_state(algorithm.callbacks.get_state())
    assert restored.tell()["fault_tolerance"][COUNT] == 2


def test_a_section_that_a_callback_replaced_is_left_alone(tmp_path):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1))
    assert algorithm.tell({**result_of(1), "fault_tolerance": "mine"})["fault_tolerance"] == "mine"
    assert algorithm.saved == ["000001"]


def test_a_score_that_could_not_be_saved_is_no_score(tmp_path):
    algorithm = SteeredAlgorithm(BestCheckpoint(tmp_path, on_error="warn"))
    algorithm.tell(mean=1.0)
    algorithm.num_failures_to_come = 1
    algorithm.tell_returns([9.0, 2.0])
    assert algorithm.saved == ["000001", "000003"]
    assert names(tmp_path) == ["000003"]


def test_an_error_of_a_listener_to_saving_is_never_swallowed(tmp_path):
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1, on_error="warn"))
    algorithm.num_failures_to_come = 1
    algorithm.failure = CallbackError("Mine.on_checkpoint_saved", "on_checkpoint_saved")
    with pytest.raises(CallbackError):
        algorithm.tell()


def test_what_the_guard_found_is_not_saved(tmp_path):
    algorithm = SteeredAlgorithm(
        BestCheckpoint(tmp_path / "best"),
        PeriodicCheckpoint(tmp_path / "last", every=1),
        NonFiniteGuard(on_found="stop"),
    )
    algorithm.tell(mean=1.0)
    algorithm.weights["default_policy"]["pi"][0, 0] = math.nan
    assert algorithm.tell(mean=2.0)["done"]
    assert algorithm.saved == ["000001", "000001"]
    assert algorithm.first.scores == {"000001": 1.0}


# ---- misuse


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (PeriodicCheckpoint, {"every": 0}, "`every=0` must be an int of at least 1"),
        (PeriodicCheckpoint, {"every": 0.0, "unit": "seconds"}, "a finite number above 0"),
        (PeriodicCheckpoint, {"unit": "steps"}, "`unit='steps'` must be one of 'iterations', "),
        (PeriodicCheckpoint, {"keep_last": 0}, "`keep_last=0` must be an int of at least 1, or N"),
        (PeriodicCheckpoint, {"on_error": "ignore"}, "`on_error='ignore'` must be one of"),
        (PeriodicCheckpoint, {"directory": ""}, "`directory=''` is no path"),
        (BestCheckpoint, {"directory": __file__}, "is a file; expected a directory"),
        (BestCheckpoint, {"keep": 0}, "`keep=0` must be an int"),
        (BestCheckpoint, {"mode": "best"}, "`mode='best'` must be one of 'max', 'min'"),
        (BestCheckpoint, {"metric": None}, "`metric=None` is no path of a metric"),
    ],
)
def test_misuse_is_refused_at_once(kind, arguments, text):
    with pytest.raises(CallbackConfigError) as caught:
        kind(**{"directory": "runs", **arguments})
    assert text in str(caught.value)
    assert str(caught.value).count(kind.__name__) == len(caught.value.problems)


def test_two_in_one_directory_are_refused(tmp_path):
    callbacks = [PeriodicCheckpoint(tmp_path / "x"), BestCheckpoint(tmp_path / "y" / ".." / "x")]
    for given_ in (callbacks, [make_multi_callbacks(callbacks)]):
        with pytest.raises(CallbackError, match="save to the same directory"):
            SteeredAlgorithm(*given_)
    SteeredAlgorithm(PeriodicCheckpoint(tmp_path / "x"), PeriodicCheckpoint(tmp_path / "y"))


@pytest.mark.parametrize("kind", [PeriodicCheckpoint, BestCheckpoint])
def test_patterns_can_be_copied_and_sent(kind, tmp_path):
    for copied in (copy.deepcopy(kind(tmp_path)), pickle.loads(pickle.dumps(kind(tmp_path)))):
        assert copied.get_state() == kind(tmp_path).get_state()
        assert copied.directory.path == tmp_path.resolve()


@pytest.mark.parametrize("best_is_first", [True, False])
def test_the_best_one_is_there_before_the_periodic_one_says_so(best_is_first, tmp_path):
    """Or a process that is killed between the two would go on without the best one."""
    periodic = PeriodicCheckpoint(tmp_path / "periodic", every=1)
    best = BestCheckpoint(tmp_path / "best")
    algorithm = SteeredAlgorithm(*([best, periodic] if best_is_first else [periodic, best]))
    saved = []
    save = algorithm.save_to_path

    def note(path=None, **how):
        saved.append(f"{path.parent.name}/{path.name}")
        return save(path, **how)

    algorithm.save_to_path = note
    algorithm.tell_returns([1.0, 2.0])
    assert saved == ["best/000001", "periodic/000001", "best/000002", "periodic/000002"]

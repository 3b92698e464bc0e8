"""Listing and retention: what is found, in which order, and what is removed."""

import itertools
import shutil

import pytest

from checkpoints import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    FileSystem,
    Retention,
    apply_retention,
    find_checkpoints,
    latest_checkpoint,
    listing,
    read_manifest,
    write_checkpoint,
)
from tests.saved_files import files_of
from trainer_toolkit.files import PathLock


def save(path, iteration, **metrics):
    metadata = {"training_iteration": iteration, "metrics": metrics}
    return write_checkpoint(path, components={"a": iteration}, metadata=metadata)


def names(directory):
    return [found.path.name for found in find_checkpoints(directory)]


@pytest.fixture
def runs(tmp_path):
    """Five checkpoints; returns 3, nan, 5, 1, 4 at iterations 1 to 5."""
    for iteration, value in enumerate([3.0, float("nan"), 5.0, 1.0, 4.0], start=1):
        save(tmp_path / f"c{iteration}", iteration, ret=value)
    return tmp_path


def test_order_is_iteration_then_time_not_name(tmp_path):
    for name, iteration in {"a": 10, "b": 9, "d": 9, "c": 9, "e": None}.items():
        save(tmp_path / name, iteration)
    assert names(tmp_path) == ["e", "b", "d", "c", "a"]
    assert latest_checkpoint(tmp_path) == tmp_path / "a"
    assert read_manifest(find_checkpoints(tmp_path)[-1]).training_iteration == 10


def test_only_complete_checkpoints_are_found(runs):
    (files_of(runs / "c4") / "a.state").unlink()
    (files_of(runs / "c3") / "a.state").write_bytes(b"short")
    (runs / "c5" / "manifest.json").unlink()
    text = (runs / "c2" / "manifest.json").read_text()
    (runs / "c2" / "manifest.json").write_text(text[:-20])
    (runs / "latest").symlink_to(runs / "c1")
    (runs / "folder").mkdir()
    (runs / "file").touch()
    assert names(runs) == ["c1"]


def test_nothing_to_find_is_no_error_but_a_file_is(tmp_path):
    assert latest_checkpoint(tmp_path / "absent") is None
    assert find_checkpoints(tmp_path) == []
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointNotFoundError, match="is a file"):
        find_checkpoints(tmp_path / "file")


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention(), ["c1", "c2", "c3", "c4", "c5"]),
        (Retention(keep_last=3), ["c3", "c4", "c5"]),
        (Retention(keep_last=9), ["c1", "c2", "c3", "c4", "c5"]),
        (Retention(keep_best=3, metric="metrics/ret"), ["c1", "c3", "c5"]),
        (Retention(keep_best=9, metric="metrics/ret"), ["c1", "c3", "c4", "c5"]),
        (Retention(keep_best=1, metric="metrics/ret", mode="min"), ["c4", "c5"]),
        (Retention(keep_last=2, keep_best=1, metric="metrics/ret"), ["c3", "c4", "c5"]),
        (Retention(keep_best=1, metric="metrics/other"), ["c5"]),
        (Retention(keep_best=1, metric="training_iteration", mode="min"), ["c1", "c5"]),
    ],
    ids=str,
)
def test_known_answers(runs, retention, kept):
    removed = apply_retention(runs, retention)
    assert names(runs) == kept
    assert sorted(path.name for path in runs.iterdir()) == kept
    assert {path.name for path in removed} == {"c1", "c2", "c3", "c4", "c5"} - set(kept)
    assert apply_retention(runs, retention) == []


def test_of_equals_the_newer_is_best(tmp_path):
    for iteration in (1, 2, 3):
        save(tmp_path / f"c{iteration}", iteration, ret=1.0 if iteration < 3 else 0.0)
    apply_retention(tmp_path, Retention(keep_best=1, metric="metrics/ret"))
    assert names(tmp_path) == ["c2", "c3"]


def test_foreign_files_and_incomplete_directories_are_never_touched(runs):
    (runs / "c1" / "notes.txt").write_text("good run")
    (files_of(runs / "c2") / "a.state").unlink()
    (runs / "model.pt").write_text("mine")
    (runs / "folder").mkdir()
    apply_retention(runs, Retention(keep_last=1))
    assert sorted(path.name for path in runs.iterdir()) == ["c1", "c2", "c5", "folder", "model.pt"]
    assert [path.name for path in (runs / "c1").iterdir()] == ["notes.txt"]
    assert (runs / "c2" / "manifest.json").exists()


def test_nothing_is_removed_while_the_newest_is_damaged(runs):
    file = files_of(runs / "c5") / "a.state"
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(CheckpointCorruptError):
        apply_retention(runs, Retention(keep_last=1))
    assert len(names(runs)) == 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keep_last": True}, "keep_last=True"),
        ({"metric": "a"}, "metric"),
        ({"keep_best": -1, "metric": "a"}, "keep_best=-1"),
        ({"keep_last": 0, "keep_best": 1, "mode": "best"}, "keep_last=0.*metric.*mode='best'"),
    ],
)
def test_impossible_settings_are_refused_all_at_once(settings, words):
    with pytest.raises(CheckpointError, match=rf"Retention cannot be set up.*{words}"):
        Retention(**settings)


def at_the_first_look(monkeypatch, act):
    """Others act after a directory was listed, and before its first checkpoint is looked at."""
    original, looks = listing.load_manifest, itertools.count()

    def load(directory):
        if next(looks) == 0:
            act()
        return original(directory)

    monkeypatch.setattr(listing, "load_manifest", load)


def test_the_only_one_is_replaced_by_a_newer_while_it_is_looked_at(tmp_path, monkeypatch, caplog):
    first = save(tmp_path / "1", 1)

    def replace():
        save(tmp_path / "2", 2)
        shutil.rmtree(first)

    at_the_first_look(monkeypatch, replace)
    assert latest_checkpoint(tmp_path) == tmp_path / "2"
    assert caplog.records == []


def test_retention_leaves_a_save_that_is_going_on_alone(tmp_path):
    for number in (1, 2, 3, 4):
        save(tmp_path / str(number), number)
    for number in (1, 2):
        (tmp_path / str(number) / "manifest.json").unlink()
    with PathLock(tmp_path / "1" / "files-1"):
        removed = apply_retention(tmp_path, Retention(keep_last=1))
    assert removed == [tmp_path / "3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "4"]


def test_what_others_remove_at_the_same_time_is_no_error(tmp_path, caplog):
    class Overtaken(FileSystem):
        def remove_file(self, path):
            shutil.rmtree(path.parent if path.parent.parent == tmp_path else path.parent.parent)
            super().remove_file(path)

    for number in (1, 2, 3):
        save(tmp_path / str(number), number)
    apply_retention(tmp_path, Retention(keep_last=1), file_system=Overtaken())
    assert [path.name for path in tmp_path.iterdir()] == ["3"]
    assert caplog.messages == []

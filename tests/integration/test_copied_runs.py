"""A project that is copied or moved goes on in its new place, and leaves the old one alone."""

import functools
import json
import shutil
from pathlib import Path

import pytest

from callbacks import (
    BestCheckpoint,
    CSVLogger,
    EpisodeRecorder,
    JSONLinesLogger,
    PeriodicCheckpoint,
    RLlibCallback,
    make_multi_callbacks,
)
from checkpoints import read_code, read_manifest
from checkpoints.code import moved_path, paths_following
from tests.command_line import run
from tests.small_runs import small_ppo
from trainer import PPO


class Counted(RLlibCallback):
    """Something that stays beside a recorder."""


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def small(callbacks):
    return small_ppo(num_slots=1, batch=40).callbacks(callbacks)


def train_in(folder, monkeypatch, log="log"):
    """Three iterations with everything that writes; the paths are relative, as in a script."""
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    callbacks = [
        PeriodicCheckpoint("saves", every=1, keep_last=2),
        BestCheckpoint("best", keep=1),
        EpisodeRecorder("recordings", max_episodes=2),
        JSONLinesLogger(f"{log}/results.jsonl"),
        CSVLogger(f"{log}/results.csv"),
    ]
    with small(callbacks).build_algo() as algo:
        for _ in range(3):
            algo.train()
    return folder / "saves" / "000003"


def go_on(checkpoint):
    with PPO.from_checkpoint(checkpoint, allow_code=True) as algo:
        assert algo.training_iteration == 3
        algo.train()


def iterations(file):
    return [json.loads(line)["training_iteration"] for line in file.read_text().splitlines()]


def test_a_copied_project_goes_on_in_the_copy(tmp_path, monkeypatch):
    original, copy = tmp_path / "original", tmp_path / "elsewhere" / "copy"
    saved = train_in(original, monkeypatch)
    shutil.copytree(original, copy)
    before = contents(original)
    monkeypatch.chdir(tmp_path)  # the folder that it is started in decides nothing
    go_on(copy / saved.relative_to(original))
    assert contents(original) == before
    assert sorted(path.name for path in (copy / "saves").iterdir()) == ["000003", "000004"]
    assert iterations(copy / "log" / "results.jsonl") == [1, 2, 3, 4]
    assert len((copy / "log" / "results.csv").read_text().splitlines()) == 5
    assert len(list((copy / "recordings").iterdir())) == 2
    assert (copy / "recordings").stat().st_mtime_ns > saved.stat().st_mtime_ns

    go_on(saved)  # where it was saved, it goes on as ever
    assert iterations(original / "log" / "results.jsonl") == [1, 2, 3, 4]


def test_a_moved_project_goes_on_where_it_is(tmp_path, monkeypatch):
    train_in(tmp_path / "original", monkeypatch, log=str(tmp_path / "logs"))
    (tmp_path / "original").rename(tmp_path / "moved")
    go_on(tmp_path / "moved" / "saves" / "000003")
    assert not (tmp_path / "original").exists()
    assert (tmp_path / "moved" / "saves" / "000004").is_dir()
    assert iterations(tmp_path / "logs" / "results.jsonl") == [1, 2, 3, 4], "it was not moved"


def test_a_copied_checkpoint_goes_on_beside_the_copy_and_says_so(tmp_path, monkeypatch, caplog):
    saved = train_in(tmp_path / "original", monkeypatch)
    shutil.copytree(saved, tmp_path / "backup" / "good")
    before = contents(tmp_path / "original")
    go_on(tmp_path / "backup" / "good")
    assert contents(tmp_path / "original") == before
    made = {path.name for path in (tmp_path / "backup").iterdir()}
    tables = {"results.jsonl", "results.csv", "results.csv.bookmark"}
    assert made == {"good", "000004", "best", "recordings", *tables}
    told = [text for text in caplog.messages if "outside of what was copied" in text]
    assert len(told) == 4
    assert str(tmp_path / "backup" / "results.jsonl") in "".join(told)


def test_resume_of_a_copied_checkpoint_writes_beside_the_copy(tmp_path, monkeypatch):
    saved = train_in(tmp_path / "original", monkeypatch)
    shutil.copytree(saved, tmp_path / "backup" / saved.name)
    before = contents(tmp_path / "original")
    run("resume", "backup/000003", "--allow-code", "--stop-iterations", 4, folder=tmp_path)
    assert contents(tmp_path / "original") == before
    assert iterations(tmp_path / "backup" / "results.jsonl") == [4], "the logger writes it already"


def test_a_checkpoint_of_a_script_begins_a_run_where_it_is_told(tmp_path):
    with small_ppo().build_algo() as algo:
        algo.train()
        algo.save(tmp_path / "ck1")
    refused = run("resume", "ck1", "--stop-iterations", 2, folder=tmp_path, code=1).stderr
    assert "'ck1' is a checkpoint and belongs to no run" in refused
    assert [path.name for path in tmp_path.iterdir()] == ["ck1"]
    before = contents(tmp_path / "ck1")
    words = ["--run-dir", "new", "--stop-iterations", 2]
    run("resume", "ck1", *words, folder=tmp_path)
    assert contents(tmp_path / "ck1") == before
    assert iterations(tmp_path / "new" / "results.jsonl") == [2]
    assert (tmp_path / "new" / "checkpoints" / "000002").is_dir()
    assert "holds a run already" in run("resume", "ck1", *words, folder=tmp_path, code=1).stderr
    run("resume", "new", "--stop-iterations", 3, folder=tmp_path)
    assert iterations(tmp_path / "new" / "results.jsonl") == [2, 3]


def test_a_mapping_of_paths_by_hand(tmp_path):
    def follow(saved_at, path, found_at):
        with paths_following(saved_at, found_at):
            return moved_path(Path(path))

    copied = tmp_path / "b" / "saves" / "000001"
    assert follow("/a/saves/000001", "/a/saves", copied) == tmp_path / "b" / "saves"
    assert follow("/a/saves/000001", "/a/logs/x.csv", copied) == tmp_path / "b" / "logs" / "x.csv"
    assert follow("/a/saves/000001", "/c/x.csv", copied) == Path("/c/x.csv"), "no run is at /a"
    assert follow(str(copied), "/c/x.csv", copied) == Path("/c/x.csv")
    # A copy within the directory of the run is still of that run.
    kept = tmp_path / "best"
    assert follow(str(copied), str(tmp_path / "b"), kept) == tmp_path / "b"
    assert moved_path(Path("/a")) == Path("/a")
    with paths_following(None, copied):
        assert moved_path(Path("/a")) == Path("/a")


def test_only_checkpoints_with_code_say_where_they_were_saved(tmp_path, monkeypatch):
    saved = train_in(tmp_path, monkeypatch)
    assert read_manifest(saved).metadata["saved_at"] == str(saved)
    periodic = read_code(saved, allow_code=True)["callbacks_class"][0]
    assert periodic.directory.path == tmp_path / "saves"
    with small([]).environment("CartPole-v1").build_algo() as algo:
        plain = algo.save_to_path(tmp_path / "plain")
    assert "saved_at" not in read_manifest(plain).metadata


@pytest.mark.parametrize(
    "recorder",
    [
        lambda: EpisodeRecorder("recordings", max_episodes=2),
        lambda: functools.partial(EpisodeRecorder, "recordings", max_episodes=2),
        lambda: make_multi_callbacks([lambda: EpisodeRecorder("recordings", max_episodes=2)]),
    ],
    ids=["object", "partial", "group"],
)
def test_evaluate_leaves_the_recordings_of_the_run_alone(recorder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with small([recorder(), Counted]).build_algo() as algo:
        algo.train()
        algo.save_to_path("saved")
    before = contents(tmp_path)
    assert len([name for name in before if name.startswith("recordings")]) == 2
    out = run("evaluate", "saved", "--allow-code", "--episodes", 3, folder=tmp_path).stdout
    assert "Nothing is recorded" in out
    assert "3 episodes" in out
    assert contents(tmp_path) == before

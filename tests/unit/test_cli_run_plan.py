"""`run.json`: read back as it was written, replaced atomically, and clear about damage."""

import argparse
import dataclasses
import os
from pathlib import Path

import pytest

from callbacks.ready_made.stopping import StopCriteria
from checkpoints import CheckpointWriteError
from trainer.cli.run_directory import RunPlan, plan_of_new_run, read_plan
from trainer.errors import ConfigError

PLAN = RunPlan(
    stops=StopCriteria(at_least=450.0, max_iterations=7),
    checkpoint_every=2,
    keep=5,
    track=("mlflow:store",),
    track_artifacts=("checkpoints",),
)


def arguments(**given):
    names = ("return", "env_steps", "iterations", "time_s")
    nothing = {**{f"stop_{name}": None for name in names}, "checkpoint_every": None, "keep": None}
    return argparse.Namespace(**{**nothing, "track": [], "track_artifacts": [], **given})


def test_a_plan_is_read_as_it_was_written(tmp_path):
    PLAN.write(tmp_path / "run.json")
    assert read_plan(tmp_path / "run.json") == PLAN
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_what_is_given_replaces_what_is_planned_and_the_rest_stays():
    assert plan_of_new_run(arguments()) == RunPlan(checkpoint_every=10, keep=3)
    assert PLAN.updated(arguments()) == PLAN
    assert PLAN.updated(arguments(keep=1)) == dataclasses.replace(PLAN, keep=1)
    changed = PLAN.updated(arguments(track_artifacts=["videos"]))
    assert changed == dataclasses.replace(PLAN, track_artifacts=("videos",))
    # Any criterion replaces all: a goal of before would end a run that is to go on.
    assert PLAN.updated(arguments(stop_iterations=9)).stops == StopCriteria(max_iterations=9)


def test_a_run_that_does_not_say_what_to_keep_keeps_everything(tmp_path):
    assert read_plan(tmp_path / "run.json").keep is None
    (tmp_path / "run.json").write_text('{"stop": {"iterations": 3}}')  # as 0.1.0 wrote it
    found = read_plan(tmp_path / "run.json")
    assert (found.stops.max_iterations, found.checkpoint_every, found.keep) == (3, 10, None)


DAMAGES = [
    ("is empty", lambda file: file.write_bytes(b"")),
    ("is empty", lambda file: file.write_bytes(b"\n \n")),
    ("is no JSON", lambda file: file.write_bytes(b"\0" * 64)),
    ("is no text", lambda file: file.write_bytes(b'{"stop": "\xff"}')),
    ("holds a list, not an object", lambda file: file.write_text("[]")),
    ('its "stop" is None', lambda file: file.write_text("{}")),
    ('its "save" is []', lambda file: file.write_text('{"stop": {}, "save": []}')),
    ("max_iterations='many'", lambda file: file.write_text('{"stop": {"iterations": "many"}}')),
    ("at_least=nan", lambda file: file.write_text('{"stop": {"episode_return": NaN}}')),
    ("'iteration' is no part", lambda file: file.write_text('{"stop": {"iteration": 3}}')),
    ("keep=0", lambda file: file.write_text('{"stop": {}, "save": {"keep": 0}}')),
    ("y='x'", lambda file: file.write_text('{"stop": {}, "save": {"checkpoint_every": "x"}}')),
    ("", lambda file: file.write_text('{"stop": {"iterations": ' + "9" * 5000 + "}}")),
    ("track=3", lambda file: file.write_text('{"stop": {}, "track": 3}')),
    ("artifacts=['x']", lambda file: file.write_text('{"stop": {}, "track_artifacts": ["x"]}')),
    ("is nested too deep", lambda file: file.write_text("[" * 200_000)),
    ("more than the", lambda file: file.write_text(" " * 2**21)),
    ("is no file", lambda file: file.mkdir()),
    ("is no file", os.mkfifo),
    ("leads nowhere", lambda file: file.symlink_to("gone")),
    ("", lambda file: file.symlink_to("run.json")),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "damage"), DAMAGES)
def test_a_damaged_file_is_a_clear_error(expected, damage, tmp_path):
    file = tmp_path / "run.json"
    damage(file)
    with pytest.raises(ConfigError) as caught:
        read_plan(file)
    text = str(caught.value)
    assert str(file) in text
    assert expected in text
    assert "Nothing was changed. Correct the file, or remove it" in text
    assert len(text) < 600


def test_a_write_that_fails_leaves_the_plan_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "run.json"
    PLAN.write(file)
    before = file.read_bytes()

    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CheckpointWriteError, match="No space left"):
        RunPlan(keep=1).write(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_content_is_on_the_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(descriptor):
        order.append("sync")
        sync(descriptor)

    def noted_replace(self, target):
        order.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    PLAN.write(tmp_path / "run.json")
    assert order == ["sync", "replace", "sync"]

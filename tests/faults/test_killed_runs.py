"""The main process is killed at any moment and goes on: the bytes of an undisturbed run."""

import csv
import functools
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from checkpoints import latest_checkpoint
from tests.command_line import ENV, rows, run, train
from tests.event_files import curves
from tests.faults.killed_runs import (
    AN_ACTOR_DIED,
    KEEP,
    PROJECT,
    KilledRun,
    component_bytes,
    resume_line,
    script_line,
    train_line,
)
from trainer.metrics import comparable

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="kills processes"),
]


@functools.cache
def undisturbed(how, kind, runners, iterations):
    """Component files, results and the names of all files of a run that is not killed."""
    with tempfile.TemporaryDirectory() as folder:
        begin, _ = lines(how, kind, runners, iterations)
        if how == "command line":
            run(*begin[3:], folder=Path(folder))  # in this process, which is there already
            return outcome(Path(folder) / "run", iterations)
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        subprocess.run(begin, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        return outcome(Path(folder) / "run", iterations)


def lines(how, kind, runners, iterations):
    """The commands that begin a run and go on with it."""
    if how == "script":
        line = script_line(kind, runners=runners, iterations=iterations)
        return line, line
    return train_line(kind, runners=runners, iterations=iterations), resume_line()


def outcome(run, iterations):
    names = [f"{number:06d}" for number in range(iterations - KEEP + 1, iterations + 1)]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == names
    components = {
        f"{name}/{file}": data
        for name in names
        for file, data in component_bytes(run / "checkpoints" / name).items()
    }
    results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert [row["training_iteration"] for row in results] == [*range(1, iterations + 1)]
    if (run / "results.csv").exists():
        rows = [*csv.DictReader((run / "results.csv").read_text().splitlines())]
        assert [int(row["training_iteration"]) for row in rows] == [*range(1, iterations + 1)]
        points = curves(run / "curves")["training_iteration"]
        assert [number for _, number in points] == [*range(1, iterations + 1)]
        components |= {
            # A save that was killed is made again in a folder of another number.
            f"{file.parts[-4:-2]}/{file.name}": file.read_bytes()
            for file in (run / "best").glob("[0-9]*/*/*.state")
        }
    paths = [str(path.relative_to(run)) for path in run.rglob("*")]
    files = sorted({re.sub(r"/files-\d+", "/files", name) for name in paths})
    # What a kill left beside the best ones is cleared up by the next save there; and what was
    # before the first checkpoint is another run, whose files a new run keeps.
    of_others = ("best/.", "-set-aside-", ".jsonl.1", "results.csv.1", "curves")
    files = [name for name in files if not any(word in name for word in of_others)]
    return components, [comparable(row) for row in results], files


def campaign(how, kind, runners, *, seed, kills, folder, spare=8):
    # Far more than are made in the lives before the last: a run that has ended saves no more, so
    # what it was killed in the middle of removing would stay.
    iterations = 4 * kills + spare
    expected = undisturbed(how, kind, runners, iterations)
    killed = KilledRun(folder, *lines(how, kind, runners, iterations), seed=seed)
    may_end = (None, 0, AN_ACTOR_DIED) if kind == "ACTORS" else (None, 0)
    for _ in range(kills):
        code = killed.live()
        assert code in may_end, killed.output()
        if code == 0:
            break
    killed.finish()
    found = outcome(folder / "run", iterations)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == theirs
    assert kind == "ACTORS" or "Traceback" not in killed.output()
    return killed


def test_kills_make_no_difference(tmp_path):
    killed = campaign("command line", "PPO", 1, seed=0, kills=2, folder=tmp_path)
    assert killed.hits.total() == 2
    assert killed.num_looks > 0


def test_kills_make_no_difference_to_actors(tmp_path):
    """With evaluation beside training, a curriculum, states of callbacks, saves in the background;
    runners, evaluation runners, actors and the fork server are killed as well."""
    killed = campaign("script", "ACTORS", 2, seed=0, kills=1, folder=tmp_path, spare=2)
    assert killed.hits.total() + killed.killed_others.total() >= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_hundreds_of_kills_make_no_difference_to_actors(seed, tmp_path):
    killed = campaign("script", "ACTORS", 2, seed=seed, kills=14, folder=tmp_path)
    print(dict(killed.hits), dict(killed.killed_others), killed.num_looks)
    assert killed.hits.total() + killed.killed_others.total() >= 14


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize(
    ("how", "kind", "runners"),
    [
        ("command line", "PPO", 1),
        ("command line", "DQN", 2),
        ("script", "PPO", 2),
        ("script", "DQN", 1),
    ],
)
def test_hundreds_of_kills_make_no_difference(how, kind, runners, seed, tmp_path):
    killed = campaign(how, kind, runners, seed=seed, kills=12, folder=tmp_path)
    print(dict(killed.hits), killed.num_looks)
    assert killed.hits.total() >= 8


def test_what_a_kill_left_of_an_old_checkpoint_goes_with_the_next_save(tmp_path):
    saving = ("--checkpoint-every", 1, "--keep", 2)
    train(tmp_path, "--stop-iterations", 3, *saving)
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "000001").mkdir()  # killed before the directory itself was removed
    run("resume", "run", "--stop-iterations", 4, *saving, folder=tmp_path)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["000003", "000004"]


def test_a_run_that_was_killed_before_it_saved_anything_is_begun_anew(tmp_path):
    """So `local-trainer resume run || local-trainer train …` always goes on."""
    train(tmp_path, "--stop-iterations", 2)
    expected = [comparable(row) for row in rows(tmp_path)]
    run_folder = tmp_path / "run"
    saved = latest_checkpoint(run_folder / "checkpoints")
    assert saved is not None
    (saved / "manifest.json").unlink()
    (run_folder / "run.lock").touch()
    refused = run("resume", "run", folder=tmp_path, code=1)
    assert "ended before it saved one. Start again: local-trainer train --run-dir" in refused.stderr
    train(tmp_path, "--stop-iterations", 2)
    assert [comparable(row) for row in rows(tmp_path)] == expected
    names = sorted(path.name for path in run_folder.iterdir())
    assert names == ["checkpoints", "results.jsonl", "results.jsonl.1", "run.json", "settings.json"]
    assert [path.name for path in (run_folder / "checkpoints").iterdir()] == ["000002"]

    damaged = run_folder / "checkpoints" / "000002" / "manifest.json"
    damaged.write_text("torn")
    refused = run("train", "--env", ENV, "--run-dir", "run", folder=tmp_path, code=1)
    assert "holds a run already" in refused.stderr
    assert damaged.read_text() == "torn"

"""The command line used wrongly, twice at a time, or without a terminal."""

import contextlib
import datetime as dt
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gymnasium.error import DependencyNotInstalled

from checkpoints import read_manifest
from tests.command_line import ENV, SMALL, command, rows, run, train
from tests.saved_files import files_of
from trainer.algorithms.algorithm import Algorithm
from trainer.cli import main
from trainer.testing.processes import wait_until

pytestmark = pytest.mark.process

# ---- arguments


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--env", ENV, "--stop-iterations", "-1"], "'-1' is not a whole number of at"),
        (["train", "--env", ENV, "--stop-return", "nan"], "'nan' is not a finite number"),
        (["train", "--env", ENV, "--stop-time-s", "0"], "is not a number of seconds above 0"),
        (["train", "--env", ENV, "--keep", "0"], "--keep: '0' is not a whole number of at least 1"),
        (["train", "--env", ENV, "--num-env-runners", "-1"], "a whole number of at least 0"),
        (["evaluate", ""], "argument path: the path is empty"),
        (["train", "--env", ENV, "--run-dir", ""], "argument --run-dir: the path is empty"),
    ],
)
def test_numbers_and_paths_that_make_no_sense_are_refused(words, expected, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


def test_all_problems_with_settings_are_told_at_once(tmp_path, capsys):
    words = ["gama=0.9", "lr=fast", "minibatch_sise=3", "num_epochs=0"]
    settings = [part for word in words for part in ("--set", word)]
    assert main(["train", "--env", ENV, "--run-dir", str(tmp_path / "run"), *settings]) == 1
    error = capsys.readouterr().err
    for text in ("`gama=0.9`", "`minibatch_sise=3`", "lr='fast'", "num_epochs=0"):
        assert error.count(text) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["resume", "evaluate", "inspect"])
@pytest.mark.parametrize("name", ["nothing", "x" * 300])
def test_a_run_that_does_not_exist_is_named(verb, name, tmp_path, capsys):
    assert main([verb, str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path / name} does not exist. Give the directory of a run" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["resume", "--help"]])
def test_the_help_tells_the_exit_codes(words, capsys):
    with pytest.raises(SystemExit):
        main(words)
    out = capsys.readouterr().out
    assert "\n  130  stopped by Ctrl-C or SIGTERM" in out


@pytest.mark.parametrize("name", ["file", "file/x", "loop", "x" * 300, "/proc/nothing"])
def test_an_unusable_run_directory_is_one_clear_error(name, tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert main(["train", "--env", ENV, "--run-dir", str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("ConfigError: ")
    assert error.count("\n") == 1
    assert "--run-dir" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


# ---- resuming


def test_a_run_is_resumed_from_inside_its_directory(tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    out = run("resume", ".", "--stop-iterations", 2, folder=tmp_path / "run").stdout
    assert f"results in {(tmp_path / 'run').resolve()}" in out
    assert "local-trainer resume . --stop-iterations 12" in out
    assert len(rows(tmp_path)) == 2


def test_a_run_without_a_checkpoint_says_so(tmp_path, monkeypatch, capsys):
    (tmp_path / "run.json").write_text('{"stop": {}}')
    monkeypatch.chdir(tmp_path)
    assert main(["resume", "."]) == 1
    assert "is the directory of a run without a checkpoint" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_stop_criteria_that_make_no_sense_in_the_file_are_told(tmp_path, capsys):
    train(tmp_path, "--stop-iterations", 1)
    (tmp_path / "run" / "run.json").write_text('{"stop": {"iterations": "many"}}')
    assert main(["resume", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert "run.json does not say when to stop and what to keep: `max_iterations='many'`" in error


def test_checkpoints_after_the_one_that_is_resumed_are_set_aside(tmp_path):
    train(tmp_path, "--stop-iterations", 3, "--checkpoint-every", 1)
    out = run(
        "resume", "run/checkpoints/000001", "--stop-iterations", 2, "--keep", 1, folder=tmp_path
    ).stdout  # fmt: skip
    aside = tmp_path / "run" / "checkpoints-set-aside-1"
    assert str(aside.resolve()) in out
    assert sorted(path.name for path in aside.iterdir()) == ["000002", "000003"]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["000002"]
    assert len(rows(tmp_path)) == 2, "results after it are forgotten"
    again = run("resume", "run", "--stop-iterations", 3, folder=tmp_path).stdout
    assert "(iteration 2)" in again
    assert "set-aside" not in again


def test_the_newest_whole_checkpoint_is_resumed(tmp_path, caplog):
    train(tmp_path, "--stop-iterations", 4, "--checkpoint-every", 1)
    checkpoints = tmp_path / "run" / "checkpoints"
    undisturbed = read_manifest(checkpoints / "000004").components
    weights = files_of(checkpoints / "000004") / undisturbed["learner/rl_module"].file
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))  # as many bytes as before, but others
    (checkpoints / "000003" / "manifest.json").unlink()
    (checkpoints / "000005").mkdir()  # a save that was cut off
    done = run("resume", "run", "--stop-iterations", 4, folder=tmp_path)
    assert "000002 (iteration 2)" in done.stdout
    assert "passed over for an older one" in caplog.text
    resumed = read_manifest(checkpoints / "000004").components
    assert {name: entry.sha256 for name, entry in resumed.items()} == {
        name: entry.sha256 for name, entry in undisturbed.items()
    }


def test_a_run_may_end_after_some_time(tmp_path):
    out = train(tmp_path, "--stop-time-s", 0.001)
    assert len(rows(tmp_path)) == 1
    assert "ETA 0:00" in out
    assert json.loads((tmp_path / "run" / "run.json").read_text())["stop"]["time_s"] == 0.001


def test_a_goal_is_told_in_every_line(tmp_path):
    out = train(tmp_path, "--stop-return", 2.5)
    assert "until return ≥ 2.5" in out
    assert "Goal reached after 40 env steps: env_runners/episode_return_mean is" in out


# ---- one run per directory, and no terminal


def started(folder, **streams):
    """A run without an end, after its second result."""
    words = ["train", "--env", ENV, *SMALL, "--num-env-runners", 0, "--run-dir", "run"]
    process = subprocess.Popen(
        command(*words, "--checkpoint-every", 1), cwd=folder, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, **streams,
    )  # fmt: skip
    results = folder / "run" / "results.jsonl"
    assert wait_until(lambda: results.exists() and results.read_text().count("\n") >= 2)
    return process


def test_two_processes_never_write_to_one_run(tmp_path):
    with started(tmp_path, stdout=subprocess.DEVNULL) as owner:
        try:
            for words in (["resume", "run"], ["train", "--env", ENV, "--run-dir", "run"]):
                refused = run(*words, folder=tmp_path, code=1).stderr
                assert f"is in use: process {owner.pid} trains there" in refused
        finally:
            owner.kill()
    assert (tmp_path / "run" / "run.lock").exists(), "no process was left to remove it"
    run("resume", "run", "--stop-iterations", 1, folder=tmp_path)
    assert not (tmp_path / "run" / "run.lock").exists()


def test_a_run_goes_on_when_nobody_reads_its_output(tmp_path):
    process = started(tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    before = len(rows(tmp_path))
    assert wait_until(lambda: len(rows(tmp_path)) >= before + 3)
    process.terminate()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=20) == 130
    assert "Progress is not shown any more" in errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_whose_output_nobody_reads_ends_in_silence(unbuffered, tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    paths = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command("inspect", "run"), cwd=tmp_path, env={**os.environ, **paths}, stdout=writing,
            stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_resume_keeps_as_many_checkpoints_as_the_run_was_to_keep(tmp_path):
    checkpoints = tmp_path / "run" / "checkpoints"
    train(tmp_path, "--stop-iterations", 5, "--checkpoint-every", 1, "--keep", 5)
    run("resume", "run", "--stop-iterations", 6, folder=tmp_path)
    names = [f"{number:06d}" for number in range(2, 7)]
    assert sorted(path.name for path in checkpoints.iterdir()) == names, "every one, five of them"
    (tmp_path / "run" / "run.json").unlink()
    run("resume", "run", "--stop-iterations", 7, folder=tmp_path)
    assert len(list(checkpoints.iterdir())) == 6, "what is not known to be unwanted stays"
    run("resume", "run", "--stop-iterations", 8, "--keep", 1, folder=tmp_path)
    assert [path.name for path in checkpoints.iterdir()] == ["000008"]


def test_a_run_whose_plan_is_damaged_does_not_go_on_without_end(tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    shutil.copytree(tmp_path / "run", tmp_path / "whole")
    (tmp_path / "run" / "run.json").write_text("")
    before = (tmp_path / "run" / "results.jsonl").read_bytes()
    done = run("resume", "run", "--stop-iterations", 3, folder=tmp_path, code=1)
    assert "run.json is damaged: it is empty" in done.stderr
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == before
    listed = run("runs", ".", folder=tmp_path).stdout
    assert re.search(r"^run +damaged .*\n^whole +done ", listed, re.MULTILINE)
    assert "local-trainer resume run\n" in listed, "which says what is damaged"


def test_three_runs_started_in_one_second_get_a_directory_each(tmp_path, monkeypatch):
    class SameSecond(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 21, 10, 15, tzinfo=tz)

    monkeypatch.setattr("trainer.cli.commands.dt.datetime", SameSecond)
    for _ in range(3):
        run(
            "train", "--env", ENV, *SMALL, "--num-env-runners", 0, "--stop-iterations", 1,
            folder=tmp_path,
        )  # fmt: skip
    name = f"PPO-{ENV}-20261121-101500"
    made = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert made == [name, f"{name}-2", f"{name}-3"]
    assert all((tmp_path / "runs" / path / "checkpoints" / "000001").is_dir() for path in made)


# ---- what newcomers type


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trian"], "there is no command 'trian'. Did you mean 'train'?"),
        (["train", "--enw", "CartPole-v1"], "--enw (did you mean '--env'?) CartPole-v1"),
        (["evaluate", "run", "--epsiodes=2"], "--epsiodes=2 (did you mean '--episodes'?)"),
        (["--lines", "train"], "unrecognized arguments: --lines"),
        (["train", "--total-timesteps=9"], "(did you mean '--stop-env-steps'?)"),
        (["train", "--run", "DQN"], "--run (did you mean '--algo'?) DQN\n"),
        (["train", "--stop-timesteps=9"], "(did you mean '--stop-env-steps'?)"),
        (
            ["train", "--steps", "9", "--eager"],
            "--steps (did you mean '--stop-env-steps'?) 9 --eager\n",
        ),
        (["train", "--no-tune"], "unrecognized arguments: --no-tune\n"),
        (["evaluate", "run", "--run", "PPO"], "unrecognized arguments: --run PPO\n"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_nearest(words, expected, tmp_path):
    assert expected in run(*words, folder=tmp_path, code=2).stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--jobs", "2"], "no --seeds were given"),
        (["--seeds", "1-2", "--set", "seed=4"], "--set seed=… and --seeds were both given"),
        (["--seed", "3", "--set", "seed=4"], "--seed 3 and --set seed=4 say different things"),
        (["--set", "env=CartPole-v1"], "CountdownEnv and --set env=CartPole-v1 say different"),
        (["--num-env-runners", "1", "--set", "num_env_runners=0"], "--num-env-runners 1 and"),
        (["--track", "mlfow:"], "Did you mean 'mlflow'?"),
        (["--config", "none.yaml"], "there is no such file in"),
        (["--config", "settings.d"], "--config settings.d/settings.json."),
        (["--config", "wrong.json"], "confg (did you mean 'config'?)"),
    ],
)
def test_options_without_effect_or_target_are_refused(words, expected, tmp_path):
    (tmp_path / "settings.d").mkdir()
    (tmp_path / "settings.d" / "settings.json").write_text("{}")
    (tmp_path / "wrong.json").write_text('{"confg": {}}')
    before = sorted(tmp_path.rglob("*"))
    words = ["train", "--env", ENV, "--stop-iterations", "1", *words]
    assert expected in run(*words, folder=tmp_path, code=1).stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_has_ended_says_that_nothing_was_trained(tmp_path):
    train(tmp_path, "--stop-iterations", "1")
    assert "since the run has ended already" in run("resume", "run", folder=tmp_path).stdout
    assert len(rows(tmp_path)) == 1


def test_a_folder_that_is_no_run_is_told_with_the_runs_in_it(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "several" / "seed-0").mkdir(parents=True)
    (tmp_path / "several" / "seed-0" / "results.jsonl").write_text("")
    told = run("evaluate", "several", folder=tmp_path, code=1).stderr
    assert "with runs in it: several/seed-0. Give one" in told
    told = run("evaluate", "empty", folder=tmp_path, code=1).stderr
    assert "local-trainer runs lists runs" in told


def test_what_is_to_be_typed_has_paths_with_spaces_quoted(tmp_path):
    place = tmp_path / "with space" / "checkpoints" / "000001"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{}")
    words = ["train", "--env", ENV, "--stop-iterations", "1", "--run-dir", "with space"]
    assert "local-trainer resume 'with space')" in run(*words, folder=tmp_path, code=1).stderr


def refuse(*_, **__):
    raise DependencyNotInstalled("pygame is not installed, run `pip install pygame`")


def test_a_window_that_cannot_be_opened_is_one_message(tmp_path, monkeypatch):
    train(tmp_path, "--stop-iterations", "1")
    monkeypatch.setattr(Algorithm, "evaluate", refuse)
    told = run("play", "run", "--human", "--env", ENV, folder=tmp_path, code=1).stderr
    assert told == "ConfigError: pygame is not installed, run `pip install pygame`\n"


@pytest.mark.parametrize("has_recorder", [False, True])
def test_all_that_a_film_lacks_is_one_message(tmp_path, monkeypatch, has_recorder):
    train(tmp_path, "--stop-iterations", "1", env="CartPole-v1")
    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.render", refuse)
    monkeypatch.setitem(sys.modules, "moviepy", sys if has_recorder else None)
    told = run("play", "run", "--video", "film.mp4", folder=tmp_path, code=1).stderr
    assert told.startswith("ConfigError: ")
    assert told.endswith("pygame is not installed, run `pip install pygame`\n")
    assert ("local-trainer[video]" in told) != has_recorder
    assert not (tmp_path / "film.mp4").exists()


def test_a_command_without_an_output_does_its_work(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert main(["runs", str(tmp_path)]) == 0


class FullDisk(io.RawIOBase):
    """Refuses every byte, as /dev/full does."""

    def writable(self):
        return True

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self):
        pass


# From Python 3.13 on, a stream tells that it could not be flushed when it was collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("write_through", [False, True])
def test_an_output_that_cannot_be_written_is_one_message(write_through, tmp_path, capsys):
    raw = FullDisk()
    buffered = raw if write_through else io.BufferedWriter(raw)
    with contextlib.redirect_stdout(io.TextIOWrapper(buffered, write_through=write_through)):
        assert main(["runs", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("OSError: [Errno 28] No space left on device: 'standard output'. Free")
    assert told.count("\n") == 1


def test_an_output_of_ascii_alone_gets_escapes(tmp_path):
    raw = io.BytesIO()
    (tmp_path / "lä…").mkdir()
    with contextlib.redirect_stdout(io.TextIOWrapper(raw, encoding="ascii")) as stream:
        assert main(["runs", str(tmp_path / "lä…")]) == 0
        stream.flush()
    assert b"l\\xe4\\u2026" in raw.getvalue()

"""`inspect`, `verify`, `diff` and `export`, on checkpoints that are kept in the repository."""

import errno
import functools
import json
import logging
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from callbacks import EpisodeRecorder
from checkpoints import (
    CheckpointUnreadableError,
    load_weights,
    pack_code,
    read_checkpoint,
    write_checkpoint,
)
from tests.command_line import run
from tests.saved_files import files_of
from tests.small_runs import small_ppo, with_every_component
from trainer import Algorithm, DQNConfig
from trainer.cli.output import PrintableFormatter
from trainer.env_runners.messages import PlayCounts
from trainer.testing.envs import CountdownEnv

FIRST = "run/checkpoints/000001"
HOSTILE = {"slots": [3, {"env_seed": 1, "actions": 7, "episode_number": b"x"}]}


class Bomb:
    """Unpickling it fails."""

    def __reduce__(self):
        return (pytest.fail, ("code of a checkpoint was run",))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of PPO after two iterations."""
    with with_every_component()["ppo"].build_algo() as algo:
        _ = [algo.train() for _ in range(2)]
        return Path(algo.save_to_path(tmp_path_factory.mktemp("saved") / "c"))


@pytest.fixture
def folder(tmp_path, saved):
    """The directory of a run with two checkpoints, the second one changed in two components."""
    first = tmp_path / FIRST
    shutil.copytree(saved, first)
    with Algorithm.from_checkpoint(first) as algo:
        algo.learner.module.parameters.views["pi/1/bias"][1] = 0.5
        algo.counters.played += PlayCounts(num_episodes=3)
        algo.save_to_path(first.with_name("000002"))
    return tmp_path


class DoubledEnv(CountdownEnv):
    """Pays 2 per step."""

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, 2 * reward, *rest


def test_the_env_on_the_command_line_is_the_one_that_evaluates(tmp_path):
    saved = "trainer.testing.envs.CountdownEnv"
    config = small_ppo(env=saved, evaluation_config={"env": saved})
    with config.build_algo() as algo:
        algo.save_to_path(tmp_path / "saved")
    env = ("--env", f"{__name__}.DoubledEnv")
    of_saved, of_given = (
        run("evaluate", "saved", "--episodes", 2, *words, folder=tmp_path).stdout.split()
        for words in ((), env)
    )
    place = of_saved.index("episode_return_mean") + 1
    assert float(of_given[place]) == 2 * float(of_saved[place]) > 0


def test_what_is_evaluated_is_what_the_run_evaluated_also_if_that_is_code(tmp_path, request):
    in_evaluation = {"env": DoubledEnv, "env_config": {"min_length": 4, "max_length": 4}}
    config = small_ppo(
        env="trainer.testing.envs.CountdownEnv",
        evaluation_config=in_evaluation,
        custom_evaluation_function=lambda algorithm, runners: {"a": 1},
    )
    with config.build_algo() as algo:
        algo.save_to_path(tmp_path / "saved")
    words = ("saved", "--episodes", 2, "--allow-code")
    assert "return_mean" in run("evaluate", *words[:-1], folder=tmp_path).stdout  # it is signed
    request.getfixturevalue("as_another_user")
    for verb, told in (("evaluate", "episode_return_mean 8.00"), ("play", "return 8.00 4 steps")):
        assert told in " ".join(run(verb, *words, folder=tmp_path).stdout.split())
        error = run(verb, *words[:-1], folder=tmp_path, code=1).stderr
        assert "evaluation_config=..." in error
        assert "--allow-code" in error
    with Algorithm.from_checkpoint(
        tmp_path / "saved", allow_code=True, evaluation_config={"explore": False}
    ) as algo:
        assert algo.config.evaluation_config == {**in_evaluation, "explore": False}


def test_callbacks_of_evaluation_alone_do_not_hide_what_is_played_nor_record_it(tmp_path, caplog):
    recorded = tmp_path / "recorded"
    config = small_ppo(
        env="trainer.testing.envs.CountdownEnv",
        evaluation_config={"callbacks_class": functools.partial(EpisodeRecorder, recorded)},
    )
    with config.build_algo() as algo:
        algo.evaluate()
        algo.save_to_path(tmp_path / "saved")
    assert recorded.is_dir()
    shutil.rmtree(recorded)
    caplog.clear()
    words = ("saved", "--episodes", 2, "--allow-code")
    assert run("play", *words, folder=tmp_path).stdout.startswith("episode   1 ")
    assert not caplog.messages
    assert "Nothing is recorded" in run("evaluate", *words, folder=tmp_path).stdout
    assert not recorded.exists()


def damage(file):
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


def test_inspect_says_what_is_there_and_what_is_not(folder):
    text = run("inspect", "run", folder=folder).stdout
    assert text.splitlines()[0].endswith("000002")
    for line in (
        "learner/rl_module",
        "running episodes: 2 of 2 env slots",
        "by replay: reset with the same seed",
        "exploration               the strategy has learnt and adapted nothing",
    ):
        assert line in text
    assert "connectors                observations" not in text  # they are there
    report = json.loads(run("inspect", "run/checkpoints/000001", "--json", folder=folder).stdout)
    assert report["components"]["learner/rl_module"]["num_bytes"] == (
        (files_of(folder / FIRST) / "learner.rl_module.state").stat().st_size
    )
    assert report["metadata"]["training_iteration"] == 2
    assert [episode["env_slot"] for episode in report["running_episodes"]] == [0, 1]
    assert set(report["not_included"]) == {"exploration", "actors"}


def test_inspect_names_a_buffer_and_code_that_were_left_out(tmp_path):
    config = DQNConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.training(store_buffer_in_checkpoints=False, model={"fcnet_hiddens": [4]})
    config.callbacks(on_episode_end=lambda **_: None)
    with config.build_algo() as algo:
        algo.save_to_path(tmp_path / "c")
    text = run("inspect", "c", folder=tmp_path).stdout
    assert "replay_buffer             left out (store_buffer_in_checkpoints=False)" in text
    assert "plain settings            callbacks_on_episode_end: code; give them" in text
    assert "loaded only on request" in text
    assert "running episodes: none" in text


def test_inspect_says_which_array_is_in_which_file(tmp_path):
    arrays = {name: np.zeros(2**17 + place) for place, name in enumerate(["obs", "new\x1b"])}
    state = {"columns": arrays, "rest": [np.zeros(3), np.zeros((2, 2**17), np.float32)]}
    path = write_checkpoint(tmp_path / "c", components={"replay_buffer": state}, metadata={})
    text = run("inspect", path, folder=tmp_path).stdout
    lines = [line.split(maxsplit=2) for line in text.splitlines()]
    assert [line for line in lines if line[0].startswith("replay_buffer.")] == [
        ["replay_buffer.0.array", "1,048,576", "columns/obs: float64 [131072]"],
        ["replay_buffer.1.array", "1,048,584", "columns/new\\x1b: float64 [131073]"],
        ["replay_buffer.2.array", "1,048,576", "rest/1: float32 [2, 131072]"],
    ]
    report = json.loads(run("inspect", path, "--json", folder=tmp_path).stdout)
    places = [array["path"] for array in report["components"]["replay_buffer"]["arrays"]]
    assert places == ["columns/obs", "columns/new\x1b", "rest/1"]
    damage(files_of(path) / "replay_buffer.state")
    text = run("inspect", path, folder=tmp_path).stdout
    assert "its component cannot be read" in text
    assert "problem: replay_buffer: " in text


def test_nothing_is_run_and_nothing_steers_the_terminal(tmp_path):
    write_checkpoint(
        tmp_path / "c",
        components={"config": {"code": ["\x1b[2J"]}, "env_runners": HOSTILE, "evaluation": 1},
        metadata={"note\x1b[2J": "\x1b]0;mine\x07"},
        code=pack_code(Bomb()),
    )
    shutil.copytree(tmp_path / "c", tmp_path / "d")
    for words in (
        ["inspect", "c", "--verify"],
        ["inspect", "c", "--json"],
        ["verify", "c"],
        ["diff", "c", "d"],
    ):
        out = run(*words, folder=tmp_path).stdout
        assert "\x1b" not in out
        assert "\x07" not in out
    write_checkpoint(tmp_path / "e", components={"config": {"code": 5}}, metadata={})
    run("inspect", "e", folder=tmp_path)
    refused = run("export", "c", "w.npz", folder=tmp_path, code=1).stderr
    assert "which of its components are weights" in refused
    assert run("export", "c", "w.onnx", folder=tmp_path, code=1).stderr


def test_inspect_of_a_damaged_checkpoint_names_the_damage(folder):
    damage(files_of(folder / "run" / "checkpoints" / "000002") / "env_runners.state")
    text = run("inspect", "run", folder=folder).stdout
    assert "problem: env_runners: " in text
    assert "was altered" in text


def test_verify_judges_every_checkpoint_of_a_run(folder):
    out = run("verify", "run", folder=folder).stdout.splitlines()
    assert [line.split()[0] for line in out] == ["whole", "whole"]
    damage(files_of(folder / "run" / "checkpoints" / "000001") / "learner.rl_module.state")
    out = run("verify", "run", folder=folder, code=1).stdout.splitlines()
    assert [line.split()[0] for line in out] == ["DAMAGED", "whole"]
    assert "CheckpointCorruptError" in out[0]
    (folder / "run" / "checkpoints" / "000002" / "manifest.json").write_text("{")
    found = json.loads(run("verify", "run", "--json", folder=folder, code=1).stdout)
    assert [outcome["is_whole"] for outcome in found] == [False, False]
    run("verify", "nowhere", folder=folder, code=1)


def test_verify_tells_damage_from_what_it_cannot_judge(tmp_path, monkeypatch):
    verdicts = ("code", "cut", "foreign", "locked", "newer", "whole")
    for name in verdicts:
        code = pack_code(lambda: 1) if name == "code" else None
        write_checkpoint(tmp_path / name, components={"a": {"n": 1}}, metadata={}, code=code)
    (files_of(tmp_path / "cut") / "a.state").write_bytes(b"LT")
    (tmp_path / "foreign" / "manifest.json").write_text('{"name": "a web page", "icons": []}')
    newer = (tmp_path / "newer" / "manifest.json").read_text()
    (tmp_path / "newer" / "manifest.json").write_text(
        newer.replace('"format_version": 1', '"format_version": 9')
    )
    opened = os.open

    def refusing(path, *arguments, **named):
        if str(path).endswith("locked/files-1/a.state"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refusing)
    out = run("verify", tmp_path, folder=tmp_path, code=1).stdout.splitlines()
    said = ["whole", "DAMAGED", "no checkpoint", "no access", "newer", "whole"]
    assert [line[:15].strip() for line in out] == said
    assert "some settings are code" in out[0]
    assert "the owner and the permissions" in out[3]
    found = json.loads(run("verify", tmp_path, "--json", folder=tmp_path, code=1).stdout)
    assert [outcome["verdict"] for outcome in found] == [text.lower() for text in said]
    assert [outcome["is_damage"] for outcome in found].count(True) == 1
    locked = tmp_path / "locked"
    with pytest.raises(CheckpointUnreadableError, match=r"a\.state cannot be read"):
        read_checkpoint(locked)


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--verify"], ["verify"], ["resume"]])
def test_texts_of_a_file_cannot_steer_a_terminal(words, tmp_path):
    """Not even in errors and warnings: of keys, components, and names of files."""
    evil = "\x1b[2J\x9b31m\u202e\x07\r"
    state = {"settings": {evil: evil, "env": evil}, "code": [evil], "class": evil, "root_seed": 1}
    parts = {
        "config": state,
        "env_runners": {evil: 1},
        "evaluation": {"running": {"iteration": evil}},
    }
    metadata = {"algorithm": "PPO", evil: evil, "env": evil}
    path = write_checkpoint(tmp_path / f"c{evil}", components=parts, metadata=metadata)
    for damaged in (False, True):
        if damaged:
            damage(files_of(path) / "env_runners.state")
        is_refused = words[0] == "resume" or (damaged and words != ["inspect"])
        done = run(*words, path, folder=tmp_path, code=int(is_refused))
        for shown in (done.stdout, done.stderr):
            assert all(character.isprintable() or character == "\n" for character in shown)
        assert done.stdout + done.stderr
        assert len(done.stdout.splitlines()) != 2 or words != ["verify"], "one line each"


def test_warnings_of_commands_cannot_steer_a_terminal_either():
    record = logging.LogRecord("x", logging.WARNING, "", 1, "left out: %s", ("a\x1b[2Jb\nc",), None)
    assert PrintableFormatter("%(levelname)s %(message)s").format(record) == (
        "WARNING left out: a\\x1b[2Jb\nc"
    )


def test_a_run_of_damaged_checkpoints_only_says_how_many_and_why(folder):
    checkpoints = folder / "run" / "checkpoints"
    (folder / "run" / "run.json").write_text('{"stop": {}}')
    (checkpoints / "000001" / "manifest.json").write_text("")
    file = files_of(checkpoints / "000002") / "env_runners.state"
    file.unlink()
    for command in ("resume", "inspect"):
        told = run(command, "run", folder=folder, code=1).stderr
        assert "holds 2 checkpoints, all damaged" in told
        assert "000002 lacks env_runners.state" in told
        assert str(checkpoints / "000001" / "manifest.json") in told
        assert "before it saved one" not in told


def test_diff_says_where_and_by_how_much(folder):
    first, second = "run/checkpoints/000001", "run/checkpoints/000002"
    same = run("diff", first, first, folder=folder).stdout
    assert same.splitlines()[-1] == "equal"
    out = run("diff", first, second, folder=folder, code=3).stdout
    distance = abs(0.5 - float(load_weights(folder / FIRST)["pi/1/bias"][1]))
    place = f"at most {distance:.6g} at pi/1/bias"
    assert f"learner/rl_module           differs   1 place, {place}" in out
    assert f"pi/1/bias: 1 of 2 numbers   |difference| {distance:.6g}" in out
    assert "learner/optimizer           equal" in out
    assert "num_episodes: " in out
    assert out.splitlines()[-1] == "different"
    found = json.loads(run("diff", first, second, "--json", folder=folder, code=3).stdout)
    differing = {n for n, part in found["components"].items() if part["status"] != "equal"}
    assert differing == {"learner/rl_module", "counters"}
    assert found["components"]["learner/rl_module"]["differences"][0]["max_abs"] == distance


def test_diff_shows_the_first_places_unless_all_are_wanted(folder):
    with with_every_component()["pg"].build_algo() as algo:
        other = algo.save_to_path(folder / "other")
    short = run("diff", FIRST, other, folder=folder, code=3).stdout
    whole = run("diff", FIRST, other, "--all", folder=folder, code=3).stdout
    assert "more (--all shows them)" in short
    assert "more (--all shows them)" not in whole
    assert len(whole.splitlines()) > len(short.splitlines())
    assert "connectors                  only in the first" in short


def test_export_writes_arrays_of_the_weights_or_of_a_component(folder):
    out = run("export", "run", "w.npz", folder=folder).stdout
    weights = load_weights(folder / "run" / "checkpoints" / "000002")
    assert f"{len(weights)} arrays" in out
    with np.load(folder / "w.npz", allow_pickle=False) as archive:
        assert set(archive) == set(weights)
        assert all(np.array_equal(archive[name], weights[name]) for name in weights)
    assert "--overwrite" in run("export", "run", "w.npz", folder=folder, code=1).stderr
    words = ["--component", "learner/optimizer", "--overwrite", "--json"]
    found = json.loads(run("export", "run", "w.npz", *words, folder=folder).stdout)
    assert found["arrays"] == 2 * len(weights)
    with np.load(folder / "w.npz", allow_pickle=False) as archive:
        assert "first_moment/pi/0/kernel" in archive
    run("export", "run/checkpoints/000001/connectors", "c.npz", folder=folder)
    assert "ends with .npz" in run("export", "run", "w.txt", folder=folder, code=1).stderr
    run("export", "run", "w.onnx", "--component", "x", folder=folder, code=1)
    of_policies = ["--module", "x", "--env", "y", "--allow-code"]
    refused = run("export", "run", "v.npz", *of_policies, folder=folder, code=1).stderr
    assert "--env, --module, --allow-code would change nothing about weights" in refused
    assert not (folder / "v.npz").exists()


def test_export_without_the_package_onnx_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    refused = run("export", "run", "w.onnx", folder=folder, code=1).stderr
    assert 'pip install "local-trainer[onnx]"' in refused
    assert not (folder / "w.onnx").exists()

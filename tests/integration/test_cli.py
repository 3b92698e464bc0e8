"""The command line, as a user types it: its own process, its files, its exit codes."""

import json

import pytest

from checkpoints import read_manifest
from tests.command_line import ENV, SMALL, rows, run, run_in_process, train
from trainer.algorithms.time_split import PARTS
from trainer.cli import main
from trainer.metrics import comparable

pytestmark = pytest.mark.process


def outcomes(folder):
    return [comparable(row) for row in rows(folder)]


def test_train_writes_results_and_checkpoints_and_says_what_to_type_next(tmp_path):
    out = train(
        tmp_path, "--stop-iterations", 3, "--checkpoint-every", 1, "--keep", 2, in_process=True
    )
    assert [row["training_iteration"] for row in rows(tmp_path)] == [1, 2, 3]
    assert all("config" not in row for row in rows(tmp_path))
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["000002", "000003"]
    assert "Stopped after 3 iterations." in out
    lines = [line for line in out.splitlines() if line.startswith("iter")]
    assert len(lines) == 3
    assert all(word in lines[0] for word in ("steps/s", "return", "episodes", "ETA"))
    for verb in ("evaluate", "resume", "inspect"):
        assert f"local-trainer {verb} run" in out


@pytest.mark.parametrize("runners", [0, 2])
def test_a_resumed_run_equals_one_that_was_never_interrupted(runners, tmp_path):
    folders = [tmp_path / "whole", tmp_path / "resumed"]
    for folder in folders:
        folder.mkdir()
    whole, resumed = folders
    words = {"env": "CartPole-v1", "runners": runners}
    train(whole, "--stop-iterations", 4, **words)
    train(resumed, "--stop-iterations", 2, **words)
    resume = run_in_process if runners else run  # a process that has trained nothing before
    resume("resume", "run", "--stop-iterations", 4, folder=resumed)
    assert len(outcomes(whole)) == 4
    assert json.dumps(outcomes(whole)) == json.dumps(outcomes(resumed))
    manifests = [read_manifest(folder / "run" / "checkpoints" / "000004") for folder in folders]
    hashes = [{name: part.sha256 for name, part in m.components.items()} for m in manifests]
    assert hashes[0] == hashes[1]


def test_what_is_not_known_yet_is_null_in_the_results(tmp_path):
    config = 'env_config={"min_length": 500, "max_length": 500}'
    train(tmp_path, "--stop-iterations", 1, "--set", config)
    (line,) = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    assert "NaN" not in line
    assert json.loads(line)["env_runners"]["episode_return_mean"] is None


def test_evaluate_plays_the_same_episodes_for_the_same_seed(tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    out = [run("evaluate", "run", "--episodes", 4, folder=tmp_path).stdout for _ in range(2)]
    assert out[0] == out[1]
    assert "iteration 1, 4 episodes:" in out[0]
    assert "episode_return_mean" in out[0]
    other = run("evaluate", "run", "--episodes", 4, "--seed", 1, "--explore", folder=tmp_path)
    assert other.stdout != out[0]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["train", "--env", "CartPol-v1"], 1, "Did you mean 'CartPole-v1'"),
        (
            ["train", "--env", "CartPole-v1", "--algo", "TQC"], 1,
            "SAC solves such tasks. There are: APPO, DDPG, DQN, IMPALA, PG, PPO, SAC, TD3.",
        ),
        (["train", "--env", "CartPole-v1", "--set", "gama=1"], 1, "Did you mean `gamma`"),
        (["train", "--env", "CartPole-v1", "--set", "gamma"], 2, "'gamma' is not NAME=VALUE"),
        (["train"], 1, "--env CartPole-v1"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_message_and_an_exit_code(words, code, expected, tmp_path):
    done = run(*words, folder=tmp_path, code=code)
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is left of a run that never began"


def test_a_traceback_is_shown_on_request(tmp_path):
    words = ("train", "--env", "CartPol-v1")
    done = run_in_process(*words, "--traceback", folder=tmp_path, code=1)
    assert "Traceback" in done.stderr
    assert "Traceback" not in run(*words, folder=tmp_path, code=1).stderr


def test_a_directory_that_holds_a_run_is_not_written_over(tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    before = (tmp_path / "run" / "results.jsonl").read_text()
    done = run("train", "--env", ENV, *SMALL, "--run-dir", "run", "--num-env-runners", 0,
               folder=tmp_path, code=1)  # fmt: skip
    assert "holds a run already" in done.stderr
    assert "local-trainer resume run" in done.stderr
    assert (tmp_path / "run" / "results.jsonl").read_text() == before


def test_profile_says_where_the_time_goes_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "train_batch_size=40", "--set", "minibatch_size=20", "--num-env-runners", "0"]
    assert main(["profile", "--env", "CartPole-v1", *small, "--iterations", "2"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("Settings are given, so all others have their defaults.")
    assert lines[0].startswith("2 iterations, 80 env steps, ")
    assert {line.split()[0] for line in lines[1:-1]} == set(PARTS)
    shares = [float(line.split()[3].rstrip("%")) for line in lines[1:-1]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100.0, abs=0.5)
    assert not list(tmp_path.iterdir())

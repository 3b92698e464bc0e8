"""The command line, as a user types it: its own process, its files, its exit codes."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from checkpoints import latest_checkpoint, read_manifest
from tests.command_line import ENV, SMALL, command, rows, run, run_in_process, train
from trainer.algorithms.time_split import PARTS
from trainer.cli import main
from trainer.metrics import comparable
from trainer.testing.processes import wait_until

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


def test_resuming_from_an_older_checkpoint_forgets_the_results_after_it(tmp_path):
    train(tmp_path, "--stop-iterations", 3, "--checkpoint-every", 1, env="CartPole-v1")
    before = outcomes(tmp_path)
    with (tmp_path / "run" / "results.jsonl").open("a") as file:
        file.write('{"training_iteration": 4, "torn')
    run("resume", "run/checkpoints/000001", "--stop-iterations", 3, folder=tmp_path)
    assert json.dumps(outcomes(tmp_path)) == json.dumps(before)


def test_an_env_named_by_its_path_can_be_resumed_without_allowing_code(tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    run("resume", "run", "--stop-iterations", 2, folder=tmp_path)
    assert len(rows(tmp_path)) == 2


def test_what_is_not_known_yet_is_null_in_the_results(tmp_path):
    config = 'env_config={"min_length": 500, "max_length": 500}'
    train(tmp_path, "--stop-iterations", 1, "--set", config)
    (line,) = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    assert "NaN" not in line
    assert json.loads(line)["env_runners"]["episode_return_mean"] is None


def test_ctrl_c_finishes_the_iteration_and_saves(tmp_path):
    words = ["train", "--env", ENV, *SMALL, "--num-env-runners", 1, "--run-dir", "run"]
    process = subprocess.Popen(
        command(*words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )  # fmt: skip
    results = tmp_path / "run" / "results.jsonl"
    assert wait_until(lambda: results.exists() and results.read_text().count("\n") >= 2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the runner gets it, too
    out, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert errors == ""
    assert "Stopped by you; the iteration was finished and saved." in out
    last = rows(tmp_path)[-1]["training_iteration"]
    saved = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert saved is not None
    assert read_manifest(saved).metadata["training_iteration"] == last


def test_evaluate_plays_the_same_episodes_for_the_same_seed(tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    out = [run("evaluate", "run", "--episodes", 4, folder=tmp_path).stdout for _ in range(2)]
    assert out[0] == out[1]
    assert "iteration 1, 4 episodes:" in out[0]
    assert "episode_return_mean" in out[0]
    other = run("evaluate", "run", "--episodes", 4, "--seed", 1, "--explore", folder=tmp_path)
    assert other.stdout != out[0]


def test_inspect_says_what_is_in_a_checkpoint(tmp_path):
    train(tmp_path, "--stop-iterations", 1)
    out = run("inspect", "run", folder=tmp_path).stdout
    for text in ("algorithm", "PPO", "CountdownEnv", "learner/rl_module", "sha256", "pickled code"):
        assert text in out
    assert "all files are as their hashes say" in run(
        "inspect", "run", "--verify", folder=tmp_path
    ).stdout  # fmt: skip
    file = next((tmp_path / "run").rglob("*rl_module*"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    broken = run("inspect", "run", "--verify", folder=tmp_path, code=1).stderr
    assert "CheckpointCorruptError" in broken
    assert "Traceback" not in broken


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["train", "--env", "CartPol-v1"], 1, "Did you mean 'CartPole-v1'"),
        (["train", "--env", "CartPole-v1", "--algo", "PP0"], 1, "Did you mean 'PPO'"),
        (
            ["train", "--env", "CartPole-v1", "--algo", "TD3"], 1,
            "SAC solves such tasks. There are: DQN, PG, PPO, SAC.",
        ),
        (["train", "--env", "CartPole-v1", "--algo", "sack"], 1, "Did you mean 'SAC'"),
        (["train", "--env", "CartPole-v1", "--set", "gama=1"], 1, "Did you mean `gamma`"),
        (["train", "--env", "CartPole-v1", "--set", "gamma"], 2, "'gamma' is not NAME=VALUE"),
        (["train", "--env", "CartPole-v1", "--set", "lr=fast"], 1, "lr='fast'"),
        (["train"], 1, "--env CartPole-v1"),
        (["fly"], 2, "there is no command 'fly'"),
        ([], 2, "COMMAND"),
        (["resume", "nowhere"], 1, "nowhere"),
        (["evaluate", "nowhere"], 1, "nowhere"),
        (["inspect", "nowhere"], 1, "nowhere"),
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
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 iterations, 80 env steps, ")
    assert {line.split()[0] for line in lines[1:-1]} == set(PARTS)
    shares = [float(line.split()[3].rstrip("%")) for line in lines[1:-1]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100.0, abs=0.5)
    assert not list(tmp_path.iterdir())

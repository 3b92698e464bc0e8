"""`runs`, `watch`, `plot`, `report` and `train --seeds`, as a user types them."""

import json
import signal
import subprocess

import pytest

from tests.command_line import ENV, SMALL, command, rows, run, train
from trainer.runtime.run_lock import RunLock
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = pytest.mark.process


def test_runs_are_listed_watched_drawn_and_reported(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    train(tmp_path, "--stop-iterations", 2)
    listed = run("runs", ".", folder=tmp_path).stdout
    assert "run  done" in listed
    assert "local-trainer plot run -o" in listed
    with RunLock(tmp_path / "run"):
        assert "running" in run("runs", ".", folder=tmp_path).stdout
    watched = run("watch", "run", folder=tmp_path).stdout
    assert [line[:9] for line in watched.splitlines()[:2]] == ["iter    1", "iter    2"]
    assert "Stopped after 2 iterations." in watched
    run("plot", ".", "-o", "curves.svg", folder=tmp_path)
    assert (tmp_path / "curves.svg").read_text().startswith("<?xml")
    run("report", "run", "-o", "page.html", folder=tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert f"local-trainer train --algo PPO --env {ENV} --seed 5" in page
    assert "train_batch_size=40" in page
    assert "There are no runs at" in run("plot", "run/checkpoints", folder=tmp_path, code=1).stderr


def test_a_run_whose_learning_goes_wrong_is_found_out(tmp_path):
    train(tmp_path, "--stop-iterations", 12, "--set", "lr=0.0", "--set", "vf_clip_param=null")
    told = run("check", ".", folder=tmp_path, code=3).stdout
    assert (
        "run: 1 found in 12 results\n  learning_rate_is_zero (default_policy, iteration 10)" in told
    )
    (found,) = json.loads(run("check", "run", "--json", folder=tmp_path, code=3).stdout)["run"]
    assert (found["check"], found["figure"]) == ("learning_rate_is_zero", 0.0)
    assert found["advice"] in found["text"]
    results = tmp_path / "run" / "results.jsonl"
    lines = results.read_text().splitlines()[:9]
    results.write_text("\n".join([*lines, ""]))
    assert run("check", "run", folder=tmp_path).stdout == "run: nothing was found in 9 results\n"
    results.write_text("\n".join([*lines[:3], "torn", *lines[4:], ""]))
    missing = run("check", "run", folder=tmp_path).stdout
    assert missing == "run: nothing was found in 8 results, 1 are missing or cannot be read\n"
    results.write_text("")
    assert "There are no results" in run("check", "run", folder=tmp_path, code=1).stderr
    results.unlink()
    assert "has no results" in run("check", "run", folder=tmp_path, code=1).stderr


def test_names_of_modules_forge_no_lines(tmp_path):
    signs = {"a\nother: nothing was found": {"learning_rate_is_zero": 0.0}}
    rows = [{"training_iteration": i, "learning_signs": signs} for i in range(1, 12)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shown = run("check", "run", folder=tmp_path, code=3).stdout
    assert not any(line.startswith("other") for line in shown.splitlines())


@pytest.mark.parametrize(
    ("status", "state", "held_state", "told"),
    [
        ("TERMINATED", "done", "done", "It has ended: loss <= 1."),
        ("ERROR", "failed", "failed", "Go on: local-trainer tune-resume {experiment}"),
        ("RUNNING", "stopped", "running", "Go on: local-trainer tune-resume {experiment}"),
        ("PAUSED", "stopped", "running", "Go on: local-trainer tune-resume {experiment}"),
    ],
)
def test_a_trial_is_what_its_experiment_says(status, state, held_state, told, tmp_path):
    experiment = tmp_path / "runs" / "tuned"
    trial = experiment / "trials" / "00003"
    trial.mkdir(parents=True)
    reason = "loss <= 1" if status == "TERMINATED" else None
    (trial / "trial.json").write_text(json.dumps({"status": status, "stop_reason": reason}))
    (trial / "results.jsonl").write_text('{"training_iteration": 1}\n')
    told = told.format(experiment=experiment)

    def listed():
        return run("runs", folder=tmp_path).stdout

    assert f"trials/00003  {state}" in listed()
    assert (f"local-trainer tune-resume {experiment}" in listed()) == (state == "stopped")
    assert told in run("watch", trial, "--lines", folder=tmp_path).stdout
    with RunLock(experiment):
        assert f"trials/00003  {held_state}" in listed()
    (trial / "run.json").write_text('{"stop": {}}')  # `resume` has gone on with it alone
    assert "trials/00003  stopped" in listed()
    assert "local-trainer resume runs/tuned/trials/00003" in listed()


def test_a_policy_is_played_and_filmed(tmp_path):
    train(tmp_path, "--stop-iterations", 1, env="CartPole-v1")
    played = run("play", "run", "--episodes", 2, "--seed", 3, folder=tmp_path)
    assert [line.split()[:2] for line in played.stdout.splitlines()] == [
        ["episode", "1"],
        ["episode", "2"],
    ]
    assert not played.stderr
    evaluated = run("evaluate", "run", "--episodes", 2, "--seed", 3, folder=tmp_path).stdout
    returns = [float(line.split()[3]) for line in played.stdout.splitlines()]
    assert f"{sum(returns) / 2:.2f}" in evaluated  # the same episodes
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    filmed = run("play", "run", "--video", "film.mp4", folder=tmp_path)
    assert filmed.stdout.splitlines()[-1] == "film.mp4"
    assert (tmp_path / "film.mp4").stat().st_size > 1000


def test_episodes_that_are_shown_are_those_of_an_evaluation(tmp_path):
    lengths = 'evaluation_config={"env_config": {"min_length": 20, "max_length": 20}}'
    given = ["--set", 'env_config={"min_length": 5, "max_length": 5}', "--set", lengths]
    train(tmp_path, "--stop-iterations", 1, *given)
    for words in ([], ["--human"]):
        assert "20 steps" in run("play", "run", "--env", ENV, *words, folder=tmp_path).stdout


def test_seeds_are_trained_side_by_side_each_as_a_run_of_its_own_one_may_fail(tmp_path):
    (tmp_path / "many" / "seed-3").mkdir(parents=True)
    (tmp_path / "many" / "seed-3" / "results.jsonl").mkdir()  # where no file can be written
    small = [word for word in SMALL if word not in ("--seed", "5")]
    words = ["--env", ENV, *small, "--num-env-runners", "0", "--stop-iterations", "2"]
    many = ["--seeds", "3,5-6", "--jobs", "2", "--run-dir", "many"]
    done = run("train", *words, *many, folder=tmp_path, code=1)
    assert "seed 3: failed with exit code 1" in done.stdout
    assert "2 runs: mean" in done.stdout
    train(tmp_path, "--stop-iterations", 2)  # with seed 5
    alone, beside = rows(tmp_path), rows(tmp_path / "many", name="seed-5")
    assert [row["env_runners"]["hist_stats"] for row in alone] == [
        row["env_runners"]["hist_stats"] for row in beside
    ]
    again = run("train", *words, *many[:1], "4-5", "--run-dir", "many", folder=tmp_path, code=1)
    assert "local-trainer resume many/seed-5" in again.stderr
    assert not again.stdout
    both = run("train", *words, "--seeds", "1-2", "--seed", "1", folder=tmp_path, code=1)
    assert "--seed and --seeds" in both.stderr
    for text in ("3-1", "a", "", "1-"):
        refused = run("train", *words, f"--seeds={text}", folder=tmp_path, code=2)
        assert "is no list of seeds" in refused.stderr
    as_a_number = run("train", *words, "--seeds", "3", folder=tmp_path, code=2)
    assert "train it with --seed 3, or write 0-2 for 3 seeds" in as_a_number.stderr


def test_ctrl_c_ends_all_seeds_and_saves_them(tmp_path):
    words = ["--env", ENV, *SMALL[:-2], "--num-env-runners", "0", "--seeds", "1-2", "--jobs", "2"]
    process = subprocess.Popen(
        command("train", *words, "--run-dir", "many"), cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    files = [tmp_path / "many" / f"seed-{seed}" / "results.jsonl" for seed in (1, 2)]
    children = []
    try:
        assert wait_until(lambda: all(map(has_rows, files)), within_s=60)
        children = [int(file.with_name("run.lock").read_text()) for file in files]
    finally:
        process.send_signal(signal.SIGINT)  # if the test fails, too: nothing shall train on
        code = process.wait(timeout=60)
    assert code == 130
    assert not any(is_process_alive(child) for child in children)
    assert all(list((file.parent / "checkpoints").glob("0*")) for file in files)


def has_rows(file):
    return file.exists() and file.stat().st_size > 0

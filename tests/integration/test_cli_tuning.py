"""`tune`, `tune-resume`, `trials` and `best`: wrong arguments, JSON, and what they say to type."""

import json
import shlex
from pathlib import Path

import pytest

from trainer import tune
from trainer.cli.main import main
from trainer.errors import ConfigError
from trainer.metrics import ResultDict
from trainer.tune.journal_file import read_journal
from trainer.tune.population_based_training import PopulationBasedTraining
from trainer.tune.stoppers import StopCriteria
from trainer.tune.stored_spec import described_stop, stop_of_plain
from trainer.tune.tuner import Tuner

TUNER = """
from trainer import tune


def climb(config):
    for step in range(3):
        tune.report({"loss": config["x"] * step, "deep": {"inside": step}})


def make():
    return tune.Tuner(
        climb,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            num_samples=2, seed=0, metric="loss", mode="min", in_process=True
        ),
        run_config=tune.RunConfig(name="climb"),
    )
"""


@pytest.fixture
def experiment(tmp_path, monkeypatch, capsys):
    """What `tune` printed about an experiment of code; the working directory is its own."""
    monkeypatch.chdir(tmp_path)
    Path("my tuner.py").write_text(TUNER)
    assert main(["tune", "my tuner.py:make"]) == 0
    return capsys.readouterr().out


def test_the_commands_that_are_printed_at_the_end_work(experiment, capsys):
    printed = [line.strip() for line in experiment.splitlines() if "  local-trainer" in line]
    assert len(printed) == 3
    for line in printed:
        assert main(shlex.split(line)[1:]) == 0
    capsys.readouterr()


def test_an_interrupted_experiment_says_how_to_go_on(experiment, capsys):
    code = TUNER.replace("def climb(config):", "def climb(config):\n    raise KeyboardInterrupt")
    Path("my tuner.py").write_text(code.replace('name="climb"', 'name="stopped"'))
    assert main(["tune", "my tuner.py:make"]) == 130
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "tune-resume" in line]
    Path("my tuner.py").write_text(TUNER)
    assert main(shlex.split(line)[1:]) == 0
    assert "stopped" in capsys.readouterr().out


REFUSED = """
from pathlib import Path

from trainer import tune


class Climbing(tune.Trainable):
    def step(self):
        return {"loss": self.iteration}

    def save_checkpoint(self, checkpoint_dir):
        if Path("full").exists():
            raise OSError(28, "No space left on device")

    def load_checkpoint(self, checkpoint):
        pass


def make():
    return tune.Tuner(
        Climbing,
        tune_config=tune.TuneConfig(seed=0, in_process=True),
        run_config=tune.RunConfig(name="x", stop={"training_iteration": 2}),
    )
"""


def test_a_last_state_that_the_disk_refuses_is_an_error_until_it_is_saved(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    Path("tuner.py").write_text(REFUSED)
    Path("full").touch()
    assert main(["tune", "tuner.py:make"]) == 1
    assert "its state after report 2 could not be saved" in caplog.text
    assert main(["tune-resume", "runs/x", "tuner.py:make"]) == 1
    Path("full").unlink()
    assert main(["tune-resume", "runs/x", "tuner.py:make"]) == 0
    assert Path("runs/x/trials/00000/checkpoints/000002").is_dir()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "lr=1", "--space", "lr=uniform(0, 1)"], "--space says what 'lr' is, and so"),
        (["--set", "env=Other-v1"], "--env says what 'env' is, and so does another option"),
    ],
)
def test_what_two_options_say_is_refused(words, told, capsys):
    assert main(["tune", "PPO", "--env", "CartPole-v1", *words]) == 1
    assert told in capsys.readouterr().err


def test_two_bounds_of_one_key_both_end_trials_and_are_known_at_a_restore(experiment, capsys):
    bounds = ["--stop", "loss>=9", "--stop", "loss<=0", "--stop", "training_iteration=5"]
    assert main(["tune-resume", "runs/climb", "my tuner.py:make", *bounds]) == 0
    described = [[["loss", ">=", 9.0], ["training_iteration", ">=", 5.0]], [["loss", "<=", 0.0]]]
    causes = [move.get("cause", {}) for move in read_journal(Path("runs/climb/journal.jsonl"))[0]]
    assert [cause["stop"] for cause in causes if cause.get("has_new_stop")] == [described]
    assert described_stop(StopCriteria(stop_of_plain(described))) == described


def test_what_is_best_is_asked_for_in_words_of_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tuner.py").write_text(REFUSED)
    assert main(["tune", "tuner.py:make"]) == 0
    assert main(["best", "runs/x", "--mode", "min"]) == 1
    assert "metric None, mode 'min'. Say it: --metric" in capsys.readouterr().err
    assert main(["best", "runs/x", "--mode", "min", "--metric", "loss"]) == 0


def test_an_experiment_of_code_is_not_gone_on_with_without_it(experiment, capsys):
    assert main(["tune-resume", "runs/climb"]) == 1
    assert "tune-resume runs/climb FILE.py:NAME" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["trials", "runs/climb"], ["best", "runs/climb"], []])
def test_json_is_all_that_is_printed(experiment, words, capsys):
    words = words or ["tune-resume", "runs/climb", "my tuner.py:make", "--num-samples", "3"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--sort", "los"], "--sort 'los': no trial has it.*Did you mean 'loss'"),
        (["--columns", "x,deep/insde"], "--columns 'deep/insde'.*Did you mean 'deep/inside'"),
        (["--filter", "y<1"], "--filter 'y': no trial has it"),
        (["--filter", "x<<1"], "'<1' is no number"),
        (["--filter", "x"], "expected such as 'lr<1e-3'"),
    ],
)
def test_what_no_trial_has_is_named(experiment, words, expected, capsys):
    assert main(["trials", "runs/climb", *words]) == 1
    error = capsys.readouterr().err
    for part in expected.split(".*"):
        assert part in error


def test_what_trials_have_is_shown(experiment, capsys):
    shown = ["--columns", "deep/inside,x", "--filter", "status==TERMINATED", "--sort", "x"]
    assert main(["trials", "runs/climb", *shown]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["trial", "status", "deep/inside", "x"]
    assert [line.split()[0] for line in lines[1:]] == ["00001", "00000"]


def test_a_whole_tuner_takes_no_other_arguments(experiment, capsys):
    assert main(["tune", "my tuner.py:make", "--num-samples", "9", "--set", "lr=1"]) == 1
    assert "--set, --num-samples would change nothing" in capsys.readouterr().err


def test_a_name_that_is_taken_is_answered_in_words_of_the_command_line(experiment, capsys):
    assert main(["tune", "PPO", "--env", "CartPole-v1", "--name", "climb"]) == 1
    error = capsys.readouterr().err
    assert "local-trainer tune-resume runs/climb" in error
    assert "--name climb-2" in error


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--scheduler", "ahsa"], 2, "Did you mean 'asha'"),
        (["--search", "optna"], 2, "Did you mean 'optuna'"),
        (["--scheduler", "median"], 1, "--metric env_runners/episode_return_mean"),
        (["--scheduler", "pbt", "--metric", "a", "--mode", "max"], 1, "--space 'lr="),
    ],
)
def test_what_a_scheduler_lacks_is_told(tmp_path, words, code, expected, capsys):
    where = ["--storage-path", str(tmp_path), "--env", "CartPole-v1"]
    try:
        returned = main(["tune", "PPO", *where, *words])
    except SystemExit as ended:
        returned = int(ended.code or 0)
    assert returned == code
    assert expected in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_population_changes_what_is_searched(tmp_path, monkeypatch):
    begun = []

    def begin(tuner):
        begun.append(tuner)
        raise ConfigError

    monkeypatch.setattr(Tuner, "fit", begin)
    searched = ["--space", "lr=uniform(0.001, 0.1)", "--space", "gamma=grid_search([0.9, 0.99])"]
    by = ["--scheduler", "pbt", "--metric", "env_runners/episode_len_mean", "--mode", "max"]
    where = ["--storage-path", str(tmp_path), "--env", "CartPole-v1"]
    assert main(["tune", "PPO", *where, *searched, *by]) == 1
    scheduler = begun[0]._setup.tune_config.scheduler
    assert isinstance(scheduler, PopulationBasedTraining)
    assert sorted(scheduler._explore.domains) == ["gamma", "lr"]


def test_the_best_config_is_what_train_takes_and_trains_as_the_trial_did(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    small = ["num_env_runners=0", "train_batch_size=64", "minibatch_size=32", "num_epochs=1"]
    settings = [word for each in small for word in ("--set", each)]
    searched = ["--space", "lr=loguniform(1e-5, 1e-2)", "--space", "gamma=choice([0.9, 0.99])"]
    steps = "num_env_steps_sampled_lifetime"
    asked = ["--num-samples", "2", "--stop", "training_iteration=2", "--metric", steps]
    words = ["--env", "CartPole-v1", *searched, *settings, *asked, "--mode", "max", "--name", "x"]
    assert main(["tune", "PPO", *words]) == 0
    capsys.readouterr()
    assert main(["best", "runs/x", "--config-only"]) == 0
    Path("best.json").write_text(capsys.readouterr().out, encoding="utf-8")
    words = ["--config", "best.json", "--stop-iterations", "2", "--run-dir", "runs/again"]
    assert main(["train", *words]) == 0
    trial = tune.Result.from_path("runs/x/trials/00000")
    lines = Path("runs/again/results.jsonl").read_text(encoding="utf-8").splitlines()
    losses = "learners/default_policy/total_loss"
    assert [ResultDict(json.loads(each))[losses] for each in lines] == [
        row[losses] for row in trial.rows()
    ]


@pytest.mark.parametrize("words", [["watch", "runs/climb"], ["runs"], ["watch", "runs"]])
def test_who_looks_at_runs_after_tune_is_led_to_the_experiment(experiment, words, capsys):
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "runs/climb/trials/00001" in told
    next_ones = [line.strip() for line in told.splitlines() if "  local-trainer" in line]
    assert "local-trainer best runs/climb" in next_ones
    for line in next_ones:
        if " plot " not in line:
            assert main(shlex.split(line)[1:]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("verb", ["resume", "evaluate", "inspect"])
def test_what_wants_a_run_names_the_commands_of_an_experiment(verb, experiment, capsys):
    assert main([verb, "runs/climb"]) == 1
    told = capsys.readouterr().err
    assert "local-trainer best runs/climb names" in told
    assert "tune-resume runs/climb goes on" in told


@pytest.mark.parametrize("verb", ["best", "trials", "tune-resume"])
@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("runs", "Give one of the experiments in it: climb."),
        ("single", "It is a single run; experiments are what tune begins."),
        ("runs/climb/trials", "Give the experiment's folder, "),
    ],
)
def test_what_wants_an_experiment_says_where_one_is(verb, path, hint, experiment, capsys):
    Path("single").mkdir()
    Path("single/results.jsonl").touch()
    assert main([verb, path]) == 1
    told = capsys.readouterr().err
    assert hint in told
    assert told.startswith("TuneError: ")

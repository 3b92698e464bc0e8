"""`train` without settings begins with the env's recipe, and says so; `recipes` shows them."""

import json

import pytest

from tests.command_line import run
from trainer.cli.main import make_parser
from trainer.cli.recipes import recipe_of_run
from trainer.config.recipes import recipe_for

pytestmark = pytest.mark.process
SHORT = ["--stop-iterations", 1, "--run-dir", "run", "--seed", 0]


def settings_of(folder):
    return json.loads((folder / "run" / "settings.json").read_text())


def test_an_env_alone_is_trained_by_its_recipe(tmp_path):
    out = run("train", "--env", "CartPole-v1", *SHORT, folder=tmp_path).stdout
    recipe = recipe_for("CartPole-v1")
    assert "Recipe CartPole-v1 of PPO: 100,000 env steps" in out
    assert settings_of(tmp_path)["config"]["clip_param"] == recipe.settings["clip_param"]


@pytest.mark.parametrize(
    ("words", "steps"),
    [([], 100_000), (["--stop-return", "450"], None), (["--recipe", "classic"], 200_000)],
)
def test_the_recipe_decides_how_long_where_nothing_else_does(words, steps):
    arguments = make_parser().parse_args(["train", "--env", "CartPole-v1", *words])
    recipe_of_run(arguments)
    assert arguments.stop_env_steps == steps


def test_settings_change_a_recipe_that_is_asked_for(tmp_path):
    words = ["--env", "CartPole-v1", "--recipe", "CartPole-v1", "--set", "lr=0.0"]
    run("train", *words, *SHORT, folder=tmp_path)
    given = settings_of(tmp_path)["config"]
    assert given["lr"] == 0.0
    assert given["lambda_"] == 0.8


@pytest.mark.parametrize("words", [["--recipe", "none"], ["--set", "gamma=0.98"], ["--algo", "PG"]])
def test_plain_defaults_where_they_are_asked_for_or_settings_are_given(words, tmp_path):
    out = run("train", "--env", "CartPole-v1", *words, *SHORT, folder=tmp_path).stdout
    assert "Recipe CartPole" not in out
    assert "clip_param" not in settings_of(tmp_path)["config"]


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        (["--stop-return", "450"], True),
        (["--stop-env-steps", "200000"], True),
        (["--stop-env-steps", "100000"], False),
        ([], False),
    ],
)
def test_a_run_that_may_outlast_the_schedules_is_said_to(words, is_said, capsys):
    recipe_of_run(make_parser().parse_args(["train", "--env", "CartPole-v1", *words]))
    assert ("schedules end after 100,000" in capsys.readouterr().out) == is_said


def test_after_the_schedules_no_further_training_is_proposed(tmp_path):
    words = ["--recipe", "CartPole-v1", "--set", "lr=[[0, 0.001], [500, 0.0]]", "--run-dir", "run"]
    out = run(
        "train", "--env", "CartPole-v1", *words, "--stop-iterations", 1, folder=tmp_path
    ).stdout
    assert "local-trainer evaluate run" in out
    assert "local-trainer resume" not in out


def test_a_recipe_that_settings_keep_away_is_named(tmp_path):
    words = ["--set", "num_env_runners=0"]
    out = run("train", "--env", "CartPole-v1", *words, *SHORT, folder=tmp_path).stdout
    assert "To change those of the env's recipe: --recipe CartPole-v1." in out


def test_recipes_of_one_algorithm_are_listed(tmp_path):
    rows = run("recipes", "--algo", "SAC", folder=tmp_path).stdout.splitlines()[1:]
    assert rows
    assert {row.split()[1] for row in rows} == {"SAC"}
    assert "'XX'" in run("recipes", "--algo", "XX", folder=tmp_path, code=1).stderr


def test_a_recipe_beside_a_config_file_is_refused(tmp_path):
    (tmp_path / "mine.json").write_text('{"env": "CartPole-v1"}')
    words = ["--config", "mine.json", "--recipe", "classic"]
    out = run("train", *words, folder=tmp_path, code=1).stderr
    assert "--recipe classic and --config mine.json both say what to begin with" in out


def test_recipes_are_listed_and_shown(tmp_path):
    listed = run("recipes", folder=tmp_path).stdout
    assert "HalfCheetah-v5" in listed
    assert "mujoco" in listed
    shown = run("recipes", "mujoco", folder=tmp_path).stdout
    assert '"MeanStdFilter"' in shown
    assert "rl baselines3 zoo" in shown.lower()

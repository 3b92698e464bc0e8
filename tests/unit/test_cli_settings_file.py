"""Files of `--config`: every name in them counts, and what is said twice must be the same."""

import json

import pytest

from tests.command_line import run
from trainer import PPOConfig
from trainer.cli.settings_file import Experiment, read_experiment, require_code
from trainer.errors import ConfigError

OBJECT = """
from trainer import PPOConfig
config = PPOConfig().environment("CartPole-v1").training(lr=0.25)
"""


def test_a_config_object_of_another_algorithm_than_algo_is_refused(tmp_path):
    (tmp_path / "object.py").write_text(OBJECT)
    words = ["train", "--config", "object.py", "--algo", "DQN", "--stop-iterations", "1"]
    error = run(*words, folder=tmp_path, code=1).stderr
    assert "object.py holds a PPOConfig, and --algo says DQN" in error
    assert "Leave one out" in error


def test_a_config_object_counts_if_algo_names_its_algorithm(tmp_path):
    (tmp_path / "object.py").write_text(OBJECT.replace("lr=0.25", "lr=-1"))
    words = ["train", "--config", "object.py", "--algo", "PPO", "--stop-iterations", "1"]
    assert "lr" in run(*words, folder=tmp_path, code=1).stderr


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"env": "A-v1", "config": {"env": "B-v1"}}, "env='A-v1' and config.env='B-v1'"),
        ({"algo": "PPO", "run": "DQN"}, "algo='PPO' and run='DQN'"),
        ({"stop": 10}, "has stop=10, which is no table"),
    ],
)
def test_what_a_file_says_twice_or_as_no_table_is_refused(values, expected, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match=expected):
        read_experiment(str(tmp_path / "c.json"))


def test_an_empty_key_and_the_same_said_twice_are_no_error(tmp_path):
    file = tmp_path / "c.json"
    values = {"algo": "PPO", "run": "PPO", "env": "A-v1", "config": {"env": "A-v1"}, "stop": None}
    file.write_text(json.dumps(values))
    found = read_experiment(str(file))
    assert (found.algo, found.env, found.stops) == ("PPO", "A-v1", {})


def test_names_of_a_module_count_beside_a_config_that_is_wrapped(tmp_path):
    file = tmp_path / "wrapped.py"
    text = 'algo = "DQN"\nenv = "A-v1"\nstop = {"iterations": 3}\nsave = {"keep": 2}\n'
    file.write_text(text + 'config = {"config": {"lr": 0.5}}\n')
    found = read_experiment(str(file))
    assert (found.algo, found.env, found.settings) == ("DQN", "A-v1", {"lr": 0.5})
    assert (found.stops, found.saving) == ({"stop_iterations": 3}, {"keep": 2})
    file.write_text(text + 'config = {"algo": "PPO", "config": {}}\n')
    with pytest.raises(ConfigError, match="algo='DQN' and config\\['algo'\\]='PPO'"):
        read_experiment(str(file))


@pytest.mark.parametrize("line", ['env = "A-v1"', 'algo = "DQN"'])
def test_a_name_beside_a_config_object_that_says_otherwise_is_refused(line, tmp_path):
    (tmp_path / "object.py").write_text(f"{OBJECT}{line}\n")
    with pytest.raises(ConfigError, match=f"{line.split()[0]}=.* beside a PPOConfig"):
        read_experiment(str(tmp_path / "object.py"))


def test_saving_and_the_same_names_count_beside_a_config_object(tmp_path):
    text = 'save = {"keep": 2}\nstop = {"iterations": 3}\nenv = "CartPole-v1"\nalgo = "PPO"\n'
    (tmp_path / "object.py").write_text(OBJECT + text)
    found = read_experiment(str(tmp_path / "object.py"))
    assert found.config is not None
    assert (found.stops, found.saving) == ({"stop_iterations": 3}, {"keep": 2})


def test_a_file_of_another_kind_is_told_as_a_file(tmp_path):
    (tmp_path / "c.txt").write_text("lr: 0.1")
    with pytest.raises(ConfigError, match=r"expected a file \.json"):
        read_experiment(str(tmp_path / "c.txt"))


@pytest.mark.parametrize("typed", [0, 2])  # 2 is what the algorithm has by itself
def test_what_is_typed_stands_above_a_file_that_has_the_old_name_of_it(
    typed, tmp_path, monkeypatch
):
    built = []

    def build(config):
        built.append(config)
        raise ZeroDivisionError

    monkeypatch.setattr(PPOConfig, "build_algo", build)
    file = {"num_workers": 1, "sgd_minibatch_size": 8, "lr_schedule": [[0, 0.5], [9, 0.1]]}
    (tmp_path / "c.json").write_text(json.dumps({"env": "CartPole-v1", "config": file}))
    words = ["--num-env-runners", typed, "--set", "minibatch_size=16", "--set", "lr=0.25"]
    with pytest.raises(ZeroDivisionError):
        run("train", "--config", "c.json", *words, folder=tmp_path)
    (config,) = built
    assert (config.num_env_runners, config.minibatch_size, config.lr) == (typed, 16, 0.25)


def test_mistakes_in_the_file_and_in_what_is_typed_are_told_together(tmp_path):
    file = {"num_wrkers": 1, "gamma": 3}
    (tmp_path / "c.json").write_text(json.dumps({"env": "CartPole-v1", "config": file}))
    words = ["--set", "lr=-1", "--set", "lamda=1"]
    told = run("train", "--config", "c.json", *words, folder=tmp_path, code=1).stderr
    for name in ("num_wrkers", "gamma", "lr", "lamda"):
        assert told.count(f"`{name}=") == 1


def test_code_that_cannot_be_typed_leads_to_the_file_that_defines_it():
    code = {"env": "<class 'Mine'>", "learner_class": "<class 'Own'>"}
    with pytest.raises(ConfigError) as caught:
        require_code(Experiment(code=code), [], "run/settings.json")
    told = str(caught.value)
    assert "Type it: --env NAME (it was <class 'Mine'>). `learner_class` (it was" in told
    assert "cannot be typed: give --config the .py file" in told
    assert "--set" not in told


@pytest.mark.parametrize("text", ['{"lr": 0.1}', "lr=0.1"])
def test_settings_in_place_of_a_file_are_led_to_set(text):
    with pytest.raises(ConfigError, match="Single settings are typed by --set NAME=VALUE"):
        read_experiment(text)


def test_a_file_of_several_runs_is_refused_by_their_names(tmp_path):
    file = tmp_path / "tuned.json"
    each = {"env": "CartPole-v1", "run": "PPO"}
    file.write_text(json.dumps({"one": each}))
    assert read_experiment(str(file)).algo == "PPO"
    file.write_text(json.dumps({"one": each, "two": each}))
    with pytest.raises(ConfigError, match="describes 2 runs: one, two"):
        read_experiment(str(file))

"""`rllib-check`: what it prints, and scripts for RLlib that run as they are, through the hook."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.command_line import run
from trainer import ConfigError, PPOConfig, TrainerError
from trainer.old_names import ANSWERS_RAY
from trainer.rllib_scripts.example_scripts import (
    add_rllib_example_script_args,
    check_learning_achieved,
    run_rllib_example_script_experiment,
    should_stop,
)
from trainer.rllib_scripts.import_hook import NotHereError, RayFinder, ray_answered

PROJECT = Path(__file__).parents[2]
FINE = "from ray.rllib.algorithms.ppo import PPOConfig\n"
CHANGE = FINE + "PPOConfig().learners(num_learners=2)\n"
STOP = "from ray.rllib.algorithms.ddppo import DDPPOConfig\n"

TRAINS = """
import logging
import sys
import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_EPISODES
from corridor import Corridor

class Counting(RLlibCallback):
    def on_episode_end(self, *, metrics_logger, **kwargs):
        metrics_logger.log_value("ended", 1, reduce="sum")

logging.basicConfig(format="its own format: %(message)s")
logging.warning("begun")
ray.init(num_cpus=2)
tune.register_env("corridor", lambda config: Corridor(config))
config = (
    PPOConfig()
    .environment("corridor", env_config={"length": 3})
    .env_runners(num_env_runners=1)
    .training(train_batch_size=40, minibatch_size=20, num_epochs=1, model={"fcnet_hiddens": [4]})
    .callbacks(Counting)
)
algo = config.build_algo()
result = algo.train()
print("ended", int(result[ENV_RUNNER_RESULTS]["ended"]), result[ENV_RUNNER_RESULTS][NUM_EPISODES])
print("words", sys.argv[1:], __name__)
algo.stop()
sys.exit(5)
"""
CORRIDOR = """
import gymnasium as gym
import ray
from ray.rllib.env import EnvContext

class Corridor(gym.Env):
    observation_space = gym.spaces.Box(0.0, 9.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        assert isinstance(config, EnvContext) and config.worker_index == 1
        self.length = config["length"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self._obs(), {}

    def step(self, action):
        self.at += 1
        return self._obs(), 1.0, self.at >= self.length, False, {}

    def _obs(self):
        return self.observation_space.low + self.at
"""


def written(folder, **texts):
    """The paths of scripts with these texts."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text), "utf-8")
    return [f"{name}.py" for name in texts]


def run_here(*words, folder, **variables):
    """The command in a process of its own."""
    paths = os.pathsep.join([str(PROJECT), *variables.pop("paths", ())])
    return subprocess.run(
        [sys.executable, "-m", "trainer.cli", "rllib-check", *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": paths, **variables},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


# ---- the command


@pytest.mark.parametrize(
    ("scripts", "code", "last"),
    [
        ({"a": FINE}, 0, "= runs as it is (through the hook)."),
        ({"a": CHANGE}, 3, "= runs after these changes: learners(num_learners=…)."),
        ({"a": STOP}, 3, "= does not run: ray.rllib.algorithms.ddppo.DDPPOConfig."),
        (
            {"a": FINE, "b": CHANGE, "c": STOP},
            3,
            "3 scripts: 1 as they are, 1 after changes, 1 do not run.",
        ),
    ],
)
def test_each_script_has_lines_and_a_verdict(scripts, code, last, tmp_path):
    out = run("rllib-check", *written(tmp_path, **scripts), folder=tmp_path, code=code).stdout
    assert out.startswith("a.py\n")
    assert out.rstrip().splitlines()[-1] == last
    if CHANGE in scripts.values():
        assert "~ line 2 learners(num_learners=…): not offered in this version. Leave it" in out
        assert "  line 1 ray.rllib.algorithms.ppo.PPOConfig: `from trainer import PPO" in out


def test_programs_get_json(tmp_path):
    words = [*written(tmp_path, a=FINE, b=STOP), "--json"]
    first, second = json.loads(run("rllib-check", *words, folder=tmp_path, code=3).stdout)
    assert (first["path"], first["fate"], second["fate"]) == ("a.py", "here", "stop")
    (finding,) = second["findings"]
    assert finding == {
        "path": "b.py",
        "line": 1,
        "what": "ray.rllib.algorithms.ddppo.DDPPOConfig",
        "fate": "stop",
        "told": "DDPPO is not here; PPO solves such tasks.",
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a.py", "b.py", "--run"], "--run takes one script"),
        (["a.py", "--run", "--json"], "--run takes one script"),
        (["a.py", "--", "--stop-iters", "1"], "add --run"),
        (["nothing.py"], "No such file"),
    ],
)
def test_wrong_words_are_told(words, told, tmp_path):
    written(tmp_path, a=FINE, b=FINE)
    assert told in run("rllib-check", *words, folder=tmp_path, code=1).stderr


# ---- running


@pytest.mark.process
def test_a_script_runs_as_it_is_with_its_words_and_its_exit_code(tmp_path):
    written(tmp_path, script=TRAINS, corridor=CORRIDOR)
    done = run_here("script.py", "--run", "--", "--first", "second", folder=tmp_path)
    assert done.returncode == 5, done.stderr
    assert "ended 13 13" in done.stdout
    assert "words ['--first', 'second'] __main__" in done.stdout
    assert "= runs as it is (through the hook)." in done.stderr
    assert "its own format: begun" in done.stderr


def test_a_script_that_needs_what_is_not_here_is_told_where(tmp_path):
    written(tmp_path, script=STOP)
    done = run_here("script.py", "--run", folder=tmp_path)
    assert done.returncode == 1
    assert "line 1, in <module>" in done.stderr
    assert "`ray.rllib.algorithms.ddppo` is not here: DDPPO is not here" in done.stderr


@pytest.mark.process
def test_trials_and_examples_of_an_installed_ray_find_the_hook(tmp_path):
    folder = tmp_path / "site" / "ray" / "rllib" / "examples" / "envs"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    for package in (folder.parents[1], folder.parents[2]):
        (package / "__init__.py").write_text("raise SystemExit('Ray itself was imported')\n")
    (folder / "corridor.py").write_text(CORRIDOR)
    text = """
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.examples.envs.corridor import Corridor
        from ray.rllib.examples.utils import (
            add_rllib_example_script_args,
            run_rllib_example_script_experiment,
        )

        args = add_rllib_example_script_args(default_reward=2.0, default_iters=3).parse_args()
        config = PPOConfig().environment(Corridor, env_config={"length": 3})
        config.training(train_batch_size=40, minibatch_size=20, num_epochs=1)
        results = run_rllib_example_script_experiment(config, args)
        print("iterations", results[0].metrics["training_iteration"])
        """
    written(tmp_path, script=text)
    words = ["--", "--num-env-runners", "1", "--as-test"]
    site = [str(tmp_path / "site")]
    done = run_here("script.py", "--run", *words, folder=tmp_path, paths=site)
    assert done.returncode == 0, done.stderr
    assert "`env_runners/episode_return_mean` of 2.0 was reached." in done.stdout
    assert "iterations 1" in done.stdout
    assert "examples is not found" in run_here("script.py", folder=tmp_path).stdout


# ---- the hook


def test_the_hook_is_gone_behind_its_block():
    finders, before = list(sys.meta_path), set(sys.modules)
    with ray_answered():
        import ray
        from ray.rllib.algorithms.ppo import PPOConfig as OfRay
        from ray.rllib.examples.utils import should_stop as of_examples

        assert os.environ[ANSWERS_RAY]
        assert OfRay is PPOConfig
        assert of_examples is should_stop
        assert ray.tune.Tuner.__module__ == "trainer.tune.tuner"
        with pytest.raises(NotHereError, match="Did you mean 'PPOConfig'"):
            exec("from ray.rllib.algorithms.ppo import PPOConfg")
        with pytest.raises(NotHereError, match="nothing here has this name"):
            exec("import ray.rllib.nowhere")
    assert sys.meta_path == finders
    assert ANSWERS_RAY not in os.environ
    assert not [name for name in sys.modules if name.partition(".")[0] == "ray"]
    assert "trainer.tune.registry" not in set(sys.modules) - before


def test_the_hook_takes_nothing_away_from_a_ray_that_was_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", sys)
    with pytest.raises(NotHereError, match="imported before"), ray_answered():
        pass
    assert sys.modules["ray"] is sys


@pytest.mark.parametrize(("variables", "is_answered"), [({}, False), ({ANSWERS_RAY: "1"}, True)])
def test_the_hook_is_in_processes_of_such_scripts_only(variables, is_answered, tmp_path):
    code = (
        "import sys, trainer\n"
        f"print([type(each).__name__ for each in sys.meta_path].count({RayFinder.__name__!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **variables},
    )  # fmt: skip
    assert done.stdout.strip() == str(int(is_answered))


# ---- the runner of example scripts


def small():
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.debugging(seed=0)
    return config.training(train_batch_size=200, minibatch_size=100, num_epochs=1)


def words(*given):
    return add_rllib_example_script_args(default_iters=2).parse_args(given)


def test_without_tune_the_last_result_is_returned(capsys):
    config = small()
    result = run_rllib_example_script_experiment(
        config, words("--no-tune", "--num-envs-per-env-runner", "2", "--evaluation-interval", "1")
    )
    assert result["training_iteration"] == 2
    assert (config.num_envs_per_env_runner, config.evaluation_interval) == (2, 1)
    assert "iter=2 R=" in capsys.readouterr().out
    assert should_stop({"training_iteration": 2, "nothing": 0}, result)
    assert not should_stop({"training_iteration": 3, "env_runners": 0}, result)


def test_a_config_that_is_to_be_kept_is_kept():
    config = small()
    arguments = words("--no-tune", "--num-envs-per-env-runner", "2", "--stop-timesteps", "200")
    result = run_rllib_example_script_experiment(config, arguments, keep_config=True)
    assert config.num_envs_per_env_runner == 1
    assert result["training_iteration"] == 1


@pytest.mark.process
def test_a_test_that_does_not_reach_its_bound_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = words("--as-test", "--stop-iters", "1")
    with pytest.raises(TrainerError, match=r"episode_return_mean` of 500\.0 was not reached"):
        run_rllib_example_script_experiment(
            small(), arguments, success_metric={"env_runners/episode_return_mean": 500.0}
        )
    results = run_rllib_example_script_experiment(small(), words("--stop-iters", "1"))
    assert check_learning_achieved(results, 5.0) >= 5.0


@pytest.mark.parametrize(
    "argument", ["--old-api-stack", "--enable-new-api-stack", "--output=here", "--wandb-key=a"]
)
def test_arguments_that_ask_for_what_is_not_here_are_refused(argument):
    with pytest.raises(ConfigError, match=argument.partition("=")[0]):
        run_rllib_example_script_experiment(small(), words(argument))

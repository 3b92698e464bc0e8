"""The quarantine of RLlib's old names can be deleted: everything else works without it."""

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGES

PROJECT = Path(__file__).parents[2]
QUARANTINE = ("trainer/rllib_names", "callbacks/rllib_names.py")
INSTALLED_BY = ("trainer/__init__.py", "callbacks/__init__.py")

IMPORT_ALL = """
import importlib
import pkgutil
import checkpoints, callbacks, trainer

names = [
    found.name
    for package in (checkpoints, callbacks, trainer)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not found.name.endswith("__main__")
]
for name in names:
    importlib.import_module(name)
assert not hasattr(trainer.Algorithm, "get_policy") and not hasattr(trainer, "DefaultCallbacks")
from trainer import *
print(len(names))
"""

RUN = """
import sys
import trainer
from trainer import Algorithm, PPOConfig, RLlibCallback

folder = sys.argv[1]

class Counting(RLlibCallback):
    def __init__(self):
        self.num_episodes = 0

    def on_episode_end(self, *, episode, env_runner, metrics_logger, **kwargs):
        assert not hasattr(episode, "total_reward") and not hasattr(env_runner, "get_policy")
        self.num_episodes += 1
        metrics_logger.log_value("seen", self.num_episodes, reduce="max")

def numbers(result):
    return [result["env_runners"][key] for key in ("episode_return_mean", "num_episodes", "seen")]

for num_env_runners in (0, 2):
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=num_env_runners, observation_filter="MeanStdFilter")
        .training(train_batch_size=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .evaluation(evaluation_interval=2, evaluation_duration=1)
        .callbacks(Counting)
        .debugging(seed=3)
    )
    with config.build_algo() as algo:
        algo.train()
        assert algo.train()["evaluation"]["env_runners"]["num_episodes"] == 1
        path = algo.save_to_path(f"{folder}/{num_env_runners}")
        expected = numbers(algo.train())
        weights = algo.get_weights()
    with Algorithm.from_checkpoint(path, callbacks_class=Counting) as algo:
        assert numbers(algo.train()) == expected
        for module_id, arrays in algo.get_weights().items():
            assert all((arrays[name] == weights[module_id][name]).all() for name in arrays)
    print(num_env_runners, "went on")
"""


@pytest.fixture(scope="module")
def without_old_names(tmp_path_factory):
    """A copy of the packages in which the quarantine is deleted."""
    root = tmp_path_factory.mktemp("without_old_names")
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, root / package)  # with the bytecode: faster
    for path in QUARANTINE:
        deleted = root / path
        shutil.rmtree(deleted) if deleted.is_dir() else deleted.unlink()
    for path in INSTALLED_BY:
        lines = (root / path).read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if "rllib_names" not in line]
        assert len(lines) - len(kept) == 4, path
        (root / path).write_text("".join(kept), "utf-8")
    return root


def run(root, program, *arguments):
    """What a program prints that finds the packages in a folder."""
    script = root / "script.py"
    script.write_text(textwrap.dedent(program), "utf-8")
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=root, capture_output=True, text=True, check=False, timeout=60,
        env={"PYTHONPATH": str(root), "PATH": ""},  # the first one leaves bytecode for the others
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_other_modules_can_be_imported(without_old_names):
    assert int(run(without_old_names, IMPORT_ALL)) > 100


@pytest.mark.process
def test_runs_train_evaluate_save_and_restore(without_old_names, tmp_path):
    assert run(without_old_names, RUN, str(tmp_path)) == "0 went on\n2 went on\n"


def test_nothing_else_names_the_quarantine():
    found = [
        str(path.relative_to(PROJECT))
        for package in PACKAGES
        for path in sorted((PROJECT / package).rglob("*.py"))
        if "rllib_names" in path.read_text("utf-8")
        and not str(path.relative_to(PROJECT)).startswith(QUARANTINE)
    ]
    # The comments of the tables say who fills them.
    told = ["callbacks/events.py", "trainer/old_names.py"]
    assert sorted(found) == sorted([*INSTALLED_BY, *told])

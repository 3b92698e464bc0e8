"""Envs, callbacks and configs by name: typed ones are imported, also from the current folder.

The commands that the program prints are run as they are printed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkpoints import latest_checkpoint, read_manifest
from tests.command_line import SMALL, rows, run
from trainer.envs.env_factory import make_env_factory
from trainer.errors import EnvCreationError

pytestmark = pytest.mark.process

MODULE = """
import gymnasium
from callbacks import RLlibCallback
from trainer.testing.envs import CountdownEnv

class MyEnv(CountdownEnv):
    pass

class MyCallback(RLlibCallback):
    def on_train_result(self, *, result, **kwargs):
        result["mine"] = 7

if "NAME/Mine-v0" not in gymnasium.registry:
    gymnasium.register("NAME/Mine-v0", entry_point="NAME:MyEnv")
"""
COUNTDOWN = "trainer.testing.envs.CountdownEnv"


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A module in the folder, of a name that no other test has imported."""
    name = f"mine_{abs(hash(request.node.name)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("NAME", name))
    return name


def installed(words: list[str], folder: Path) -> str:
    """Runs the installed command, whose first place to import from is not the current folder."""
    program = Path(sys.executable).with_name("local-trainer")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [program, *words], cwd=folder, env=environment, capture_output=True, text=True,
        encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def printed(out: str) -> list[list[str]]:
    """The commands that the program says to type next, as a shell splits them."""
    lines = [line.strip() for line in out.partition("What to type next:")[2].splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("local-trainer ")]


def test_an_env_of_the_folder_and_the_commands_that_are_printed(
    tmp_path: Path, module: str
) -> None:
    words = ["train", "--env", f"{module}.MyEnv", *SMALL, "--num-env-runners", "1"]
    out = installed([*words, "--run-dir", "run", "--stop-iterations", "1"], tmp_path)
    commands = printed(out)
    assert [command[0] for command in commands] == ["evaluate", "resume", "inspect"]
    for command in commands:
        installed(command, tmp_path)
    assert rows(tmp_path)[-1]["training_iteration"] == 11


@pytest.mark.parametrize("form", ["{}.MyEnv", "{}:MyEnv", "{0}:{0}/Mine-v0"])
def test_printed_commands_work_for_every_form_of_name(
    form: str, tmp_path: Path, module: str
) -> None:
    words = ["--num-env-runners", 0, "--run-dir", "my run", "--stop-iterations", 1]
    callbacks = ["--callbacks", f"{module}:MyCallback", "--callbacks", "ProgressPrinter"]
    first = run("train", "--env", form.format(module), *SMALL, *words, *callbacks, folder=tmp_path)
    commands = printed(first.stdout)
    assert len(commands) == 3
    for command in commands:
        # As in a new process, where nothing was imported because of the first command.
        sys.modules.pop(module)
        run(*command, folder=tmp_path)
    results = (tmp_path / "my run" / "results.jsonl").read_text().splitlines()
    assert json.loads(results[-1])["mine"] == 7
    assert len(results) == 11


def test_what_a_checkpoint_names_is_not_imported(tmp_path: Path, module: str) -> None:
    words = ["--num-env-runners", 0, "--run-dir", "run", "--stop-iterations", 1]
    run("train", "--env", f"{module}:MyEnv", *SMALL, *words, folder=tmp_path)
    sys.modules.pop(module)
    for verb in ("evaluate", "resume"):
        refused = run(verb, "run", folder=tmp_path, code=1).stderr
        assert "CodeNotAllowedError" in refused
        assert "On the command line: --env NAME, or --callbacks NAME, or --allow-code." in refused
        assert module not in sys.modules


def test_a_callback_without_its_module_is_refused(tmp_path: Path) -> None:
    words = ["--env", COUNTDOWN, "--run-dir", "run", "--callbacks", "Mine"]
    refused = run("train", *words, folder=tmp_path, code=1).stderr
    assert "--callbacks Mine: expected a name and the module that it is in" in refused


def test_a_module_and_an_id_in_the_api(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    factory = make_env_factory(f"{module}:{module}/Mine-v0", {})
    env, _ = factory.make(worker_index=0, vector_index=0, num_workers=0, recreated_worker=False)
    assert type(env.unwrapped).__name__ == "MyEnv"
    with pytest.raises(EnvCreationError, match="neither registers 'MyEnw' nor holds it"):
        make_env_factory(f"{module}:MyEnw", {})
    with pytest.raises(EnvCreationError, match="could not be imported"):
        make_env_factory("no_such_module:Pong-v5", {})


def test_a_run_goes_on_with_other_settings(tmp_path: Path) -> None:
    words = ["--num-env-runners", 0, "--run-dir", "run", "--stop-iterations", 1]
    run("train", "--env", COUNTDOWN, *SMALL, *words, folder=tmp_path)
    changes = ["--set", "lr=0.5", "--num-env-runners", 1, "--stop-iterations", 2]
    run("resume", "run", *changes, folder=tmp_path)
    run("resume", "run", "--stop-iterations", 3, folder=tmp_path)
    metadata = read_manifest(latest_checkpoint(tmp_path / "run" / "checkpoints") or "").metadata
    assert metadata["num_env_runners"] == 1, "what was changed stays"
    learners = [row["learners"]["default_policy"] for row in rows(tmp_path)]
    assert [learner["default_optimizer_learning_rate"] for learner in learners][1:] == [0.5, 0.5]
    wrong = run("resume", "run", "--set", "lr=fast", folder=tmp_path, code=1)
    assert "lr='fast'" in wrong.stderr


JSON: dict[str, Any] = {
    "cartpole-ppo": {
        "run": "PPO",
        "env": "CartPole-v1",
        "stop": {"training_iteration": 2},
        "config": {"num_env_runners": 0, "train_batch_size": 40, "num_epochs": 1, "lr": 0.25},
    }
}
TOML = """
algo = "PPO"
env = "CartPole-v1"
[stop]
iterations = 2
[config]
num_env_runners = 0
train_batch_size = 40
num_epochs = 1
lr = 0.25
"""
PYTHON = """
from trainer import PPOConfig
config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
config.training(train_batch_size=40, num_epochs=1, lr=0.25)
stop = {"training_iteration": 2}
"""


@pytest.mark.parametrize(
    ("file", "text"),
    [("tuned.json", json.dumps(JSON)), ("tuned.toml", TOML), ("tuned_example.py", PYTHON)],
)
def test_a_config_file_says_what_to_train(file: str, text: str, tmp_path: Path) -> None:
    if file.endswith(".toml"):
        pytest.importorskip("tomllib")
    (tmp_path / file).write_text(text)
    run("train", "--config", file, "--run-dir", "run", folder=tmp_path)
    found = rows(tmp_path)
    assert len(found) == 2
    assert found[0]["learners"]["default_policy"]["default_optimizer_learning_rate"] == 0.25
    # The command line wins.
    run(
        "train", "--config", file, "--run-dir", "run2", "--stop-iterations", 1, "--set", "lr=0.5",
        folder=tmp_path,
    )  # fmt: skip
    (row,) = (tmp_path / "run2" / "results.jsonl").read_text().splitlines()
    assert json.loads(row)["learners"]["default_policy"]["default_optimizer_learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "holds a list"),
        ({"algo": "PPO", "lr": 1}, "unknown key(s) lr"),
        ({"env": "CartPole-v1", "config": 3}, "has no config"),
        ({"env": "CartPole-v1", "stop": {"days": 3}}, "unknown key(s) 'days'"),
        ({"env": "os.path.join"}, "Type it: --env os.path.join"),
        ({"env": "os:path"}, "Type it: --env os:path"),
        (
            {"env": "CartPole-v1", "config": {"exploration_config": {"type": "pydoc.pipepager"}}},
            "names ready-made envs and classes only",
        ),
        ({"env": "CartPole-v1", "config": {"lrr": 3}}, "`lrr=3`"),
    ],
)
def test_a_wrong_config_file_is_one_clear_error(values: Any, expected: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(values))
    done = run("train", "--config", "c.json", folder=tmp_path, code=1)
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    for name in ("gone.json", "gone.py", "no_such_module:config"):
        assert name in run("train", "--config", name, folder=tmp_path, code=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]

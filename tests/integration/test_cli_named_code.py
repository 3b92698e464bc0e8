"""Envs, callbacks and configs by name: typed ones are imported, also from the current folder.

The commands that the program prints are run as they are printed.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import latest_checkpoint, read_manifest
from tests.command_line import SMALL, rows, run
from trainer.envs.env_factory import make_env_factory
from trainer.errors import EnvCreationError
from trainer.name_resolution import PROGRAM

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
def module(tmp_path, request):
    """A module in the folder, of a name that no other test has imported."""
    name = f"mine_{abs(hash(request.node.name)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("NAME", name))
    return name


def installed(words, folder):
    """Runs the installed command, whose first place to import from is not the current folder."""
    program = Path(sys.executable).with_name("local-trainer")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [program, *words], cwd=folder, env=environment, capture_output=True, text=True,
        encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def printed(out):
    """The commands that the program says to type next, as a shell splits them."""
    lines = [line.strip() for line in out.partition("What to type next:")[2].splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("local-trainer ")]


def test_an_env_of_the_folder_and_the_commands_that_are_printed(tmp_path, module):
    words = ["train", "--env", f"{module}.MyEnv", *SMALL, "--num-env-runners", "1"]
    out = installed([*words, "--run-dir", "run", "--stop-iterations", "1"], tmp_path)
    commands = printed(out)
    assert [command[0] for command in commands] == ["evaluate", "resume", "inspect"]
    installed(commands[1], tmp_path)  # all three in this process: the next test
    assert rows(tmp_path)[-1]["training_iteration"] == 11


@pytest.mark.parametrize("form", ["{}.MyEnv", "{}:MyEnv", "{0}:{0}/Mine-v0"])
def test_printed_commands_work_for_every_form_of_name(form, tmp_path, module):
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


def test_what_a_strangers_checkpoint_names_is_not_imported(tmp_path, module, request):
    words = ["--num-env-runners", 0, "--run-dir", "run", "--stop-iterations", 1]
    run("train", "--env", f"{module}:MyEnv", *SMALL, *words, folder=tmp_path)
    sys.modules.pop(module)
    request.getfixturevalue("as_another_user")
    for verb in ("evaluate", "resume"):
        refused = run(verb, "run", folder=tmp_path, code=1).stderr
        assert "CodeNotAllowedError" in refused
        assert "On the command line: --env NAME, or --callbacks NAME, or --allow-code." in refused
        assert module not in sys.modules


def test_a_callback_without_its_module_is_refused(tmp_path):
    words = ["--env", COUNTDOWN, "--run-dir", "run", "--callbacks", "BestCheckpiont"]
    refused = run("train", *words, folder=tmp_path, code=1).stderr
    assert "--callbacks BestCheckpiont: expected a name and the module that it is in" in refused
    assert "Did you mean 'BestCheckpoint'?" in refused


def test_a_module_and_an_id_in_the_api(tmp_path, module, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    factory = make_env_factory(f"{module}:{module}/Mine-v0", {}, source=PROGRAM)
    env, _ = factory.make(worker_index=0, vector_index=0, num_workers=0, recreated_worker=False)
    assert type(env.unwrapped).__name__ == "MyEnv"
    with pytest.raises(EnvCreationError, match="neither registers 'MyEnw' nor holds it"):
        make_env_factory(f"{module}:MyEnw", {}, source=PROGRAM)
    with pytest.raises(EnvCreationError, match="could not be imported"):
        make_env_factory("no_such_module:Pong-v5", {}, source=PROGRAM)


def test_a_run_goes_on_with_other_settings(tmp_path):
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


JSON = {
    "cartpole-ppo": {
        "run": "PPO",
        "env": "CartPole-v1",
        "stop": {"training_iteration": 2},
        "config": {
            "num_env_runners": 0,
            "train_batch_size": 40,
            "minibatch_size": 20,
            "num_epochs": 1,
            "model": {"fcnet_hiddens": [8]},
            "lr": 0.25,
        },
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
minibatch_size = 20
num_epochs = 1
model = {fcnet_hiddens = [8]}
lr = 0.25
"""
YAML = """
algo: PPO
env: CartPole-v1
stop: {iterations: 2}
save: {checkpoint_every: 1, keep: 1}
config:
  num_env_runners: 0
  train_batch_size: 40
  minibatch_size: 20
  num_epochs: 1
  model: {fcnet_hiddens: [8]}
  lr: 25e-2  # a text, if it is read as YAML 1.1
"""
PYTHON = """
from trainer import PPOConfig
config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
config.training(train_batch_size=40, minibatch_size=20, num_epochs=1, lr=0.25)
config.training(model={"fcnet_hiddens": [8]})
stop = {"training_iteration": 2}
"""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tuned.json", json.dumps(JSON)),
        ("tuned.toml", TOML),
        ("tuned.yaml", YAML),
        ("tuned_example.py", PYTHON),
    ],
)
def test_a_config_file_says_what_to_train(file, text, tmp_path):
    if file.endswith(".toml"):
        pytest.importorskip("tomllib")
    if file.endswith(".yaml"):
        pytest.importorskip("yaml")
    (tmp_path / file).write_text(text)
    run("train", "--config", file, "--run-dir", "run", folder=tmp_path)
    found = rows(tmp_path)
    assert len(found) == 2
    assert found[0]["learners"]["default_policy"]["default_optimizer_learning_rate"] == 0.25
    # The command line wins.
    done = run(
        "train", "--config", file, "--run-dir", "run2", "--stop-iterations", 1, "--set", "lr=0.5",
        folder=tmp_path,
    )  # fmt: skip
    assert f"replaces stop_iterations=2 of {file}" in done.stdout
    (row,) = (tmp_path / "run2" / "results.jsonl").read_text().splitlines()
    assert json.loads(row)["learners"]["default_policy"]["default_optimizer_learning_rate"] == 0.5


def test_a_wrong_config_file_is_one_clear_error(tmp_path):
    wrongs = [
        ([], "holds a list"),
        ({"algo": "PPO", "lr": 1}, "unknown key(s) lr"),
        ({"env": "CartPole-v1", "config": 3}, "has config=3, which is no table"),
        ({"env": "CartPole-v1", "stop": {"days": 3}}, "unknown key(s) 'days'"),
        ({"env": "CartPole-v1", "save": {"keep": 0, "keeep": 1}}, "'keeep' is no part of it"),
        ({"env": "os:path"}, "Type it: --env NAME"),
        ({"env": "CartPole-v1", "config": {"lrr": 3}}, "`lrr=3`"),
    ]
    for values, expected in wrongs:
        (tmp_path / "c.json").write_text(json.dumps(values))
        done = run("train", "--config", "c.json", folder=tmp_path, code=1)
        assert expected in done.stderr
        assert "Traceback" not in done.stderr
    for name in ("gone.json", "gone.py", "no_such_module:config"):
        assert name in run("train", "--config", name, folder=tmp_path, code=1).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


# ---- settings that are written back


def test_the_settings_of_a_run_begin_the_same_run_again(tmp_path):
    words = ["--set", "vf_clip_param=inf", "--set", "lr=[[0, 0.1], [1000, 0.01]]"]
    run(
        "train", "--env", "CartPole-v1", *SMALL[:-2], *words, "--num-env-runners", 0,
        "--stop-iterations", 2, "--checkpoint-every", 1, "--keep", 1, "--run-dir", "first",
        folder=tmp_path,
    )  # fmt: skip
    written = json.loads((tmp_path / "first" / "settings.json").read_text())
    assert written["algo"] == "PPO"
    assert written["env"] == "CartPole-v1"
    assert written["stop"] == {"iterations": 2}
    assert written["save"] == {"checkpoint_every": 1, "keep": 1}
    assert written["config"]["vf_clip_param"] == float("inf")
    assert isinstance(written["config"]["seed"], int), "drawn, and written down"
    assert "code" not in written
    run("train", "--config", "first/settings.json", "--run-dir", "second", folder=tmp_path)
    # The first run was given no seed, and its config says so.
    assert other_files(tmp_path / "first", tmp_path / "second") <= {"files-1/config.state"}
    run("train", "--config", "second/settings.json", "--run-dir", "again", folder=tmp_path)
    assert not other_files(tmp_path / "second", tmp_path / "again")
    again = (tmp_path / "second" / "settings.json").read_text()
    assert again == (tmp_path / "first" / "settings.json").read_text()
    run(
        "train", "--config", "first/settings.json", "--set", "lr=0.5", "--run-dir", "third",
        folder=tmp_path,
    )  # fmt: skip
    other = json.loads((tmp_path / "third" / "settings.json").read_text())
    assert other["config"] == {**written["config"], "lr": 0.5}


def other_files(first, second):
    """The files of the newest checkpoint, but for the manifest, that differ between two runs."""
    newest = first / "checkpoints" / "000002"
    files = [file for file in newest.rglob("*") if file.is_file() and file.name != "manifest.json"]
    assert len(files) >= 8
    return {
        file.relative_to(newest).as_posix()
        for file in files
        if (second / file.relative_to(first)).read_bytes() != file.read_bytes()
    }


def test_settings_with_code_say_what_is_to_be_typed_beside_them(module, tmp_path):
    code = ["--env", f"{module}.MyEnv", "--callbacks", f"{module}:MyCallback"]
    small = [*SMALL, "--num-env-runners", "0", "--stop-iterations", "1"]
    run("train", *code, *small, "--run-dir", "first", folder=tmp_path)
    written = json.loads((tmp_path / "first" / "settings.json").read_text())
    assert written["env"] == f"{module}.MyEnv"  # the file is signed
    assert written["code"] == {"callbacks_class": f"{module}:MyCallback"}
    words = ["train", "--config", "first/settings.json", "--run-dir", "second"]
    refused = run(*words, folder=tmp_path, code=1).stderr
    assert f"--callbacks NAME (it was {module}:MyCallback)" in refused
    run(*words, *code[2:], folder=tmp_path)
    first, second = rows(tmp_path, name="first"), rows(tmp_path, name="second")
    assert first[0]["mine"] == second[0]["mine"] == 7
    returns = [row["env_runners"]["hist_stats"] for row in (*first, *second)]
    assert returns[0] == returns[1]


def test_a_config_object_of_a_python_file_is_written_back_as_far_as_it_is_data(tmp_path):
    (tmp_path / "mine.py").write_text(
        f"{PYTHON}\nconfig.callbacks(on_train_result=lambda **_: None)\n"
    )
    run("train", "--config", "mine.py", "--run-dir", "run", folder=tmp_path)
    written = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert written["config"]["lr"] == 0.25
    assert written["stop"] == {"iterations": 2}
    assert len(written["code"]) == 1

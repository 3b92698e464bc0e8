"""The config of a checkpoint names an env, and a name may lead to any code: none of it is run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from callbacks import CallbackError, RLlibCallback
from checkpoints import CodeNotAllowedError, encode, read_checkpoint, write_checkpoint
from tests import command_line
from tests.command_line import SMALL
from trainer import PPO, Algorithm, PPOConfig
from trainer.cli.main import main
from trainer.env_runners.crash_files import read_crash
from trainer.envs.env_factory import leads_to_new_code
from trainer.testing import CountdownEnv

MODULE = "an_env_that_nobody_imported"


class Countdown(CountdownEnv):
    """An env of this module, which is imported."""


class Failing(RLlibCallback):
    def on_episode_end(self, **kwargs: Any) -> None:
        raise ValueError("on purpose")


def ppo() -> PPOConfig:
    return (
        PPOConfig()
        .environment(f"{__name__}.Countdown")
        .env_runners(num_env_runners=0)
        .training(train_batch_size=8, minibatch_size=8, num_epochs=1)
        .training(model={"fcnet_hiddens": [2]})
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with ppo().build_algo() as algo:
        return Path(algo.save_to_path(tmp_path_factory.mktemp("run") / "c"))


def crafted(saved: Path, path: Path, **settings: Any) -> Path:
    """The checkpoint with other settings and a manifest that fits them."""
    contents = read_checkpoint(saved)
    contents.components["config"]["settings"] |= settings
    metadata = contents.manifest.metadata
    return write_checkpoint(path, components=contents.components, metadata=metadata)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be imported; makes a file when it is."""
    proof = tmp_path / "proof"
    source = (
        f"open({str(proof)!r}, 'w').close()\n"
        "from trainer.testing import CountdownEnv\n"
        "class Env(CountdownEnv): pass\n"
    )
    (tmp_path / f"{MODULE}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return proof


def test_no_program_is_started_because_a_checkpoint_names_it(saved: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    # A dict as the arguments of a program: its keys.
    arguments = {"env_config": {sys.executable: 1, "-c": 2, f"open({str(proof)!r}, 'w')": 3}}
    named: dict[str, Any] = {"env": "subprocess.call", **arguments}
    for number, settings in enumerate([named, {"evaluation_config": named}]):
        path = crafted(saved, tmp_path / str(number), evaluation_interval=1, **settings)
        with pytest.raises(CodeNotAllowedError, match=r"'subprocess\.call', which this program"):
            Algorithm.from_checkpoint(path)
    assert not proof.exists()


@pytest.mark.parametrize("name", [f"{MODULE}.Env", f"{MODULE}:Env-v0"])
def test_no_module_is_imported_because_a_checkpoint_names_it(
    name: str, module: Path, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(CodeNotAllowedError, match="import its class before"):
        PPO.from_checkpoint(crafted(saved, tmp_path / "c", env=name))
    assert not module.exists()


def test_who_trusts_a_checkpoint_may_let_it_import(
    module: Path, saved: Path, tmp_path: Path
) -> None:
    path = crafted(saved, tmp_path / "c", env=f"{MODULE}.Env")
    PPO.from_checkpoint(path, allow_code=True).stop()
    assert module.exists()
    PPO.from_checkpoint(path).stop()  # it is imported now


def test_no_module_is_imported_because_a_crash_file_names_it(
    module: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"crash_dir": str(tmp_path), "env_config": {"min_length": 3}}
    made = PPO.from_checkpoint(saved, callbacks_class=Failing, **settings)
    with made as algo, pytest.raises(CallbackError):
        _ = [algo.train() for _ in range(20)]  # until an episode ends
    (file,) = tmp_path.glob("*.crash")
    record = read_crash(file)
    record["config"]["settings"]["env"] = f"{MODULE}.Env"
    record["config"]["code"] = []
    file.write_bytes(encode(record))
    assert main(["replay-episode", str(file)]) == 1
    assert "--env package.module.MyEnv" in capsys.readouterr().err
    assert not module.exists()


def test_env_that_is_given_or_there_needs_no_trust(saved: Path, tmp_path: Path) -> None:
    PPO.from_checkpoint(saved).stop()
    PPO.from_checkpoint(crafted(saved, tmp_path / "c", env="no.such.Env"), env=Countdown).stop()


@pytest.mark.usefixtures("module")
def test_the_command_line_says_with_which_env_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = f"{MODULE}.Env"
    begin = ["train", "--env", env, *SMALL, "--run-dir", "run", "--stop-iterations", "1"]
    advice = command_line.run(*begin, folder=tmp_path).stdout
    resume = next(line.split() for line in advice.splitlines() if "local-trainer resume" in line)
    monkeypatch.delitem(sys.modules, MODULE)  # as in a process of its own
    refused = command_line.run("resume", "run", folder=tmp_path, code=1)
    assert f"names the env '{env}'" in refused.stderr
    assert "--env" in refused.stderr
    assert resume[1:5] == ["resume", "run", "--env", env]
    command_line.run(*resume[1:5], "--stop-iterations", "2", folder=tmp_path)
    command_line.run("evaluate", "run", "--env", env, "--episodes", "1", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CartPole-v1", False),
        (f"{__name__}.Countdown", False),
        ("trainer.testing.debug_envs.CorridorEnv", False),
        (f"{__name__}.ppo", True),
        ("builtins.exec", True),
        ("os.system", True),
        ("gymnasium:CartPole-v1", True),
        ("a..b", True),
        ("nothing", False),  # which is an error of its own, with the nearest names
    ],
)
def test_names_that_lead_to_new_code(name: str, expected: bool) -> None:
    assert leads_to_new_code(name) == expected

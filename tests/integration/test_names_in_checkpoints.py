"""Texts of a checkpoint or crash file that name code: none of it is imported, none is called."""

import sys
from pathlib import Path

import pytest

from callbacks import CallbackError, RLlibCallback
from checkpoints import (
    CheckpointError,
    CheckpointMismatchError,
    CodeNotAllowedError,
    encode,
    read_checkpoint,
    write_checkpoint,
)
from tests import command_line
from tests.command_line import SMALL
from trainer import (
    PPO,
    Algorithm,
    EnvCreationError,
    PPOConfig,
    StochasticSampling,
    register_env,
)
from trainer.cli.main import main
from trainer.envs import make_env_factory
from trainer.name_resolution import stranger
from trainer.runner_group.crash_files import read_crash
from trainer.testing import CountdownEnv

MODULE = "an_env_that_nobody_imported"
NAMED = f"{MODULE}.Strategy"
ENV = "countdown of these tests"


class Countdown(CountdownEnv):
    """An env of this module, which is imported and registered."""


register_env(ENV, lambda context: Countdown(context))


class Failing(RLlibCallback):
    def on_episode_end(self, **kwargs):
        raise ValueError("on purpose")


def ppo():
    return (
        PPOConfig()
        .environment(ENV)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=8, minibatch_size=8, num_epochs=1)
        .training(model={"fcnet_hiddens": [2]})
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    with ppo().build_algo() as algo:
        return Path(algo.save_to_path(tmp_path_factory.mktemp("run") / "c"))


def crafted(saved, path, **settings):
    """The checkpoint with other settings and a manifest that fits them."""
    contents = read_checkpoint(saved)
    contents.components["config"]["settings"] |= settings
    metadata = contents.manifest.metadata
    return write_checkpoint(path, components=contents.components, metadata=metadata)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that can be imported; makes a file when it is."""
    proof = tmp_path / "proof"
    source = (
        f"open({str(proof)!r}, 'w').close()\n"
        "from trainer import StochasticSampling\n"
        "from trainer.testing import CountdownEnv\n"
        "class Env(CountdownEnv): pass\n"
        "class Strategy(StochasticSampling): pass\n"
    )
    (tmp_path / f"{MODULE}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return proof


def test_no_program_is_started_because_a_checkpoint_names_it(saved, tmp_path):
    proof = tmp_path / "proof"
    # A dict as the arguments of a program: its keys.
    arguments = {"env_config": {sys.executable: 1, "-c": 2, f"open({str(proof)!r}, 'w')": 3}}
    named = {"env": "subprocess.call", **arguments}
    for number, settings in enumerate([named, {"evaluation_config": named}]):
        path = crafted(saved, tmp_path / str(number), evaluation_interval=1, **settings)
        with pytest.raises(CodeNotAllowedError, match=r"'subprocess\.call', which is neither"):
            Algorithm.from_checkpoint(path)
    assert not proof.exists()


@pytest.mark.parametrize("name", [f"{MODULE}.Env", f"{MODULE}:Env-v0"])
def test_no_module_is_imported_because_a_checkpoint_names_it(name, module, saved, tmp_path):
    with pytest.raises(CodeNotAllowedError, match="register it before"):
        PPO.from_checkpoint(crafted(saved, tmp_path / "c", env=name))
    assert not module.exists()


def test_who_trusts_a_checkpoint_may_let_it_import(module, saved, tmp_path):
    path = crafted(saved, tmp_path / "c", env=f"{MODULE}.Env")
    PPO.from_checkpoint(path, allow_code=True).stop()
    assert module.exists()
    with pytest.raises(CodeNotAllowedError):  # that it is imported now makes no difference
        PPO.from_checkpoint(path)


def test_no_module_is_imported_because_a_crash_file_names_it(module, saved, tmp_path, capsys):
    settings = {"crash_dir": str(tmp_path), "env_config": {"min_length": 3}}
    made = PPO.from_checkpoint(saved, callbacks_class=Failing, **settings)
    with made as algo, pytest.raises(CallbackError):
        _ = [algo.train() for _ in range(20)]  # until an episode ends
    (file,) = tmp_path.glob("*.crash")
    record = read_crash(file)
    record["config"]["code"] = []
    settings = record["config"]["settings"]
    sub = {"exploration_config": {"type": "Curiosity", "sub_exploration": {"type": NAMED}}}
    for named in ({"env": f"{MODULE}.Env"}, {"exploration_config": {"type": NAMED}}, sub):
        record["config"]["settings"] = {**settings, **named}
        file.write_bytes(encode(record))
        assert main(["replay-episode", str(file)]) == 1
        assert "CodeNotAllowedError: `e" in capsys.readouterr().err
        assert not module.exists()


def test_env_that_is_given_or_there_needs_no_trust(saved, tmp_path):
    PPO.from_checkpoint(saved).stop()
    PPO.from_checkpoint(crafted(saved, tmp_path / "c", env="no.such.Env"), env=Countdown).stop()


@pytest.mark.usefixtures("module")
def test_the_command_line_goes_on_with_what_it_saved_and_asks_for_what_others_did(
    tmp_path, monkeypatch, request
):
    env = f"{MODULE}.Env"
    begin = ["train", "--env", env, *SMALL, "--run-dir", "run", "--stop-iterations", "1"]
    advice = command_line.run(*begin, folder=tmp_path).stdout
    resume = next(line.split() for line in advice.splitlines() if "local-trainer resume" in line)
    monkeypatch.delitem(sys.modules, MODULE)  # as in a process of its own
    assert resume[1:4] == ["resume", "run", "--stop-iterations"]
    command_line.run("resume", "run", "--stop-iterations", "2", folder=tmp_path)
    monkeypatch.delitem(sys.modules, MODULE)
    request.getfixturevalue("as_another_user")
    refused = command_line.run("resume", "run", folder=tmp_path, code=1)
    assert f"`env` names '{env}'" in refused.stderr
    assert "--env" in refused.stderr
    command_line.run("resume", "run", "--env", env, "--stop-iterations", "3", folder=tmp_path)
    command_line.run("evaluate", "run", "--env", env, "--episodes", "1", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("CartPole-v1", False),
        (ENV, False),
        (f"{__name__}.Countdown", True),
        ("trainer.testing.envs.CorridorEnv", False),
        ("trainer.testing.CountdownEnv", False),
        ("trainer.testing.envs.FailingEnv", True),
        ("trainer.testing.FailingEnv", True),
        ("trainer.testing.faults.FaultyEnv", True),
        ("trainer.testing.with_faults", True),
        ("GymV26Environment-v0", True),
        (f"{__name__}.ppo", True),
        ("builtins.exec", True),
        ("os.system", True),
        ("gymnasium:CartPole-v1", True),
        ("a..b", True),
        ("gymnasium.wrappers.RecordVideo", True),
        ("nothing", False),  # which is an error of its own, with the nearest names
    ],
)
def test_names_of_envs_that_a_file_may_not_name(name, is_refused):
    try:
        make_env_factory(name, {}, source=stranger(""))
    except CodeNotAllowedError:
        assert is_refused
    except EnvCreationError:
        assert name == "nothing"
    else:
        assert not is_refused


# ---- strategies

CURIOSITY = {"type": "Curiosity", "feature_dim": 2, "inverse_net_hiddens": [2]}
FOREIGN = {
    "type": {"exploration_config": {"type": NAMED}},
    "arguments": {"exploration_config": {"type": "pydoc.pipepager", "cmd": "true", "text": ""}},
    "sub_exploration": {"exploration_config": {**CURIOSITY, "sub_exploration": {"type": NAMED}}},
    "sub_exploration alone": {"exploration_config": {**CURIOSITY, "sub_exploration": NAMED}},
    "of evaluation": {"evaluation_config": {"exploration_config": {"type": NAMED}}},
    "of evaluation, below": {
        "evaluation_config": {
            "exploration_config": {**CURIOSITY, "sub_exploration": {"type": NAMED}}
        }
    },
    "env of evaluation": {"evaluation_config": {"env": f"{MODULE}.Env"}},
    "fails on purpose": {"env": "trainer.testing.FailingEnv"},
    "of a module": {
        "algorithm_config_overrides_per_module": {
            "default_policy": {"exploration_config": {"type": "pydoc.pipepager", "cmd": "true"}}
        }
    },
    "of a module, below": {
        "algorithm_config_overrides_per_module": {
            "default_policy": {"exploration_config": {**CURIOSITY, "sub_exploration": NAMED}}
        }
    },
}


@pytest.mark.parametrize("settings", FOREIGN.values(), ids=FOREIGN)
def test_no_strategy_is_looked_up_because_a_checkpoint_names_it(settings, module, saved, tmp_path):
    path = crafted(saved, tmp_path / "c", evaluation_interval=1, **settings)
    ways = [{}, {"lr": 1e-3}, {"evaluation_config": {"explore": False}}]
    ways += [{"env": Countdown}] if "env" not in settings else []
    for given in ways:
        with pytest.raises(CodeNotAllowedError, match=r"^`(env|exploration_config)` names"):
            Algorithm.from_checkpoint(path, **given)
    for words in (["evaluate", str(path)], ["resume", str(path)]):
        assert main(words) == 1
    assert main(["export", str(path), str(tmp_path / "p.onnx")]) == 1
    assert not module.exists()
    assert MODULE not in sys.modules


def test_strategies_that_are_given_or_allowed_are_used(module, saved, tmp_path):
    path = crafted(saved, tmp_path / "c", exploration_config={"type": NAMED})

    class Own(StochasticSampling):
        pass

    with Algorithm.from_checkpoint(path, exploration_config={"type": Own}) as algo:
        assert algo.config.exploration_config["type"] is Own
    PPO.from_checkpoint(path, exploration_config={"type": "Random"}).stop()
    assert not module.exists()
    PPO.from_checkpoint(path, exploration_config={"type": NAMED}).stop()  # the caller's word
    assert module.exists()
    PPO.from_checkpoint(path, allow_code=True).stop()


def test_a_state_in_memory_names_no_code_either(module, saved):
    state = read_checkpoint(saved, "config").components["config"]
    state["settings"]["exploration_config"] = {"type": NAMED}
    with pytest.raises(CodeNotAllowedError, match=NAMED):
        PPOConfig.from_state(state).validate()
    with ppo().build_algo() as algo:
        whole = Algorithm.__getstate__(algo)
        whole["config"]["settings"]["exploration_config"] = {"type": NAMED}
        with pytest.raises(CodeNotAllowedError, match=NAMED):
            Algorithm.from_state(whole)
    assert not module.exists()


def test_the_ready_made_strategies_are_no_code(saved, tmp_path):
    schedule = {"type": "PiecewiseSchedule", "endpoints": [[0, 1.0], [9, 0.5]]}
    sub = {"type": "EpsilonGreedy", "epsilon_schedule": schedule}
    strategy = {**CURIOSITY, "sub_exploration": sub}
    path = crafted(saved, tmp_path / "c", exploration_config=strategy)
    with pytest.raises(CheckpointError, match="exploration"):  # it has no state of Curiosity
        Algorithm.from_checkpoint(path)
    settings = {"exploration_config": {"type": "ray.rllib.utils.exploration.Random"}}
    Algorithm.from_checkpoint(crafted(saved, tmp_path / "d", **settings)).stop()


def test_a_checkpoint_does_not_say_where_to_write(saved, tmp_path, caplog):
    elsewhere, beside = tmp_path / "elsewhere" / "crashes", tmp_path / "runs" / "crashes"
    path = crafted(saved, tmp_path / "runs" / "r" / "c", crash_dir=str(elsewhere))
    with Algorithm.from_checkpoint(path, callbacks_class=Failing) as algo:
        assert algo.config.crash_dir is None
        with pytest.raises(CallbackError):
            _ = [algo.train() for _ in range(20)]
    assert "a file does not say where to write" in caplog.text
    assert not elsewhere.parent.exists()
    Algorithm.from_checkpoint(path, crash_dir=str(elsewhere)).stop()
    with Algorithm.from_checkpoint(path, allow_code=True) as algo:
        assert algo.config.crash_dir == str(elsewhere)
    path = crafted(saved, tmp_path / "runs" / "r" / "d", crash_dir=str(beside))
    with Algorithm.from_checkpoint(path) as algo:
        assert algo.config.crash_dir == str(beside)


def test_networks_that_a_checkpoint_cannot_fill_are_not_made(saved, tmp_path):
    for number, hiddens in enumerate(([2**20, 2**20], [2**40], [2, 300, 300])):
        path = crafted(saved, tmp_path / str(number), model_config={"fcnet_hiddens": hiddens})
        with pytest.raises(CheckpointMismatchError, match="`model_config` asks for a network of"):
            Algorithm.from_checkpoint(path)

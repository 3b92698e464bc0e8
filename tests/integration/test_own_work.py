"""What this user saved on this machine opens without a question; everything else asks."""

import json
import os
import shutil
import stat
import sys
import threading
from pathlib import Path

import pytest

from callbacks import CallbackError, RLlibCallback
from checkpoints import (
    CheckpointError,
    CodeNotAllowedError,
    pack_code,
    read_manifest,
    write_checkpoint,
)
from checkpoints.signatures import DATA_VARIABLE, is_own, sign
from tests import command_line
from tests.command_line import SMALL
from tests.saved_files import files_of
from tests.scripts import run_script
from trainer import Algorithm, PPOConfig, RLModuleSpec, StochasticSampling, tune
from trainer.errors import JournalError, TuneError
from trainer.modules.actor_critic import ActorCriticModule
from trainer.runner_group.crash_files import is_own_crash, read_crash
from trainer.testing import CountdownEnv
from trainer.tune.journal_file import line_of
from trainer.tune.stored_code import CODE_FOLDER


class Mine(RLlibCallback):
    """A callback of this module: code in a checkpoint."""


class Own(StochasticSampling):
    """A strategy of this module."""


def config():
    return (
        PPOConfig()
        .environment(CountdownEnv)
        .env_runners(num_env_runners=0, exploration_config={"type": f"{__name__}.Own"})
        .training(train_batch_size=8, minibatch_size=8, num_epochs=1, model={"fcnet_hiddens": [2]})
        .callbacks(Mine)
    )


@pytest.fixture
def saved(tmp_path):
    with config().build_algo() as algo:
        return Path(algo.save_to_path(tmp_path / "run" / "checkpoints" / "000000"))


def opens(path):
    try:
        Algorithm.from_checkpoint(path).stop()
    except CodeNotAllowedError:
        return False
    return True


def test_what_was_saved_here_opens(saved):
    with Algorithm.from_checkpoint(saved) as algo:
        assert algo.config.callbacks_class is Mine
        again = Path(algo.save_to_path(saved.with_name("000001")))
    assert opens(again)


def test_what_was_moved_or_copied_opens(saved, tmp_path):
    copied = shutil.copytree(saved, tmp_path / "copied")
    assert opens(Path(copied))
    assert opens(Path(shutil.move(saved, tmp_path / "moved")))


@pytest.mark.usefixtures("saved")
def test_what_another_user_or_machine_saved_asks(saved, request):
    request.getfixturevalue("as_another_user")
    assert not opens(saved)
    Algorithm.from_checkpoint(saved, allow_code=True).stop()
    sign(b"this user has a key as well")
    assert not opens(saved)


def test_what_was_saved_asks_when_the_key_is_gone(tmp_path, monkeypatch, request):
    # A key of its own: that of this test session is used by tests in other processes meanwhile.
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    saved = request.getfixturevalue("saved")
    key = Path(os.environ[DATA_VARIABLE]) / "signing-key"
    aside = key.rename(key.with_name("aside"))
    try:
        assert not opens(saved)
    finally:
        aside.rename(key)
    assert opens(saved)


@pytest.mark.parametrize("changed", ["signature", "iteration", "taken from another"])
def test_what_was_changed_asks_or_is_damaged(changed, saved, tmp_path):
    file = saved / "manifest.json"
    fields = json.loads(file.read_text())
    if changed == "signature":
        last = fields["signature"][-1]
        fields["signature"] = fields["signature"][:-1] + ("0" if last != "0" else "1")
    elif changed == "iteration":
        fields["metadata"]["training_iteration"] = 7
    else:
        with config().build_algo() as algo:
            other = read_text_of(Path(algo.save_to_path(tmp_path / "other")))
        fields["signature"] = other["signature"]
    file.write_text(json.dumps(fields, indent=1) + "\n")
    try:
        assert not opens(saved)
    except CheckpointError:
        assert changed == "iteration"  # the checksum does not fit


def read_text_of(path):
    return json.loads((path / "manifest.json").read_text())


def test_one_changed_byte_of_the_code_is_never_run(saved):
    code = files_of(saved) / "code.pkl"
    data = bytearray(code.read_bytes())
    data[len(data) // 2] ^= 1
    code.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"code\.pkl"):
        Algorithm.from_checkpoint(saved)


def test_what_goes_on_from_a_strangers_file_is_not_signed(tmp_path, request):
    with PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0).build_algo() as algo:
        theirs = algo.save_to_path(tmp_path / "theirs")
    request.getfixturevalue("as_another_user")
    with Algorithm.from_checkpoint(theirs) as algo:
        mine = algo.save_to_path(tmp_path / "mine")
    assert not read_manifest(mine).is_own
    with Algorithm.from_checkpoint(theirs, allow_code=True) as algo:
        assert read_manifest(algo.save_to_path(tmp_path / "trusted")).is_own


# ---- networks of one's own

ACTS = """
import sys
from trainer import Algorithm, CheckpointError, TrainedPolicy

for allow_code in (False, True):
    try:
        policy = TrainedPolicy.from_checkpoint(sys.argv[1], allow_code=allow_code)
    except CheckpointError as error:
        print("module_class=" in str(error))
        continue
    print(policy.predict([0.0, 0.0, 0.0, 0.0]))
    with Algorithm.from_checkpoint(sys.argv[1], allow_code=allow_code) as algo:
        algo.train()
"""


@pytest.mark.process
@pytest.mark.parametrize("is_own_user", [True, False])
def test_a_network_defined_in_a_function_acts_and_learns_in_another_process(
    is_own_user, tmp_path, request
):
    class Local(ActorCriticModule):
        """Known to this process only."""

    made = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    made.training(train_batch_size=32, minibatch_size=32, num_epochs=1)
    with made.rl_module(rl_module_spec=RLModuleSpec(module_class=Local)).build_algo() as algo:
        path = algo.save_to_path(tmp_path / "checkpoint")
        action = str(algo.compute_single_action([0.0] * 4, explore=False))
    if not is_own_user:
        request.getfixturevalue("as_another_user")
    answers = run_script(ACTS, path).stdout.split()
    assert answers == [action if is_own_user else "True", action]


COUNTS = """
import sys
from trainer import Algorithm

with Algorithm.from_checkpoint(sys.argv[1]) as algo:
    print(algo.callbacks.objects[0].num_iterations)
"""


@pytest.mark.process
def test_a_callback_defined_in_a_function_keeps_its_state_in_another_process(tmp_path):
    class Counts(RLlibCallback):
        def __init__(self):
            self.num_iterations = 0

        def on_train_result(self, **kwargs):
            self.num_iterations += 1

    made = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0).callbacks(Counts)
    made.training(train_batch_size=32, minibatch_size=32, num_epochs=1)
    with made.build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
    assert run_script(COUNTS, path).stdout.split() == ["1"]


# ---- experiments, crash files, configs


ENV_MODULE = "a_module_with_an_env_of_mine"


@pytest.fixture
def env(tmp_path, monkeypatch):
    """The dotted path of an env in a module of the user's folder."""
    text = "from trainer.testing import CountdownEnv\nclass Mine(CountdownEnv): pass\n"
    (tmp_path / f"{ENV_MODULE}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, ENV_MODULE, raising=False)
    return f"{ENV_MODULE}.Mine"


SPACE = {
    "num_env_runners": 0,
    "train_batch_size": 8,
    "minibatch_size": 8,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [2]},
    "lr": tune.choice([1e-3]),
}


def test_an_experiment_that_was_begun_here_goes_on_and_anothers_asks(env, tmp_path, request):
    tune.Tuner(
        "PPO",
        param_space={**SPACE, "env": env},
        tune_config=tune.TuneConfig(in_process=True),
        run_config=tune.RunConfig(
            name="e", storage_path=str(tmp_path), stop={"training_iteration": 1}, verbose=0
        ),
    ).fit()
    more = {"tune_config": tune.TuneConfig(num_samples=2, in_process=True)}
    grid = tune.Tuner.restore(tmp_path / "e", "PPO", **more).fit()
    assert [result.error for result in grid] == [None, None]
    journal = tmp_path / "e" / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(b'"lr": 0.001', b'"lr": 0.002', 1))
    with pytest.raises(JournalError):
        tune.Tuner.restore(tmp_path / "e", "PPO")
    *lines, last = whole.splitlines(keepends=True)
    forged = line_of(json.loads(last[last.index(b'"entry": ') + 9 : -2]))
    journal.write_bytes(b"".join([*lines, forged]))  # one line that is not signed
    with pytest.raises(CodeNotAllowedError, match="allow_code=True"):
        tune.Tuner.restore(tmp_path / "e", "PPO")
    journal.write_bytes(whole)
    tune.Tuner.restore(tmp_path / "e", "PPO")
    request.getfixturevalue("as_another_user")
    with pytest.raises(CodeNotAllowedError, match="allow_code=True"):
        tune.Tuner.restore(tmp_path / "e", "PPO")
    tune.Tuner.restore(tmp_path / "e", "PPO", allow_code=True)


class OwnScheduler(tune.schedulers.FIFOScheduler):
    """A scheduler of this module."""


def doubled(config):
    tune.report({"loss": config["double"], "folder": str(config["folder"])})
    if config["x"] == 2 and not (config["folder"] / "mended").exists():
        raise ValueError("on purpose")


def begin_with_code(folder):
    """An experiment with code in its space and in all parts that may hold some."""
    grid = tune.Tuner(
        doubled,
        param_space={
            "x": tune.grid_search([1, 2]),
            "double": tune.sample_from(lambda config: 2 * config["x"]),
            "folder": folder,
        },
        tune_config=tune.TuneConfig(
            in_process=True,
            scheduler=OwnScheduler(),
            trial_name_creator=lambda trial: f"mine-{trial.number}",
        ),
        run_config=tune.RunConfig(
            name="e", storage_path=folder, verbose=0, stop=lambda trial_id, row: row["loss"] > 9
        ),
    ).fit()
    assert [result.error is None for result in grid] == [True, False]


def test_code_of_an_experiment_that_was_begun_here_is_kept_and_anothers_asked_for(
    tmp_path, request
):
    begin_with_code(tmp_path)
    (tmp_path / "mended").touch()
    grid = tune.Tuner.restore(tmp_path / "e", doubled, resume_errored=True).fit()
    assert [result.error for result in grid] == [None, None]
    assert [result.rows()[-1]["loss"] for result in grid] == [2, 4]
    assert [result.trial_name for result in grid] == ["mine-0", "mine-1"]
    assert grid.is_exact
    request.getfixturevalue("as_another_user")
    with pytest.raises(TuneError, match="Give it again"):
        tune.Tuner.restore(tmp_path / "e", doubled)
    restored = tune.Tuner.restore(tmp_path / "e", doubled, allow_code=True)
    assert type(restored._setup.tune_config.scheduler) is OwnScheduler


class Bomb:
    """Makes a file, and an empty dict, when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (_explode, (str(self.path),))


def _explode(path):
    Path(path).touch()
    return {}


def test_code_that_was_put_beside_an_own_journal_stays_closed(tmp_path, caplog):
    begin_with_code(tmp_path)
    kept = tmp_path / "e" / CODE_FOLDER
    shutil.rmtree(kept)
    write_checkpoint(kept, components={}, metadata={}, code=pack_code(Bomb(tmp_path / "boom")))
    with pytest.raises(TuneError, match="Give it again"):
        tune.Tuner.restore(tmp_path / "e", doubled)
    assert not (tmp_path / "boom").exists()
    assert "left closed" in caplog.text
    with pytest.raises(TuneError, match="Give it again"):
        tune.Tuner.restore(tmp_path / "e", doubled, allow_code=True)  # opened; holds nothing
    assert (tmp_path / "boom").exists()


def test_code_that_cannot_be_kept_is_told_and_asked_for(tmp_path, caplog):
    lock = threading.Lock()
    tune.Tuner(
        by_lock,
        param_space={"x": tune.sample_from(lambda _: 1 if lock else 2)},
        tune_config=tune.TuneConfig(in_process=True),
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0),
    ).fit()
    assert "param_space is not kept with the experiment e" in caplog.text
    with pytest.raises(TuneError, match="Give it again"):
        tune.Tuner.restore(tmp_path / "e", by_lock)


def by_lock(config):
    return {"x": config["x"]}


class Failing(RLlibCallback):
    def on_episode_end(self, **kwargs):
        raise ValueError("on purpose")


def test_a_crash_file_that_was_written_here_is_played_and_anothers_asks(env, tmp_path, request):
    made = config().environment(env, env_config={"min_length": 3}).callbacks(None)
    made.env_runners(exploration_config={"type": f"{__name__}.Own"})
    made.callbacks(on_episode_end=None).fault_tolerance(crash_dir=str(tmp_path / "crashes"))
    with made.copy().callbacks(Failing).build_algo() as algo, pytest.raises(CallbackError):
        _ = [algo.train() for _ in range(20)]
    (file,) = (tmp_path / "crashes").glob("*.crash")
    record = read_crash(file)
    assert is_own_crash(record)
    assert not is_own_crash({**record, "number": record["number"] + 1})
    request.getfixturevalue("as_another_user")
    assert not is_own_crash(record)


TRAIN = ["--stop-iterations", "1", "--num-env-runners", "0"]


def test_a_config_that_a_run_wrote_begins_it_again(env, tmp_path, request):
    command_line.run("train", "--env", env, *SMALL, *TRAIN, "--run-dir", "one", folder=tmp_path)
    settings = ["train", "--config", "one/settings.json", "--run-dir"]
    command_line.run(*settings, "two", folder=tmp_path)
    file = tmp_path / "one" / "settings.json"
    text = file.read_text()
    file.write_text(text.replace('"iterations": 1', '"iterations": 2'))
    refused = command_line.run(*settings, "three", folder=tmp_path, code=1).stderr
    assert f"`env` names '{env}'" in refused
    command_line.run(*settings, "three", "--env", env, folder=tmp_path)
    file.write_text(text)
    request.getfixturevalue("as_another_user")
    assert "--allow-code" in command_line.run(*settings, "four", folder=tmp_path, code=1).stderr


def test_a_config_of_ones_own_asks_once(env, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"env": env, "config": {"lr": 0.001}}))
    words = ["train", "--config", "mine.json", *SMALL, *TRAIN, "--run-dir"]
    assert "--allow-code" in command_line.run(*words, "one", folder=tmp_path, code=1).stderr
    command_line.run(*words, "one", "--allow-code", folder=tmp_path)
    command_line.run(*words, "two", folder=tmp_path)
    file.write_text(file.read_text() + "\n")
    assert "--allow-code" in command_line.run(*words, "three", folder=tmp_path, code=1).stderr


# ---- the key


@pytest.fixture
def key(tmp_path, monkeypatch):
    """Where the key of a new user will be."""
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data" / "signing-key"


def test_a_key_is_made_when_something_is_saved_for_this_user_alone(key):
    assert not is_own(b"a", "0" * 64)
    assert not key.exists()  # reading makes none
    signature = sign(b"a")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert is_own(b"a", signature)
    assert not is_own(b"b", signature)
    assert not is_own(b"a", None)
    assert [path.name for path in key.parent.iterdir()] == [key.name]


def test_a_key_that_others_can_read_or_of_another_length_is_none(key, caplog):
    signature = sign(b"a")
    key.chmod(0o640)
    assert sign(b"a") is None
    assert not is_own(b"a", signature)
    assert "is not yours alone" in caplog.text
    key.chmod(0o600)
    assert is_own(b"a", signature)
    key.write_bytes(b"short")
    assert sign(b"a") is None


def test_where_no_key_can_be_made_nothing_is_signed(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "file" / "data"))
    with config().build_algo() as algo:
        path = Path(algo.save_to_path(tmp_path / "c"))
    assert "signature" not in read_text_of(path)
    assert "asks for allow_code=True like anybody's" in caplog.text


def test_all_who_make_the_key_at_once_get_the_same(key):
    signatures = []
    threads = [threading.Thread(target=lambda: signatures.append(sign(b"a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(signatures)) == 1
    assert is_own(b"a", signatures[0])
    assert [path.name for path in key.parent.iterdir()] == [key.name]

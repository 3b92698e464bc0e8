"""Files of strangers that name code at every place: nothing is imported, called or written.

A canary module writes a file when it is imported, and another one, which is imported already, when
its function is called.
"""

import copy
import json
import sys
from collections import Counter
from functools import partial

import pytest

from callbacks import CallbackError, RLlibCallback
from checkpoints import (
    CheckpointError,
    CodeNotAllowedError,
    decode,
    encode,
    read_checkpoint,
    write_checkpoint,
)
from tests import command_line
from trainer import PPO, Algorithm, DQNConfig, PPOConfig, tune
from trainer.cli.main import main
from trainer.tune.journal_file import JOURNAL_FILE, line_of, read_journal

ENV = "trainer.testing.CountdownEnv"
NOT_IMPORTED = "a_canary_that_nobody_imported"
IMPORTED = "a_canary_that_is_imported"
NAMES = (f"{NOT_IMPORTED}.run", f"{NOT_IMPORTED}:run", f"{IMPORTED}.run", f"{IMPORTED}:run")
PROOF = "PROOF_OF_THE_CANARY"
SOURCE = f"""
import os
def run(*arguments, **more):
    open(os.environ[{PROOF!r}], "w").close()
"""


class Canary:
    """Sees whether code ran that a file named."""

    def __init__(self, proof):
        self._proof = proof
        self.outcomes = Counter()

    def watch(self, what, action):
        """Opens a file, which may be refused; nothing that it names may have been run."""
        try:
            action()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - which one, other tests say
            self.outcomes[type(error).__name__] += 1
        else:
            self.outcomes["opened"] += 1
        assert not self._proof.exists(), what
        assert NOT_IMPORTED not in sys.modules, what


@pytest.fixture
def canary(tmp_path, monkeypatch):
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in (NOT_IMPORTED, IMPORTED):
        at_import = "run()\n" if name == NOT_IMPORTED else ""
        (folder / f"{name}.py").write_text(SOURCE + at_import)
    monkeypatch.setenv(PROOF, str(tmp_path / "proof"))
    monkeypatch.syspath_prepend(folder)
    __import__(IMPORTED)
    monkeypatch.delitem(sys.modules, NOT_IMPORTED, raising=False)
    return Canary(tmp_path / "proof")


def test_the_canary_sees_what_is_imported_and_what_is_called(canary):
    for name in NAMES:
        with pytest.raises(AssertionError):
            canary.watch(name, ppo().environment(name).build_algo)
        canary._proof.unlink(missing_ok=True)
        sys.modules.pop(NOT_IMPORTED, None)


# ---- what is planted where


def places(value, place=()):
    """Every place in a value, inside of dicts and lists, too."""
    yield place
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*place, key))
        if isinstance(value, dict):
            yield (*place, "type")


def planted(value, place, name):
    """A copy of a value with a name at a place."""
    if not place:
        return name
    changed = copy.copy(value)
    inner = changed.get(place[0]) if isinstance(changed, dict) else changed[place[0]]
    changed[place[0]] = planted(inner, place[1:], name)
    return changed


def planted_everywhere(value):
    """Copies of a value with a name, or a dict with a `type`, at each place, one at a time."""
    for number, place in enumerate(places(value)):
        name = NAMES[number % len(NAMES)]
        for named in (name, {"type": name, "cmd": "true", "text": ""}):
            yield planted(value, place, named)


def ppo():
    return (
        PPOConfig()
        .environment(ENV)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=8, minibatch_size=8, num_epochs=1)
        .training(model={"fcnet_hiddens": [2]})
        .evaluation(evaluation_interval=1, evaluation_duration=1)
    )


def dqn():
    return (
        DQNConfig()
        .environment(ENV)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=8, model={"fcnet_hiddens": [2]})
        .training(num_steps_sampled_before_learning_starts=8, training_intensity=None)
        .reporting(min_sample_timesteps_per_iteration=0)
        .evaluation(evaluation_interval=1, evaluation_duration=1)
    )


def settings_with_names(config):
    """Settings that name code: each, at each place in it, also of evaluation and of a module."""
    strategy = {"type": "Curiosity", "feature_dim": 2, "inverse_net_hiddens": [2]}
    sub = {
        **strategy,
        "sub_exploration": {"type": "EpsilonGreedy", "epsilon_schedule": [[0, 1.0], [9, 0.1]]},
    }
    values = {**config.to_dict(), "exploration_config": sub}
    for setting, value in values.items():
        for changed in planted_everywhere(value):
            yield {setting: changed}
            yield {"evaluation_config": {setting: changed}}
            own = {"default_policy": {setting: changed}}
            yield {"algorithm_config_overrides_per_module": own}


def sampled(cases, every):
    """Some of the cases, and more of those that name strategies."""
    for number, case in enumerate(cases):
        is_strategy = "exploration_config" in str(case)
        if number % every == 0 or (is_strategy and number % max(1, every // 14) == 0):
            yield case


EVERY = [43, pytest.param(1, marks=pytest.mark.slow)]
EVERY_FILE = [127, *EVERY[1:]]
"""Where each case is written, and run."""


def from_state_and_trained(kind, state):
    with kind.from_state(state).build_algo() as algo:
        algo.train()


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("make", [ppo, dqn])
def test_settings_of_checkpoints(make, every, canary):
    config = make()
    state = config.get_state()
    for settings in sampled(settings_with_names(config), every):
        named = {**state, "settings": {**state["settings"], **settings}}
        canary.watch(settings, partial(from_state_and_trained, type(config), named))
    assert canary.outcomes["CodeNotAllowedError"] > 3
    assert canary.outcomes["ConfigError"] > 20


@pytest.fixture
def league(tmp_path):
    """A run with a module that was added, and its checkpoint in `saved`."""
    config = ppo().environment("trainer.testing.RockPaperScissors")
    config.evaluation(evaluation_interval=None)
    config.multi_agent(policies=["a"], policy_mapping_fn=lambda *_, **__: "a")
    with config.build_algo() as algo:
        algo.add_module("b", config_overrides={"exploration_config": {"type": "Random"}})
        algo.save_to_path(tmp_path / "saved")
        algo.remove_module("b")
        yield algo


@pytest.mark.parametrize("every", EVERY_FILE)
def test_modules_of_checkpoints(every, league, tmp_path, canary):
    contents = read_checkpoint(tmp_path / "saved")
    modules = contents.components["modules"]
    assert modules["modules"]["b"]["settings"]  # it can name strategies
    for number, named in enumerate(sampled(planted_everywhere(modules), every)):
        path = tmp_path / str(number)
        components = {**contents.components, "modules": named}
        write_checkpoint(path, components=components, metadata=contents.manifest.metadata)
        canary.watch(named, partial(league.restore_from_path, path))
        league.restore_from_path(tmp_path / "saved")
        league.remove_module("b")
    assert sum(canary.outcomes.values()) - canary.outcomes["opened"] > 10


def test_a_strategy_of_a_module_is_refused_unless_it_is_allowed(league, tmp_path, canary):
    contents = read_checkpoint(tmp_path / "saved")
    own = contents.components["modules"]["modules"]["b"]["settings"]
    own["exploration_config"] = {"type": "trainer.exploration.Random"}
    metadata, components = contents.manifest.metadata, contents.components
    path = write_checkpoint(tmp_path / "named", components=components, metadata=metadata)
    with pytest.raises(CodeNotAllowedError, match="allow_code=True"):
        league.restore_from_path(path)
    assert "b" not in league.module_specs
    league.restore_from_path(path, allow_code=True)
    assert "b" in league.module_specs
    own["exploration_config"] = {"type": NAMES[2]}
    path = write_checkpoint(tmp_path / "canary", components=components, metadata=metadata)
    canary.watch(path, partial(league.restore_from_path, path))
    assert canary.outcomes["CodeNotAllowedError"] == 1


# ---- experiments


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """An experiment of one trial, killed before its end."""
    folder = tmp_path_factory.mktemp("experiments")
    space = {**ppo().get_state()["settings"], "lr": tune.choice([1e-3, 1e-4])}
    tuner = tune.Tuner(
        "PPO",
        param_space=space,
        tune_config=tune.TuneConfig(num_samples=1, in_process=True),
        run_config=tune.RunConfig(
            name="e", storage_path=str(folder), stop={"training_iteration": 1}, verbose=0
        ),
    )
    tuner.fit()
    journal = folder / "e" / JOURNAL_FILE
    entries, _ = read_journal(journal)
    reported = next(at for at, move in enumerate(entries) if "row" in move.get("cause", {}))
    journal.write_bytes(b"".join(map(line_of, entries[:reported])))
    return folder / "e"


def gone_on_with(folder):
    """Restores an experiment as a stranger's, and runs what is left of it."""
    tune.Tuner.restore(folder, "PPO").fit()


def test_an_experiment_of_ready_made_parts_goes_on(experiment, tmp_path):
    entries, _ = read_journal(experiment / JOURNAL_FILE)
    folder = forged(entries, tmp_path / "e")
    grid = tune.Tuner.restore(folder, "PPO").fit()
    assert grid[0].metrics["training_iteration"] == 1


def forged(entries, folder):
    """A folder with a journal of such entries."""
    folder.mkdir()
    (folder / JOURNAL_FILE).write_bytes(b"".join(map(line_of, entries)))
    return folder


@pytest.mark.parametrize("every", EVERY)
def test_journals(every, experiment, tmp_path, canary):
    header, *entries = read_journal(experiment / JOURNAL_FILE)[0]
    spaces = (
        {**header, "plain_space": {**header["plain_space"], **settings}}
        for settings in settings_with_names(ppo())
    )
    journals = [
        *([one, *entries] for one in sampled(spaces, 4 * every)),
        *(case for case in sampled(planted_everywhere([header, *entries]), every)),
    ]
    for number, journal in enumerate(journals):
        if not isinstance(journal, list) or not all(isinstance(one, dict) for one in journal):
            continue
        folder = forged(journal, tmp_path / str(number))
        canary.watch(journal, partial(gone_on_with, folder))
    assert canary.outcomes["opened"] > 5
    assert sum(canary.outcomes.values()) - canary.outcomes["opened"] > 20


@pytest.mark.parametrize(
    "named",
    [
        {"env": NAMES[0]},
        {"env": "trainer.testing.FailingEnv"},
        {"exploration_config": {"type": NAMES[2]}},
        {"evaluation_config": {"env": NAMES[1]}},
        {"env": {"$domain": f"choice([{ENV!r}, {NAMES[0]!r}])"}},
    ],
)
def test_experiments_that_name_code_are_refused_before_a_trial_begins(
    named, experiment, tmp_path, canary
):
    header, *entries = read_journal(experiment / JOURNAL_FILE)[0]
    header["plain_space"] |= named
    folder = forged([header, *entries], tmp_path / "e")
    before = (folder / JOURNAL_FILE).read_bytes()
    with pytest.raises((CheckpointError, tune.TuneError), match=r"neither ready-made|cannot be"):
        gone_on_with(folder)
    assert command_line.run("tune-resume", "e", folder=tmp_path, code=1).stderr
    assert (folder / JOURNAL_FILE).read_bytes() == before
    canary.watch(named, lambda: None)


# ---- crash files and config files


class Failing(RLlibCallback):
    def on_episode_end(self, **kwargs):
        raise ValueError("on purpose")


@pytest.fixture(scope="module")
def crash(tmp_path_factory):
    """What is in a crash file."""
    folder = tmp_path_factory.mktemp("crashes")
    config = ppo().callbacks(Failing).fault_tolerance(crash_dir=str(folder))
    config.environment(env_config={"min_length": 3})
    with config.build_algo() as algo, pytest.raises(CallbackError):
        _ = [algo.train() for _ in range(20)]
    record = decode(next(folder.glob("*.crash")).read_bytes())
    record["config"]["code"] = []
    return record


@pytest.mark.usefixtures("capfd")
@pytest.mark.parametrize("every", EVERY_FILE)
def test_crash_files(every, crash, tmp_path, canary):
    config = crash["config"]
    of_settings = (
        {**crash, "config": {**config, "settings": {**config["settings"], **settings}}}
        for settings in settings_with_names(ppo())
    )
    file = tmp_path / "c.crash"
    rest = {key: value for key, value in crash.items() if key != "weights"}
    records = [*sampled(of_settings, 4 * every), *sampled(planted_everywhere(rest), every)]
    for record in records:
        if not isinstance(record, dict):
            continue
        file.write_bytes(encode({"weights": crash["weights"], **record}))
        canary.watch(record, lambda: main(["replay-episode", str(file)]))


@pytest.mark.usefixtures("capfd")
@pytest.mark.parametrize("every", EVERY_FILE)
def test_config_files(every, tmp_path, canary, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = {"algo": "PPO", "env": ENV, "config": {}, "stop": {"iterations": 1}, "save": {}}
    plain = json.loads(json.dumps(ppo().get_state()["settings"]))
    del plain["env"]
    cases = [
        *(
            {**whole, "config": {**plain, **settings}}
            for settings in sampled(settings_with_names(ppo()), 8 * every)
        ),
        *sampled(planted_everywhere({**whole, "config": plain}), every),
    ]
    for number, case in enumerate(cases):
        text = json.dumps(case, default=str)
        (tmp_path / "c.json").write_text(text)
        words = ["train", "--config", "c.json", "--run-dir", f"run{number}", "--lines"]
        canary.watch(case, partial(main, [*words, "--stop-iterations", "1"]))
    assert any(tmp_path.glob("run*/checkpoints"))  # some were trained


def test_names_as_text_in_a_config_file_are_refused(tmp_path, canary):
    own = {"default_policy": {"exploration_config": NAMES[2]}}
    for settings in (
        {"exploration_config": NAMES[2]},
        {"evaluation_config": {"exploration_config": NAMES[2]}},
        {"algorithm_config_overrides_per_module": own},
    ):
        (tmp_path / "c.json").write_text(json.dumps({"env": ENV, "config": settings}))
        refused = command_line.run("train", "--config", "c.json", folder=tmp_path, code=1).stderr
        assert f"names {NAMES[2]!r}" in refused
    canary.watch("config files", lambda: None)


def test_states_in_memory(canary):
    with ppo().build_algo() as algo:
        whole = Algorithm.__getstate__(algo)
    own = {"default_policy": {"exploration_config": {"type": NAMES[0]}}}
    whole["config"]["settings"]["algorithm_config_overrides_per_module"] = own
    canary.watch("state", lambda: PPO.from_state(whole))
    assert canary.outcomes["CodeNotAllowedError"] == 1

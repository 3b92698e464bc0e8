"""Modules that are added, removed and mapped anew in mid-run: what changes, and what stays."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from callbacks import CallbackError
from checkpoints import CheckpointMismatchError, decode, encode, read_manifest
from tests import league
from tests.exact_runs import fail
from tests.league import config, off_policy_config, outcome, trained
from tests.multi_agent_runs import Gaps, told
from tests.mutated_states import mutated, mutations
from tests.small_runs import known
from trainer import Algorithm, PPOConfig
from trainer.env_runners import multi_agent_env_runner
from trainer.errors import ConfigError, ModuleError, SerializationError, TrainerError
from trainer.modules import ByModule, Matchups, RandomRLModule, RLModule, RLModuleSpec
from trainer.modules.module_table import are_same_specs
from trainer.testing.processes import wait_until

PROJECT = Path(__file__).parents[2]
ITERATIONS = 5


def different(found, expected, *, but=()):
    assert found.keys() == expected.keys()
    return [name for name in found if name not in but and found[name] != expected[name]]


@pytest.fixture(scope="module")
def undisturbed():
    return trained(config(0, 6), ITERATIONS)


@pytest.fixture
def algo():
    with config(0, 2).callbacks(None).build_algo() as built:
        yield built


# ---- a league, exactly


@pytest.mark.process
def test_a_league_is_the_same_however_envs_are_spread(undisturbed):
    found = trained(config(3, 2), ITERATIONS)
    # Callbacks of runners are as many as there are runners.
    assert different(found, undisturbed, but=["env_runners"]) == []


def test_a_league_that_is_restored_goes_on_with_the_same_bytes(undisturbed, tmp_path):
    with config(0, 6).build_algo() as algo:
        for _ in range(3):
            algo.train()
        path = algo.save_to_path(tmp_path / "c")
        assert different(outcome(algo, [algo.train(), algo.train()]), undisturbed) == []
    again = config(0, 6).build_algo()
    again.restore_from_path(path)
    for restored in (again, Algorithm.from_checkpoint(path, allow_code=True)):
        with restored:
            results = [restored.train() for _ in range(ITERATIONS - 3)]
            assert different(outcome(restored, results), undisturbed) == []


@pytest.mark.process
def test_a_league_whose_runners_are_killed_is_repaired(tmp_path):
    (tmp_path / "kills").write_text("17 33 70 71 120")
    found = trained(config(1, 2, kills=str(tmp_path / "kills")), ITERATIONS)
    assert int((tmp_path / "kills.count").read_text()) > 121
    assert different(found, trained(config(1, 2), ITERATIONS)) == []


def test_a_league_whose_sub_envs_fail_is_repaired(tmp_path):
    (tmp_path / "breaks").write_text("5 41 42 83 90 121")
    made = config(0, 2, breaks=str(tmp_path / "breaks"))
    made.fault_tolerance(restart_failed_sub_environments=True)
    found = trained(made, ITERATIONS)
    expected = trained(config(0, 2), ITERATIONS)
    assert different(found, expected) == []


@pytest.mark.process
def test_hash_seeds_and_orders_of_dicts_change_nothing(tmp_path, undisturbed):
    program = (
        "import json, sys; from tests.league import config, trained;"
        f"print(json.dumps(trained(config(0, 6, shuffles=True), {ITERATIONS})))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(PROJECT)}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert different(json.loads(run.stdout.splitlines()[-1]), undisturbed) == []


STEP = 6
"""Kills are at least so many iterations apart, so that a run has room for all of them."""


def killed_league(folder, *, seed, num_kills, num_env_runners, iterations):
    """What a league comes to whose main process is killed so often, at random moments.

    A kill is due when a run has saved so many iterations; it comes up to 40 looks (0.2 s) later:
    while it starts, samples, learns, changes modules or saves.
    """
    draw, kills = random.Random(seed), 0
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "tests.league", str(num_env_runners), str(iterations)]
    while not (folder / "outcome.json").exists():
        with subprocess.Popen(command, cwd=folder, env=environment) as run:
            if kills < num_kills:
                _wait_for_iteration(run, folder, 1 + kills * STEP, looks=draw.randrange(40))
                run.kill()
        assert run.returncode in (0, -signal.SIGKILL)
        kills += run.returncode != 0
    assert kills == num_kills
    return json.loads((folder / "outcome.json").read_text())


def _wait_for_iteration(run, folder, iteration, *, looks):
    """Until this iteration was saved, and then for so many looks, or until the run is over."""
    left = looks

    def is_time():
        nonlocal left
        saved = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        left -= max(saved, default=0) >= iteration
        return run.poll() is not None or left < 0

    assert wait_until(is_time, within_s=60.0)


@pytest.mark.process
@pytest.mark.parametrize(
    ("seed", "num_kills", "num_env_runners"),
    [(8, 1, 0), *(pytest.param(n, 10, 1, marks=pytest.mark.slow) for n in range(10))],
)
def test_a_league_whose_main_process_is_killed_goes_on_with_the_same_bytes(
    tmp_path, seed, num_kills, num_env_runners
):
    iterations = STEP * num_kills + 12
    for name in ("killed", "alone"):
        (tmp_path / name).mkdir()
    found = killed_league(
        tmp_path / "killed",
        seed=seed,
        num_kills=num_kills,
        num_env_runners=num_env_runners,
        iterations=iterations,
    )
    league.go_on(num_env_runners, iterations, tmp_path / "alone")
    assert found == json.loads((tmp_path / "alone" / "outcome.json").read_text())


def test_a_league_with_replay_goes_on_with_the_same_bytes(tmp_path):
    def made():
        return off_policy_config().training(training_intensity=2)

    undisturbed = trained(made(), ITERATIONS)
    with made().build_algo() as algo:
        for _ in range(3):
            algo.train()
        algo.save_to_path(tmp_path / "c")
        assert set(algo.replay_buffers) == set(algo.module_ids)
    with made().build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        results = [algo.train() for _ in range(ITERATIONS - 3)]
        assert different(outcome(algo, results), undisturbed) == []


# ---- negative controls: what is forgotten is seen

FORGOTTEN = {
    "version": lambda modules: modules.update(version=modules["version"] + 1),
    "mapping": lambda modules: modules.update(
        mapping={"agents": [[3, "main"], ["a", "main"], ["late", "main"]]}
    ),
    "trained": lambda modules: modules.update(trained=None),
    "updates of removed modules": lambda modules: modules["updates_of_removed"].update(again=5),
}


@pytest.fixture(scope="module")
def remembered():
    return _restored_in_the_middle(lambda _: None)


@pytest.mark.parametrize("part", FORGOTTEN)
def test_a_part_of_the_table_that_is_forgotten_shows(remembered, part):
    assert different(_restored_in_the_middle(FORGOTTEN[part]), remembered) != []


def _restored_in_the_middle(forget):
    """What a run comes to that gets its own state back, after something was forgotten."""
    with config(0, 2).callbacks(None).build_algo() as algo:
        algo.add_module("old", copy_of="main", new_agent_to_module_mapping_fn=_MATCHUPS)
        algo.add_module("again", copy_of="main", new_should_module_be_updated=["main", "again"])
        algo.train()
        algo.remove_module("again")
        state = decode(encode(algo.get_state(not_components="config")))
        forget(state["modules"])
        algo.set_state(state)
        learns = [id_ for id_ in algo.module_ids if algo.is_trained(id_)]
        algo.add_module("again", copy_of="main")
        algo.set_policies_to_train([*learns, "again"])
        return outcome(algo, [algo.train() for _ in range(2)])


_MATCHUPS = Matchups(
    [{"a": "main", 3: "old", "late": "first"}, {"a": "old", 3: "main", "late": "main"}]
)


def test_what_callbacks_of_runners_were_told_is_part_of_the_state(tmp_path):
    """A module added after the last request: callbacks hear of it once, also after a restore."""
    made = config(0, 2)
    with made.build_algo() as algo:
        algo.train(), algo.train()  # the second one adds a module
        state = decode(encode(algo.get_state(not_components="config")))
        assert state["env_runners"]["known_modules"] == ["first", "main"]
        algo.train()
        expected = outcome(algo, [])
        (told,) = [one.told for one in algo.env_runner.callbacks.objects]
        assert told == ["first", "main", "old_1"]
    for forgets in (False, True):
        with made.build_algo() as algo:
            if forgets:
                del state["env_runners"]["known_modules"]
            algo.set_state(state)
            algo.train()
            assert bool(different(outcome(algo, []), expected)) is forgets


# ---- what changes, and what stays


def test_a_copy_stays_as_it_was_while_its_original_learns(algo):
    algo.train()
    before = algo.get_weights()["main"]
    moments = encode(algo.normalizations["main"].get_state()["observations"])
    spec = algo.add_module("old", copy_of="main", new_agent_to_module_mapping_fn=_MATCHUPS)
    assert spec.observation_space == spaces.Box(-1.0, 1.0, (3,), np.float32)
    for name, array in algo.get_weights()["old"].items():
        np.testing.assert_array_equal(array, before[name])
    assert encode(algo.normalizations["old"].get_state()["observations"]) == moments
    frozen = encode(algo.learners["old"].get_state())
    for _ in range(3):
        result = algo.train()
    assert encode(algo.learners["old"].get_state()) == frozen
    told = result["learners"]["old"]
    assert told.pop("is_trained") is False
    assert set(told.values()) == {0}
    assert encode(algo.get_weights()["main"]) != encode(before)
    assert algo.counters.played.num_module_steps["old"] > 0


def test_running_episodes_go_on_with_the_modules_that_they_began_with(algo):
    algo.train()
    runner = algo.env_runner
    algo.add_module("old", copy_of="main", new_agent_to_module_mapping_fn=_to("old"))
    running = _modules_of_slots(algo)
    assert any(running)
    assert all("old" not in modules for modules in running)
    algo.train()
    assert runner is algo.env_runner
    assert {"old"} in _modules_of_slots(algo)


def _modules_of_slots(algo):
    return [
        {pair["value"] for pair in slot["episode"]["modules"]} if slot["episode"] else set()
        for slot in algo.env_runner_group.get_state()["slots"]
    ]


def test_a_removed_module_takes_exactly_its_episodes_along(algo):
    algo.add_module("old", copy_of="main", new_agent_to_module_mapping_fn=_MATCHUPS)
    algo.train()
    before = _modules_of_slots(algo)
    algo.remove_module(
        "first", new_agent_to_module_mapping_fn={"a": "main", 3: "old", "late": "old"}
    )
    with_it = ["first" in modules for modules in before]
    assert _modules_of_slots(algo) == [
        set() if is_lost else modules for modules, is_lost in zip(before, with_it, strict=True)
    ]
    assert True in with_it
    num_lost = sum(with_it)
    assert algo.env_runner_group.get_state().get("lost", [0])[0] == num_lost
    algo.train()
    assert algo.counters.played.num_episodes_lost == num_lost


def test_a_module_of_a_removed_ones_id_goes_on_counting(algo):
    algo.set_policies_to_train(None)
    algo.train()
    steps = algo.counters.played.num_module_steps["first"]
    updates = algo.learners["first"].num_updates
    assert steps > 0
    assert updates > 0
    algo.add_module("other", copy_of="main")
    algo.remove_module("first", new_agent_to_module_mapping_fn=_to("main"))
    assert algo.counters.played.num_module_steps["first"] == steps
    algo.add_module("first", copy_of="main")
    assert algo.learners["first"].num_updates == updates


ANOTHER_ONE = {
    "network": {"module_spec": RLModuleSpec(model_config={"fcnet_hiddens": [5]})},
    "settings": {"copy_of": "main", "config_overrides": {"lr": 0.01, "explore": False}},
    "random": {"module_spec": RLModuleSpec(module_class=RandomRLModule)},
}


@pytest.mark.parametrize("kind", ANOTHER_ONE)
def test_another_module_of_a_removed_ones_id_is_the_one_that_is_restored(kind, tmp_path):
    """In a new process, and where the id is that of the former one, and the other way round."""

    def made():
        return config(0, 2).callbacks(None).multi_agent(policies_to_train=None).build_algo()

    def trained_once(algo):
        return encode(told(algo.train())) + known(algo)

    with made() as algo:
        algo.train()
        early = algo.save_to_path(tmp_path / "early")
        before = trained_once(algo)
        algo.remove_module("first", new_agent_to_module_mapping_fn=_to("main"))
        algo.add_module("first", new_agent_to_module_mapping_fn=_to("first"), **ANOTHER_ONE[kind])
        algo.train()
        late = algo.save_to_path(tmp_path / "late")
        after = trained_once(algo)
        algo.restore_from_path(early)
        assert trained_once(algo) == before
        algo.restore_from_path(late)
        assert trained_once(algo) == after
    with made() as algo:
        algo.restore_from_path(late)
        assert trained_once(algo) == after


def test_adding_a_module_leaves_all_others_as_they_are():
    weights = []
    for is_added in (False, True):
        with config(0, 2).callbacks(None).build_algo() as algo:
            algo.train()
            if is_added:
                algo.add_module("b")
            algo.train()
            weights.append(encode(algo.learners["main"].get_state()))
    assert weights[0] == weights[1]


def test_what_a_failed_iteration_added_is_gone(undisturbed):
    fails = [True]

    class Fails(league.League):
        def on_train_result(self, **arguments):
            super().on_train_result(**arguments)
            if fails and self.num_added:
                fails.clear()
                raise ValueError("on purpose")

    with config(0, 6).callbacks(Fails).build_algo() as algo:
        results = [algo.train()]
        before = known(algo)
        with pytest.raises(CallbackError, match="on purpose"):
            algo.train()
        assert known(algo) == before
        assert algo.module_ids == ("first", "main")
        results += [algo.train() for _ in range(ITERATIONS - 1)]
        found = outcome(algo, results)
    # The state of callbacks names their class.
    assert different(found, undisturbed, but=["env_runners", "callbacks"]) == []


@pytest.mark.parametrize("change", ["none", "added", "removed"])
def test_after_a_failed_iteration_evaluation_runners_act_as_if_it_had_not_been(change):
    """With the modules, the weights and the normalisation of the evaluation before it."""
    found = []
    for fails in (False, True):
        made = config(0, 2).callbacks(None)
        made.evaluation(evaluation_interval=1, evaluation_duration=2)
        with made.build_algo() as algo:
            algo.train()
            if change == "added":
                algo.add_module("new", new_agent_to_module_mapping_fn=_to("new"))
            elif change == "removed":
                algo.remove_module("first", new_agent_to_module_mapping_fn=_to("main"))
            if fails:
                algo.__dict__["add_to_result"] = lambda _: fail()
                with pytest.raises(OSError, match="on purpose"):
                    algo.train()
                del algo.__dict__["add_to_result"]
            group = algo.eval_env_runner_group
            group.begin_evaluation(99)  # the same episodes in both runs
            (acted,) = group.foreach_env_runner(_modules_and_episodes)
            found.append((acted, outcome(algo, [algo.train()])))
    assert found[0] == found[1]


def _modules_and_episodes(env_runner):
    modules = {id_: one.get_state() for id_, one in env_runner.modules.items()}
    return encode(modules), [encode(one.get_state()) for one in env_runner.sample(num_episodes=4)]


@pytest.mark.parametrize("num_before", [0, 1])
def test_an_interrupt_leaves_a_runner_all_modules_or_none_of_a_table(num_before, algo, monkeypatch):
    """In this process: it is asked again with the table of before, when the iteration is undone."""
    algo.add_module("new", copy_of="main", new_agent_to_module_mapping_fn=_to("new"))
    algo.train()
    runner = algo.env_runner
    table, modules = runner.spec.table, dict(runner.modules.items())
    specs = {id_: one for id_, one in table.specs.items() if id_ != "new"}
    without = dataclasses.replace(table, specs=ByModule(specs), mapping=_to("main"))
    calls = iter([True] * num_before)

    def interrupted(*given):
        if not next(calls, False):
            raise KeyboardInterrupt
        return are_same_specs(*given)

    with monkeypatch.context() as patch:
        patch.setattr(multi_agent_env_runner, "are_same_specs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner._take_table(without, ())
    assert runner.module_specs.keys() == runner.modules.keys()
    runner._take_table(table, ())
    assert dict(runner.modules.items()) == modules


def test_evaluation_keeps_a_mapping_of_its_own():
    def evaluated():
        return {*algo.train()["evaluation/env_runners/module_episode_return_mean"]}

    made = config(0, 2).callbacks(None)
    made.evaluation(
        evaluation_interval=1,
        evaluation_duration=2,
        evaluation_config={"policy_mapping_fn": _to("first")},
    )
    with made.build_algo() as algo:
        algo.train()
        algo.add_module("old", copy_of="main", new_agent_to_module_mapping_fn=_MATCHUPS)
        assert evaluated() == {"first"}
        algo.set_policy_mapping_fn(_to("old"), for_evaluation=True)
        assert evaluated() == {"old"}
        algo.set_policy_mapping_fn(None, for_evaluation=True)
        assert len(evaluated()) > 1


def test_a_function_says_which_modules_learn(algo):
    asked = []

    def learns(module_id, batch):
        asked.append((module_id, batch is None))
        return module_id == "first"

    algo.set_policies_to_train(learns)
    before = {id_: encode(one.get_state()) for id_, one in algo.learners.items()}
    algo.train()
    assert asked == [("first", False), ("main", False)]
    assert encode(algo.learners["main"].get_state()) == before["main"]
    assert encode(algo.learners["first"].get_state()) != before["first"]
    algo.set_policies_to_train(lambda module_id, batch: 1 / 0)
    state = known(algo)
    with pytest.raises(ConfigError, match=r"raised for module 'first'.*ZeroDivisionError"):
        algo.train()
    assert known(algo) == state


def test_a_saved_module_is_loaded_under_another_id(algo, tmp_path):
    algo.train()
    algo.save_to_path(tmp_path / "c")
    saved = encode(algo.get_weights()["main"])
    algo.train()
    algo.add_module("loaded", load_from=tmp_path / "c" / "learner" / "main" / "rl_module")
    assert encode(algo.get_weights()["loaded"]) == saved
    algo.add_module("given", module_state=algo.get_weights()["loaded"])
    assert encode(algo.get_weights()["given"]) == saved


def test_older_names_do_the_same(algo):
    state = {"weights": algo.get_weights()["main"]}
    made = algo.add_policy("old", policy_state=state, policies_to_train=["main"])
    assert encode(made.get_state()) == encode(state["weights"])
    algo.add_policy("dice", "random", policy_mapping_fn=_to("dice"))
    assert algo.train()["env_runners"]["num_module_steps_sampled"]["dice"] > 0
    algo.remove_policy("old")
    assert algo.module_ids == ("dice", "first", "main")


def test_checkpoints_say_which_modules_there_are(algo, tmp_path):
    algo.add_module("old", copy_of="main", config_overrides={"lr": 0.5})
    algo.save_to_path(tmp_path / "c")
    names = read_manifest(tmp_path / "c").components
    assert {"modules", "learner/old/rl_module", "connectors/old"} <= {*names}
    module = RLModule.from_checkpoint(tmp_path / "c" / "learner" / "old" / "rl_module")
    assert encode(module.get_state()) == encode(algo.get_weights()["old"])
    with config(0, 2).callbacks(None).build_algo() as other:
        first = known(other)
        other.save_to_path(tmp_path / "first")
        other.restore_from_path(tmp_path / "c")
        assert other.module_ids == ("first", "main", "old")
        assert other.learners["old"].settings.lr == 0.5
        assert known(other) == known(algo)
        other.restore_from_path(tmp_path / "first")
        assert known(other) == first
        with pytest.raises(CheckpointMismatchError):
            other.restore_from_path(tmp_path / "c", component="learner/older")


def test_a_checkpoint_whose_modules_cannot_act_changes_nothing(algo, tmp_path):
    class Others(Gaps):
        def __init__(self, env_config):
            super().__init__(env_config)
            self.action_space = spaces.Discrete(2)

    algo.add_module("old", copy_of="main")
    algo.save_to_path(tmp_path / "c")
    with config(0, 2).callbacks(None).environment(Others).build_algo() as other:
        other.train()
        before = known(other)
        with pytest.raises(CheckpointMismatchError, match=r"cannot act here.*Discrete"):
            other.restore_from_path(tmp_path / "c")
        assert known(other) == before
        assert other.module_ids == ("first", "main")


TAKEN = [
    ("updates_of_removed",),  # a module may have any id
    ("fingerprints",),  # may be missing: those of earlier releases lack them
    ("fingerprints", "policy_mapping_fn"),
]


def is_taken(mutation):
    """Whether a spoilt state is a good one all the same."""
    what, path = mutation
    if "model_config" in path:  # the settings hold; of other modules: test_states_of_modules
        return path[-1] != "model_config" or what == "key added"
    if len(path) == 2 and path[0] == "modules":  # other ids: told by the components of a checkpoint
        return what.startswith("key")
    return path in TAKEN and what != "wrong type"


def test_modules_that_are_spoilt_are_refused_by_name_and_nothing_is_changed(algo):
    algo.train()
    algo.add_module("old", copy_of="main")
    state = algo.get_state()
    before = known(algo)
    found = [one for one in mutations(state["modules"]) if not is_taken(one)]
    for mutation in random.Random(3).sample(found, 30):
        spoilt = {**state, "modules": mutated(state["modules"], mutation)}
        with pytest.raises(CheckpointMismatchError, match=r"(?s)modules.*Nothing was changed"):
            algo.set_state(spoilt)
        assert known(algo) == before, mutation


# ---- settings that name other modules than a checkpoint has


def _with_extra(**more):
    """The config of the league, where a module `extra` acts for "a" and learns."""
    named = {
        "policies": {"main", "first", "extra"},
        "policy_mapping_fn": {"a": "extra", 3: "main", "late": "first"},
        "policies_to_train": ["main", "extra"],
    }
    return config(0, 2).callbacks(None).multi_agent(**{**named, **more})


def _states(algo, *module_ids):
    return [encode(algo.learners[id_].get_state()) for id_ in module_ids]


def _sampled(algo):
    """The steps of each module, when what ran before has ended."""
    return [algo.train()["env_runners"]["num_module_steps_sampled"] for _ in range(3)][-1]


@pytest.mark.parametrize(
    "mapping",
    [
        {"a": "extra", 3: "main", "late": "first"},
        lambda agent_id, episode: {"a": "extra", 3: "main", "late": "first"}[agent_id],
    ],
    ids=["data", "function"],
)
def test_a_module_that_only_the_settings_name_is_new(algo, tmp_path, mapping):
    algo.train()
    algo.save_to_path(tmp_path / "c")
    seen = []

    def look(algorithm, **_):
        seen.append(algorithm.module_ids)

    made = _with_extra(policy_mapping_fn=mapping).callbacks(on_checkpoint_loaded=look)
    with made.build_algo() as other:
        fresh = _states(other, "extra")
        other.train()
        assert _states(other, "extra") != fresh
        other.restore_from_path(tmp_path / "c")
        assert seen == [("extra", "first", "main")]
        assert _states(other, "extra") == fresh
        assert _states(other, "first", "main") == _states(algo, "first", "main")
        assert [other.is_trained(id_) for id_ in other.module_ids] == [True, False, True]
        results = [other.train(), other.train()]
        assert results[-1]["env_runners"]["num_module_steps_sampled"]["extra"] > 0
        other.save_to_path(tmp_path / "again")
        results.append(other.train())
        wanted = outcome(other, results)
    with made.build_algo() as again:
        again.restore_from_path(tmp_path / "again")
        assert outcome(again, [again.train()]) == wanted


def test_what_a_run_changed_stays_when_settings_name_a_new_module(algo, tmp_path):
    algo.add_module("old", copy_of="main", new_agent_to_module_mapping_fn=_MATCHUPS)
    alone = {"a": "main", 3: "old", "late": "main"}
    algo.remove_module("first", new_agent_to_module_mapping_fn=alone)
    algo.train()
    algo.save_to_path(tmp_path / "c")
    with _with_extra().build_algo() as other:
        other.restore_from_path(tmp_path / "c")
        assert other.module_ids == ("extra", "main", "old")  # "first" was removed
        assert [other.is_trained(id_) for id_ in other.module_ids] == [True, True, False]
        assert "extra" not in _sampled(other)
        other.set_policy_mapping_fn(_to("extra"))
        assert _sampled(other)["extra"] > 0
    asks_for_first = _with_extra(policy_mapping_fn=lambda agent_id, episode: "first")
    algo.set_policy_mapping_fn(lambda agent_id, episode: "old")
    algo.save_to_path(tmp_path / "c")
    with asks_for_first.build_algo() as other:
        before = known(other)
        with pytest.raises(CheckpointMismatchError, match="name 'first', which the run removed"):
            other.restore_from_path(tmp_path / "c")
        assert known(other) == before
        assert other.module_ids == ("extra", "first", "main")


def _renamed(name, *more):
    """The config of the league, whose learner has another id; it may be named as well."""
    mapping = {"a": name, 3: name, "late": "first"}
    policies = {name, "first", *more}
    return (
        config(0, 2)
        .callbacks(None)
        .multi_agent(policies=policies, policy_mapping_fn=mapping, policies_to_train=[name])
    )


@pytest.mark.parametrize("function", [False, True])
def test_a_misspelt_module_is_refused_and_nothing_is_changed(algo, tmp_path, function):
    algo.train()
    if function:  # the run changed its modules, but its mapping is code, so the script's holds
        algo.set_policy_mapping_fn(lambda agent_id, episode: "main")
    algo.save_to_path(tmp_path / "c")
    made = _renamed("mian")
    if function:
        made.multi_agent(policy_mapping_fn=lambda agent_id, episode: "mian")
    with made.build_algo() as other:
        before = known(other)
        with pytest.raises(
            CheckpointMismatchError,
            match=r"'mian', which the checkpoint does not have.* 'main'.*Nothing was changed",
        ):
            other.restore_from_path(tmp_path / "c")
        assert known(other) == before
        assert other.module_ids == ("first", "mian")
        other.train()


@pytest.mark.parametrize(
    ("name", "more", "hint"),
    [("mian", ["main"], " (did you mean 'main'?)"), ("pupil", [], "")],
    ids=["both are named", "nothing is near"],
)
def test_a_new_module_is_told_by_a_warning_with_the_checkpoints_ids(
    algo, tmp_path, caplog, name, more, hint
):
    algo.train()
    algo.save_to_path(tmp_path / "c")
    with _renamed(name, *more).build_algo() as other, caplog.at_level("WARNING", "trainer"):
        fresh = _states(other, name)
        other.restore_from_path(tmp_path / "c")
        assert _states(other, name, "main") == [*fresh, *_states(algo, "main")]
        other.restore_from_path(tmp_path / "c", component="learner/main", into=name)
        assert encode(other.get_weights()[name]) == encode(algo.get_weights()["main"])
    (text,) = [record.getMessage() for record in caplog.records if "untrained" in record.message]
    assert f"modules '{name}'{hint}, which the settings name" in text
    assert "It has 'first', 'main'." in text


def test_a_run_with_one_module_goes_on_with_a_second_one(tmp_path):
    one = config(0, 2).callbacks(None)
    one.multi_agent(policies=["main"], policy_mapping_fn=_to("main"), policies_to_train=None)
    with one.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
        (wanted,) = _states(algo, "main")
        state = algo.get_state()
    with _with_extra(policies_to_train=["extra"]).build_algo() as other:
        fresh = _states(other, "extra", "first")
        other.restore_from_path(tmp_path / "c")
        assert _states(other, "extra", "first", "main") == [*fresh, wanted]
        assert [other.is_trained(id_) for id_ in other.module_ids] == [True, False, False]
        other.train()
        other.set_state(state)
        assert _states(other, "extra", "first", "main") == [*fresh, wanted]


def test_settings_that_a_run_never_changed_are_those_of_the_script(algo, tmp_path):
    algo.train()
    algo.save_to_path(tmp_path / "c")
    made = config(0, 2).callbacks(None)
    made.multi_agent(policies_to_train=["first"], policy_mapping_fn=_to("first"))
    with made.build_algo() as other:
        other.restore_from_path(tmp_path / "c")
        assert other.get_state("modules")["modules"]["version"] == 0
        assert [other.is_trained(id_) for id_ in ("first", "main")] == [True, False]
        assert _sampled(other)["main"] == 0


# ---- settings of single modules


def test_modules_have_settings_of_their_own():
    made = config(0, 2).callbacks(None)
    made.multi_agent(
        policies_to_train=None,
        algorithm_config_overrides_per_module={
            "first": {"lr": 0.25, "gamma": 0.5, "clip_param": 0.1},
            "main": PPOConfig.overrides(num_epochs=1, model_config={"fcnet_hiddens": [5]}),
        },
    )
    with made.build_algo() as algo:
        settings = {id_: learner.settings for id_, learner in algo.learners.items()}
        assert (settings["first"].lr, settings["first"].gamma) == (0.25, 0.5)
        assert (settings["main"].clip_param, settings["main"].num_epochs) == (0.3, 1)
        assert settings["first"].num_epochs == 2
        sizes = [one.module.num_parameters for one in algo.learners.values()]
        assert sizes[0] > sizes[1]
        learners = algo.train()["learners"]
        assert learners["first"]["default_optimizer_learning_rate"] == 0.25
        assert algo.config.get_config_for_module("first").gamma == 0.5


def test_a_module_explores_in_its_own_way():
    made = off_policy_config(0, 2).callbacks(None)
    own = {"first": {"explore": False}, "main": {"epsilon": 1.0}}
    made.multi_agent(algorithm_config_overrides_per_module=own)
    with made.build_algo() as algo:
        runner = algo.env_runner
        player = runner._player
        assert player.policies["main"].strategy.epsilon(0) == 1.0
        chunks = [c for e in runner.sample(num_timesteps=60) for c in player.chunks_of(e)]
        is_best = {"first": [], "main": []}
        for chunk in chunks:
            inputs = chunk.get_extra_model_outputs("action_dist_inputs")
            is_best[chunk.module_id] += (chunk.get_actions() == inputs.argmax(axis=1)).tolist()
        assert all(is_best["first"])
        assert not all(is_best["main"])
        algo.train()


def test_all_that_is_wrong_with_settings_of_modules_is_told_at_once():
    made = config(0, 2)
    made.multi_agent(
        algorithm_config_overrides_per_module={
            "first": {"gamma": 2.0, "train_batch_size": 4, "lrr": 1.0},
            "mian": {"lr": 1.0},
        }
    )
    with pytest.raises(ConfigError) as raised:
        made.validate()
    text = str(raised.value)
    for part in ("module 'first': `gamma=2.0`", "of the whole run", "lrr", "did you mean 'main'"):
        assert part in text


# ---- errors: one each, and nothing is changed


class Unsendable:
    """A mapping that cannot travel."""

    def __call__(self, agent_id, episode):
        return "main"

    def __reduce__(self):
        raise TypeError("it stays at home")


_OTHER = RLModuleSpec(
    observation_space=spaces.Box(-1.0, 1.0, (7,), np.float32), action_space=spaces.Discrete(3)
)
WRONG = {
    "an id that there is": (lambda a: a.add_module("main"), "there is a module of this id"),
    "an id that cannot be": (lambda a: a.add_module("a/b"), "'a/b' has '/' in it"),
    "a copy of nothing": (lambda a: a.add_module("b", copy_of="mian"), "did you mean 'main'"),
    "two networks": (lambda a: a.add_module("b", _OTHER, copy_of="main"), "more than once"),
    "not all processes": (lambda a: a.add_module("b", add_to_learners=False), "all processes"),
    "other spaces": (
        lambda a: a.add_module("b", _OTHER, new_agent_to_module_mapping_fn=_to("b")),
        "has observation_space=.*7",
    ),
    "a mapping to nothing": (
        lambda a: a.add_module("b", copy_of="main", new_agent_to_module_mapping_fn=_to("bb")),
        "the module 'bb'",
    ),
    "a mapping that cannot be called": (
        lambda a: a.set_policy_mapping_fn(lambda: "main"),
        "cannot be called as f",
    ),
    "a copy with another network": (
        lambda a: a.add_module(
            "b", copy_of="main", config_overrides={"model_config": {"fcnet_hiddens": [3]}}
        ),
        "given copy_of.*says another one",
    ),
    "no mapping": (lambda a: a.set_policy_mapping_fn(None), "nothing says which agent"),
    "an unknown one is to learn": (lambda a: a.set_policies_to_train(["mian"]), "'mian'"),
    "no ids": (lambda a: a.set_policies_to_train(3), "expected ids of modules"),
    "a setting of the run": (
        lambda a: a.add_module("b", config_overrides={"num_env_runners": 3}),
        "of the whole run",
    ),
    "removed twice": (lambda a: a.remove_module("b"), "there is no module 'b'"),
    "removed while in use": (lambda a: a.remove_module("first"), "not removed.*'first'"),
    "weights that do not fit": (
        lambda a: a.add_module("b", module_state={"w": np.zeros(3)}),
        "",
    ),
}


def _to(module_id):
    return dict.fromkeys(("a", 3, "late"), module_id)


@pytest.fixture(scope="module")
def wronged():
    with config(0, 2).callbacks(None).build_algo() as built:
        built.train()
        yield built, known(built)


@pytest.mark.parametrize("what", WRONG)
def test_a_change_that_cannot_be_changes_nothing(wronged, what):
    algo, before = wronged
    change, problem = WRONG[what]
    with pytest.raises((ConfigError, ModuleError), match=f"(?s){problem}"):
        change(algo)
    assert known(algo) == before
    assert algo.module_ids == ("first", "main")


def test_the_only_module_stays():
    made = PPOConfig().environment(Gaps).env_runners(num_env_runners=0)
    made.training(train_batch_size=20, minibatch_size=10, num_epochs=1)
    with made.build_algo() as algo:
        with pytest.raises(ConfigError, match="the only module"):
            algo.remove_module("default_policy")
        algo.add_module("b", new_agent_to_module_mapping_fn=_to("b"))
        algo.remove_module("default_policy")
        assert algo.get_module() is algo.learners["b"].module
        assert algo.train()["env_runners"]["num_module_steps_sampled"]["b"] > 0


def test_a_single_agent_keeps_its_module():
    made = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    made.training(train_batch_size=20, minibatch_size=10, num_epochs=1)
    with made.build_algo() as algo, pytest.raises(ConfigError, match="has a single agent"):
        algo.add_module("b")


@pytest.mark.parametrize("event", ["on_learn_on_batch", "on_sample_end"])
def test_modules_do_not_change_while_somebody_works_with_them(event):
    built = []

    def add(**_):
        built[0].add_module("b", copy_of="main")

    with config(0, 2).callbacks(None, **{event: add}).build_algo() as algo:
        built.append(algo)
        with pytest.raises(CallbackError) as raised:
            algo.train()
        assert isinstance(raised.value.__cause__, TrainerError)
        assert "while env runners play or modules learn" in str(raised.value.__cause__)
        assert algo.module_ids == ("first", "main")


@pytest.mark.process
def test_a_mapping_that_cannot_travel_is_refused_at_once():
    with config(1, 2).callbacks(None).build_algo() as algo:
        with pytest.raises(SerializationError, match="it stays at home"):
            algo.set_policy_mapping_fn(Unsendable())
        algo.train()


# ---- match-ups


def test_match_ups_are_drawn_as_often_as_they_weigh():
    class Episode:
        def __init__(self, number):
            self.number = number

    matchups = Matchups([(3, {0: "main", 1: "old"}), (1, {0: "old", 1: "main"})])
    drawn = [(matchups(0, Episode(n)), matchups(1, Episode(n))) for n in range(4000)]
    assert {*drawn} == {("main", "old"), ("old", "main")}
    assert drawn.count(("main", "old")) / 4000 == pytest.approx(0.75, abs=0.03)
    other = Matchups(matchups.pairings, seed=1)
    assert [other(0, Episode(n)) for n in range(40)] != [one for one, _ in drawn[:40]]
    wrongs = ([], [{}], [(0, {0: "a"})], [{0: "a"}, {1: "a"}], [3], [("x", {0: "a"})])
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="Matchups got"):
            Matchups(wrong)


def test_a_run_goes_on_with_some_of_its_modules(tmp_path):
    with league.config().callbacks(None).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
        wanted = encode(algo.learners["main"].get_state())
    path = tmp_path / "c"
    with Algorithm.from_checkpoint(
        path, policy_ids=["main"], policy_mapping_fn=_to("main"), env=Gaps
    ) as alone:
        assert alone.module_ids == ("main",)
        assert encode(alone.learners["main"].get_state()) == wanted
        sampled = alone.train()["env_runners"]["num_module_steps_sampled"]
        assert {id_ for id_, count in sampled.items() if count} == {"main"}
        alone.save_to_path(tmp_path / "again")
    with Algorithm.from_checkpoint(tmp_path / "again", env=Gaps) as again:
        assert again.module_ids == ("main",)
    with Algorithm.from_checkpoint(path, policies_to_train=["first"], env=Gaps) as other:
        shown = other.train()["learners"]
        assert [shown[id_]["is_trained"] for id_ in ("first", "main")] == [True, False]
    for given, text in (
        (["main"], "first.* was not removed"),
        (["mian"], "there is no module 'mian'.*main"),
        ([], "leaves no module"),
    ):
        with pytest.raises(ConfigError, match=text):
            Algorithm.from_checkpoint(path, policy_ids=given, env=Gaps)

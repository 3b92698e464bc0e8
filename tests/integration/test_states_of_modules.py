"""States of runs whose modules are other ones than those of the algorithm that takes them."""

import os
import re
import signal

import pytest

from checkpoints import CheckpointMismatchError
from tests.league import config, outcome
from tests.multi_agent_runs import Gaps
from tests.mutated_states import mutated, mutations
from tests.small_runs import known
from trainer import PPO
from trainer.modules import RLModuleSpec

MEETS_OLD = {"a": "main", 3: "old", "late": "old"}


def run(num_env_runners=0, *, activation="tanh"):
    made = config(num_env_runners, 2).callbacks(None)
    return made.training(model={"fcnet_activation": activation}).build_algo()


def add_old(algo, **how):
    algo.add_module("old", **how, new_agent_to_module_mapping_fn=MEETS_OLD)


def activations(modules):
    return {id_: one.model_config.get("fcnet_activation", "tanh") for id_, one in modules.items()}


def of_learners(algo):
    return activations({id_: one.module for id_, one in algo.learners.items()})


def of_runners(algo):
    found = algo.env_runner_group.foreach_env_runner(lambda runner: activations(runner.modules))
    return list(found)


@pytest.mark.process
@pytest.mark.parametrize("added", [(), ("old",)], ids=["of settings", "added"])
def test_a_runner_that_is_replaced_after_a_restore_acts_with_the_network_that_learns(added):
    with run(activation="relu") as other:
        if added:
            add_old(other, copy_of="main")
        other.train()
        state = other.get_state()
    expected = {"first": "tanh", "main": "tanh", **dict.fromkeys(added, "relu")}
    outcomes = []
    for kills in (False, True):
        with run(1) as algo:
            algo.set_state(state)
            if kills:
                os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
            outcomes.append(outcome(algo, [algo.train()]))
            assert of_learners(algo) == expected
            assert of_runners(algo) == [expected]
            assert activations(algo.module_specs) == expected
    assert outcomes[0] == outcomes[1]


def test_a_state_of_other_settings_leaves_the_networks_of_the_settings(caplog):
    with run(activation="relu") as other:
        other.train()
        state = other.get_state()
    with run() as algo:
        algo.set_state(state)
        assert "fcnet_activation: the checkpoint has 'relu', this algorithm 'tanh'" in caplog.text
        assert activations(algo.module_specs) == {"first": "tanh", "main": "tanh"}
        again = algo.get_state()["modules"]["modules"]["main"]["spec"]["model_config"]
        assert again["fcnet_activation"] == "tanh"


@pytest.mark.parametrize(
    "num_env_runners", [0, pytest.param(1, marks=pytest.mark.process)], ids="{} runners".format
)
def test_a_restore_brings_back_the_network_of_a_module_that_was_added_under_the_same_id(
    num_env_runners,
):
    outcomes = []
    with run(num_env_runners) as algo:
        add_old(algo, module_spec=RLModuleSpec(model_config={"fcnet_hiddens": [8]}))
        algo.train()
        state = algo.get_state()
        outcomes.append(outcome(algo, [algo.train()]))

        algo.remove_module(
            "old", new_agent_to_module_mapping_fn={"a": "main", 3: "first", "late": "first"}
        )
        other = {"fcnet_hiddens": [8], "fcnet_activation": "relu"}
        add_old(algo, module_spec=RLModuleSpec(model_config=other))
        algo.train()
        assert of_learners(algo)["old"] == "relu"

        algo.set_state(state)
        outcomes.append(outcome(algo, [algo.train()]))
        assert of_learners(algo)["old"] == of_runners(algo)[0]["old"]
    assert outcomes[0] == outcomes[1]


def test_a_module_added_under_an_id_of_the_settings_is_restored_with_its_own_network_and_settings(
    tmp_path,
):
    with run() as algo:
        add_old(algo, copy_of="main")
        algo.remove_module("first")
        algo.add_module(
            "first",
            RLModuleSpec(model_config={"fcnet_hiddens": [5], "fcnet_activation": "relu"}),
            config_overrides={"lr": 0.5},
            new_should_module_be_updated=["first"],
            new_agent_to_module_mapping_fn={"a": "main", 3: "first", "late": "first"},
        )
        algo.train()
        path = algo.save_to_path(tmp_path / "c")
        expected = outcome(algo, [algo.train()])
    with PPO.from_checkpoint(path, env=Gaps) as again:
        assert of_learners(again)["first"] == "relu"
        assert outcome(again, [again.train()]) == expected


# ---- what has been learnt


def test_what_an_unknown_module_has_learnt_is_refused_and_nothing_is_changed():
    with run() as algo:
        add_old(algo, copy_of="main")
        algo.train()
        before, state = known(algo), algo.get_state()
        state["learner"]["odl"] = state["learner"].pop("old")
        with pytest.raises(
            CheckpointMismatchError, match=r"component 'learner'.*'odl'.*mean 'old'.*Nothing was"
        ):
            algo.set_state(state)
        assert known(algo) == before


@pytest.mark.parametrize("component", ["learner", "connectors"])
def test_a_part_of_a_state_names_modules_that_there_are(component):
    with run() as algo:
        part = algo.get_state(component)
        algo.set_state(part)
        before = known(algo)
        part[component]["mian"] = part[component].pop("main")
        with pytest.raises(CheckpointMismatchError, match=rf"'{component}'.*'mian'.*mean 'main'"):
            algo.set_state(part)
        assert known(algo) == before


def test_a_module_that_was_made_for_a_state_does_not_begin_untrained():
    with run() as other:
        add_old(other, copy_of="main")
        other.train()
        state = other.get_state()
    with run() as algo:
        before = known(algo)
        lacking = {**state, "learner": {**state["learner"]}}
        del lacking["learner"]["old"]
        with pytest.raises(CheckpointMismatchError, match=r"'learner' lacks: 'old'.*Nothing was"):
            algo.set_state(lacking)
        assert known(algo) == before
        algo.set_state(state)
        algo.set_state(lacking)  # it is there, and stays as it is


def test_a_spoilt_network_of_a_module_that_was_added_is_refused_and_nothing_is_changed():
    with run() as algo:
        add_old(algo, copy_of="main")
        algo.train()
        before, state = known(algo), algo.get_state()
        where = ("modules", "old", "spec", "model_config")
        found = [one for one in mutations(state["modules"]) if one[1][:4] == where]
        assert len(found) > 5
        taken, refusals = [], set()
        for mutation in found:
            spoilt = {**state, "modules": mutated(state["modules"], mutation)}
            try:
                algo.set_state(spoilt)
            except CheckpointMismatchError as error:
                refusals.add(
                    re.sub(r"(?s).*component '(\w+)[/'].*(Nothing was).*", r"\1 \2", f"{error}")
                )
                assert known(algo) == before, mutation
            else:
                taken.append(mutation)
                algo.set_state(state)
        assert taken == [("key gone", (*where, "fcnet_activation"))]  # that is the default
        assert refusals == {"modules Nothing was", "learner Nothing was"}


# ---- who plays, and with which module


def _forget_module(chunk):
    del chunk["modules"][0]


def _rename_agent(chunk):
    chunk["ends" if chunk["ends"] else "appeared"][0]["agent"] = "nobody"


def _spoil_return(chunk):
    chunk["lines"][0]["value"]["episode"]["earlier_return"] = ["spoilt"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_forget_module, r"\['modules'\] lacks the module of agent"),
        (_rename_agent, r"is of agent 'nobody', who is not in the env"),
        (_spoil_return, r"\['earlier_return'\]\[0\] is a str \('spoilt'\), expected a number"),
    ],
)
def test_a_spoilt_running_episode_of_several_agents_is_refused(spoil, message):
    with run() as algo:
        algo.train()
        before, state = known(algo), algo.get_state()
        spoil(next(slot["episode"] for slot in state["env_runners"]["slots"] if slot["episode"]))
        match = rf"(?s)component 'env_runners'.*{message}.*Nothing was changed"
        with pytest.raises(CheckpointMismatchError, match=match):
            algo.set_state(state)
        assert known(algo) == before


@pytest.mark.parametrize("name", ["episode_return", "length"])
def test_a_spoilt_record_of_an_agent_is_refused(name):
    with run() as algo:
        algo.train()
        before, state = known(algo), algo.get_state()
        state["metrics"]["episodes"]["records"][0]["agents"][0][name] = "spoilt"
        with pytest.raises(
            CheckpointMismatchError, match=rf"component 'metrics'.*\['{name}'\] is .*spoilt"
        ):
            algo.set_state(state)
        assert known(algo) == before


def test_what_a_user_changes_in_a_state_changes_no_running_episode():
    with run() as algo:
        algo.train()
        before, state = known(algo), algo.get_state()
        _forget_all(state["env_runners"])
        assert known(algo) == before
        given = algo.get_state()
        algo.set_state(given)
        _forget_all(given["env_runners"])
        assert known(algo) == before


def _forget_all(tree):
    """Takes the items out of all dicts and lists of a tree."""
    if isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            _forget_all(item)
        tree.clear()

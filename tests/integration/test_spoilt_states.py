"""A component taken out, added, renamed, or spoilt inside: named in the error, and nothing changes.

Every leaf of every component is spoilt in every way (`tests.mutated_states`): a seeded sample of it
by default, all of it with `-m slow`. What is taken all the same stands in `TAKEN`, each with the
reason.
"""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    CheckpointMismatchError,
    encode,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
)
from tests.mutated_states import mutated, mutations
from tests.slow_disk import Unsynced
from tests.small_runs import small_ppo
from trainer import DQNConfig
from trainer.metrics import comparable

pytestmark = pytest.mark.process

NUM_SAMPLED = 4
"""Mutations of each component in the default run; the larger ones have hundreds."""

TAKEN = {
    r"config\['settings'\]": "settings are written, never applied by restore_from_path; "
    "from_checkpoint has config.from_state check them",
    r"key .* connectors\['running'\]": "keys are ids of episodes: who is missing begins at 0",
    r"'(agent|module|multi_agent_episode)_id'\]$": "ids are texts or None, and a text is one",
    r"key added .*\['(\w+_data|custom_metrics|media)'\]$": "these dicts are the user's own",
    r"key gone .*evaluation\['evaluator'\]\['metrics'\]": "not there before the first evaluation",
    r"evaluation\['last'\]": "metrics that were reported before, with the user's own among them",
    r"key .*\['custom_metrics'\]": "the user's own",
    r"key .*\['extra_model_outputs'\]": "of the last action, for callbacks; not learnt from",
    r"wrong type .*\['key'\]\[\d+\]$": "the parts of a metric's key are texts or integers",
    r"row added .*exploration\['memory'\]": "the memory grows by such rows",
}


def ppo():
    made = small_ppo(env="CartPole-v1", num_slots=2, batch=70, model={"fcnet_hiddens": [4]})
    made.environment(normalize_rewards=True).env_runners(observation_filter="MeanStdFilter")
    return made.evaluation(evaluation_interval=1, evaluation_duration=1)


def dqn():
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=2, exploration_config={"type": "RE3"}
        )
        .training(
            train_batch_size=8,
            num_steps_sampled_before_learning_starts=10,
            replay_buffer_config={"type": "PrioritizedReplayBuffer", "capacity": 64},
        )
        .training(model={"fcnet_hiddens": [4]})
        .reporting(min_sample_timesteps_per_iteration=30)
        .debugging(seed=5)
    )


COMPONENTS = {
    "ppo": (
        *("config", "counters", "learner/rl_module", "learner/optimizer", "learner/learner"),
        *("connectors", "env_runners", "evaluation", "metrics", "callbacks"),
    ),
    "dqn": (
        *("config", "counters", "learner/rl_module", "learner/optimizer", "learner/target"),
        *("learner/learner", "exploration", "env_runners", "evaluation", "metrics", "callbacks"),
        "replay_buffer",
    ),
}
CASES = [(name, component) for name, found in COMPONENTS.items() for component in found]


class Run:
    """An algorithm that was trained, its checkpoint, and its state as bytes."""

    def __init__(self, name, directory):
        self.algo = {"ppo": ppo, "dqn": dqn}[name]().build_algo()
        self.algo.train()
        self.algo.metrics.log_value("speed", 3.0)
        self.algo.metrics.log_value("last/speeds", 3.0, window=4)
        self.algo.train()
        self.path = Path(self.algo.save_to_path(directory / name))
        self.contents = read_checkpoint(self.path)
        self.known = encode(self.algo.get_state())

    def rewritten(self, path, components):
        """The checkpoint with other components and a manifest that fits them."""
        return write_checkpoint(
            path,
            components=components,
            metadata=self.contents.manifest.metadata,
            file_system=Unsynced(),
        )

    def assert_unchanged(self):
        assert encode(self.algo.get_state()) == self.known


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    made = {name: Run(name, directory) for name in COMPONENTS}
    yield made
    for run in made.values():
        run.algo.stop()


def test_the_table_names_every_component(runs):
    for name, run in runs.items():
        assert set(run.contents.components) - {"constructors"} == set(COMPONENTS[name])


@pytest.mark.parametrize(("name", "component"), CASES)
def test_component_that_is_missing_or_renamed_or_one_too_many_is_named(
    runs, name, component, tmp_path
):
    run, state = runs[name], runs[name].contents.components[component]
    others = {key: part for key, part in run.contents.components.items() if key != component}
    if component != "replay_buffer":  # may be missing: a documented rule, with a warning
        path = run.rewritten(tmp_path / "missing", others)
        with pytest.raises(CheckpointMismatchError, match=f"lacks '{component}'.*Nothing was"):
            run.algo.restore_from_path(path)
        run.assert_unchanged()
    for spelling in (f"{component}s", f"{component}/deeper"):
        path = run.rewritten(tmp_path / spelling.replace("/", "."), {**others, spelling: state})
        with pytest.raises(CheckpointMismatchError, match=f"unknown '{spelling}"):
            run.algo.restore_from_path(path)
        run.assert_unchanged()
    path = run.rewritten(tmp_path / "added", {**run.contents.components, f"{component}2": state})
    with pytest.raises(CheckpointMismatchError, match=f"unknown '{component}2'"):
        run.algo.restore_from_path(path)
    run.assert_unchanged()


def spoil(run, component, mutation, path):
    """Restores a checkpoint with one mutation; the error's text, or None if it was taken."""
    state = mutated(run.contents.components[component], mutation)
    spoilt = run.rewritten(path, {**run.contents.components, component: state})
    try:
        run.algo.restore_from_path(spoilt)
    except CheckpointMismatchError as error:
        return str(error)
    return None


def described(component, mutation):
    what, path = mutation
    return f"{what} {component}" + "".join(f"[{step!r}]" for step in path)


def check(run, component, found, path):
    for mutation in found:
        text, name = spoil(run, component, mutation, path), described(component, mutation)
        if text is None:
            run.algo.restore_from_path(run.path)
            assert any(re.search(pattern, name) for pattern in TAKEN), f"taken: {name}"
        else:
            assert f"component '{component}'" in text, name
        run.assert_unchanged()


def all_mutations(run, component):
    found = list(mutations(run.contents.components[component]))
    return [(what, path) for what, path in found if path]


@pytest.mark.parametrize(("name", "component"), CASES)
def test_spoilt_states_are_refused_and_change_nothing(runs, name, component, tmp_path):
    found = all_mutations(runs[name], component)
    sample = random.Random(f"{name} {component}").sample(found, min(NUM_SAMPLED, len(found)))
    check(runs[name], component, sample, tmp_path / "spoilt")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "component"), CASES)
def test_every_spoilt_state_is_refused_and_changes_nothing(runs, name, component, tmp_path):
    check(runs[name], component, all_mutations(runs[name], component), tmp_path / "spoilt")


@pytest.mark.parametrize("what", ["row added", "axis added", "dtype"])
def test_array_that_does_not_fit_is_named_with_both(runs, what, tmp_path):
    run = runs["ppo"]
    text = spoil(run, "learner/rl_module", (what, ("pi/0/kernel",)), tmp_path / "spoilt")
    expected = {
        "row added": ("(5, 4)", "(4, 4)"),
        "axis added": ("(4, 4, 1)", "(4, 4)"),
        "dtype": ("complex64", "float32"),
    }
    assert text is not None
    assert all(part in text for part in ("'pi/0/kernel'", *expected[what]))
    run.assert_unchanged()


@pytest.mark.parametrize("name", COMPONENTS)
def test_training_goes_on_after_a_refused_checkpoint_as_if_nothing_had_been(runs, name, tmp_path):
    run = runs[name]
    first_vector = next(iter(run.contents.components["learner/rl_module"]))
    refused = [
        ("learner/rl_module", ("row added", (first_vector,))),  # set_state() is undone
        ("callbacks", ("wrong type", ("objects",))),  # check_state() refuses
    ]
    expected = encode(comparable(run.algo.train()))
    run.algo.restore_from_path(run.path)
    for component, mutation in refused:
        assert spoil(run, component, mutation, tmp_path / component.replace("/", ".")) is not None
    assert encode(comparable(run.algo.train())) == expected
    run.algo.restore_from_path(run.path)
    run.assert_unchanged()


def test_outputs_of_the_last_actions_may_be_missing_because_nobody_learns_from_them(runs, tmp_path):
    run = runs["ppo"]
    expected = encode(comparable(run.algo.train()))
    state = mutated(run.contents.components["env_runners"], ("key added", ("slots", 0)))
    del state["slots"][0]["of another release"]
    for slot in state["slots"]:
        assert slot["episode"]["extra_model_outputs"].popitem()
    path = run.rewritten(tmp_path / "c", {**run.contents.components, "env_runners": state})
    run.algo.restore_from_path(path)
    assert encode(comparable(run.algo.train())) == expected
    run.algo.restore_from_path(run.path)
    run.assert_unchanged()


def test_the_mutations_reach_every_kind_of_leaf():
    state = {"a": [1, "x", None], "b": {"c": np.zeros((2, 2), np.float32)}}
    found = set(mutations(state))
    assert ("wrong type", ("a", 1)) in found
    assert {("dtype", ("b", "c")), ("key gone", ("b", "c")), ("row added", ("b", "c"))} <= found
    assert mutated(state, ("key renamed", ("b", "c")))["b"].keys() == {"c_"}
    assert mutated(state, ("row added", ("b", "c")))["b"]["c"].shape == (3, 2)
    assert all(encode(mutated(state, mutation)) != encode(state) for mutation in found)


def test_the_manifest_of_a_rewritten_checkpoint_is_a_good_one(runs, tmp_path):
    run = runs["ppo"]
    path = run.rewritten(tmp_path / "same", run.contents.components)
    assert read_manifest(path).components == run.contents.manifest.components
    run.algo.restore_from_path(path)
    run.assert_unchanged()


HUGE = (10**5000, 2**1024, -(2**3000))


@pytest.mark.parametrize("place", ["episode_return", "length", "rewritten_return"])
def test_integers_beyond_all_numbers_spoil_no_later_restore(place, tmp_path):
    config = ppo().evaluation(evaluation_interval=None)
    with config.build_algo() as algo:
        _ = [algo.train() for _ in range(2)]
        good = algo.save_to_path(tmp_path / "good")
        for number, huge in enumerate(HUGE):
            contents = read_checkpoint(good)
            contents.components["metrics"]["episodes"]["records"][0][place] = huge
            path = write_checkpoint(
                tmp_path / str(number),
                components=contents.components,
                metadata=contents.manifest.metadata,
            )
            with pytest.raises(
                CheckpointMismatchError, match=rf"{place}'\] is an int of [\d,]+ bits"
            ):
                algo.restore_from_path(path)
        algo.restore_from_path(good)
        algo.train()

"""Files that released versions wrote are read by this one, and what they hold goes on."""

from pathlib import Path

import numpy as np
import pytest

import trainer
from checkpoints import (
    CheckpointMismatchError,
    CheckpointVersionError,
    load_weights,
    read_checkpoint,
    read_manifest,
)
from tests import golden_runs
from tests.golden_checkpoints import (
    GOLDEN,
    NUM_ITERATIONS,
    answers,
    climbed,
    computed_as_here,
    facts,
    make,
    names,
    numbers,
    restored,
    resumed,
    unpack,
    versions,
    went_on,
)
from trainer import PPO, Algorithm, TrainedPolicy, load_episode

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
CHECKPOINTS = [(version, name) for version in versions() for name in names(version)]
EACH_VERSION = pytest.mark.parametrize("version", versions())


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """By version: the folder of its recordings."""
    return {
        version: unpack(version, "recordings", tmp_path_factory.mktemp("recordings"))
        for version in versions()
    }


@pytest.fixture
def algorithm(recordings, tmp_path):
    """Restores golden checkpoints, which the test need not stop."""
    made = []

    def restore(version, name, place="golden"):
        if name in golden_runs.NEEDS_TORCH:
            pytest.importorskip("torch")
        made.append(restored(version, name, tmp_path / place, recordings[version]))
        return made[-1]

    yield restore
    for algo in made:
        algo.stop()


@pytest.mark.parametrize(("version", "name"), CHECKPOINTS)
def test_a_golden_checkpoint_is_restored_and_trains_on(version, name, algorithm):
    recorded, expected = numbers(version), numbers(version)["runs"][name]
    algo = algorithm(version, name)
    assert facts(algo) == expected["restored"]
    found = went_on(algo)
    if computed_as_here(recorded, name):
        assert found == expected["went on"]
    else:
        for one, other in zip(found, expected["went on"], strict=True):
            assert one.keys() == other.keys()
            assert one["iteration"] == other["iteration"]
            assert one["weights"] != expected["restored"]["weights"]


def test_one_other_weight_shows(algorithm):
    """Of the test above: what is compared follows from what was restored."""
    version = versions()[-1]
    recorded = numbers(version)
    if not computed_as_here(recorded, "ppo"):
        pytest.skip("other bits are computed here")
    algo = algorithm(version, "ppo")
    weights = algo.get_weights()
    (first, *_) = weights["default_policy"].values()
    first += np.float32(1e-3)
    algo.set_weights(weights)
    assert facts(algo) != recorded["runs"]["ppo"]["restored"]
    assert went_on(algo) != recorded["runs"]["ppo"]["went on"]


def test_what_is_saved_again_is_the_same(algorithm, tmp_path):
    """The parts that a restore must not lose, also where they do not show in three iterations."""
    for name in ("ppo-callbacks", "ppo-env-state", "ppo-lstm", "dqn-images", "sac"):
        version = versions()[-1]
        algo = algorithm(version, name, place="first")
        old = read_manifest(tmp_path / "first" / name).components
        new = read_manifest(algo.save_to_path(tmp_path / name)).components
        differing = {part for part in old if old[part].sha256 != new[part].sha256}
        assert differing == set(), name


@EACH_VERSION
def test_a_run_of_the_command_line_goes_on(version, tmp_path):
    recorded = numbers(version)
    found = resumed(unpack(version, "run", tmp_path))
    assert found["iteration"] == 2 * NUM_ITERATIONS
    if computed_as_here(recorded, "run"):
        assert found == recorded["run"]


@EACH_VERSION
def test_an_experiment_goes_on(version, tmp_path):
    found = climbed(unpack(version, "experiment", tmp_path))
    assert found == numbers(version)["experiment"]  # sums of short numbers, the same everywhere
    assert [len(heights) for heights in found] == [8, 8]


@EACH_VERSION
def test_a_policy_file_answers_as_before(version, tmp_path):
    found = answers(unpack(version, "policy", tmp_path))
    assert np.allclose(found, numbers(version)["policy"], atol=1e-6)


@EACH_VERSION
def test_recordings_are_read(version, recordings):
    files = sorted(recordings[version].rglob("*.npz"))
    assert len(files) >= 8
    for file in files:
        assert len(load_episode(file)) >= 5


@EACH_VERSION
def test_policies_and_weights_are_taken_from_checkpoints(version, tmp_path):
    path = unpack(version, "ppo", tmp_path)
    policy = TrainedPolicy.from_checkpoint(path)
    assert policy.predict(np.zeros(2, np.float32)) in (0, 1)
    assert all(np.isfinite(array).all() for array in load_weights(path).values())


def test_every_algorithm_has_a_golden_checkpoint(tmp_path):
    version = versions()[-1]
    kept = {
        read_manifest(unpack(version, name, tmp_path)).metadata["algorithm"]
        for name in names(version)
    }
    offered = [getattr(trainer, name) for name in trainer.__all__]
    algorithms = [cls for cls in offered if isinstance(cls, type) and issubclass(cls, Algorithm)]
    assert kept == {cls.__name__ for cls in algorithms} - {"Algorithm"}


@EACH_VERSION
def test_the_files_of_a_version_are_small_and_name_nobody(version, tmp_path):
    assert sum(file.stat().st_size for file in (GOLDEN / version).iterdir()) < 300_000
    for archive in (GOLDEN / version).glob("*.tar.xz"):
        folder = unpack(version, archive.name.removesuffix(".tar.xz"), tmp_path)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if path.name == "code.pkl"]  # of one Python
        assert not [path for path in files if str(ROOT).encode() in path.read_bytes()]


def test_golden_files_are_not_made_twice():
    with pytest.raises(FileExistsError, match="stay what they are"):
        make(versions()[-1])


# ---- a made-up version 1.1: what a callback remembers has another form


@pytest.fixture
def later(monkeypatch):
    """The callback as 1.1 has it.

    Its state is {"ended": 5, "mean": -4.0}; that of 1.0 was {"num_episodes": 5, "returns": […]}.
    """

    def get_state(self):
        return {"ended": self.num_episodes, "mean": self.mean}

    def set_state(self, state):
        self.num_episodes, self.mean = state["ended"], state["mean"]

    for name, value in {"mean": 0.0, "get_state": get_state, "set_state": set_state}.items():
        monkeypatch.setattr(golden_runs.Remembering, name, value, raising=False)


def in_form_2(callbacks):
    """The state of callbacks, of version 1, as version 2 writes it."""
    (of_1_0,) = (one["state"] for one in callbacks["objects"])
    mean = float(np.mean(of_1_0["returns"])) if of_1_0["returns"] else 0.0
    (saved,) = callbacks["objects"]
    return {"objects": [{**saved, "state": {"ended": of_1_0["num_episodes"], "mean": mean}}]}


def with_runners_in_form_2(runners):
    by_index = runners["callbacks"].items()
    return {**runners, "callbacks": {index: in_form_2(state) for index, state in by_index}}


MIGRATIONS = {"callbacks": [in_form_2], "env_runners": [with_runners_in_form_2]}
GIVEN = {"env": golden_runs.Walk, "callbacks_class": golden_runs.Remembering}


def test_a_state_of_1_0_in_another_form_is_carried_over(later, monkeypatch, tmp_path):
    monkeypatch.setattr(PPO, "state_migrations", MIGRATIONS)
    path = unpack("1.0", "ppo-callbacks", tmp_path)
    (runner,) = read_checkpoint(path).components["env_runners"]["callbacks"].values()
    old = runner["objects"][0]["state"]
    with PPO.from_checkpoint(path, **GIVEN) as algo:
        (chain,) = algo.env_runner_group.foreach_env_runner(lambda one: one.callbacks.get_state())
        state = chain["objects"][0]["state"]
        assert state == {"ended": old["num_episodes"], "mean": np.mean(old["returns"])}
        assert algo.train()["training_iteration"] == NUM_ITERATIONS + 1
        new = algo.save_to_path(tmp_path / "new")
    versions = {name: one.state_version for name, one in read_manifest(new).components.items()}
    assert {name for name, number in versions.items() if number == 2} == MIGRATIONS.keys()
    with PPO.from_checkpoint(new, **GIVEN) as algo:
        assert algo.training_iteration == NUM_ITERATIONS + 1
    monkeypatch.setattr(PPO, "state_migrations", {})
    with pytest.raises(CheckpointVersionError, match="'callbacks' has state version 2"):
        PPO.from_checkpoint(new, **GIVEN)  # as 1.0 would


def test_without_its_migration_the_state_is_refused(later, tmp_path):
    path = unpack("1.0", "ppo-callbacks", tmp_path)
    with pytest.raises(
        CheckpointMismatchError, match=r"component 'callbacks' .* KeyError: 'ended'"
    ):
        PPO.from_checkpoint(path, **GIVEN)

"""The folder of the checkpoints vanishes or turns into something else while a run is trained."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from callbacks import BestCheckpoint, PeriodicCheckpoint
from checkpoints import CheckpointError, latest_checkpoint, verify
from tests.saved_files import files_of
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

COUNT = "num_failed_saves_lifetime"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def training(*callbacks):
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    config.training(train_batch_size=20, minibatch_size=20, num_epochs=1)
    config.training(model={"fcnet_hiddens": [8]}).debugging(seed=3)
    with config.callbacks(list(callbacks)).build_algo() as algo:
        yield algo


def replace_by_file(folder):
    shutil.rmtree(folder)
    folder.write_text("not a directory")


REFUSALS = {
    "replaced by a file": (replace_by_file, Path.unlink),
    "a file in the place of the checkpoint": (
        lambda folder: [(folder / f"{number:06d}").write_text("") for number in (2, 3)],
        lambda folder: [],
    ),
}


@pytest.mark.parametrize("how", REFUSALS)
def test_training_goes_on_and_saves_again_once_it_can(how, tmp_path):
    folder = tmp_path / "runs"
    refuse, allow = REFUSALS[how]
    with training(
        PeriodicCheckpoint(folder, every=1, on_error="warn"),
        BestCheckpoint(tmp_path / "best", keep=1, on_error="warn"),
    ) as algo:
        algo.train()
        refuse(folder)
        for number in (1, 2):
            assert algo.train()["fault_tolerance"][COUNT] == number
        assert [name for name in names(tmp_path) if name.startswith(".")] == []
        allow(folder)
        assert algo.train()["fault_tolerance"][COUNT] == 2
        newest = latest_checkpoint(folder)
        assert newest is not None
        assert verify(newest).training_iteration == 4
        assert [name for name in names(folder) if name.startswith(".")] == []


def test_without_permission_to_go_on_the_iteration_is_undone_and_can_be_made_again(tmp_path):
    folder = tmp_path / "runs"
    with training(PeriodicCheckpoint(folder, every=1)) as algo:
        algo.train()
        saved = algo.get_weights()["default_policy"]
        replace_by_file(folder)
        for _ in range(2):
            with pytest.raises(CheckpointError, match="runs"):
                algo.train()
            assert algo.training_iteration == 1
            for name, array in algo.get_weights()["default_policy"].items():
                assert np.array_equal(array, saved[name])
        assert names(tmp_path) == ["runs"]
        folder.unlink()
        algo.train()
        made_again = latest_checkpoint(folder)
    with training(PeriodicCheckpoint(tmp_path / "undisturbed", every=1)) as algo:
        algo.train()
        algo.train()
    assert made_again is not None
    assert verify(made_again).training_iteration == 2
    for file in files_of(made_again).glob("*.state"):
        expected = (files_of(tmp_path / "undisturbed" / "000002") / file.name).read_bytes()
        assert file.read_bytes() == expected, file.name


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_directory_that_is_removed_while_training_is_made_again(on_error, tmp_path):
    folder = tmp_path / "deep" / "runs"
    with training(PeriodicCheckpoint(folder, every=1, keep_last=2, on_error=on_error)) as algo:
        algo.train()
        shutil.rmtree(tmp_path / "deep")
        for _ in range(3):
            assert algo.train()["fault_tolerance"][COUNT] == 0
    assert names(folder) == ["000003", "000004"]

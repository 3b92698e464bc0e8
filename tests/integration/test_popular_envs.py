"""Envs that people use are made, trained a little, restored: those whose package is installed."""

import importlib
import runpy
from pathlib import Path

import pytest

from trainer.metrics import comparable

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of the packages

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "minigrid": "minigrid",
    "lunar_lander": "Box2D",
    "lunar_lander_dqn": "Box2D",
    "inverted_pendulum": "mujoco",
    "boxing": "ale_py",
    "cartpole_balance": "dm_control",
}


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(ROOT / "examples" / "popular_envs.py"))


def test_each_env_of_the_example_is_tested(example):
    assert set(example["ENVS"]) == set(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_an_env_is_trained_and_goes_on_exactly_from_a_checkpoint(name, example, tmp_path):
    try:
        importlib.import_module(PACKAGES[name])
    except Exception as error:  # noqa: BLE001 - packages raise anything
        pytest.skip(f"{PACKAGES[name]} cannot be imported: {error}")
    config = example["config"](name)
    small = {"train_batch_size": 128}
    config.update_from_dict(small if name.endswith("_dqn") else {**small, "num_epochs": 1})
    with config.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "checkpoint")
        expected = comparable(algo.train())
    kind = config.algo_class
    with kind.from_checkpoint(tmp_path / "checkpoint", env=example["ENVS"][name]) as algo:
        assert comparable(algo.train()) == expected

"""Weights that were given to a part of an algorithm are those that its runners act with."""

import pytest

from checkpoints import load_weights
from tests.resume_cells import Cell
from tests.small_runs import trained

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Of another seed, so with other weights."""
    path = tmp_path_factory.mktemp("weights") / "c"
    with Cell("PPO", "CartPole", 0).config(seed=12).build_algo() as algo:
        algo.save_to_path(path)
    return path


WAYS = [
    lambda algo, saved: algo.restore_from_path(saved, component="learner/rl_module"),
    lambda algo, saved: algo.get_module().restore_from_path(saved / "learner" / "rl_module"),
    lambda algo, saved: algo.get_module().set_state(load_weights(saved)),
    lambda algo, saved: algo.learner.set_state({"rl_module": load_weights(saved)}),
    lambda algo, saved: algo.learner.set_weights(load_weights(saved)),
    lambda algo, saved: algo.set_weights({"default_policy": load_weights(saved)}),
]


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_every_way_to_give_weights_has_the_same_effect(num_env_runners, saved):
    results, cell = [], Cell("PPO", "CartPole", num_env_runners)
    for give in WAYS:
        with cell.config().build_algo() as algo:
            give(algo, saved)
            results.append(trained(algo, 1))
    assert results == results[:1] * len(WAYS)
    with cell.config().build_algo() as algo:
        assert trained(algo, 1) != results[0]

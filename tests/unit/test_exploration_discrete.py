"""Strategies for counted actions, against the distributions that they are defined by."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.exploration_cases import choice_for, made, same_rows
from trainer.exploration.strategies import EpsilonGreedy

_ROWS = 20_000
_FOUR = spaces.Discrete(4)
_VALUES = [0.5, 0.0, 2.0, -1.0]


_RAMP = {"warmup_timesteps": 100, "epsilon_timesteps": 500}


@pytest.mark.parametrize(
    ("timestep", "epsilon"), [(0, 1.0), (100, 1.0), (350, 0.55), (600, 0.1), (10**9, 0.1)]
)
def test_epsilon_follows_the_ramp(timestep, epsilon):
    strategy = made({"type": "EpsilonGreedy", "final_epsilon": 0.1, **_RAMP}, _FOUR)
    assert strategy.epsilon(timestep) == pytest.approx(epsilon, abs=1e-12)


def test_epsilon_has_rllibs_defaults():
    strategy = made({"type": "EpsilonGreedy"}, _FOUR)
    found = [strategy.epsilon(t) for t in (0, 50_000, 100_000, 200_000)]
    assert found == pytest.approx([1.0, 0.525, 0.05, 0.05])


@pytest.mark.parametrize(
    ("num_workers", "worker_index", "epsilon"),
    [
        (4, 0, 0.0),
        (4, 1, 0.4),
        (4, 2, 0.4 ** (1 + 7 / 3)),
        (4, 4, 0.4**8),
        (1, 1, 0.4),
        (0, 0, 1.0),
    ],
)
def test_each_worker_has_its_own_constant_epsilon(num_workers, worker_index, epsilon):
    place = {"num_workers": num_workers, "worker_index": worker_index}
    strategy = made({"type": "PerWorkerEpsilonGreedy"}, _FOUR, **place)
    assert strategy.epsilon(0) == pytest.approx(epsilon)
    if num_workers:
        assert strategy.epsilon(10**6) == strategy.epsilon(0)


class PerRow(EpsilonGreedy):
    """Its ε depends on more than the timestep."""

    share = 0.0

    def epsilon(self, timestep):
        return self.share


def test_a_subclass_whose_epsilon_changes_within_a_timestep_is_asked_each_time():
    strategy = made({"type": PerRow}, _FOUR)
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS))
    for share in (0.0, 1.0):
        strategy.share = share
        actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=7)
        expected = [share / 4, share / 4, 1 - share + share / 4, share / 4]
        np.testing.assert_allclose(np.bincount(actions, minlength=4) / _ROWS, expected, atol=0.02)

"""Draws by priority and importance weights, against their formulas."""

import math

import numpy as np
import pytest

from tests.replay_model import chunk
from trainer.errors import ReplayError
from trainer.replay import PrioritizedReplayBuffer
from trainer.replay.replay_buffer import SMALLEST_PRIORITY

SEED = 3


def rng():
    return np.random.default_rng(SEED)


def filled(num_steps, *, capacity=None, **settings):
    buffer = PrioritizedReplayBuffer(capacity or num_steps, **settings)
    buffer.add(chunk(0, 0, num_steps))
    return buffer


def probabilities(td_errors, alpha):
    powers = (np.abs(td_errors) + SMALLEST_PRIORITY) ** alpha
    return np.asarray(powers / powers.sum())


def chi_square(buffer, expected, num_draws):
    """The statistic of single draws: those of one call are spread evenly on purpose."""
    source = rng()
    rows = np.concatenate([buffer.sample(1, rng=source).rows for _ in range(num_draws)])
    counts = np.bincount(rows, minlength=len(expected))
    return float(((counts - num_draws * expected) ** 2 / (num_draws * expected)).sum())


CRITICAL_19 = 43.8
"""A χ² of 19 degrees of freedom is above it once in a thousand times."""


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_steps_are_drawn_by_the_power_of_their_errors(alpha):
    buffer = filled(20, alpha=alpha)
    td_errors = np.linspace(-3, 2, 20)
    buffer.update_priorities(np.arange(20), td_errors)
    assert chi_square(buffer, probabilities(td_errors, alpha), 4000) < CRITICAL_19
    if alpha != 0.6:  # a negative control: other priorities are told apart
        assert chi_square(buffer, probabilities(td_errors, 0.6), 4000) > CRITICAL_19


@pytest.mark.parametrize("num_steps", [20, 40_000])
def test_one_call_draws_every_step_as_often_as_expected_but_for_one(num_steps):
    buffer = filled(num_steps)
    td_errors = rng().normal(size=num_steps)
    buffer.update_priorities(np.arange(num_steps), td_errors)
    expected = 5000 * probabilities(td_errors, 0.6)
    counts = np.bincount(buffer.sample(5000, rng=rng()).rows, minlength=num_steps)
    assert (np.abs(counts - expected) < 2).all()
    running = np.cumsum(counts) - np.cumsum(expected)
    assert (np.abs(running) <= 1 + 1e-6).all()


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_are_those_of_the_formula(beta):
    buffer = filled(50, beta=beta)
    td_errors = rng().normal(size=50)
    buffer.update_priorities(np.arange(50), td_errors)
    batch = buffer.sample(200, rng=rng())
    all_weights = (50 * probabilities(td_errors, 0.6)) ** -beta
    wanted = all_weights[batch.rows] / all_weights.max()
    assert batch.weights.dtype == np.float32
    np.testing.assert_allclose(batch.weights, wanted, rtol=1e-6)
    given = filled(50)
    given.update_priorities(np.arange(50), td_errors)
    assert given.sample(200, rng=rng(), beta=beta).weights.tobytes() == batch.weights.tobytes()
    sequences = given.sample_sequences(200, length=3, rng=rng(), beta=beta)
    assert sequences.rows[:, 0].tolist() == batch.rows.tolist()
    assert sequences.weights.tobytes() == batch.weights.tobytes()


def test_new_steps_have_the_largest_priority_so_far():
    buffer = filled(10, capacity=40, alpha=1.0)
    buffer.update_priorities(np.arange(10), np.full(10, 7.0))
    buffer.update_priorities(np.arange(10), np.full(10, 0.5))
    buffer.add(chunk(0, 10, 1))
    priorities = buffer.get_state()["priorities"]
    np.testing.assert_allclose(priorities, [0.5] * 10 + [7.0], rtol=1e-5)


def test_an_overwritten_step_loses_its_priority():
    buffer = filled(4, alpha=1.0)
    buffer.update_priorities(np.arange(4), np.array([0.1, 0.2, 0.3, 0.4]))
    buffer.add(chunk(1, 0, 2))
    np.testing.assert_allclose(buffer.get_state()["priorities"], [1, 1, 0.3, 0.4], rtol=1e-5)


def test_rows_that_hold_no_step_are_never_drawn():
    buffer = filled(3, capacity=5000)
    assert set(buffer.sample(1000, rng=rng()).rows.tolist()) == {0, 1, 2}


def test_a_step_without_error_can_still_be_drawn():
    buffer = filled(2, alpha=1.0)
    buffer.update_priorities(np.array([0, 1]), np.array([0.0, 1e-6]))
    rows = buffer.sample(900, rng=rng()).rows
    assert 290 < np.count_nonzero(rows == 0) < 310


@pytest.mark.parametrize(
    ("rows", "td_errors", "message"),
    [
        ([0, 1], [1.0, math.nan], "nan"),
        ([0, 1], [1.0, -math.inf], "inf"),
        ([0, 3], [1.0, 1.0], "0 to 2"),
        ([-1, 0], [1.0, 1.0], "0 to 2"),
        ([0.5, 1.0], [1.0, 1.0], "0 to 2"),
        ([True, False], [1.0, 1.0], "0 to 2"),
        ([0, 1], [1.0], "one error per row"),
    ],
)
def test_wrong_priorities_are_refused_and_change_nothing(rows, td_errors, message):
    buffer = filled(3, capacity=10)
    before = buffer.get_state()["priorities"].tobytes()
    with pytest.raises(ReplayError, match=message):
        buffer.update_priorities(np.array(rows), np.array(td_errors))
    assert buffer.get_state()["priorities"].tobytes() == before


def test_no_rows_may_be_updated():
    buffer = filled(3)
    buffer.update_priorities(np.array([], np.int64), np.array([]))
    assert buffer.get_state()["largest_priority"] == 1.0

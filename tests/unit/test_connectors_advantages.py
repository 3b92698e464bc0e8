"""Advantages derived by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.connectors import (
    Chunks,
    SampleBatch,
    compute_advantages,
    discounted_returns,
    explained_variance,
    generalized_advantages,
    standardize,
)
from trainer.errors import EpisodeError

REWARDS, VALUES = [1.0, 2.0, 3.0], [0.5, 1.0, 1.5]


def chunks(*, bootstrap, lengths=None, repeat=1):
    return Chunks(
        rewards=np.array(REWARDS * repeat),
        values=np.array(VALUES * repeat),
        lengths=np.array(lengths or [3]),
        bootstrap_values=np.array(bootstrap),
    )


@pytest.mark.parametrize(
    ("options", "advantages", "targets"),
    [
        ({"lambda_": 0.5}, [1.59375, 2.375, 2.5], [2.09375, 3.375, 4.0]),
        # returns: 3 + .5*2 = 4, 2 + .5*4 = 4, 1 + .5*4 = 3
        ({"use_gae": False}, [2.5, 3.0, 2.5], [3.0, 4.0, 4.0]),
        ({"use_gae": False, "use_critic": False}, [3.0, 4.0, 4.0], [3.0, 4.0, 4.0]),
        # deltas: .5*1 - .5 = 0, .5*1.5 - 1 = -.25, .5*2 - 1.5 = -.5
        ({"lambda_": 0.5, "rewards": "shaped"}, [-0.09375, -0.375, -0.5], [0.40625, 0.625, 1.0]),
    ],
)
def test_columns_get_the_advantages_of_their_chunk(options, advantages, targets):
    rollout = SampleBatch(
        rewards=np.array(REWARDS), vf_preds=np.array(VALUES, np.float32), shaped=np.zeros(3)
    )
    assert compute_advantages(rollout, 2.0, 0.5, **options) is rollout
    assert rollout["advantages"].tolist() == advantages
    assert rollout["value_targets"].tolist() == targets
    assert rollout["rewards"].tolist() == REWARDS


def test_the_defaults_are_those_of_rllib():
    # gamma 0.9 and lambda 1: returns 3 + .9*2 = 4.8, 2 + .9*4.8 = 6.32, 1 + .9*6.32 = 6.688
    rollout = {"rewards": REWARDS, "vf_preds": VALUES}
    compute_advantages(rollout, 2.0)
    np.testing.assert_allclose(rollout["value_targets"], [6.688, 6.32, 4.8])
    np.testing.assert_allclose(rollout["advantages"], [6.188, 5.32, 3.3])


@pytest.mark.parametrize("options", [{}, {"use_gae": False}, {"use_critic": False}])
def test_values_that_are_needed_and_missing_are_named(options):
    with pytest.raises(EpisodeError, match="'vf_preds', but there are only rewards"):
        compute_advantages({"rewards": REWARDS}, 0.0, **options)


def test_terminated_chunk_is_worth_nothing_afterwards():
    estimate = generalized_advantages(chunks(bootstrap=[0.0]), gamma=0.5, lambda_=0.5)
    assert estimate.advantages.tolist() == [1.53125, 2.125, 1.5]
    ignored = generalized_advantages(chunks(bootstrap=[2.0]), gamma=0.5, lambda_=0.5)
    assert (ignored.advantages != estimate.advantages).all()


def test_chunks_do_not_leak_into_each_other():
    both = generalized_advantages(
        chunks(bootstrap=[2.0, 0.0], lengths=[3, 3], repeat=2), gamma=0.5, lambda_=0.5
    )
    first = generalized_advantages(chunks(bootstrap=[2.0]), gamma=0.5, lambda_=0.5)
    second = generalized_advantages(chunks(bootstrap=[0.0]), gamma=0.5, lambda_=0.5)
    expected = [*first.advantages.tolist(), *second.advantages.tolist()]
    assert both.advantages.tolist() == expected
    one_chunk = generalized_advantages(
        chunks(bootstrap=[0.0], lengths=[6], repeat=2), gamma=0.5, lambda_=0.5
    )
    assert one_chunk.advantages.tolist() != expected


@given(st.integers(0, 2**31), st.floats(0.0, 1.0))
def test_lambda_one_is_return_minus_value_and_lambda_zero_the_temporal_difference(seed, gamma):
    rng = np.random.default_rng(seed)
    data = Chunks(
        rewards=rng.standard_normal(9),
        values=rng.standard_normal(9),
        lengths=np.array([4, 1, 4]),
        bootstrap_values=rng.standard_normal(3),
    )
    with_gae = generalized_advantages(data, gamma=gamma, lambda_=1.0)
    without = discounted_returns(data, gamma=gamma, use_critic=True)
    np.testing.assert_allclose(with_gae.advantages, without.advantages, atol=1e-12)
    np.testing.assert_allclose(with_gae.value_targets, without.value_targets, atol=1e-12)
    td = generalized_advantages(data, gamma=gamma, lambda_=0.0).advantages
    assert td[4] == pytest.approx(
        data.rewards[4] + gamma * data.bootstrap_values[1] - data.values[4], abs=1e-12
    )
    assert td[0] == pytest.approx(
        data.rewards[0] + gamma * data.values[1] - data.values[0], abs=1e-12
    )


def test_inputs_are_not_changed():
    data = chunks(bootstrap=[2.0])
    discounted_returns(data, gamma=0.5, use_critic=True)
    generalized_advantages(data, gamma=0.5, lambda_=0.5)
    assert data.rewards.tolist() == REWARDS
    assert data.values.tolist() == VALUES


def test_standardized_advantages_have_mean_zero_and_deviation_one():
    standardized = standardize(np.array([1.0, 2.0, 3.0, 6.0]))
    assert standardized.mean() == pytest.approx(0.0, abs=1e-15)
    assert standardized.std() == pytest.approx(1.0)


def test_equal_advantages_are_not_blown_up():
    assert standardize(np.array([5.0, 5.0])).tolist() == [0.0, 0.0]
    assert np.abs(standardize(np.array([0.0, 1e-9]))).max() < 1e-5


def test_explained_variance_of_known_cases():
    targets = np.array([1.0, 2.0, 3.0])
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance(targets, np.zeros(3)) == 0.0
    assert explained_variance(targets, -9.0 * targets) == -1.0
    assert explained_variance(np.ones(3), targets) == 0.0


def test_values_may_stand_in_another_column():
    columns = {"rewards": [1.0, 2.0], "mine": [0.5, 0.25]}
    standard = {"rewards": [1.0, 2.0], "vf_preds": [0.5, 0.25]}
    mine = compute_advantages(dict(columns), 0.0, vf_preds="mine")["advantages"]
    np.testing.assert_array_equal(mine, compute_advantages(standard, 0.0)["advantages"])


@pytest.mark.parametrize("values", [[0.5], [[0.5], [0.25]]])
def test_columns_of_other_shapes_are_told(values):
    with pytest.raises(EpisodeError, match=r"one number per step in both"):
        compute_advantages({"rewards": [1.0, 2.0], "vf_preds": values}, 0.0)

"""Squashed Gaussian: densities against change of variables, gradients, and both ends of tanh."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.nn import DiagGaussian, SquashedGaussian
from trainer.testing.checks import gradient_check

RNG = np.random.default_rng(7)
INPUTS = RNG.standard_normal((5, 6))
NOISE = RNG.standard_normal((5, 3))
SQUASHED = SquashedGaussian((3,))


def standard(mean, log_std):
    """The inputs of one row and one dimension."""
    return np.array([[mean, log_std]])


def test_samples_are_tanh_of_normal_ones():
    plain = DiagGaussian((3,)).sample(INPUTS, NOISE)
    np.testing.assert_array_equal(SQUASHED.sample(INPUTS, NOISE), np.tanh(plain))
    np.testing.assert_array_equal(SQUASHED.deterministic(INPUTS), np.tanh(INPUTS[:, :3]))


def test_sampling_leaves_the_inputs_alone_and_keeps_shape_and_dtype():
    shaped = SquashedGaussian((3, 1))
    inputs = INPUTS.astype(np.float32)
    before = inputs.copy()
    assert shaped.sample(inputs, NOISE).shape == (5, 3, 1)
    assert shaped.deterministic(inputs).dtype == shaped.sample(inputs, NOISE).dtype == np.float32
    drawn = shaped.reparameterized(inputs, NOISE)
    assert drawn.actions.dtype == drawn.logp.dtype == np.float32
    np.testing.assert_array_equal(inputs, before)


def test_the_density_of_a_known_point():
    # u ~ N(0, 1) at 0: the slope of tanh is 1 there.
    assert SquashedGaussian((1,)).logp(standard(0, 0), np.zeros((1, 1)))[0] == pytest.approx(
        -0.5 * math.log(2 * math.pi)
    )
    # at a = 1/2: u = ln(3)/2, and da/du = 1 - a² = 3/4.
    expected = -0.125 * math.log(3) ** 2 - 0.5 * math.log(2 * math.pi) - math.log(0.75)
    assert SquashedGaussian((1,)).logp(standard(0, 0), np.full((1, 1), 0.5))[0] == pytest.approx(
        expected
    )


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-0.4, 0.4)])
def test_densities_add_up_to_one(mean, log_std):
    edges = np.linspace(-1.0, 1.0, 20_001)
    middles = 0.5 * (edges[1:] + edges[:-1])[:, None]
    inputs = np.repeat(standard(mean, log_std), len(middles), axis=0)
    total = np.exp(SquashedGaussian((1,)).logp(inputs, middles)).mean() * 2.0
    assert total == pytest.approx(1.0, abs=1e-4)


def test_drawn_actions_have_the_density_that_logp_gives():
    drawn = SQUASHED.reparameterized(INPUTS, NOISE)
    np.testing.assert_array_equal(drawn.actions, SQUASHED.sample(INPUTS, NOISE))
    np.testing.assert_allclose(SQUASHED.logp(INPUTS, drawn.actions), drawn.logp, rtol=1e-10)
    np.testing.assert_allclose(SQUASHED.evaluate(INPUTS, drawn.actions).logp, drawn.logp)


def test_gradients_through_actions_and_densities():
    d_actions, d_logp = RNG.standard_normal((5, 3)), RNG.standard_normal(5)

    def value(inputs):
        drawn = SQUASHED.reparameterized(inputs, NOISE)
        return float((drawn.actions * d_actions).sum() + (drawn.logp * d_logp).sum())

    drawn = SQUASHED.reparameterized(INPUTS, NOISE)
    gradient_check(value, drawn.backward(d_actions=d_actions, d_logp=d_logp), INPUTS)
    with pytest.raises(AssertionError, match="relative error"):
        gradient_check(value, drawn.backward(d_actions=d_actions, d_logp=0.0), INPUTS)


def test_gradients_of_densities_of_given_actions():
    actions, d_logp = np.tanh(RNG.standard_normal((5, 3))), RNG.standard_normal(5)

    def value(inputs):
        return float(SQUASHED.logp(inputs, actions) @ d_logp)

    gradient = SQUASHED.evaluate(INPUTS, actions).backward(d_logp=d_logp)
    gradient_check(value, gradient, INPUTS)


def test_one_factor_for_all_rows_is_the_same_as_one_for_each():
    drawn = SQUASHED.reparameterized(INPUTS, NOISE)
    zeros = np.zeros((5, 3))
    np.testing.assert_array_equal(
        drawn.backward(d_actions=zeros, d_logp=0.3),
        drawn.backward(d_actions=zeros, d_logp=np.full(5, 0.3)),
    )


@pytest.mark.parametrize(
    ("given_log_std", "clip", "counts_as"),
    [(5.0, 20.0, 2.0), (-30.0, 20.0, -20.0), (3.0, 1.0, 1.0)],
)
def test_log_std_is_limited_and_has_no_gradient_beyond(given_log_std, clip, counts_as):
    subject, noise = SquashedGaussian((1,), log_std_clip=clip), np.array([[0.5]])
    drawn = subject.reparameterized(standard(0.1, given_log_std), noise)
    limited = subject.reparameterized(standard(0.1, counts_as), noise)
    np.testing.assert_array_equal(drawn.actions, limited.actions)
    ones = np.ones((1, 1))
    assert drawn.backward(d_actions=ones, d_logp=1.0)[0, 1] == 0.0
    assert limited.backward(d_actions=ones, d_logp=1.0)[0, 1] != 0.0
    assert subject.canonical(standard(0.1, given_log_std)).tolist() == [[0.1, counts_as]]


@given(st.floats(-60, 60), st.floats(-5, 2), st.floats(-6, 6))
def test_densities_and_gradients_stay_finite_where_tanh_is_flat(mean, log_std, noise):
    inputs = standard(mean, log_std).astype(np.float32)
    drawn = SquashedGaussian((1,)).reparameterized(inputs, np.array([[noise]]))
    assert np.isfinite(drawn.logp).all()
    gradient = drawn.backward(d_actions=np.ones((1, 1), np.float32), d_logp=1.0)
    assert np.isfinite(gradient).all()
    exact = SquashedGaussian((1,)).reparameterized(inputs.astype(np.float64), np.array([[noise]]))
    np.testing.assert_allclose(drawn.logp, exact.logp, rtol=1e-4, atol=1e-3)


def test_actions_that_rounding_put_on_the_bounds_have_a_finite_density():
    inputs = standard(12.0, -1.0).astype(np.float32)
    action = SquashedGaussian((1,)).sample(inputs, np.array([[2.0]]))
    assert action[0, 0] == 1.0
    assert np.isfinite(SquashedGaussian((1,)).logp(inputs, action)).all()


def test_divergences_do_not_see_the_squashing():
    other = INPUTS + 0.3
    np.testing.assert_array_equal(SQUASHED.kl(INPUTS, other), DiagGaussian((3,)).kl(INPUTS, other))

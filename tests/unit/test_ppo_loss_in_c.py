"""The loss of PPO in C: the bits of NumPy, or NumPy itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.algorithms.ppo.loss import PPOCoefficients, PPOTargets, ppo_loss
from trainer.algorithms.ppo.loss_in_c import LossInC, _losses_are_same
from trainer.nn import Categorical, DiagGaussian, MultiCategorical, SquashedGaussian, kernels

there = pytest.mark.skipif(
    kernels.functions_if(_losses_are_same) is None, reason=f"no kernels: {kernels.why_not()}"
)
COEFFICIENTS = PPOCoefficients(0.2, 0.5, 0.7, 0.01, 0.3)
SHARE = st.floats(0.0, 1.0)


def minibatch(distribution, size, *, seed=0, scale=1.0, is_canonical=True):
    """What the loss is computed of, as networks and minibatches lay it out."""
    draw = np.random.default_rng(seed)

    def numbers(*shape):
        return (scale * draw.standard_normal(shape)).astype(np.float32)

    inputs, values = numbers(distribution.num_inputs, size).T, numbers(size)
    reference = numbers(size, distribution.num_inputs)
    if is_canonical:
        reference = np.ascontiguousarray(distribution.canonical(reference))
    noise = draw.random((size, distribution.noise_width))
    actions = np.ascontiguousarray(distribution.sample(reference, noise))
    logp = distribution.logp(reference, actions)
    targets = PPOTargets(logp, numbers(size), numbers(size))
    return inputs, values, actions, reference, targets


def in_numpy(distribution, inputs, values, actions, reference, targets, coefficients):
    terms = distribution.evaluate(inputs, actions, reference=reference)
    return ppo_loss(targets, terms=terms, values=values, coefficients=coefficients)


def both(distribution, rows, coefficients=COEFFICIENTS):
    """Every part of the loss as bytes and how they lie, in C and in NumPy."""
    with np.errstate(all="ignore"):
        losses = [how(distribution, *rows, coefficients) for how in (LossInC(), in_numpy)]
    parts = [[np.asarray(part) for part in vars(loss).values()] for loss in losses]
    # Gradients of parameters add up rows, in an order that goes by how the rows lie.
    return [[(part.tobytes(), part.strides) for part in each] for each in parts]


DISTRIBUTIONS = st.builds(Categorical, st.integers(2, 20)) | st.builds(
    lambda width, limit: DiagGaussian((width,), log_std_clip=limit),
    st.integers(1, 20),
    st.sampled_from([0.5, 20.0]),
)


@there
@given(
    DISTRIBUTIONS,
    st.integers(2, 300),
    st.integers(0, 99),
    st.sampled_from([0.01, 1.0, 8.0]),
    st.booleans(),
    st.builds(PPOCoefficients, SHARE, st.sampled_from([0.1, math.inf]), SHARE, SHARE, SHARE),
)
def test_it_has_the_bits_of_numpy(distribution, size, seed, scale, is_canonical, coefficients):
    rows = minibatch(distribution, size, seed=seed, scale=scale, is_canonical=is_canonical)
    found, expected = both(distribution, rows, coefficients)
    assert found == expected


@there
@pytest.mark.parametrize("distribution", [Categorical(3), Categorical(8), DiagGaussian((9,))])
def test_a_single_row_which_numpy_may_add_up_otherwise_has_its_bits_or_is_left_to_it(distribution):
    rows = minibatch(distribution, 1)
    found = LossInC()(distribution, *rows, COEFFICIENTS)
    expected = in_numpy(distribution, *rows, COEFFICIENTS)
    assert found is None or found.total_loss == expected.total_loss


@there
def test_memory_is_used_for_one_size_after_another():
    losses, distribution = LossInC(), Categorical(4)
    for size in (64, 2048, 64, 3):
        rows = minibatch(distribution, size)
        found = losses(distribution, *rows, COEFFICIENTS)
        expected = in_numpy(distribution, *rows, COEFFICIENTS)
        assert found.total_loss == expected.total_loss
        assert found.d_action_dist_inputs.tobytes() == expected.d_action_dist_inputs.tobytes()


@there
@pytest.mark.parametrize("distribution", [Categorical(3), DiagGaussian((2,))])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["inputs", "values", "advantages", "targets"])
def test_what_is_not_finite_does_not_get_lost(distribution, number, place):
    rows = minibatch(distribution, 24)
    inputs, values, _, _, targets = rows
    columns = {"advantages": targets.advantages, "targets": targets.value_targets}
    spoilt = {"inputs": inputs[:, 0], "values": values, **columns}[place]
    spoilt[5] = number
    with np.errstate(all="ignore"):
        losses = [how(distribution, *rows, COEFFICIENTS) for how in (LossInC(), in_numpy)]
    is_lost = [
        math.isfinite(loss.total_loss)
        and np.isfinite(loss.d_action_dist_inputs).all()
        and np.isfinite(loss.d_vf_preds).all()
        for loss in losses
    ]
    assert is_lost[0] == is_lost[1]


@there
@pytest.mark.parametrize("action", [-1, 3, 2**40])
def test_what_is_no_action_is_left_to_numpy(action):
    rows = minibatch(Categorical(3), 24)
    rows[2][7] = action
    assert LossInC()(Categorical(3), *rows, COEFFICIENTS) is None


@there
def test_other_distributions_and_layouts_are_left_to_numpy():
    losses = LossInC()
    for distribution in (MultiCategorical([2, 3]), SquashedGaussian((2,))):
        assert losses(distribution, *minibatch(distribution, 24), COEFFICIENTS) is None
    inputs, values, actions, reference, targets = minibatch(Categorical(3), 24)
    for rows in (
        (np.ascontiguousarray(inputs), values, actions, reference, targets),
        (inputs.astype(np.float64), values, actions, reference, targets),
        (inputs, values[::-1], actions, reference, targets),
        (inputs, values, actions.astype(np.int32), reference, targets),
    ):
        assert losses(Categorical(3), *rows, COEFFICIENTS) is None


@there
def test_one_bit_that_differs_leaves_it_to_numpy(monkeypatch):
    functions = kernels.functions_if(_losses_are_same)
    real = functions.ppo_gaussian

    def other(plan, rows, numbers, sums):
        result = real(plan, rows, numbers, sums)
        sums._obj.sums[2] = np.nextafter(np.float32(sums._obj.sums[2]), np.float32(9))
        return result

    monkeypatch.setattr(functions, "ppo_gaussian", other)
    distribution = DiagGaussian((2,))
    assert LossInC()(distribution, *minibatch(distribution, 24), COEFFICIENTS) is None
    assert not _losses_are_same(functions)

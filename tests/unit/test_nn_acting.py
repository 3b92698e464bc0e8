"""Acting gives each row the same bits, whatever other rows there are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.episodes import nested
from trainer.nn import (
    ACTIVATIONS,
    MLP,
    ActingForward,
    Bernoulli,
    Categorical,
    DiagGaussian,
    LayerSpec,
    MultiCategorical,
    Parameters,
    ProductDistribution,
    matmul_rows,
)
from trainer.nn.initializers import uniform
from trainer.seeding import NOISE_DRAWS

DISTRIBUTIONS = {
    "categorical": Categorical(3),
    "many actions": Categorical(19),
    "gaussian": DiagGaussian((3,)),
    "multi": MultiCategorical([2, 5, 3]),
    "bits": Bernoulli((3,)),
    "gumbel only": ProductDistribution((Categorical(3), {"a": Categorical(2)})),
    "nested": ProductDistribution(
        {"arm": DiagGaussian((2,)), "hand": (Categorical(3), Bernoulli((2, 2)))}
    ),
}


def network(num_inputs, layers):
    parameters = Parameters(MLP.shapes("net", num_inputs=num_inputs, layers=layers))
    mlp = MLP(parameters, parameters.zeros_like(), name="net", layers=layers)
    mlp.initialize(np.random.default_rng(0), initializer=uniform)
    return mlp


def random_rows(seed, rows, width):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [1, 2, 5, 18])
@settings(max_examples=8)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 20))
def test_row_of_a_batch_has_the_bits_of_the_row_alone(activation, width, seed, count):
    layers = [LayerSpec(64, activation), LayerSpec(33, activation), LayerSpec(width, "linear")]
    act = ActingForward(network(5, layers).layers)
    rows = random_rows(seed, count, 5)
    together = act(rows)
    order = np.random.default_rng(seed).permutation(count)
    assert act(rows[order]).tobytes() == together[order].tobytes()
    for index in range(count):
        assert act(rows[index : index + 1]).tobytes() == together[index].tobytes()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 20))
def test_action_of_a_row_does_not_depend_on_the_others(name, seed, count):
    distribution = DISTRIBUTIONS[name]
    inputs = random_rows(seed, count, distribution.num_inputs)
    rng = np.random.default_rng(seed + 1)
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (count, distribution.noise_width))
    actions, best = distribution.sample(inputs, noise), distribution.deterministic(inputs)
    for rows in (rng.permutation(count), *np.arange(count)[:, None]):
        alone = distribution.sample(inputs[rows], noise[rows])
        assert nested.equal(alone, nested.take(actions, rows))
        assert nested.equal(distribution.deterministic(inputs[rows]), nested.take(best, rows))


@given(seed=st.integers(0, 2**31), count=st.integers(1, 20), width=st.integers(1, 9))
def test_users_product_is_row_exact_and_right(seed, count, width):
    rows, matrix = random_rows(seed, count, 7), random_rows(seed + 1, 7, width)
    product = matmul_rows(rows, matrix)
    np.testing.assert_allclose(product, rows @ matrix, rtol=1e-4, atol=1e-5)
    for index in range(count):
        assert matmul_rows(rows[index : index + 1], matrix).tobytes() == product[index].tobytes()

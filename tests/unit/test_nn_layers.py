"""Forward and backward passes of activations, layers and MLPs."""

import math

import numpy as np
import pytest

from trainer.errors import ConfigError
from trainer.nn import ACTIVATIONS, MLP, LayerSpec, Parameters, activation_named, columns_with_ones
from trainer.nn.initializers import orthogonal, uniform
from trainer.testing.checks import gradient_check

KNOWN = {
    "linear": (-0.5, -0.5),
    "tanh": (0.5, math.tanh(0.5)),
    "relu": (-0.5, 0.0),
    "sigmoid": (0.5, 1.0 / (1.0 + math.exp(-0.5))),
    "elu": (-0.5, math.exp(-0.5) - 1.0),
    "swish": (0.5, 0.5 / (1.0 + math.exp(-0.5))),
    "silu": (0.5, 0.5 / (1.0 + math.exp(-0.5))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_has_the_value_of_its_formula(name):
    z, y = KNOWN[name]
    values = np.array([z, 2.0])
    activation_named(name).forward(values)
    assert values[0] == pytest.approx(y, rel=1e-12, abs=1e-15)


def test_sigmoid_is_finite_for_extreme_inputs():
    values = np.array([-1e4, 1e4], np.float32)
    activation_named("sigmoid").forward(values)
    assert values.tolist() == [0.0, 1.0]


def test_unknown_activation_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"'gelu'.*tanh"):
        activation_named("gelu")


def build(layers, *, dtype=np.float64):
    shapes = MLP.shapes("net", num_inputs=3, layers=layers)
    parameters = Parameters(shapes, dtype=dtype)
    gradients = parameters.zeros_like()
    mlp = MLP(parameters, gradients, name="net", layers=layers)
    mlp.initialize(np.random.default_rng(0), initializer=uniform)
    return mlp, parameters, gradients


def batch_of(rows, dtype=np.float64):
    batch = columns_with_ones(3, rows, dtype)
    batch[:3] = np.random.default_rng(5).standard_normal((3, rows))
    return batch


def test_mlp_computes_the_formula():
    mlp, parameters, _ = build([LayerSpec(4, "tanh"), LayerSpec(2, "linear")])
    batch = batch_of(6)
    w = parameters.views
    hidden = np.tanh(batch[:3].T @ w["net/0/kernel"] + w["net/0/bias"])
    expected = hidden @ w["net/1/kernel"] + w["net/1/bias"]
    outputs = mlp.forward(batch)
    np.testing.assert_allclose(outputs[:-1].T, expected, rtol=1e-12)
    assert (outputs[-1] == 1.0).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("width", [1, 2])
def test_mlp_gradients_agree_with_differences(name, width):
    mlp, parameters, gradients = build(
        [LayerSpec(4, name), LayerSpec(5, "tanh"), LayerSpec(width, name)]
    )
    mlp.layers[-1].weights[-1] += 0.3  # so that no output unit is dead
    batch = batch_of(7)
    weights = np.random.default_rng(2).standard_normal((width, 7))

    def of_parameters(flat):
        parameters.flat[:] = flat
        return float((weights * mlp.forward(batch)[:-1]).sum())

    def of_inputs(inputs):
        changed = batch.copy()
        changed[:3] = inputs
        return float((weights * mlp.forward(changed)[:-1]).sum())

    start = parameters.flat.copy()
    of_parameters(start)
    d_inputs = np.empty((3, 7))
    mlp.backward(weights, d_inputs=d_inputs)
    gradient_check(of_parameters, gradients.flat, start)
    parameters.flat[:] = start
    gradient_check(of_inputs, d_inputs, batch[:3])


def test_backward_overwrites_gradients_of_another_batch_size():
    mlp, _, gradients = build([LayerSpec(4, "tanh"), LayerSpec(2, "linear")])
    mlp.forward(batch_of(7))
    mlp.backward(np.ones((2, 7)))
    first = gradients.flat.copy()
    mlp.forward(batch_of(3))
    mlp.backward(np.ones((2, 3)))
    assert not np.array_equal(first, gradients.flat)
    mlp.forward(batch_of(7))
    mlp.backward(np.ones((2, 7)))
    assert np.array_equal(first, gradients.flat)


def test_float32_stays_float32():
    mlp, _, gradients = build([LayerSpec(4, "swish"), LayerSpec(2, "elu")], dtype=np.float32)
    assert mlp.forward(batch_of(7, np.float32)).dtype == np.float32
    mlp.backward(np.ones((2, 7), np.float32))
    assert gradients.flat.dtype == np.float32


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)])
def test_orthogonal_kernel_is_orthonormal_times_gain(shape):
    kernel, bias = np.empty(shape), np.ones(shape[1])
    orthogonal(np.random.default_rng(0), kernel=kernel, bias=bias, gain=2.0)
    product = kernel.T @ kernel if shape[0] >= shape[1] else kernel @ kernel.T
    np.testing.assert_allclose(product, 4.0 * np.eye(min(shape)), atol=1e-12)
    assert (bias == 0.0).all()


def test_orthogonal_kernels_have_no_preferred_sign():
    # Without the correction by the signs of R, the first diagonal element is never positive.
    rng = np.random.default_rng(0)
    signs = []
    for _ in range(200):
        kernel = np.empty((3, 3))
        orthogonal(rng, kernel=kernel, bias=np.empty(3), gain=1.0)
        signs.append(kernel[0, 0] > 0.0)
    assert 70 < sum(signs) < 130


def test_uniform_kernel_stays_within_its_bound():
    kernel, bias = np.empty((25, 40)), np.empty(40)
    uniform(np.random.default_rng(0), kernel=kernel, bias=bias, gain=1.0)
    assert 0.19 < np.abs(kernel).max() <= 0.2
    assert 0.1 < np.abs(bias).max() <= 0.2

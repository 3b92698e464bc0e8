"""Convolutions against loops, and themselves with other images around.

Gradients are checked by `tests/contract/test_modules.py`, in whole networks.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.nn import (
    PADDINGS,
    ConvolutionSpec,
    ImageNetwork,
    ImageSpec,
    Parameters,
)
from trainer.nn.convolution import ConvolutionLayer, ConvolutionStack

SIZES = st.integers(1, 4)


def layer_for(spec, shape, *, dtype=np.float64):
    shapes = ConvolutionLayer.shapes("conv", input_shape=shape, spec=spec)
    parameters = Parameters(shapes, dtype=dtype)
    parameters.flat[:] = np.random.default_rng(0).standard_normal(parameters.num_parameters)
    gradients = parameters.zeros_like()
    layer = ConvolutionLayer(parameters, gradients, name="conv", input_shape=shape, spec=spec)
    return layer, parameters


def convolved_by_loops(images, kernel, bias, spec):
    """The definition, one output number at a time; zeros stand for what is outside."""
    zeros = spec.zeros_around(images.shape[1:])
    padded = np.pad(images, ((0, 0), *zeros, (0, 0)))
    height, width, channels = spec.output_shape(images.shape[1:])
    outputs = np.zeros((len(images), height, width, channels))
    for b, i, j, c in np.ndindex(outputs.shape):
        top, left = i * spec.stride[0], j * spec.stride[1]
        patch = padded[b, top : top + spec.kernel[0], left : left + spec.kernel[1]]
        assert patch.shape == kernel.shape[:3]
        outputs[b, i, j, c] = (patch * kernel[..., c]).sum() + bias[c]
    return outputs


@given(
    kernel=st.tuples(SIZES, SIZES),
    stride=st.tuples(SIZES, SIZES),
    padding=st.sampled_from(PADDINGS),
    extra=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    count=st.integers(0, 3),
)
def test_a_layer_computes_the_definition(kernel, stride, padding, extra, channels, count):
    spec = ConvolutionSpec(channels[1], kernel, stride, padding, "linear")
    shape = (kernel[0] + extra[0], kernel[1] + extra[1], channels[0])
    layer, parameters = layer_for(spec, shape)
    images = np.random.default_rng(1).standard_normal((count, *shape))
    weights = parameters.views["conv/kernel"], parameters.views["conv/bias"]
    expected = convolved_by_loops(images, *weights, spec)
    np.testing.assert_allclose(layer.forward(images), expected, atol=1e-12)
    np.testing.assert_allclose(layer.act(images), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("padding", "length", "kernel", "stride", "expected"),
    [
        ("valid", 84, 8, 4, 20),  # Mnih et al. 2013
        ("valid", 20, 4, 2, 9),
        ("valid", 2, 3, 1, 0),
        ("same", 84, 8, 4, 21),
        ("same", 7, 3, 1, 7),
        ("same", 2, 5, 1, 2),
        ("same", 7, 1, 3, 3),
    ],
)
def test_output_sizes(padding, length, kernel, stride, expected):
    spec = ConvolutionSpec(5, (kernel, kernel), (stride, stride), padding, "relu")
    assert spec.output_shape((length, length, 3)) == (expected, expected, 5)


def test_an_odd_zero_stands_after_the_image():
    spec = ConvolutionSpec(1, (4, 3), (1, 1), "same", "relu")
    assert spec.zeros_around((6, 6, 1)) == ((1, 2), (1, 1))


def test_numbers_of_an_image_are_scaled_once():
    spec = ConvolutionSpec(2, (2, 2), (1, 1), "valid", "linear")

    def features(scale, images):
        image = ImageSpec((3, 3, 1), scale, (spec, spec))
        parameters = Parameters(ConvolutionStack.shapes("net", image=image), dtype=np.float64)
        parameters.flat[:] = np.arange(parameters.num_parameters) / 10.0
        gradients = parameters.zeros_like()
        return ConvolutionStack(parameters, gradients, name="net", image=image).forward(images)

    images = np.random.default_rng(6).random((2, 9))
    np.testing.assert_allclose(features(0.25, 4.0 * images), features(1.0, images), rtol=1e-12)


def test_nobody_gets_the_gradient_of_images():
    spec = ConvolutionSpec(2, (2, 2), (1, 1), "valid", "tanh")
    image = ImageSpec((3, 3, 1), 1.0, (spec,))
    parameters = Parameters(ImageNetwork.shapes("net", image=image, layers=[]))
    network = ImageNetwork(parameters, parameters.zeros_like(), name="net", image=image, layers=[])
    with pytest.raises(ValueError, match="not computed"):
        network.backward(np.zeros((1, 1)), d_inputs=np.zeros((1, 1)))

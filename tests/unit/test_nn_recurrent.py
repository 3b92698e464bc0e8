"""Recurrent layers: equations, steps that are the same in any batch.

Gradients through time are checked by `tests/contract/test_modules.py`, in whole networks; that
Torch computes the same, by `test_modules_memory.py`.
"""

import numpy as np
import pytest

from trainer.nn import Parameters
from trainer.nn.initializers import AS_THE_NETWORK, LayerDraw, TensorDraw
from trainer.nn.layers import columns_with_ones
from trainer.nn.recurrent import GRU, LSTM, RECURRENT_LAYERS

K, H, T, B = 3, 4, 5, 2


def made(kind, *, dtype=np.float64, width=H):
    """A layer with drawn weights, and its parameters."""
    parameters = Parameters(kind.shapes("rnn", num_inputs=K, width=width), dtype=dtype)
    layer = kind(parameters, parameters.zeros_like(), name="rnn")
    rng = np.random.default_rng(3)
    layer.initialize(rng)
    parameters.flat[:] += 0.3 * rng.standard_normal(parameters.num_parameters)
    return layer, parameters


def drawn(kind):
    """Inputs [T, B, K], as columns, and a state."""
    rng = np.random.default_rng(5)
    inputs = rng.standard_normal((T, B, K))
    columns = columns_with_ones(K, T * B, np.float64)
    columns[:-1] = inputs.reshape(-1, K).T
    state = {name: 0.5 * rng.standard_normal((B, H)) for name in kind.state_names}
    return inputs, columns, state


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def lstm_by_hand(w, x, state):
    z = x @ w["rnn/kernel"] + w["rnn/bias"] + state["h"] @ w["rnn/recurrent"]
    i, f, g, o = np.split(z, 4, axis=1)
    c = sigmoid(f) * state["c"] + sigmoid(i) * np.tanh(g)
    return {"h": sigmoid(o) * np.tanh(c), "c": c}


def gru_by_hand(w, x, state):
    h = state["h"]
    r, z, n = np.split(x @ w["rnn/kernel"] + w["rnn/bias"], 3, axis=1)
    hr, hz, hn = np.split(h @ w["rnn/recurrent"], 3, axis=1)
    r, z = sigmoid(r + hr), sigmoid(z + hz)
    n = np.tanh(n + r * (hn + w["rnn/recurrent_bias"]))
    return {"h": (1 - z) * n + z * h}


@pytest.mark.parametrize(("kind", "by_hand"), [(LSTM, lstm_by_hand), (GRU, gru_by_hand)])
def test_forward_and_step_follow_the_equations(kind, by_hand):
    layer, parameters = made(kind)
    inputs, columns, state = drawn(kind)
    outputs = layer.forward(columns, state)
    assert (outputs[-1] == 1.0).all()
    found, acting = outputs[:-1].T.reshape(T, B, H), dict(state)
    for step in range(T):
        state = by_hand(parameters.views, inputs[step], state)
        np.testing.assert_allclose(found[step], state["h"], rtol=1e-12)
        shown, acting = layer.step(inputs[step], acting)
        np.testing.assert_allclose(shown, state["h"], rtol=1e-12)
        for name in kind.state_names:
            np.testing.assert_allclose(acting[name], state[name], rtol=1e-12)


@pytest.mark.parametrize("kind", RECURRENT_LAYERS.values(), ids=RECURRENT_LAYERS)
@pytest.mark.parametrize("width", [4, 7, 64])
def test_step_gives_a_row_the_same_bits_in_any_batch(kind, width):
    layer, _ = made(kind, dtype=np.float32, width=width)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((11, K)).astype(np.float32)
    state = {name: rng.standard_normal((11, width)).astype(np.float32) for name in kind.state_names}
    together, after = layer.step(rows, state)
    for part in (slice(0, 1), slice(3, 4), slice(2, 11), slice(1, 9)):
        alone, state_alone = layer.step(rows[part], {n: a[part] for n, a in state.items()})
        assert alone.tobytes() == together[part].tobytes()
        for name in kind.state_names:
            assert state_alone[name].tobytes() == after[name][part].tobytes()


def first_weights(kind, draw=AS_THE_NETWORK, width=512):
    parameters = Parameters(kind.shapes("rnn", num_inputs=K, width=width))
    layer = kind(parameters, parameters.zeros_like(), name="rnn", draw=draw)
    layer.initialize(np.random.default_rng(0))
    return parameters.views


@pytest.mark.parametrize("kind", RECURRENT_LAYERS.values())
def test_first_weights_are_those_of_torch(kind):
    """U(-1/√H, 1/√H) each; a bias is the sum of two, but in the GRU's new gate, which has both."""
    width = 512
    bound = width**-0.5
    views = first_weights(kind, width=width)
    alone = [views["rnn/kernel"], views["rnn/recurrent"]]
    bias = views["rnn/bias"]
    if kind is GRU:
        alone += [bias[2 * width :], views["rnn/recurrent_bias"]]
        bias = bias[: 2 * width]
    for tensor in alone:
        assert 0.97 * bound < np.abs(tensor).max() <= bound
        assert np.isclose(tensor.var(), bound**2 / 3, rtol=0.1)
    assert bound < np.abs(bias).max() <= 2 * bound
    assert np.isclose(bias.var(), 2 * bound**2 / 3, rtol=0.1)


@pytest.mark.parametrize("kind", RECURRENT_LAYERS.values())
def test_what_a_model_config_says_of_kernels_and_biases_replaces_them(kind):
    kernel, bias = (TensorDraw(lambda _, out, value: out.fill(value), {"value": v}) for v in (1, 0))
    views = first_weights(kind, LayerDraw(kernel=kernel, bias=bias))
    for name, tensor in views.items():
        assert (tensor == (0.0 if "bias" in name else 1.0)).all()

"""Kernels in C give the bits of NumPy, and are left alone where they would not."""

import functools
import math
import multiprocessing
import operator
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainer.nn import Parameters, kernels, layers
from trainer.nn.layers import (
    MLP,
    ActingForward,
    BackwardPass,
    ForwardPass,
    LayerSpec,
    columns_with_ones,
    run_side_by_side,
)
from trainer.nn.optimizers import Adam, GradientClipping
from trainer.nn.recurrent import (
    LSTM,
    RecurrentLayer,
    backward_side_by_side,
    forward_side_by_side,
)

there = pytest.mark.skipif(bool(kernels.why_not()), reason=f"no kernels: {kernels.why_not()}")


def network(widths, activation, *, num_inputs=4, in_c=True, dtype=np.float32):
    """A network with the same weights each time, and its gradients."""
    specs = [LayerSpec(width, activation) for width in widths[:-1]]
    specs.append(LayerSpec(widths[-1], "linear"))
    shapes = MLP.shapes("net", num_inputs=num_inputs, layers=specs)
    parameters = Parameters(shapes, dtype=dtype)
    gradients = parameters.zeros_like()
    parameters.flat[:] = np.random.default_rng(1).standard_normal(parameters.num_parameters)
    net = MLP(parameters, gradients, name="net", layers=specs)
    if not in_c:
        net._functions = None
    return net, gradients


def batch_of(size, num_inputs=4, dtype=np.float32):
    inputs = columns_with_ones(num_inputs, size, dtype)
    inputs[:-1] = np.random.default_rng(2).standard_normal((num_inputs, size))
    return inputs


def passes(net, gradients, sizes, width):
    """All that passes with batches of these sizes give."""
    found = []
    for size in sizes:
        inputs, d_inputs = batch_of(size), np.empty((4, size), np.float32)
        found.append(net.forward(inputs).tobytes())
        gradient = np.random.default_rng(3).standard_normal((width, size)).astype(np.float32)
        net.backward(gradient, d_inputs=d_inputs)
        found += [gradients.flat.tobytes(), d_inputs.tobytes()]
        net.backward(gradient, d_inputs=d_inputs, only_inputs=True)
        net.backward(gradient)
        found += [gradients.flat.tobytes(), d_inputs.tobytes()]
    return found


@there
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=4),
    st.sampled_from(["tanh", "relu", "linear"]),
    st.lists(st.integers(1, 140), min_size=1, max_size=3),
)
def test_passes_have_the_bits_of_numpy(widths, activation, sizes):
    found = [
        passes(*network(widths, activation, in_c=in_c), sizes, widths[-1]) for in_c in (True, False)
    ]
    assert found[0] == found[1]


@there
@given(
    st.lists(st.integers(2, 70), min_size=1, max_size=3),
    st.sampled_from(["tanh", "relu"]),
    st.integers(1, 40),
)
def test_acting_has_the_bits_of_numpy(widths, activation, count):
    rows, found = batch_of(count)[:-1].T, []
    for in_c in (True, False):
        acting = ActingForward(network(widths, activation)[0].layers)
        if not in_c:
            acting._functions = None
        found.append(acting(rows).tobytes())
        assert (acting._chain is not None) is in_c
    assert found[0] == found[1]


@there
@given(st.integers(1, 3000), st.booleans(), st.sampled_from([1e-30, 1e-3, 1.0, 1e15]))
# Large enough for two threads.
@example(50_001, False, 1.0)
@example(331_043, True, 1e-3)
def test_steps_and_norms_have_the_bits_of_numpy(size, has_rates, scale):
    draw, found = np.random.default_rng(size), []
    start, gradient = draw.standard_normal((2, size)).astype(np.float32)
    rates = np.abs(draw.standard_normal(size)).astype(np.float32) if has_rates else 3e-4
    for in_c in (True, False):
        parameters, gradients = Parameters({"all": (size,)}), Parameters({"all": (size,)})
        parameters.flat[:], gradients.flat[:] = start, gradient * np.float32(scale)
        adam, clipping = Adam(parameters, gradients), GradientClipping(gradients, limit=0.5)
        if not in_c:
            adam._functions = clipping._plan = None
        for _ in range(66):  # moments that are next to nothing are set to 0 at the 64th
            norm = clipping.global_norm()
            clipping.clip(global_norm=norm)
            adam.step(lr=rates)
        found.append((norm, parameters.flat.tobytes(), adam._second_moment.flat.tobytes()))
    assert found[0] == found[1]


@there
@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 40), st.integers(0, 9))
def test_steps_of_an_lstm_have_the_bits_of_numpy(num_steps, count, width, seed):
    draw, found = np.random.default_rng(seed), []
    parameters = Parameters(LSTM.shapes("net", num_inputs=4, width=width))
    parameters.flat[:] = draw.standard_normal(parameters.num_parameters)
    before = {name: draw.standard_normal((count, width)) for name in ("h", "c")}
    gradient = draw.standard_normal((width, num_steps * count)).astype(np.float32)
    for in_c in (True, False):
        gradients, d_inputs = parameters.zeros_like(), np.empty((4, num_steps * count), np.float32)
        layer = LSTM(parameters, gradients, name="net")
        for size in (2 * num_steps * count, num_steps * count):  # other memory first
            layer._allocate(size // count, count)
            if not in_c:
                layer._in_c = None
            outputs = layer.forward(batch_of(size), before)
        layer.backward(gradient, d_inputs=d_inputs)
        found.append([array.tobytes() for array in (outputs, gradients.flat, d_inputs)])
    assert found[0] == found[1]


@there
def test_numbers_that_are_not_finite_spread_as_in_numpy():
    found = []
    for in_c in (True, False):
        net, gradients = network([8, 3], "relu", in_c=in_c)
        inputs = batch_of(16)
        inputs[0, :4] = np.nan, np.inf, -np.inf, -0.0
        with np.errstate(all="ignore"):
            outputs = net.forward(inputs).copy()
            net.backward(np.ones((3, 16), np.float32))
        found.append(
            [np.array_equal(outputs, outputs), np.isnan(outputs), np.isnan(gradients.flat)]
        )
        found[-1].append(np.nan_to_num(outputs).tobytes())
    assert str(found[0]) == str(found[1])


# ---- two things at once


def pairs(width=300, size=64):
    """A forward and a backward pass of two networks, at once or one after the other, as bytes."""
    found = []
    nets = [network([width, width, 1 + index], "relu") for index in range(2)]
    inputs, d_inputs = [batch_of(size), batch_of(size)], np.empty((2, 4, size), np.float32)
    passes = [ForwardPass(net, one) for (net, _), one in zip(nets, inputs, strict=True)]
    run_side_by_side(passes[:1], passes[1:])
    found += [one.outputs.tobytes() for one in passes]
    back = [
        BackwardPass(net, np.ones((1 + index, size), np.float32), d_inputs=d_inputs[index])
        for index, (net, _) in enumerate(nets)
    ]
    run_side_by_side(back[:1], back[1:])
    run_side_by_side(back[:1], [back[1], passes[1]])
    return [*found, d_inputs.tobytes(), *(gradients.flat.tobytes() for _, gradients in nets)]


@pytest.fixture
def one_by_one(monkeypatch):
    """What the pairs give one after the other."""
    with monkeypatch.context() as patch:
        patch.setattr(layers, "LARGE_PASS", math.inf)
        return pairs()


@there
def test_passes_at_once_have_the_same_bits(one_by_one, monkeypatch):
    monkeypatch.setattr(layers, "LARGE_PASS", 0)
    for _ in range(100):
        assert pairs() == one_by_one


@there
def test_sums_are_those_of_older_numpy_too_which_adds_blocks_in_turn(monkeypatch):
    # Of seed 2: in blocks of 8,192, which NumPy before 2.3 takes, the sum is another one, too.
    numbers = np.random.default_rng(2).standard_normal(150_000).astype(np.float32)
    blocks = np.square(numbers).reshape(-1, 5_000)
    in_turn = functools.reduce(operator.add, [np.add.reduce(block) for block in blocks])

    def squares():
        vectors = [numbers] * 4 + [np.empty_like(numbers)]
        return kernels.Optimizer(kernels.library(), *vectors).squares()

    monkeypatch.setattr(kernels, "_sum_block", lambda: 5_000)
    try:
        kernels._load()
        assert squares() == in_turn
    finally:
        monkeypatch.undo()
        kernels._load()
    assert squares() != in_turn


def lstms(*, at_once):
    """Passes of three LSTMs of different sizes, at once or one after the other, as bytes."""
    num_steps, count, found, given = 6, 8, [], []
    for width in (16, 24, 8):
        draw = np.random.default_rng(width)
        parameters = Parameters(LSTM.shapes("net", num_inputs=4, width=width))
        parameters.flat[:] = draw.standard_normal(parameters.num_parameters)
        gradients = parameters.zeros_like()
        gradient = draw.standard_normal((width, num_steps * count)).astype(np.float32)
        d_inputs = np.empty((4, num_steps * count), np.float32)
        state = {name: draw.standard_normal((count, width)) for name in ("h", "c")}
        layer, inputs = LSTM(parameters, gradients, name="net"), batch_of(num_steps * count)
        given.append((layer, inputs, state, gradient, d_inputs))
        found += [gradients.flat, d_inputs]
    for group in [given] if at_once else [[one] for one in given]:
        nets, inputs, states, d_outputs, rooms = zip(*group, strict=True)
        found += forward_side_by_side(nets, inputs, states)
        backward_side_by_side(nets, d_outputs, rooms)
    return [array.tobytes() for array in found]


@there
def test_lstms_at_once_have_the_same_bits():
    one_after_the_other = lstms(at_once=False)
    for _ in range(100):
        assert lstms(at_once=True) == one_after_the_other


@there
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 20), st.integers(0, 9))
def test_a_step_of_an_lstm_that_acts_has_the_bits_of_numpy(width, num_inputs, count, seed):
    draw = np.random.default_rng(seed)
    parameters = Parameters(LSTM.shapes("net", num_inputs=num_inputs, width=width))
    parameters.flat[:] = draw.standard_normal(parameters.num_parameters)
    layer = LSTM(parameters, parameters.zeros_like(), name="net")
    in_c = in_numpy = {name: np.zeros((count, width), np.float32) for name in ("h", "c")}
    for step in range(3):
        size = count if step else 2 * count  # other memory first
        rows = draw.standard_normal((size, num_inputs)).astype(np.float32)
        if size > count:
            layer.step(rows, {name: np.ones((size, width), np.float32) for name in ("h", "c")})
            continue
        outputs, in_c = layer.step(rows, in_c)
        wanted, in_numpy = RecurrentLayer.step(layer, rows, in_numpy)
        assert (layer._acting is not None) == (width > 1)
        for found, other in ((outputs, wanted), *((in_c[name], in_numpy[name]) for name in in_c)):
            assert found.tobytes() == other.tobytes()


@there
def test_what_one_row_was_does_not_stay_in_rows_that_do_not_act():
    parameters = Parameters(LSTM.shapes("net", num_inputs=3, width=4))
    parameters.flat[:] = np.linspace(-1, 1, parameters.num_parameters)
    layer, other = (LSTM(parameters, parameters.zeros_like(), name="net") for _ in range(2))
    bad, good = np.full((3, 3), np.inf, np.float32), np.ones((1, 3), np.float32)
    zeros = {name: np.zeros((1, 4), np.float32) for name in ("h", "c")}
    with np.errstate(all="ignore"):
        layer.step(bad, {name: np.full((3, 4), np.nan, np.float32) for name in ("h", "c")})
    with np.errstate(all="raise"):  # nor does it warn of them
        outputs, _ = layer.step(good, zeros)
    assert outputs.tobytes() == other.step(good, zeros)[0].tobytes()
    assert np.isfinite(layer._acting._inputs).all()


@there
@pytest.mark.slow
def test_threads_of_the_user_that_learn_at_once_do_not_disturb_each_other(one_by_one):
    found = [[], []]

    def learn(own):
        for _ in range(50):
            own.append(pairs() == one_by_one)

    threads = [threading.Thread(target=learn, args=(own,)) for own in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[True] * 50] * 2


@there
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_forked_process_has_a_second_thread_of_its_own(one_by_one):
    assert pairs() == one_by_one  # so that the thread is there
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_same_pairs, [one_by_one] * 4) == [True] * 4
    assert pairs() == one_by_one


def _same_pairs(expected):
    return all(pairs() == expected for _ in range(20))


@there
def test_it_sleeps_when_it_is_not_needed(one_by_one):
    assert pairs() == one_by_one
    time.sleep(0.01)  # longer than it waits for more
    begun, until = time.process_time(), time.monotonic() + 0.2
    while time.monotonic() < until:
        time.sleep(0.02)
    assert time.process_time() - begun < 0.1


@there
def test_one_core_computes_one_after_the_other(one_by_one, monkeypatch, anew):
    monkeypatch.setattr(kernels, "_num_cores", lambda: 1)
    assert kernels.why_not() == ""
    assert pairs() == one_by_one


# ---- what C is not given


@there
def test_other_number_types_and_activations_are_left_to_numpy():
    for made in (network([8, 2], "tanh", dtype=np.float64), network([8, 2], "swish")):
        net = made[0]
        net.forward(batch_of(16, dtype=net._dtype))
        assert net._chain is None
    net, _ = network([8, 2], "tanh")
    net.forward(batch_of(16))
    assert net._chain is not None


@there
@pytest.mark.parametrize("width", [3, 9])
def test_inputs_of_another_width_end_in_numpys_own_error(width):
    net, _ = network([8, 2], "tanh")
    net.forward(batch_of(16))
    with pytest.raises(ValueError, match="matmul"):
        net.forward(batch_of(16, width))


@there
@pytest.mark.parametrize("form", [np.asfortranarray, np.float64])
def test_inputs_of_another_form_are_left_to_numpy(form):
    found = []
    for in_c in (True, False):
        net, gradients = network([8, 2], "tanh", in_c=in_c)
        outputs = net.forward(form(batch_of(16))).copy()
        net.backward(np.ones((2, 16), np.float32))
        found.append((outputs.tobytes(), gradients.flat.tobytes()))
    assert found[0] == found[1]


@there
def test_memory_of_another_size_is_not_used_any_more():
    net, gradients = network([64, 64, 1], "tanh")
    once = passes(net, gradients, [64, 2000, 3, 64, 2000], 1)
    assert once[:5] == once[15:20]
    assert once[5:10] == once[20:]


# ---- whether they are used


def why_not(**environment):
    """What another process says."""
    script = "from trainer.nn import kernels; import trainer; print(kernels.why_not())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.strip()


def test_they_are_switched_off_by_the_environment():
    assert why_not(LOCAL_TRAINER_KERNELS="0") == "switched off by LOCAL_TRAINER_KERNELS=0"


@pytest.fixture
def anew(monkeypatch):
    """Looks for them anew, and forgets what was found."""
    kernels._loaded.cache_clear()
    monkeypatch.setattr(kernels, "_PASSED", {})
    yield
    monkeypatch.undo()
    kernels._loaded.cache_clear()
    kernels._loaded()  # lends again what belongs to it


@pytest.mark.parametrize(
    ("name", "fake", "text"),
    [
        ("blas_functions", lambda *_: None, "NumPy's BLAS"),
        ("_Lent", kernels.LayerPlan, "another version"),
    ],
)
@there
def test_what_keeps_them_from_being_used_is_said(anew, monkeypatch, name, fake, text):
    if name == "_Lent":
        monkeypatch.setattr(kernels.ctypes, "sizeof", lambda _: 1)
    else:
        monkeypatch.setattr(kernels, name, fake)
    assert text in kernels.why_not()
    net, _ = network([8, 2], "tanh")
    net.forward(batch_of(16))
    assert net._chain is None


def test_without_a_compiled_file_it_says_so(anew, monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "kernels.py"))
    assert "not compiled" in kernels.why_not()


@there
def test_one_bit_that_differs_switches_off_what_it_is_of(anew, monkeypatch):
    real = kernels._loaded().functions.adam

    def other_adam(plan, decay_1, decay_2, epsilon, factor):
        real(
            plan, decay_1, decay_2, epsilon, float(np.nextafter(np.float32(factor), np.float32(1)))
        )

    monkeypatch.setattr(kernels._loaded().functions, "adam", other_adam)
    assert kernels.why_not() == "steps of Adam differ from NumPy's here"
    parameters = Parameters({"all": (3,)})
    assert Adam(parameters, parameters.zeros_like())._functions is None
    net, _ = network([8, 2], "tanh")
    net.forward(batch_of(16))
    assert net._chain is not None

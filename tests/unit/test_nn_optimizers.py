"""Parameters in one flat vector, optimisers over it, clipping, and schedules over env steps."""

import copy
import pickle

import numpy as np
import pytest

from trainer.errors import ConfigError, ModuleError
from trainer.nn import Adam, GradientClipping, Parameters, Schedule, optimizers


def example():
    parameters = Parameters({"a/kernel": (2, 3), "a/bias": (3,), "b": ()})
    parameters.flat[:] = np.arange(10)
    return parameters


def test_views_and_vector_are_the_same_memory():
    parameters = example()
    parameters.views["a/bias"][1] = -5.0
    assert parameters.flat[7] == -5.0
    parameters.flat[9] = 3.0
    assert parameters.views["b"] == 3.0
    assert parameters.num_parameters == 10
    assert parameters.flat.flags.c_contiguous


def test_block_spans_neighbouring_tensors():
    block = example().block("a/kernel", "a/bias").reshape(3, 3)
    assert block.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_keep_views_and_vector_together(copied):
    parameters = example()
    other = copied(parameters)
    other.views["a/bias"][0] = 77.0
    assert other.flat[6] == 77.0
    assert parameters.flat[6] == 6.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_begins_where_kernels_like_it(dtype):
    kept = [Parameters({"a": (size,), "b": (3, 5)}, dtype=dtype) for size in range(1, 40)]
    for parameters in kept:
        assert parameters.flat.ctypes.data % 64 == 0
        assert not parameters.flat.any()
        assert parameters.zeros_like().flat.ctypes.data % 64 == 0


def pair(numbers):
    parameters = Parameters({"a": (2,), "b": (len(numbers) - 2,)}, dtype=np.float64)
    gradients = parameters.zeros_like()
    gradients.flat[:] = numbers
    return parameters, gradients


def reference_steps(gradients, *, lr):
    """Algorithm 1 of Kingma and Ba (2015), word for word."""
    m = v = theta = np.zeros_like(gradients[0])
    for t, g in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        theta = theta - lr * (m / (1.0 - 0.9**t)) / (np.sqrt(v / (1.0 - 0.999**t)) + 1e-8)
    return theta


def test_steps_follow_the_algorithm_of_the_paper():
    parameters, gradients = pair([0.0, 0.0, 0.0])
    adam = Adam(parameters, gradients)
    drawn = list(np.random.default_rng(0).standard_normal((5, 3)))
    for gradient in drawn:
        gradients.flat[:] = gradient
        adam.step(lr=0.01)
    np.testing.assert_allclose(parameters.flat, reference_steps(drawn, lr=0.01), rtol=1e-12)


def test_large_vectors_in_blocks_have_the_same_bits(monkeypatch):
    drawn = np.random.default_rng(0).standard_normal((4, 100))
    rates = np.linspace(0.0, 0.1, 100)
    found = []
    for block in (7, 100):
        monkeypatch.setattr(optimizers, "_ADAM_BLOCK", block)
        parameters, gradients = pair([0.0] * 100)
        adam = Adam(parameters, gradients)
        for number, gradient in enumerate(drawn):
            gradients.flat[:] = gradient
            adam.step(lr=rates if number % 2 else 0.01)
        found.append(parameters.flat.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("flushes", [True, False])
def test_moments_without_gradients_end_at_zero_and_no_weight_notices(flushes, monkeypatch):
    """A tenth of the numbers get gradients to the end, the others at first only."""
    never = 10_000
    runs = {}
    for every in (never, optimizers._FLUSH_EVERY if flushes else never):
        monkeypatch.setattr(optimizers, "_FLUSH_EVERY", every)
        parameters = Parameters({"a": (100,)})
        gradients = parameters.zeros_like()
        adam = Adam(parameters, gradients, betas=(0.9, 0.95))
        random = np.random.default_rng(0)
        for step in range(2_500):
            gradients.flat[:] = random.standard_normal(100) * 10.0 ** -random.integers(0, 12, 100)
            gradients.flat[10:] *= step < 20
            adam.step(lr=1e-3)
        runs[every] = adam, parameters
    tiny = np.finfo(np.float32).tiny
    (adam, parameters), (_, unflushed) = runs[every], runs[never]
    moments = [adam.get_state()[name]["a"] for name in ("first_moment", "second_moment")]
    subnormal = [int(((abs(moment) < tiny) & (moment != 0.0)).sum()) for moment in moments]
    assert all(moment[:10].all() for moment in moments)
    assert (subnormal == [0, 0]) is flushes
    assert parameters.flat.tobytes() == unflushed.flat.tobytes()


def test_state_that_does_not_fit_is_refused_and_changes_nothing():
    parameters, gradients = pair([1.0, 2.0, 3.0])
    adam = Adam(parameters, gradients)
    adam.step(lr=0.1)
    before = adam.get_state()
    bad = adam.get_state()
    bad["first_moment"]["a"][:] = 9.0
    del bad["second_moment"]["b"]
    with pytest.raises(ModuleError, match="'b' is missing"):
        adam.set_state(bad)
    with pytest.raises(ModuleError, match="state of Adam"):
        adam.set_state({"m": 1})
    np.testing.assert_array_equal(
        adam.get_state()["first_moment"]["a"], before["first_moment"]["a"]
    )


def clipped(mode, limit, sign=1.0):
    _, gradients = pair([sign * value for value in (3.0, 4.0, 12.0)])
    clipping = GradientClipping(gradients, limit=limit, mode=mode)
    norm = clipping.global_norm()
    assert norm == 13.0
    clipping.clip(global_norm=norm)
    return gradients.flat.tolist()


def test_each_mode_clips_as_it_says():
    assert clipped("value", 3.5) == [3.0, 3.5, 3.5]
    assert clipped("value", 3.5, sign=-1.0) == [-3.0, -3.5, -3.5]
    assert clipped("norm", 10.0) == [3.0, 4.0, 10.0]
    assert clipped("norm", 2.5) == pytest.approx([1.5, 2.0, 2.5])
    assert clipped("global_norm", 6.5) == pytest.approx([1.5, 2.0, 6.0])


def test_gradient_within_the_limit_keeps_its_bits():
    for mode in ("value", "norm", "global_norm"):
        assert clipped(mode, 13.0) == [3.0, 4.0, 12.0]
    assert clipped("global_norm", None) == [3.0, 4.0, 12.0]


def test_impossible_clipping_is_refused():
    _, gradients = pair([1.0, 1.0, 1.0])
    with pytest.raises(ConfigError, match="global_norm"):
        GradientClipping(gradients, limit=1.0, mode="globalnorm")
    with pytest.raises(ConfigError, match="not above 0"):
        GradientClipping(gradients, limit=0.0)


# ---- schedules


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (0.25, [0.25] * 6),
        ([[0, 1.0], [100, 0.5], [300, 0.1]], [1.0, 0.75, 0.5, 0.3, 0.1, 0.1]),
    ],
)
def test_points_are_joined_by_lines_and_the_last_value_stays(setting, expected):
    schedule = Schedule.from_setting(setting, name="lr")
    values = [schedule.value_at(steps) for steps in (0, 50, 100, 200, 300, 10_000)]
    assert values == pytest.approx(expected)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ([[10, 1.0], [20, 0.5]], "starts at 10"),
        ([[0, 1.0]], "line needs two"),
        ([[0, 1.0], [20, 0.5], [20, 0.1]], "do not ascend"),
        ([[0, 1.0], [20, float("nan")]], "not finite"),
        (float("inf"), "not finite"),
        (None, "neither a number nor"),
    ],
)
def test_impossible_settings_are_named(setting, complaint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        Schedule.from_setting(setting, name="lr")
    assert "`lr" in str(caught.value)

"""One vector, many views; states that fit or say why not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from trainer.errors import ModuleError
from trainer.nn import Parameters


def example() -> Parameters:
    parameters = Parameters({"a/kernel": (2, 3), "a/bias": (3,), "b": ()})
    parameters.flat[:] = np.arange(10)
    return parameters


def test_views_and_vector_are_the_same_memory() -> None:
    parameters = example()
    parameters.views["a/bias"][1] = -5.0
    assert parameters.flat[7] == -5.0
    parameters.flat[9] = 3.0
    assert parameters.views["b"] == 3.0
    assert parameters.num_parameters == 10
    assert parameters.flat.flags.c_contiguous


def test_block_spans_neighbouring_tensors() -> None:
    block = example().block("a/kernel", "a/bias").reshape(3, 3)
    assert block.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_state_is_a_copy_and_comes_back_bit_for_bit() -> None:
    parameters = example()
    state = parameters.get_state()
    parameters.flat[:] = 0.0
    assert state["a/bias"].tolist() == [6, 7, 8]
    parameters.set_state(state)
    assert parameters.flat.tobytes() == example().flat.tobytes()


def test_every_mismatch_is_named_and_nothing_is_changed() -> None:
    parameters = example()
    state = {
        "a/kernel": np.zeros((3, 2), np.float32),
        "a/bias": np.zeros(3),
        "extra": np.zeros(1, np.float32),
    }
    with pytest.raises(ModuleError) as caught:
        parameters.set_state(state)
    message = str(caught.value)
    assert "'a/kernel' has shape (3, 2), expected (2, 3)" in message
    assert "'a/bias' has dtype float64, expected float32" in message
    assert "'b' is missing" in message
    assert "'extra' is unknown" in message
    assert parameters.flat.tobytes() == example().flat.tobytes()


def test_numbers_that_are_not_finite_are_refused() -> None:
    state = example().get_state()
    state["a/bias"][0] = np.nan
    with pytest.raises(ModuleError, match="'a/bias' holds 1 numbers that are not finite"):
        example().set_state(state)


def test_copy_from_takes_all_numbers_or_refuses() -> None:
    target = example().zeros_like()
    target.copy_from(example())
    assert target.flat.tobytes() == example().flat.tobytes()
    with pytest.raises(ModuleError, match="'c' is unknown"):
        target.copy_from(Parameters({"a/kernel": (2, 3), "a/bias": (3,), "b": (), "c": (1,)}))


@pytest.mark.parametrize("through", ["copy", "pickle"])
def test_copies_keep_views_and_vector_together(through: str) -> None:
    parameters = example()
    other = (
        copy.deepcopy(parameters) if through == "copy" else pickle.loads(pickle.dumps(parameters))
    )
    other.views["a/bias"][0] = 77.0
    assert other.flat[6] == 77.0
    assert parameters.flat[6] == 6.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_begins_where_kernels_like_it(dtype: type[np.floating[Any]]) -> None:
    kept = [Parameters({"a": (size,), "b": (3, 5)}, dtype=dtype) for size in range(1, 40)]
    for parameters in kept:
        assert parameters.flat.ctypes.data % 64 == 0
        assert not parameters.flat.any()
        assert parameters.zeros_like().flat.ctypes.data % 64 == 0

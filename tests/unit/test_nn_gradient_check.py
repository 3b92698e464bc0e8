"""The checker of gradients is itself checked: it must see what is wrong."""

import numpy as np
import pytest

from trainer.testing.checks import gradient_check


def cubes(x):
    return float((x**3).sum())


POINT = np.array([[0.5, -1.0], [2.0, 1e-3]])


def test_right_gradient_passes():
    assert gradient_check(cubes, 3.0 * POINT**2, POINT) < 1e-6


def test_one_wrong_number_is_named():
    wrong = 3.0 * POINT**2
    wrong[1, 0] *= 1.001
    with pytest.raises(AssertionError, match=r"index \(1, 0\).*1 of 4 numbers"):
        gradient_check(cubes, wrong, POINT)


def test_gradient_that_is_small_as_a_whole_is_still_checked():
    with pytest.raises(AssertionError, match="relative error"):
        gradient_check(lambda x: 1e-9 * cubes(x), np.zeros((2, 2)), POINT)


def test_nan_is_wrong():
    wrong = 3.0 * POINT**2
    wrong[0, 0] = np.nan
    with pytest.raises(AssertionError, match=r"index \(0, 0\)"):
        gradient_check(cubes, wrong, POINT)


def test_function_that_does_not_depend_on_x_is_no_proof():
    with pytest.raises(AssertionError, match="nothing was checked"):
        gradient_check(lambda x: 1.0, np.zeros((2, 2)), POINT)


def test_float32_is_refused():
    with pytest.raises(TypeError, match="float64"):
        gradient_check(cubes, POINT, POINT.astype(np.float32))

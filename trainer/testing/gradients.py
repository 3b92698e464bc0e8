"""A check for gradients written by hand: compare them with central differences.

Use it for every `backward` of your own modules, in float64, where differences are exact to some ten
digits:

    def loss(flat):
        module.parameters.flat[:] = flat
        return float((module.forward_train(batch)["vf_preds"] * weights).sum())

    loss(x)
    module.backward(d_action_dist_inputs=zeros, d_vf_preds=weights)
    gradient_check(loss, module.gradients.flat, x)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainer.types import Array


def central_differences(function: Callable[[Array], float], x: Array, *, step: float) -> Array:
    """The derivatives (f(x + h) - f(x - h)) / 2h for every number of x.

    Args:
        function: takes an array of x's shape.
        x: float64, any shape.
        step: h, relative to max(1, |number|).
    """
    derivatives = np.empty_like(x)
    for index in np.ndindex(x.shape):
        distance = step * max(1.0, abs(float(x[index])))
        higher, lower = x.copy(), x.copy()
        higher[index] += distance
        lower[index] -= distance
        derivatives[index] = (function(higher) - function(lower)) / (2.0 * distance)
    return derivatives


def gradient_check(
    function: Callable[[Array], float],
    gradient: Array,
    x: Array,
    *,
    relative_tolerance: float = 1e-6,
    floor: float = 1e-3,
    step: float = 1e-5,
) -> float:
    """Compares a gradient with central differences, number by number.

    The error of a number is relative to its own size, but at least to `floor` times the largest
    derivative: tiny derivatives drown in rounding, yet an absolute tolerance would pass any
    gradient that is small as a whole.

    Args:
        function: the scalar function.
        gradient: what is claimed to be its gradient at x, same shape.
        x: the point, float64. There must be no kink within a step of it.
        relative_tolerance: largest error allowed.
        floor: smallest size that errors are relative to, as a fraction of the largest derivative.
        step: see `central_differences`.

    Returns:
        The largest relative error.

    Raises:
        TypeError: x or the gradient is not float64.
        AssertionError: an error is too large, or all derivatives are 0, so that nothing was
            checked.
    """
    if x.dtype != np.float64 or gradient.dtype != np.float64:
        raise TypeError(
            f"A gradient check needs float64; x is {x.dtype}, the gradient {gradient.dtype}. "
            "Differences in fewer digits say nothing. Build the module with `dtype=np.float64`."
        )
    claimed = gradient.copy()
    expected = central_differences(function, x, step=step)
    largest = float(np.abs(expected).max())
    if largest == 0.0:
        raise AssertionError(
            "All central differences are 0: the function does not depend on x here, so nothing "
            "was checked. Choose another point."
        )
    sizes = np.maximum(np.maximum(np.abs(expected), np.abs(claimed)), floor * largest)
    errors = np.abs(claimed - expected) / sizes
    worst = np.unravel_index(int(np.argmax(np.nan_to_num(errors, nan=np.inf))), errors.shape)
    if not errors[worst] <= relative_tolerance:
        where = tuple(int(i) for i in worst)
        raise AssertionError(
            f"The gradient at index {where} is {claimed[worst]:.10g}, but central differences give "
            f"{expected[worst]:.10g}: relative error {errors[worst]:.2g} > "
            f"{relative_tolerance:.2g}. {int((~(errors <= relative_tolerance)).sum())} of "
            f"{errors.size} numbers are wrong."
        )
    return float(errors[worst])

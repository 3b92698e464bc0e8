"""Sums of floats that do not depend on how the numbers were grouped or ordered.

Adding floats rounds after every step, so three processes that add up their own numbers first get
another total than one process that adds all of them. Here a sum is kept as *partials*: a short list
of floats whose sum is exactly the sum of everything added so far. Partials can be merged in any
order, and only reading a total rounds, once.

The list is canonical: the exact sum rounded to a float, what is then still missing rounded to a
float, and so on. Two sums are equal if and only if their partials are equal, hence so are the bytes
of a checkpoint. Most sums need one or two partials, none more than about forty, so memory is
bounded. A sum beyond the range of floats is infinite from then on, whatever follows.

Source: J. R. Shewchuk, "Adaptive precision floating-point arithmetic and fast robust geometric
predicates", Discrete & Computational Geometry 18 (1997), as implemented by `math.fsum`; ours is the
use of its rounded result for peeling off partials, because that runs in C.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

_DOWNSCALING: Final = 2.0**-70


def rounded_sum(values: Iterable[float]) -> float:
    """The sum of `values`, rounded once (±inf when too large for a float, NaN for inf - inf)."""
    values = values if isinstance(values, Sequence) else list(values)
    try:
        return math.fsum(values)
    except ValueError:  # inf and -inf among the values
        return math.nan
    except OverflowError:
        # Finite values whose running sum left the range of floats. Scaling down loses at most bits
        # that are 2**-70 times the smallest normal float, which no sum near 1e308 can show.
        scaled = math.fsum(value * _DOWNSCALING for value in values)
        return scaled / _DOWNSCALING


def rounded_mean(values: Iterable[float], count: int) -> float:
    """The sum of `values`, rounded once, divided by `count`; NaN without numbers.

    Never -0.0, as no sum is: a sum just below zero may be too small to be divided.

    Args:
        values: the numbers, or partials of their sum.
        count: how many numbers there were.
    """
    return rounded_sum(values) / count + 0.0 if count else math.nan


def exact_partials(values: Iterable[float]) -> list[float]:
    """The canonical partials of a sum: largest first, empty when the sum is zero.

    Args:
        values: floats, or partials of earlier sums, or both. A sum that is not finite has one
        partial.
    """
    remaining = list(values)
    partials: list[float] = []
    while remaining:
        rounded = rounded_sum(remaining)
        if rounded == 0.0:
            break
        partials.append(rounded)
        if not math.isfinite(rounded):
            break
        remaining.append(-rounded)
    return partials

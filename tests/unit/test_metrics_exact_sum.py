"""Sums that do not depend on grouping or order."""

import math
import random
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.metrics.statistic import exact_partials, rounded_sum

FLOATS = st.floats(
    allow_nan=False, allow_infinity=False, width=64, min_value=-1e300, max_value=1e300
)
LISTS = st.lists(FLOATS | st.sampled_from([0.1, 1e16, 1.0, -1e16, 1e-300]), max_size=20)


def test_known_answers():
    assert exact_partials([]) == []
    assert exact_partials([1.0, 2.0]) == [3.0]
    assert exact_partials([0.0, -0.0]) == []
    assert exact_partials([1e16, 1.0]) == [1e16, 1.0]
    assert rounded_sum([1e16, 1.0, -1e16]) == 1.0


def test_plain_addition_depends_on_grouping():
    """Negative control: what the partials are for."""
    assert (1e16 + 1.0) - 1e16 == 0.0
    assert (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)


@settings(max_examples=150)
@given(values=LISTS)
def test_partials_hold_the_exact_sum(values):
    partials = exact_partials(values)
    assert sum(map(Fraction, partials)) == sum(map(Fraction, values))
    assert all(abs(a) > abs(b) for a, b in pairwise(partials))
    assert len(partials) <= 40


@settings(max_examples=150)
@given(first=LISTS, second=LISTS, third=LISTS, seed=st.integers(0, 99))
def test_merging_is_associative_and_commutative(first, second, third, seed):
    shuffled = [*first, *second, *third]
    random.Random(seed).shuffle(shuffled)
    whole = exact_partials(shuffled)
    parts = [exact_partials(values) for values in (first, second, third)]
    assert exact_partials(exact_partials(parts[0] + parts[1]) + parts[2]) == whole
    assert exact_partials(parts[2] + exact_partials(parts[1] + parts[0])) == whole


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([1e308, 1e308, -1e308], 1e308),
    ],
)
def test_sums_at_the_end_of_the_range(values, expected):
    assert rounded_sum(values) == expected


@pytest.mark.parametrize("values", [[math.inf, -math.inf], [math.nan, 1.0]])
def test_undefined_sums_are_nan(values):
    assert math.isnan(rounded_sum(values))
    assert [math.isnan(partial) for partial in exact_partials(values)] == [True]
    assert math.isnan(rounded_sum([*exact_partials(values), 1.0]))

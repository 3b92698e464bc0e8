"""The one remainder rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.env_runners.messages import share_out


@pytest.mark.parametrize(
    ("total", "num_shares", "expected"),
    [
        (10, 4, [3, 3, 2, 2]),
        (10, 7, [2, 2, 2, 1, 1, 1, 1]),
        (202, 4, [51, 51, 50, 50]),
        (2, 3, [1, 1, 0]),
        (0, 2, [0, 0]),
        (6, 1, [6]),
    ],
)
def test_the_first_ones_take_the_remainder(total, num_shares, expected):
    assert share_out(total, num_shares) == expected


@given(st.integers(0, 10_000), st.integers(1, 100))
def test_nothing_is_lost_and_no_two_shares_differ_by_more_than_one(total, num_shares):
    shares = share_out(total, num_shares)
    assert sum(shares) == total
    assert len(shares) == num_shares
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)

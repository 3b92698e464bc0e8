"""The one remainder rule: slots of a runner, slots of a group and evaluation tickets follow it."""

from __future__ import annotations


def share_out(total: int, num_shares: int) -> list[int]:
    """Splits a number of steps or episodes as evenly as whole numbers allow.

    Everyone gets the whole part, the first ones one of the remainder each: 10 in 4 shares is
    [3, 3, 2, 2].

    Args:
        total: what to split, ≥ 0.
        num_shares: into how many parts, ≥ 1.
    """
    whole, remainder = divmod(total, num_shares)
    return [whole + (index < remainder) for index in range(num_shares)]

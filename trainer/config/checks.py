"""What settings accept: the checks of all arguments, and those of lists and schedules.

A check says nothing about other settings; rules that involve several live in
`trainer.config.rules`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from checkpoints.arguments import (
    Check,
    anything,
    boolean,
    either,
    function,
    integer,
    mapping,
    number,
    one_of,
    optional,
    text,
)

__all__ = [
    "Check",
    "anything",
    "boolean",
    "either",
    "function",
    "integer",
    "is_schedule",
    "mapping",
    "number",
    "one_of",
    "optional",
    "schedule",
    "single_or_list",
    "space",
    "text",
]


def space() -> Check:
    """A gymnasium space."""
    return Check("a gymnasium space", lambda value: isinstance(value, spaces.Space))


def single_or_list(check: Check) -> Check:
    """None, one value, or a list of values that `check` accepts."""

    def accepts(value: Any) -> bool:
        entries = value if isinstance(value, (list, tuple)) else [value]
        return value is None or all(check.accepts(entry) for entry in entries)

    return Check(f"None, {check.expected} or a list of them", accepts)


def is_schedule(value: Any) -> bool:
    """Whether a value is meant as a schedule: a list of pairs, right or wrong."""
    return isinstance(value, (list, tuple))


def schedule(minimum: float | None = None) -> Check:
    """A number, or a piecewise linear schedule over env steps.

    A schedule is a list `[[env_steps, value], ...]` of at least two pairs whose first entry is at 0
    and whose env steps ascend.

    Args:
        minimum: the smallest value allowed, for the number and for every entry.
    """
    constant = number(minimum)

    def accepts(value: Any) -> bool:
        if constant.accepts(value):
            return True
        return is_schedule(value) and _is_ascending(value, constant)

    return Check(
        f"{constant.expected}, or a schedule [[env_steps, value], ...] of at least two pairs "
        "that starts at 0 and ascends",
        accepts,
    )


def _is_ascending(pairs: Sequence[Any], constant: Check) -> bool:
    steps = number(0)
    if len(pairs) < 2:
        return False
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            return False
        if not steps.accepts(pair[0]) or not constant.accepts(pair[1]):
            return False
    starts_at_zero = float(pairs[0][0]) == 0.0
    return starts_at_zero and all(
        earlier[0] < later[0] for earlier, later in itertools.pairwise(pairs)
    )

"""What a setting accepts: a predicate and the words that describe it, always together.

A check says nothing about other settings; rules that involve several live in
`trainer.config.rules`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium import spaces


@dataclasses.dataclass(frozen=True)
class Check:
    """One condition on one value.

    Attributes:
        expected: completes the sentence "expected ...".
        accepts: whether a value fulfils it; never raises.
    """

    expected: str
    accepts: Callable[[Any], bool]


def anything(expected: str = "any value") -> Check:
    """Accepts every value."""
    return Check(expected, lambda _: True)


def boolean() -> Check:
    """True or False; 0 and 1 are not booleans."""
    return Check("True or False", lambda value: isinstance(value, bool))


def integer(minimum: int | None = None) -> Check:
    """An int (NumPy's too, no bool), at least `minimum`."""
    bound = "" if minimum is None else f" ≥ {minimum}"

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            return False
        return minimum is None or int(value) >= minimum

    return Check(f"an int{bound}", accepts)


def number(
    minimum: float | None = None,
    *,
    maximum: float | None = None,
    above: float | None = None,
    infinite: bool = False,
) -> Check:
    """A real number (no bool, no NaN) within bounds.

    Args:
        minimum: the smallest value allowed.
        maximum: the largest value allowed.
        above: the value must be larger than this.
        infinite: whether infinity is allowed.
    """
    bounds = [
        f" {sign} {bound:g}"
        for sign, bound in (("≥", minimum), (">", above), ("≤", maximum))
        if bound is not None
    ]

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        try:
            real = float(value)
        except OverflowError:  # an integer beyond all floats
            return False
        if math.isnan(real) or (math.isinf(real) and not infinite):
            return False
        within = (minimum is None or real >= minimum) and (maximum is None or real <= maximum)
        return within and (above is None or real > above)

    return Check("a number" + " and".join(bounds), accepts)


def text() -> Check:
    """A string that is not empty."""
    return Check("a string", lambda value: isinstance(value, str) and bool(value))


def one_of(*choices: str | int | float | bool | None) -> Check:
    """One of a few values, by type and value."""
    names = ", ".join(repr(choice) for choice in choices)

    def accepts(value: Any) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in choices)

    return Check(f"one of {names}", accepts)


def function() -> Check:
    """Anything that can be called."""
    return Check("a callable", callable)


def space() -> Check:
    """A gymnasium space."""
    return Check("a gymnasium space", lambda value: isinstance(value, spaces.Space))


def mapping(of: Check | None = None) -> Check:
    """A dict; with `of`, every value must fulfil it."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        return of is None or all(of.accepts(entry) for entry in value.values())

    return Check("a dict" if of is None else f"a dict of {of.expected}", accepts)


def optional(check: Check) -> Check:
    """None, or what `check` accepts."""
    return Check(f"None or {check.expected}", lambda value: value is None or check.accepts(value))


def either(*checks: Check) -> Check:
    """What any of the checks accepts."""
    return Check(
        " or ".join(check.expected for check in checks),
        lambda value: any(check.accepts(value) for check in checks),
    )


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

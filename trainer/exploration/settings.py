"""Checks of the arguments that strategies take, and the schedule most of them have."""

from __future__ import annotations

import math
import numbers
from typing import Any

from trainer.errors import ConfigError
from trainer.exploration.schedules import ExplorationSchedule, PiecewiseSchedule, read_schedule


def checked_number(
    value: Any, *, name: str, minimum: float = 0.0, maximum: float = math.inf, above: bool = False
) -> float:
    """A finite number within bounds.

    Args:
        value: what the user gave.
        name: what the argument is called, for errors.
        minimum: the smallest value allowed.
        maximum: the largest value allowed.
        above: the value must be larger than `minimum`.

    Raises:
        ConfigError: it is not.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan
    is_within = minimum < number <= maximum or (number == minimum and not above)
    if not (math.isfinite(number) and is_within):
        sign = ">" if above else "≥"
        upper = "" if math.isinf(maximum) else f" and ≤ {maximum:g}"
        raise ConfigError(f"`{name}={value!r}`: expected a number {sign} {minimum:g}{upper}.")
    return number


def checked_count(value: Any, *, name: str, minimum: int = 0) -> int:
    """A whole number of at least `minimum`.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < minimum:
        raise ConfigError(f"`{name}={value!r}`: expected an int ≥ {minimum}.")
    return int(value)


def ramp(initial: float, final: float, *, start: int, length: int) -> ExplorationSchedule:
    """`initial` until `start`, then a straight line that reaches `final` after `length` steps."""
    points = [(0.0, initial)]
    if start > 0:
        points.append((float(start), initial))
    if length > 0:
        points.append((float(start + length), final))
    return PiecewiseSchedule(points, outside_value=final)


def schedule_or_ramp(
    setting: Any, initial: float, final: float, *, start: int, length: int, name: str
) -> ExplorationSchedule:
    """The user's own schedule if there is one, else the ramp.

    Raises:
        ConfigError: the setting is no schedule.
    """
    if setting is None:
        return ramp(initial, final, start=start, length=length)
    return read_schedule(setting, name=name)

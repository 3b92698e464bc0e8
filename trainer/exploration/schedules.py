"""Schedules by RLlib's names: values as pure functions of the timestep.

`trainer.nn.optimizers.Schedule` is the one that optimisers use; these are what users write in an
`exploration_config`, as objects or as `{"type": "PiecewiseSchedule", ...}`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from trainer.errors import ConfigError, UnknownSettingError

# ---- nearest name
#
# The nearest valid spelling of a name that nobody knows.


def hint(name: str, candidates: Iterable[str]) -> str:
    """The words " Did you mean …?", or nothing if no candidate is similar."""
    lowered = {candidate.lower(): candidate for candidate in sorted(candidates)}
    matches = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f" Did you mean {lowered[matches[0]]!r}?" if matches else ""


# ---- schedules

# ---- schedules


class ExplorationSchedule(ABC):
    """A value as a function of the env steps sampled so far; it has no state."""

    @abstractmethod
    def value(self, t: float) -> float:
        """The value at timestep t ≥ 0."""

    def __call__(self, t: float) -> float:
        """The same as `value`."""
        return self.value(t)


@dataclass(frozen=True, init=False)
class ConstantSchedule(ExplorationSchedule):
    """Always the same value: `ConstantSchedule(0.1)` or `ConstantSchedule(value=0.1)`.

    Attributes:
        constant: the value; `value` is the method, as in RLlib.
    """

    constant: float

    def __init__(self, value: float) -> None:
        object.__setattr__(self, "constant", value)

    def value(self, t: float) -> float:
        """The constant."""
        del t
        return self.constant


@dataclass(frozen=True)
class PolynomialSchedule(ExplorationSchedule):
    """From `initial_p` to `final_p` over `schedule_timesteps`, then constant.

    value(t) = final_p + (initial_p - final_p) · (1 - t / schedule_timesteps)^power.
    """

    schedule_timesteps: float
    final_p: float
    initial_p: float = 1.0
    power: float = 2.0

    def __post_init__(self) -> None:
        _require_positive(type(self).__name__, self.schedule_timesteps)

    def value(self, t: float) -> float:
        """See the class."""
        left = 1.0 - min(t, self.schedule_timesteps) / self.schedule_timesteps
        return float(self.final_p + (self.initial_p - self.final_p) * left**self.power)


@dataclass(frozen=True)
class LinearSchedule(ExplorationSchedule):
    """A straight line from `initial_p` to `final_p` over `schedule_timesteps`, then constant."""

    schedule_timesteps: float
    final_p: float
    initial_p: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(type(self).__name__, self.schedule_timesteps)

    def value(self, t: float) -> float:
        """See the class."""
        share = min(t, self.schedule_timesteps) / self.schedule_timesteps
        return self.initial_p + share * (self.final_p - self.initial_p)


@dataclass(frozen=True)
class ExponentialSchedule(ExplorationSchedule):
    """value(t) = initial_p · decay_rate^(t / schedule_timesteps)."""

    schedule_timesteps: float
    initial_p: float = 1.0
    decay_rate: float = 0.1

    def __post_init__(self) -> None:
        _require_positive(type(self).__name__, self.schedule_timesteps)

    def value(self, t: float) -> float:
        """See the class."""
        return float(self.initial_p * self.decay_rate ** (t / self.schedule_timesteps))


@dataclass(frozen=True)
class PiecewiseSchedule(ExplorationSchedule):
    """Straight lines between points.

    Attributes:
        endpoints: at least one pair (timestep, value), with ascending timesteps.
        outside_value: before the first point and from the last one on; None takes the value of the
            nearest point.
    """

    endpoints: Sequence[Sequence[float]]
    outside_value: float | None = None

    def __post_init__(self) -> None:
        try:
            points = [(float(step), float(value)) for step, value in self.endpoints]
        except (TypeError, ValueError) as cause:
            raise ConfigError(
                f"endpoints={self.endpoints!r}: expected a list of (timestep, value) pairs, such "
                "as [(0, 1.0), (10_000, 0.05)]."
            ) from cause
        if not points or not all(math.isfinite(n) for point in points for n in point):
            raise ConfigError(f"endpoints={self.endpoints!r}: give one pair or more, all finite.")
        if any(later[0] <= earlier[0] for earlier, later in pairwise(points)):
            raise ConfigError(
                f"endpoints={self.endpoints!r}: the timesteps do not ascend, so the order of the "
                "values is unclear. Sort the pairs, and give each timestep once."
            )
        object.__setattr__(self, "endpoints", tuple(points))

    def value(self, t: float) -> float:
        """See the class."""
        points = self.endpoints
        for (start, first), (stop, second) in pairwise(points):
            if start <= t < stop:
                return first + (t - start) / (stop - start) * (second - first)
        if self.outside_value is not None:
            return self.outside_value
        return points[0][1] if t < points[0][0] else points[-1][1]


SCHEDULES: Final[Mapping[str, type[ExplorationSchedule]]] = MappingProxyType(
    {
        schedule.__name__: schedule
        for schedule in (
            ConstantSchedule,
            PiecewiseSchedule,
            LinearSchedule,
            PolynomialSchedule,
            ExponentialSchedule,
        )
    }
)
"""Every schedule by its name."""

_OTHER_NAMES: Final = MappingProxyType({"constant": "value"})
_WITHOUT_MEANING: Final = frozenset({"framework", "interpolation"})


def read_schedule(setting: Any, *, name: str) -> ExplorationSchedule:
    """The schedule that a user wrote.

    Args:
        setting: a number; a list of (timestep, value) pairs; a schedule; or `{"type": name,
            arguments}` with a name of `SCHEDULES` (a dotted path that ends in one will do).
        name: what the setting is called, for errors.

    Raises:
        ConfigError: it is none of these, or an argument is wrong or unknown.
    """
    if isinstance(setting, ExplorationSchedule):
        return setting
    if isinstance(setting, int | float) and not isinstance(setting, bool):
        return ConstantSchedule(float(setting))
    try:
        if isinstance(setting, Mapping):
            return _from_config(setting, name=name)
        if isinstance(setting, list | tuple):
            return PiecewiseSchedule(setting)
    except UnknownSettingError:
        raise
    except (ConfigError, TypeError) as cause:
        raise ConfigError(f"`{name}`: {cause}") from cause
    raise ConfigError(
        f"`{name}={setting!r}` is no schedule. Give a number, a list of (timestep, value) pairs, "
        f'or a dict such as {{"type": "PiecewiseSchedule", "endpoints": [(0, 1.0), (10_000, 0.1)]}}'
        f"; the types are {', '.join(SCHEDULES)}."
    )


def _from_config(config: Mapping[str, Any], *, name: str) -> ExplorationSchedule:
    arguments = dict(config)
    kind = arguments.pop("type", "PiecewiseSchedule")
    short = kind.rpartition(".")[2] if isinstance(kind, str) else getattr(kind, "__name__", "")
    if short not in SCHEDULES:
        raise UnknownSettingError(
            f"`{name}`: there is no schedule {kind!r}.{hint(short, SCHEDULES)} Give one of "
            f"{', '.join(SCHEDULES)}."
        )
    chosen = SCHEDULES[short]
    known = list(inspect.signature(chosen).parameters)
    given = {
        key if key in known else _OTHER_NAMES.get(key, key): value
        for key, value in arguments.items()
        if key not in _WITHOUT_MEANING
    }
    unknown = [key for key in given if key not in known]
    if unknown:
        raise UnknownSettingError(
            f"`{name}`: {short} has no argument {unknown[0]!r}.{hint(unknown[0], known)} It takes "
            f"{', '.join(known)}."
        )
    return chosen(**given)


def _require_positive(name: str, steps: float) -> None:
    if not (steps > 0 and math.isfinite(steps)):
        raise ConfigError(f"{name}(schedule_timesteps={steps!r}): expected a number > 0.")


# ---- settings
#
# Checks of the arguments that strategies take, and the schedule most of them have.


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

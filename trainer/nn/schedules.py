"""Values that change with training: a constant, or straight lines between given points."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer.errors import ConfigError

ScheduleSetting = float | Sequence[Sequence[float]]
"""A number, or `[[env steps, value], ...]`."""


@dataclass(frozen=True)
class Schedule:
    """A value as a function of the env steps so far: linear between points, then constant.

    It has no state: the same number of steps always gives the same value, also after a restart.

    Attributes:
        steps: the env steps of the points, ascending from 0.
        values: the value at each point.
    """

    steps: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def from_setting(cls, setting: ScheduleSetting, *, name: str) -> Schedule:
        """Reads a setting as users write it.

        Args:
            setting: a number, or at least two pairs `[env steps, value]`, the first at 0,
                ascending.
            name: what the setting is called, for errors.

        Raises:
            ConfigError: it is neither, or a number in it is not finite.
        """
        if isinstance(setting, int | float):
            _require_finite([setting], name=name)
            return cls((0.0,), (float(setting),))
        try:
            points = [(float(steps), float(value)) for steps, value in setting]
        except (TypeError, ValueError) as cause:
            raise ConfigError(
                f"`{name}={setting!r}` is neither a number nor a list of [env steps, value] pairs. "
                f"Write e.g. `{name}=[[0, 1e-3], [1_000_000, 1e-4]]`."
            ) from cause
        _require_finite([number for point in points for number in point], name=name)
        steps, values = [point[0] for point in points], [point[1] for point in points]
        _require_ascending(steps, name=name)
        return cls(tuple(steps), tuple(values))

    def value_at(self, num_env_steps: int) -> float:
        """The value after that many env steps (≥ 0) of the whole run."""
        after = bisect_right(self.steps, num_env_steps)
        if after == len(self.steps):
            return self.values[-1]
        start, stop = self.steps[after - 1], self.steps[after]
        fraction = (num_env_steps - start) / (stop - start)
        return self.values[after - 1] + fraction * (self.values[after] - self.values[after - 1])


def _require_finite(numbers: Sequence[float], *, name: str) -> None:
    bad = [number for number in numbers if not math.isfinite(number)]
    if bad:
        raise ConfigError(
            f"`{name}` holds {bad}: a value that is not finite would spread to every weight. Give "
            "finite numbers."
        )


def _require_ascending(steps: Sequence[float], *, name: str) -> None:
    if len(steps) < 2:
        raise ConfigError(
            f"`{name}` as a list has {len(steps)} point(s), but a line needs two. Write a plain "
            "number for a constant value, or at least `[[0, first], [env steps, second]]`."
        )
    if steps[0] != 0.0:
        raise ConfigError(
            f"`{name}` starts at {steps[0]:g} env steps, so its value before is unknown. Let the "
            "first pair be `[0, value]`."
        )
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ConfigError(
            f"`{name}` has points at {[f'{step:g}' for step in steps]} env steps, which do not "
            "ascend, so the order of its values is unclear. Sort the pairs, and give each number "
            "of steps once."
        )

"""Values over env steps."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.errors import ConfigError
from trainer.nn import Schedule


def test_number_is_constant() -> None:
    schedule = Schedule.from_setting(0.25, name="lr")
    assert schedule.value_at(0) == schedule.value_at(10**9) == 0.25


def test_points_are_joined_by_lines_and_the_last_value_stays() -> None:
    schedule = Schedule.from_setting([[0, 1.0], [100, 0.5], [300, 0.1]], name="lr")
    values = [schedule.value_at(steps) for steps in (0, 50, 100, 200, 300, 10_000)]
    assert values == pytest.approx([1.0, 0.75, 0.5, 0.3, 0.1, 0.1])


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ([[10, 1.0], [20, 0.5]], "starts at 10"),
        ([[0, 1.0]], "line needs two"),
        ([], "line needs two"),
        ([[0, 1.0], [20, 0.5], [20, 0.1]], "do not ascend"),
        ([[0, 1.0], [20, float("nan")]], "not finite"),
        (float("inf"), "not finite"),
        ([0, 1.0], "neither a number nor"),
        ("fast", "neither a number nor"),
        (None, "neither a number nor"),
    ],
)
def test_impossible_settings_are_named(setting: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        Schedule.from_setting(setting, name="lr")
    assert "`lr" in str(caught.value)

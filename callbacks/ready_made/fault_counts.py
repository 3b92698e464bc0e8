"""What ready-made callbacks count in results when something failed that did not end the run.

All callbacks of a kind count together, under `fault_tolerance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NUM_FAILED_SAVES: Final = "num_failed_saves_lifetime"
"""Checkpoints that could not be saved."""

NUM_LOST_ROWS: Final = "num_lost_rows_lifetime"
"""Results that a logger could not write."""


def count_fault(result: Mapping[str, Any], name: str, number: int) -> None:
    """Adds to a count of a result; one whose section a callback replaced is left alone.

    Args:
        result: what `train()` is about to return; changed in place.
        name: which count.
        number: how many more; 0 sees to it that the count is there.
    """
    section = result.get("fault_tolerance")
    if isinstance(section, dict):
        section[name] = section.get(name, 0) + number

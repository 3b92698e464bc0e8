"""Medians with their spread, and ratios.

Ratios are taken pair by pair, so that they hold while the machine's speed drifts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """Several measurements of one thing.

    Attributes:
        values: the measurements, in the order in which they were made.
        unit: what they are measured in.
    """

    values: Sequence[float]
    unit: str

    @property
    def median(self) -> float:
        """The middle one: what to quote."""
        return statistics.median(self.values)

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"{self.median:,.4g} {self.unit} ({low:,.4g} – {high:,.4g}, n={len(self.values)})"


def ratio(ours: Figure, theirs: Figure) -> Figure:
    """Ours divided by theirs, measurement by measurement."""
    pairs = zip(ours.values, theirs.values, strict=True)
    return Figure([mine / other for mine, other in pairs], "×")


def alternate(
    ours: Callable[[], float], theirs: Callable[[], float], *, unit: str, repeats: int
) -> tuple[Figure, Figure]:
    """Measures two things in turn, after one round that does not count.

    Args:
        ours, theirs: each makes one measurement and returns it.
        unit: of both.
        repeats: how often each is measured.
    """
    ours()
    theirs()
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    return Figure([a for a, _ in pairs], unit), Figure([b for _, b in pairs], unit)


def report(name: str, figure: Figure, *, target: str = "") -> None:
    """Prints one row."""
    print(f"  {name:<58}{figure}{f'   target {target}' if target else ''}", flush=True)

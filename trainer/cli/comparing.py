"""How two checkpoints differ, as plain data for `--json`, and as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from checkpoints import CheckpointDifference, ComponentDifference, Difference
from checkpoints.manifest import CODE_FILE
from trainer.cli.output import on_one_line

_SHORT: Final = 3
"""Differences of a component that are shown unless all are wanted."""


def comparison(difference: CheckpointDifference) -> dict[str, Any]:
    """Everything that `diff` shows, as JSON data."""
    return {
        "equal": difference.is_equal,
        "components": {
            name: {
                "status": component.status,
                "num_bytes": list(component.num_bytes),
                "differences": [_plain(item) for item in component.differences],
            }
            for name, component in difference.components.items()
        },
        "metadata": [_plain(item) for item in difference.metadata],
    }


def comparison_lines(difference: CheckpointDifference, *, show_all: bool) -> list[str]:
    """The differences as lines of text, aligned: a line per component, then what differs."""
    lines = []
    for name, component in difference.components.items():
        lines.append(f"  {name:<28}{component.status:<10}{_summary(component)}".rstrip())
        lines += _difference_lines(component.differences, show_all=show_all)
    if CODE_FILE in difference.components:
        lines.append(f"  {CODE_FILE} does not count: equal code may be pickled to other bytes")
    if difference.metadata:
        lines.append("  metadata (does not count):")
        lines += _difference_lines(difference.metadata, show_all=show_all)
    return lines


def _summary(component: ComponentDifference) -> str:
    found = component.differences
    if not found:
        return ""
    count = f"{len(found):,} places" if len(found) > 1 else "1 place"
    distances = [item for item in found if item.max_abs is not None]
    if not distances:
        return count
    largest = max(distances, key=_size)
    return on_one_line(f"{count}, at most {largest.max_abs:.6g} at {largest.path or 'the whole'}")


def _size(item: Difference) -> float:
    """For ordering: what became NaN, or ceased to be, differs most."""
    distance = item.max_abs
    return -1.0 if distance is None else math.inf if math.isnan(distance) else distance


def _difference_lines(found: Sequence[Difference], *, show_all: bool) -> Iterator[str]:
    shown = found if show_all else found[:_SHORT]
    for item in shown:
        distance = "" if item.max_abs is None else f"   |difference| {item.max_abs:.6g}"
        yield "    " + on_one_line(f"{item.path or '(whole)'}: {item.text}{distance}")
    if len(shown) < len(found):
        yield f"    and {len(found) - len(shown):,} more (--all shows them)"


def _plain(item: Difference) -> dict[str, Any]:
    fields = dataclasses.asdict(item)
    if item.max_abs is not None and not math.isfinite(item.max_abs):
        fields["max_abs"] = str(item.max_abs)  # JSON has no such numbers
    return fields

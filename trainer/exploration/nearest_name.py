"""The nearest valid spelling of a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: str, candidates: Iterable[str]) -> str:
    """The words " Did you mean …?", or nothing if no candidate is similar."""
    lowered = {candidate.lower(): candidate for candidate in sorted(candidates)}
    matches = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f" Did you mean {lowered[matches[0]]!r}?" if matches else ""

"""The known name that an unknown one was probably meant to be, for the errors of all packages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Final

IN_BRACKETS: Final = " (did you mean {}?)"
"""The form of a hint in the middle of a sentence, behind the unknown name."""


def nearest_names(
    name: object, known: Iterable[Any], *, most: int = 1, similarity: float = 0.6
) -> list[Any]:
    """Return the known names that look most like `name`, the nearest first.

    Case counts only between names that differ in nothing else.

    Args:
        name: what was written; what is no text counts as its text.
        known: what could have been meant.
        most: how many names at the most.
        similarity: how similar a name has to be: 0 anything, 1 equal but for case.
    """
    written = str(name)
    by_text: dict[str, dict[str, Any]] = {}  # without case: as it is written: the name
    for one in sorted(known, key=str):
        by_text.setdefault(str(one).lower(), {})[str(one)] = one
    texts = difflib.get_close_matches(written.lower(), by_text, n=most, cutoff=similarity)

    def unlikeness(text: str) -> float:
        return -difflib.SequenceMatcher(None, written, text).ratio()

    near = [by_text[text][one] for text in texts for one in sorted(by_text[text], key=unlikeness)]
    return near[:most]


def nearest(name: object, known: Iterable[Any], *, similarity: float = 0.6) -> Any:
    """Return the known name that looks most like `name`, or None when none looks similar."""
    return next(iter(nearest_names(name, known, similarity=similarity)), None)


def did_you_mean(
    name: object,
    known: Iterable[Any],
    form: str = " Did you mean {}?",
    *,
    most: int = 1,
    similarity: float = 0.6,
) -> str:
    """Return the question for what was meant, or an empty string when nothing looks similar.

    The names go where the form has `{}`; for the other arguments see `nearest_names`.
    """
    names = nearest_names(name, known, most=most, similarity=similarity)
    return form.format(", ".join(map(repr, names))) if names else ""

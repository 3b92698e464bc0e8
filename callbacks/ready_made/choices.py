"""Checks of what users give to ready-made callbacks, as sentences: all problems at once."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from callbacks.errors import CallbackConfigError
from callbacks.ready_made.metric_values import as_number
from checkpoints import CheckpointError
from checkpoints.listing import resolve_path


def raise_if_any(user: str, problems: Collection[str]) -> None:
    """Raises all problems of one callback at once.

    Args:
        user: the name of the callback.
        problems: one sentence each.

    Raises:
        CallbackConfigError: there is one.
    """
    if problems:
        raise CallbackConfigError([f"{user}: {problem}" for problem in problems])


def is_word(value: Any, word: str) -> bool:
    """Whether a value, which may be anything, is this word."""
    return isinstance(value, str) and value == word


def choice_problems(name: str, value: Any, choices: Collection[str]) -> list[str]:
    """One of some words."""
    if isinstance(value, str) and value in choices:
        return []
    return [f"`{name}={value!r}` must be one of {', '.join(map(repr, choices))}"]


def count_problems(name: str, value: Any, *, none: str = "") -> list[str]:
    """An int of at least 1, or None where `none` says what that means."""
    if value is None and none:
        return []
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return []
    return [f"`{name}={value!r}` must be an int of at least 1{_or_none(none)}"]


def number_problems(
    name: str, value: Any, *, above: float = -math.inf, none: str = ""
) -> list[str]:
    """A finite number above a bound, or None where `none` says what that means."""
    if value is None and none:
        return []
    number = as_number(value)
    if number is not None and math.isfinite(number) and number > above:
        return []
    bound = "" if above == -math.inf else f" above {above:g}"
    return [f"`{name}={value!r}` must be a finite number{bound}{_or_none(none)}"]


def directory_problems(path: Any) -> list[str]:
    """The path of a directory, as far as can be seen now; nothing is made."""
    try:
        resolved = resolve_path(path)
        is_file = resolved.exists() and not resolved.is_dir()
    except (CheckpointError, TypeError, ValueError, OSError, RuntimeError) as error:
        return [f"`directory={path!r}` is no path of a directory: {error}"]
    if is_file:
        return [f"`directory={str(path)!r}` is a file; expected a directory, or a new path"]
    return []


def _or_none(none: str) -> str:
    return f", or None for {none}" if none else ""

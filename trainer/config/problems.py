"""How problems with settings are told: all of one call at once, each with what to do about it."""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

from trainer.errors import ConfigError, UnknownSettingError

_MOST_PRINTED_BITS = 1024
_LONGEST_VALUE_CHARS = 120


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        what: the setting and its value, e.g. "`gamma=2.0`".
        expected: what was expected or why it matters, a sentence.
        advice: what to do, a sentence; empty where `expected` says it all.
        settings: the settings involved; rules about them are not checked any more.
        unknown: whether the problem is a name that nobody knows.
    """

    what: str
    expected: str
    advice: str = ""
    settings: tuple[str, ...] = ()
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.expected}" + (f" {self.advice}" if self.advice else "")


class _Printer(reprlib.Repr):
    """Shortens values; of integers that Python does not print, says how long they are."""

    def repr_int(self, value: int, level: int) -> str:
        """See `reprlib.Repr`."""
        if value.bit_length() > _MOST_PRINTED_BITS:
            return f"<int of {value.bit_length():,} bits>"
        return super().repr_int(value, level)


def assignment(name: str, value: Any) -> str:
    """`name=value` as a user would write it, with long values shortened."""
    printer = _Printer()
    printer.maxstring = printer.maxother = _LONGEST_VALUE_CHARS
    return f"`{name}={printer.repr(value)}`"


def nearest(name: str, candidates: Iterable[str], *, similarity: float = 0.6) -> str | None:
    """The candidate that looks most like `name`, or None when none looks similar.

    Args:
        name: what was written.
        candidates: what could have been meant.
        similarity: how similar a candidate has to be: 0 anything, 1 equal but for case.
    """
    lowered = {candidate.lower(): candidate for candidate in sorted(candidates)}
    matches = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=similarity)
    return lowered[matches[0]] if matches else None


def raise_problems(where: str, problems: Sequence[Problem]) -> None:
    """Raise one error that lists all problems; return when there are none.

    Args:
        where: the config or the call that is wrong, e.g. "PPOConfig.training()".
        problems: what was found.

    Raises:
        UnknownSettingError: at least one of the problems is an unknown name.
        ConfigError: there are other problems only.
    """
    if not problems:
        return
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"{where}: {count}"]
    lines += [f"  {position}. {problem}" for position, problem in enumerate(problems, start=1)]
    unknown = any(problem.unknown for problem in problems)
    raise (UnknownSettingError if unknown else ConfigError)("\n".join(lines))

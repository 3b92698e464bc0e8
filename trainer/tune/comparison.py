"""What the code of today answers, held against what a journal tells.

When an experiment is restored, stoppers, scheduler and searcher are told all that happened once
more. What they answer is not done, because what they answered then stands in the journal. If it is
something else, code or arguments of theirs are others today, and the experiment is no longer a
function of its plan.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from trainer.tune.journal_entries import CloneEntry, Consequence, DecideEntry, EndEntry
from trainer_toolkit.trees import same


class Comparison:
    """Counts answers that differ from the journal, and keeps the first."""

    def __init__(self) -> None:
        self._num_differences = 0
        self._first = ""

    @property
    def difference(self) -> str | None:
        """A sentence about what was decided otherwise than recorded; None if nothing was."""
        if not self._num_differences:
            return None
        return (
            f"{self._num_differences} decisions of the journal were not repeated by the code of "
            f"today, the first: {self._first}"
        )

    def compare(
        self,
        answers: Iterable[Consequence],
        recorded: Iterable[Consequence],
        *,
        has_other_criteria: bool,
    ) -> None:
        """Notes a move of which the code of today would have made another one.

        Args:
            answers: what stoppers and scheduler say today, of trials that were not over.
            recorded: the consequences of the move.
            has_other_criteria: the stop criteria were replaced later, so today's did not decide.
        """
        today, before = (
            Counter(json.dumps(each.to_plain()) for each in entries if _is_compared(each))
            for entries in (
                _without_criteria(answers, has_other_criteria),
                _without_criteria(recorded, has_other_criteria),
            )
        )
        if today != before:
            hint = ""
            if any('"by": "criterion"' in text for text in (*today, *before)):
                # A function has no arguments that tell it from another one.
                hint = ". A function given as `stop` counts as another one if it has another name"
            now, then = _shown(today - before), _shown(before - today)
            self._differs(f"{now} was decided, recorded is {then}{hint}")

    def compare_suggestion(
        self,
        number: int,
        recorded: Mapping[str, Any] | str | None,
        today: Mapping[str, Any] | str | None,
    ) -> None:
        """Notes an answer of the searcher that is another one.

        An answer is the encoded params of a trial, `Searcher.FINISHED`, or None: not now.
        """
        if not same(recorded, today):
            self._differs(
                f"asked for trial {number:05d}, the searcher gave {today!s:.300}, recorded is "
                f"{recorded!s:.300}"
            )

    def _differs(self, what: str) -> None:
        self._num_differences += 1
        self._first = self._first or what


def _is_compared(entry: Consequence) -> bool:
    """Whether an entry follows from rows alone; limits of failures may be others at a restore."""
    if isinstance(entry, EndEntry):
        return entry.by in ("criterion", "scheduler")
    is_pause_or_resume = isinstance(entry, DecideEntry) and entry.action != "retry"
    return is_pause_or_resume or isinstance(entry, CloneEntry)


def _without_criteria(
    entries: Iterable[Consequence], has_other_criteria: bool
) -> Iterable[Consequence]:
    if not has_other_criteria:
        return entries
    return [each for each in entries if not (isinstance(each, EndEntry) and each.by == "criterion")]


def _shown(entries: Iterable[str]) -> str:
    plain = [json.loads(text) for text in entries]
    texts = [
        f"{'stop' if each['event'] == 'end' else each.get('action', each['event'])} "
        f"{each['trial']:05d} ({each.get('reason', '')})"
        for each in plain
    ]
    return "; ".join(texts) or "nothing"

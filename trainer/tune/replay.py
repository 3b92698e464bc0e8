"""Doing once more what a journal tells: its parts, and what was recorded beside what is worked out.

A journal is a sequence of causes, each followed by its consequences (`journal_entries.py`). When an
experiment is restored, the controller is fed one cause after the other and works the consequences
out again; `Recorded` holds those of the journal against them. The recorded ones win, and a
difference is remembered. Only the last cause may lack consequences: the journal was torn there, and
what is worked out is written.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.errors import JournalError
from trainer.tune.journal_entries import (
    AmendEntry,
    DecideEntry,
    Entry,
    StartEntry,
    SuggestEntry,
)
from trainer_toolkit.trees import same


@dataclass(slots=True)
class Session:
    """One cause and what followed from it.

    Attributes:
        cause: None for the start of the experiment.
        consequences: in order; without repairs, which are no events.
        is_last: the journal ends with it, maybe in the middle.
        has_other_criteria: stop criteria were replaced later, so those of today did not decide.
    """

    cause: Entry | None
    consequences: list[Entry] = field(default_factory=list)
    is_last: bool = False
    has_other_criteria: bool = False


def sessions_of(entries: Iterable[Entry], *, has_new_stop: bool = False) -> list[Session]:
    """A journal, without its header, in parts; at least one.

    The header of the journal is left out. With `has_new_stop`, the criteria of today are in force
    from its end on.
    """
    sessions = [Session(None)]
    for entry in entries:
        if entry.is_cause:
            sessions.append(Session(entry))
        elif not (isinstance(entry, StartEntry) and entry.cause == "repaired"):
            sessions[-1].consequences.append(entry)
    sessions[-1].is_last = True
    replaced = has_new_stop
    for session in reversed(sessions):
        session.has_other_criteria = replaced
        replaced = replaced or (
            isinstance(session.cause, AmendEntry) and session.cause.has_new_stop
        )
    return sessions


class Recorded:
    """The consequences of one cause as they stand in the journal; nothing outside of a replay.

    Attributes:
        num_differences: how often something else was worked out than recorded.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._left: deque[Entry] = deque()
        self.num_differences = 0
        self._first_difference = ""

    def open(self, session: Session) -> None:
        """Begins with the consequences of a cause."""
        self._session, self._left = session, deque(session.consequences)

    def close(self) -> None:
        """Ends with them; what is left was not worked out again."""
        if self._left:
            self._differs(f"{self._left[0]} is recorded and was not decided again")
        self._session, self._left = None, deque()

    @property
    def is_replay(self) -> bool:
        """Whether a journal is being replayed."""
        return self._session is not None

    @property
    def is_open_ended(self) -> bool:
        """Whether what is worked out now is new: no replay, or the journal ends here."""
        return self._session is None or (self._session.is_last and not self._left)

    @property
    def has_other_criteria(self) -> bool:
        """Whether the stop criteria of today were not in force yet."""
        return self._session is not None and self._session.has_other_criteria

    @property
    def difference(self) -> str | None:
        """A sentence about what was decided otherwise than recorded; None if nothing was."""
        if not self.num_differences:
            return None
        return (
            f"{self.num_differences} decisions of the journal were not repeated by the code of "
            f"today, the first: {self._first_difference}"
        )

    def _differs(self, what: str) -> None:
        self.num_differences += 1
        self._first_difference = self._first_difference or what

    def lacks(self, entry: Entry) -> bool:
        """Whether a consequence is to be written; takes the recorded one off if it is there."""
        if self._left and _same_entry(self._left[0], entry):
            self._left.popleft()
            return False
        if self.is_open_ended:
            return True
        self._differs(f"{entry} was decided, recorded is {self._left[0] if self._left else None}")
        return False

    def suggestion(self, number: int) -> SuggestEntry | None:
        """The recorded suggestion, if that is what comes next."""
        following = self._left[0] if self._left else None
        is_it = isinstance(following, SuggestEntry) and following.trial == number
        return following if is_it else None  # type: ignore[return-value]

    def refuse_suggestion(self, number: int) -> bool:
        """Whether there was none where the searcher makes one now."""
        if self.is_open_ended:
            return False
        self._differs(f"a suggestion for trial {number:05d} came earlier than recorded")
        return True

    def compare(self, recorded: Mapping[str, Any], again: Mapping[str, Any], number: int) -> None:
        """Notes a suggestion that came out otherwise."""
        if not same(dict(recorded), dict(again)):
            self._differs(f"trial {number:05d} got {dict(recorded)}, now {dict(again)}")

    def decisions(self, moment: str, computed: Sequence[DecideEntry]) -> list[DecideEntry]:
        """The decisions of a moment: those recorded, completed by those worked out at the end."""
        marked = [
            dataclasses.replace(each, moment=moment, num_more=len(computed) - 1 - index)
            for index, each in enumerate(computed)
        ]
        recorded: list[DecideEntry] = []
        for entry in self._left:
            is_next = isinstance(entry, DecideEntry) and entry.moment == moment
            if not is_next or (recorded and not recorded[-1].num_more):
                break
            recorded.append(entry)  # type: ignore[arg-type]
        is_torn = self._session is not None and self._session.is_last
        is_cut = is_torn and len(recorded) == len(self._left)
        if self._session is None or (is_cut and not (recorded and not recorded[-1].num_more)):
            for old, new in zip(recorded, marked, strict=False):
                if not _same_entry(old, new):
                    self._differs(_described([new], [old]))
            return [*recorded, *marked[len(recorded) :]]
        if len(recorded) != len(marked) or not all(map(_same_entry, recorded, marked)):
            self._differs(_described(marked, recorded))
        return recorded

    def criterion_reason(self, number: int) -> str | None:
        """Why a trial was stopped by criteria that were in force then; None: it was not."""
        following = self._left[0] if self._left else None
        if not isinstance(following, DecideEntry) or following.by != "criterion":
            return None
        return following.reason if following.trial == number else None

    def end_of_all_reason(self) -> str | None:
        """Why all trials were stopped by criteria that were in force then; None: they were not."""
        for entry in self._left:
            if isinstance(entry, DecideEntry) and entry.action == "stop-all":
                return entry.reason
        return None

    def retries(self, number: int, *, or_else: bool) -> bool:
        """Whether a failed trial was tried again; `or_else` where that is not recorded."""
        if self.is_open_ended:
            return or_else
        following = self._left[0] if self._left else None
        is_retry = isinstance(following, DecideEntry) and following.action == "retry"
        return is_retry and following.trial == number  # type: ignore[union-attr]

    def damaged(self, what: str) -> JournalError:
        """The error that the journal tells of something that cannot have happened."""
        return JournalError(
            f"The journal tells of {what}, which did not run at that time as the search space, "
            "searcher, scheduler and stop criteria of today have it. Restore with the code that "
            "the experiment was begun with."
        )


def _described(today: Sequence[DecideEntry], recorded: Sequence[DecideEntry]) -> str:
    """How decisions of today differ from those of the journal, and what may be the cause."""
    now, before = (
        "; ".join(f"{each.action} {each.trial:05d} ({each.reason})" for each in decisions)
        or "nothing"
        for decisions in (today, recorded)
    )
    is_by_criterion = any(each.by == "criterion" for each in (*today, *recorded))
    # A function has no arguments that tell it from another one.
    hint = ". A function given as `stop` counts as another one if it has another name"
    return f"{now} was decided, recorded is {before}{hint if is_by_criterion else ''}"


def _same_entry(first: Entry, second: Entry) -> bool:
    if type(first) is not type(second):
        return False
    # JSON has lists for tuples, and NaN differs from itself.
    return first == second or same(first.to_plain(), second.to_plain())

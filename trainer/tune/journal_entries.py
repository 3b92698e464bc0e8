"""The journal's content: a line per *move*, which is what happened and all that followed from it.

A move has a *cause*, which comes from outside (`Cause`; none for the start of the experiment), and
*consequences*, in the order in which they were carried out (`Consequence`). A line is on the disk
whole or not at all, so a restored experiment stands between two moves, never within one.

`Move.to_plain()` gives a dict of numbers, strings, lists and dicts for one line of JSON, and
`move_from_plain()` reads it: a journal may be a stranger's, so types and bounds are checked there.
Whether an entry can have happened is judged where it is applied (`controller.py`). Lengths,
checksums and files are the business of the one that writes.
"""

from __future__ import annotations

import itertools
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal

from trainer.errors import JournalError
from trainer_toolkit.checks import Check, integer, number
from trainer_toolkit.plain_classes import Plain, check_of, from_plain, to_plain

MOST: Final = 2**53
"""Numbers of a journal are below: what JSON holds exactly everywhere."""
_FOLDER_NAME: Final = re.compile(r"(?:recovery-)?[0-9]{1,18}")


def _is_folder_name(value: Any) -> bool:
    return isinstance(value, str) and bool(_FOLDER_NAME.fullmatch(value))


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Attributes:
        kind: its name in the journal.
        when_synced: when it must be on the disk before it is acted on: "never", "always", or only
            in an "inexact" experiment, which might decide otherwise if it was lost.
    """

    kind: ClassVar[str] = ""
    when_synced: ClassVar[Literal["never", "inexact", "always"]] = "inexact"

    def to_plain(self) -> dict[str, Any]:
        """The entry as plain data, its kind under "event"; defaults are left out."""
        return {"event": self.kind, **to_plain(self, keeps_defaults=False)}


Count = Annotated[int, Plain(check=integer(0, MOST - 1))]
FromOne = Annotated[int, Plain(check=integer(1, MOST - 1))]
Amount = Annotated[float, Plain(check=number(0, maximum=MOST))]
FolderName = Annotated[str, Plain(check=Check("digits", _is_folder_name))]


# ---- what happened


Saving = Literal["none", "possible", "given"]
"""Whether a trial can go on from a row: "given": the row came with a checkpoint (functions);
"possible": its process can still save the state after it (classes, algorithms); "none": neither."""


@dataclass(frozen=True, slots=True)
class Reported(Entry):
    """A trial made a row.

    Attributes:
        trial: number of the trial.
        start_number: of the `StartTrial` that the process was started with.
        row_number: of the row within the trial, from 1 and without gaps; re-made rows of a repair
            are compared and dropped by the loop and never come here.
        row: the row, complete (nested dict, plain values); in the journal the entries of it that
            decisions look at.
        digest: of the row without clock fields.
        saving: whether the trial can go on from this row; see `Saving`.
        is_done: the trial ends with this row by itself (`done: True`).
        wants_checkpoint: the row asks for one (`should_checkpoint: True`).
    """

    trial: Count
    start_number: FromOne
    row_number: FromOne
    row: Mapping[str, Any]
    digest: str = ""
    saving: Saving = "possible"
    is_done: bool = False
    wants_checkpoint: bool = False
    kind: ClassVar[str] = "report"
    when_synced = "never"


@dataclass(frozen=True, slots=True)
class TrialOver(Entry):
    """A trial ended by itself after its last row: its function returned, or it failed.

    Attributes:
        trial: number of the trial.
        start_number: as in `Reported`.
        how: "returned"; "failed": the user's code raised (may be retried); "lost": its process
            died too often in the same place (is not retried).
        error: type, message and traceback as text; None when it returned.
    """

    trial: Count
    start_number: FromOne
    how: Literal["returned", "failed", "lost"]
    error: str | None = None
    kind: ClassVar[str] = "over"


@dataclass(frozen=True, slots=True)
class CommittedEntry(Entry):
    """A checkpoint that was asked for, or one for repairs, is complete on disk.

    Attributes:
        trial: number of the trial.
        row_number: the row whose state it is.
        name: its folder's name.
        digest: of its manifest.
    """

    trial: Count
    row_number: FromOne
    name: FolderName
    digest: str = ""
    kind: ClassVar[str] = "checkpoint"
    when_synced = "always"


@dataclass(frozen=True, slots=True)
class TimeEntry(Entry):
    """The running time, over all restores, passed `Controller.deadline_s`."""

    elapsed_s: Amount
    kind: ClassVar[str] = "time"
    when_synced = "always"


@dataclass(frozen=True, slots=True)
class AmendEntry(Entry):
    """What a restore changed.

    Attributes:
        num_samples: the new number of samples, -1: no end; None: unchanged.
        has_new_stop: the stop criteria were replaced.
        stop: the new ones, as the header has them.
        resumed: trials that go on from their newest checkpoint.
        restarted: trials that begin anew.
    """

    num_samples: Annotated[int, Plain(check=integer(-1, MOST - 1))] | None = None
    has_new_stop: bool = False
    stop: Any = None
    resumed: Sequence[Count] = ()
    restarted: Sequence[Count] = ()
    kind: ClassVar[str] = "amend"
    when_synced = "always"


Cause = Reported | TrialOver | CommittedEntry | TimeEntry | AmendEntry
"""What comes from outside."""


# ---- what followed


@dataclass(frozen=True, slots=True)
class FillEntry(Entry):
    """Free lanes were filled."""

    kind: ClassVar[str] = "fill"
    when_synced = "never"


@dataclass(frozen=True, slots=True)
class SuggestEntry(Entry):
    """Trial `trial` exists; `params` as `SearchSpace.encode()` gives them."""

    trial: Count
    params: Mapping[str, Any]
    cpus: Amount = 1.0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "suggest"


@dataclass(frozen=True, slots=True)
class NoSuggestionEntry(Entry):
    """The searcher was asked for a trial and had none at that time."""

    kind: ClassVar[str] = "none"


@dataclass(frozen=True, slots=True)
class NoMoreEntry(Entry):
    """There will be no more suggestions; `is_asked`: because the searcher said so."""

    is_asked: bool = False
    kind: ClassVar[str] = "no-more"


@dataclass(frozen=True, slots=True)
class IdleEntry(Entry):
    """Nothing ran and nothing could: the scheduler was asked which paused trials go on."""

    kind: ClassVar[str] = "idle"
    when_synced = "never"


@dataclass(frozen=True, slots=True)
class StartEntry(Entry):
    """A trial took a lane."""

    trial: Count
    lane: Count
    kind: ClassVar[str] = "start"
    when_synced = "never"


@dataclass(frozen=True, slots=True)
class DecideEntry(Entry):
    """A trial leaves its lane, or is to have one again.

    Attributes:
        trial: number of the trial.
        action: "pause"; "resume" a paused one; "retry" after an error of its code.
        reason: in words.
    """

    trial: Count
    action: Literal["pause", "resume", "retry"]
    reason: str = ""
    kind: ClassVar[str] = "decide"


@dataclass(frozen=True, slots=True)
class CloneEntry(Entry):
    """A trial goes on from a state of another one, with other settings.

    Attributes:
        trial: number of the trial.
        donor: trial whose checkpoint it goes on from.
        donor_row: the row of that checkpoint.
        params: its new params, encoded, all of them.
        reason: in words.
    """

    trial: Count
    donor: Count
    donor_row: FromOne
    params: Mapping[str, Any]
    reason: str = ""
    kind: ClassVar[str] = "clone"


@dataclass(frozen=True, slots=True)
class EndEntry(Entry):
    """A trial is over.

    Attributes:
        trial: number of the trial.
        status: as in `TrialStatus`.
        reason: in words.
        error: type, message and traceback as text.
        by: who decided: "trial": the row said `done`, or the function returned; "criterion": a stop
            criterion; "scheduler"; "experiment": the end of all, or a limit of failures.
        is_early: the trial was not allowed to come to its end; searchers learn of it.
    """

    trial: Count
    status: Literal["TERMINATED", "ERROR"]
    reason: str
    error: str | None = None
    by: Literal["trial", "criterion", "scheduler", "experiment"] = "scheduler"
    is_early: bool = False
    kind: ClassVar[str] = "end"


@dataclass(frozen=True, slots=True)
class EndAllEntry(Entry):
    """The experiment is over; `is_failure`: `fail_fast` ended it, and a restore goes on."""

    reason: str
    is_failure: bool = False
    kind: ClassVar[str] = "end-all"


Decision = DecideEntry | CloneEntry | EndEntry
"""What is decided about one trial, which is not over before."""

Consequence = (
    FillEntry
    | SuggestEntry
    | NoSuggestionEntry
    | NoMoreEntry
    | IdleEntry
    | StartEntry
    | Decision
    | EndAllEntry
)
"""What follows from a cause."""


# ---- moves


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the journal.

    Attributes:
        cause: None for the start of the experiment, and for what a restore goes on with.
        then: what followed, in order.
    """

    cause: Cause | None = None
    then: tuple[Consequence, ...] = ()

    @property
    def entries(self) -> tuple[Cause | Consequence, ...]:
        """Cause and consequences."""
        return self.then if self.cause is None else (self.cause, *self.then)

    @property
    def decided(self) -> tuple[Consequence, ...]:
        """What was decided about the cause, without what followed from free lanes."""
        return tuple(itertools.takewhile(lambda each: not isinstance(each, FillEntry), self.then))

    def needs_sync(self, *, is_exact: bool) -> bool:
        """Whether it must be on the disk before it is acted on; see `Entry.when_synced`."""
        found = {entry.when_synced for entry in self.entries}
        return "always" in found or ("inexact" in found and not is_exact)

    def to_plain(self) -> dict[str, Any]:
        """The move as plain data."""
        plain: dict[str, Any] = {}
        if self.cause is not None:
            plain["cause"] = self.cause.to_plain()
        if self.then:
            plain["then"] = [entry.to_plain() for entry in self.then]
        return plain


def decision_on(trial: int, decided: Iterable[Consequence]) -> Decision | None:
    """The first decision on that trial, unless all end."""
    for each in decided:
        is_of_all = isinstance(each, EndEntry) and each.by == "experiment"
        if isinstance(each, Decision) and each.trial == trial and not is_of_all:
            return each
    return None


def is_over_by_itself(decided: Iterable[Consequence]) -> bool:
    """Whether what a row said, or a criterion, ended a trial or all, not the scheduler."""
    return any(
        isinstance(each, EndAllEntry) or (isinstance(each, EndEntry) and each.by != "scheduler")
        for each in decided
    )


def with_past(moves: Sequence[Move], *, has_new_stop: bool) -> list[tuple[Move, bool]]:
    """Each move, and whether the stop criteria of today were not in force yet."""
    found: list[tuple[Move, bool]] = []
    is_past = has_new_stop
    for move in reversed(moves):
        found.append((move, is_past))
        is_past = is_past or (isinstance(move.cause, AmendEntry) and move.cause.has_new_stop)
    return found[::-1]


def move_from_plain(plain: Mapping[str, Any]) -> Move:
    """Reads what `Move.to_plain()` gave; a JournalError for anything else."""
    cause, then = plain.get("cause"), plain.get("then", [])
    is_known = bool(plain) and plain.keys() <= {"cause", "then"}
    if not (is_known and isinstance(then, list) and isinstance(cause, Mapping | None)):
        raise JournalError(
            f"The journal has a line {str(plain)!r:.80}, which is no move of an experiment; "
            "expected a cause, and what followed from it. It is damaged or was written by another "
            "version; restore with that one."
        )
    entries = tuple(_entry_from_plain(entry, _CONSEQUENCES) for entry in then)
    return Move(None if cause is None else _entry_from_plain(cause, _CAUSES), entries)


_CAUSES: Final = {kind.kind: kind for kind in typing.get_args(Cause)}
_CONSEQUENCES: Final = {kind.kind: kind for kind in typing.get_args(Consequence)}


def _entry_from_plain(plain: Any, kinds: Mapping[str, Any]) -> Any:
    fields = dict(plain) if isinstance(plain, Mapping) else {}
    name = fields.pop("event", None)
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise JournalError(
            f"The journal has an event {name!r:.80}, which this version does not know; expected "
            f"one of {', '.join(kinds)}. It was written by a newer version: restore with that one."
        )
    if problem := next(check_of(kind, needs_defaults=False)(fields, ""), None):
        raise JournalError(
            f"The journal has an event {name!r} that cannot be read: {problem}. It is damaged or "
            "was written by another version; restore with the version that wrote it."
        )
    return from_plain(kind, fields)

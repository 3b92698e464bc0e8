"""The journal's content: a line per *move*, which is what happened and all that followed from it.

A move has a *cause*, which comes from outside (`Reported`, `TrialOver`, `CommittedEntry`,
`TimeEntry`, `AmendEntry`; none for the start of the experiment), and *consequences*, in the order
in which they were carried out (`FillEntry`, `SuggestEntry`, `NoSuggestionEntry`, `NoMoreEntry`,
`IdleEntry`, `StartEntry`, `DecideEntry`, `EndEntry`, `EndAllEntry`). A line is on the disk whole or
not at all, so a restored experiment stands between two moves, never within one.

`Move.to_plain()` gives a dict of numbers, strings, lists and dicts for one line of JSON, and
`move_from_plain()` reads it. Lengths, checksums and files are the business of the one that writes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
        must_sync: whether it must be on the disk before it is acted on: "never", "always", or only
            in an "inexact" experiment, which might decide otherwise if it was lost.
    """

    kind: ClassVar[str] = ""
    must_sync: ClassVar[Literal["never", "inexact", "always"]] = "inexact"

    def to_plain(self) -> dict[str, Any]:
        """The entry as plain data, its kind under "event"; defaults are left out."""
        return {"event": self.kind, **to_plain(self, keeps_defaults=False)}


Count = Annotated[int, Plain(check=integer(0, MOST - 1))]
Number = Annotated[float, Plain(check=number(-MOST, maximum=MOST))]
FolderName = Annotated[str, Plain(check=Check("digits", _is_folder_name))]


# ---- what happened


Saving = Literal["none", "possible", "given"]
"""What can be resumed from a row: nothing; the process can commit the row's state when asked to
(classes, algorithms); the row came with a checkpoint (functions), which commits with it."""


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
        saving: whether a state was saved after its last row (given), can be (possible), or not.
        is_done: the trial ends with this row by itself (`done: True`).
        wants_checkpoint: the row asks for one (`should_checkpoint: True`).
    """

    trial: Count
    start_number: Count
    row_number: Count
    row: Mapping[str, Any]
    digest: str = ""
    saving: Saving = "possible"
    is_done: bool = False
    wants_checkpoint: bool = False
    kind: ClassVar[str] = "report"
    must_sync = "never"


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
    start_number: Count
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
    row_number: Count
    name: FolderName
    digest: str = ""
    kind: ClassVar[str] = "checkpoint"
    must_sync = "always"


@dataclass(frozen=True, slots=True)
class TimeEntry(Entry):
    """The running time, over all restores, passed `Controller.deadline_s`."""

    elapsed_s: Number
    kind: ClassVar[str] = "time"
    must_sync = "always"


@dataclass(frozen=True, slots=True)
class AmendEntry(Entry):
    """What a restore changed.

    Attributes:
        num_samples: the new number of samples; None: unchanged.
        has_new_stop: the stop criteria were replaced.
        stop: the new ones, as the header has them.
        resumed: trials that go on from their newest checkpoint.
        restarted: trials that begin anew.
    """

    num_samples: Count | None = None
    has_new_stop: bool = False
    stop: Any = None
    resumed: Sequence[Count] = ()
    restarted: Sequence[Count] = ()
    kind: ClassVar[str] = "amend"
    must_sync = "always"


Cause = Reported | TrialOver | CommittedEntry | TimeEntry | AmendEntry
"""What comes from outside."""


# ---- what followed


@dataclass(frozen=True, slots=True)
class FillEntry(Entry):
    """Free lanes were filled."""

    kind: ClassVar[str] = "fill"
    must_sync = "never"


@dataclass(frozen=True, slots=True)
class SuggestEntry(Entry):
    """Trial `trial` exists; `params` as `SearchSpace.encode()` gives them."""

    trial: Count
    params: Mapping[str, Any]
    cpus: Number = 1.0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "suggest"


@dataclass(frozen=True, slots=True)
class NoSuggestionEntry(Entry):
    """The searcher was asked for a trial and had none at that time."""

    trial: Count
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
    must_sync = "never"


@dataclass(frozen=True, slots=True)
class StartEntry(Entry):
    """A trial took a lane."""

    trial: Count
    lane: Count
    cause: Literal["new", "resumed", "retry", "clone"]
    kind: ClassVar[str] = "start"
    must_sync = "never"


@dataclass(frozen=True, slots=True)
class DecideEntry(Entry):
    """A decision about a trial that goes on.

    Attributes:
        trial: number of the trial.
        action: "pause", "resume", "clone" or "retry".
        reason: in words.
        by: who decided: "scheduler", or "experiment": a limit of failures.
        donor: trial whose checkpoint a clone goes on from.
        donor_row: the row of that checkpoint.
        params: encoded params of the clone, all of them.
    """

    trial: Count
    action: Literal["pause", "resume", "clone", "retry"]
    reason: str = ""
    by: Literal["scheduler", "experiment"] = "scheduler"
    donor: Count | None = None
    donor_row: Count | None = None
    params: Mapping[str, Any] | None = None
    kind: ClassVar[str] = "decide"


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


# ---- moves


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the journal.

    Attributes:
        cause: None for the start of the experiment, and for what a restore goes on with.
        then: what followed, in order.
    """

    cause: Cause | None = None
    then: tuple[Entry, ...] = ()
    kind: ClassVar[str] = "move"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Cause and consequences."""
        return self.then if self.cause is None else (self.cause, *self.then)

    @property
    def must_sync(self) -> Collection[str]:
        """See `Entry.must_sync`; of all entries."""
        return {entry.must_sync for entry in self.entries}

    def to_plain(self) -> dict[str, Any]:
        """The move as plain data."""
        plain: dict[str, Any] = {"event": self.kind}
        if self.cause is not None:
            plain["cause"] = self.cause.to_plain()
        if self.then:
            plain["then"] = [entry.to_plain() for entry in self.then]
        return plain


def move_from_plain(plain: Mapping[str, Any]) -> Move:
    """Reads what `Move.to_plain()` gave; a JournalError for anything else."""
    cause, then = plain.get("cause"), plain.get("then", [])
    is_known = plain.keys() <= {"event", "cause", "then"} and plain.get("event") == Move.kind
    if not (is_known and isinstance(then, list) and isinstance(cause, Mapping | None)):
        raise JournalError(
            f"The journal has an event {str(plain)!r:.80}, which this version does not know; "
            "expected moves. It is damaged or was written by another version; restore with that "
            "one."
        )
    entries = tuple(_entry_from_plain(entry, _CONSEQUENCES) for entry in then)
    return Move(None if cause is None else _entry_from_plain(cause, _CAUSES), entries)


def _by_kind(kinds: Iterable[Any]) -> Mapping[str, Any]:
    return {each.kind: each for each in kinds}


_CAUSES: Final = _by_kind((Reported, TrialOver, CommittedEntry, TimeEntry, AmendEntry))
_CONSEQUENCES: Final = _by_kind(
    (
        FillEntry,
        SuggestEntry,
        NoSuggestionEntry,
        NoMoreEntry,
        IdleEntry,
        StartEntry,
        DecideEntry,
        EndEntry,
        EndAllEntry,
    )
)


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

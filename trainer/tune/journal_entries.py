"""The journal's content: what an experiment is rebuilt from, as plain data.

There are *causes*, which the controller is fed again when an experiment is restored (`ReportEntry`,
`OverEntry`, `CommittedEntry`, `TimeEntry`, `AmendEntry`), and *consequences*, which it works out
again and which are compared with what was recorded (`SuggestEntry`, `StartEntry`, `DecideEntry`,
`EndEntry`). Where the two differ, the recorded one wins.

`to_plain()` gives a dict of numbers, strings, lists and dicts for one line of JSON, and
`entry_from_plain()` reads it. Lengths, checksums and files are the business of the one that writes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from trainer.errors import JournalError

MOST: Final = 2**53
"""Numbers of a journal are below: what JSON holds exactly everywhere."""
_FOLDER_NAME: Final = re.compile(r"(?:recovery-)?[0-9]{1,18}")


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
    is_cause: ClassVar[bool] = False

    def to_plain(self) -> dict[str, Any]:
        """The entry as plain data, its kind under "event"; defaults are left out."""
        plain: dict[str, Any] = {"event": self.kind}
        for name, default in _DEFAULTS[self.kind].items():
            value = getattr(self, name)
            if default is dataclasses.MISSING or value != default:
                plain[name] = value
        return plain


def _defaults(kind: type[Entry]) -> Mapping[str, Any]:
    """The fields of a kind of entries with their defaults, or `MISSING`."""
    return {
        each.name: each.default
        if each.default_factory is dataclasses.MISSING
        else each.default_factory()
        for each in dataclasses.fields(kind)
    }


@dataclass(frozen=True, slots=True)
class SuggestEntry(Entry):
    """Trial `trial` exists; `params` as `SearchSpace.encode()` gives them."""

    trial: int
    params: Mapping[str, Any]
    cpus: float = 1.0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "suggest"


@dataclass(frozen=True, slots=True)
class StartEntry(Entry):
    """A trial took a lane. With cause "repaired" it is a note for people and no event."""

    trial: int
    lane: int
    turn: int
    cause: Literal["new", "resumed", "retry", "clone", "repaired"]
    kind: ClassVar[str] = "start"
    must_sync = "never"


@dataclass(frozen=True, slots=True)
class ReportEntry(Entry):
    """A row was decided on; `view` holds the entries of the row that decisions look at."""

    trial: int
    row_number: int
    view: Mapping[str, Any]
    digest: str = ""
    saving: Literal["none", "possible", "given"] = "possible"
    is_done: bool = False
    wants_checkpoint: bool = False
    kind: ClassVar[str] = "report"
    must_sync = "never"
    is_cause: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class OverEntry(Entry):
    """A trial ended by itself, after its last row."""

    trial: int
    how: Literal["returned", "failed", "lost"]
    error: str | None = None
    kind: ClassVar[str] = "over"
    is_cause: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class DecideEntry(Entry):
    """A decision other than to continue.

    Attributes:
        trial: the trial that it is about; -1 for the whole experiment.
        action: "stop", "pause", "resume", "clone", "retry" or "stop-all".
        reason: in words.
        by: who decided: "trial": the row said `done`, or the function returned; "criterion": a stop
            criterion; "scheduler"; "experiment": the end of all, or a limit of failures.
        is_early: the trial was not allowed to come to its end; searchers learn of it.
        donor: trial whose checkpoint a clone goes on from.
        donor_row: the row of that checkpoint.
        params: encoded params of the clone, all of them.
        moment: what it was decided upon: "row", "over", "no-more", "idle", "end 00003" …
        num_more: decisions of the same moment that follow.
    """

    trial: int
    action: Literal["stop", "pause", "resume", "clone", "retry", "stop-all"]
    reason: str = ""
    by: Literal["trial", "criterion", "scheduler", "experiment"] = "scheduler"
    is_early: bool = False
    donor: int | None = None
    donor_row: int | None = None
    params: Mapping[str, Any] | None = None
    moment: str = ""
    num_more: int = 0
    kind: ClassVar[str] = "decide"


@dataclass(frozen=True, slots=True)
class CommittedEntry(Entry):
    """A checkpoint that was asked for, or one for repairs, is complete on disk.

    Attributes:
        trial: number of the trial.
        row_number: the row whose state it is.
        name: its folder's name.
        digest: of its manifest.
    """

    trial: int
    row_number: int
    name: str
    digest: str = ""
    kind: ClassVar[str] = "checkpoint"
    must_sync = "always"
    is_cause: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class EndEntry(Entry):
    """A trial is over."""

    trial: int
    status: Literal["TERMINATED", "ERROR"]
    reason: str
    error: str | None = None
    kind: ClassVar[str] = "end"


@dataclass(frozen=True, slots=True)
class TimeEntry(Entry):
    """The running time, over all restores, passed `Controller.deadline_s`."""

    elapsed_s: float
    kind: ClassVar[str] = "time"
    must_sync = "always"
    is_cause: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AmendEntry(Entry):
    """What `restore` changed; see `Amendment` in `controller.py`.

    Attributes:
        num_samples: the new number of samples; None: unchanged.
        has_new_stop: the stop criteria were replaced.
        resumed: trials that go on from their newest checkpoint.
        restarted: trials that begin anew.
    """

    num_samples: int | None = None
    has_new_stop: bool = False
    resumed: tuple[int, ...] = ()
    restarted: tuple[int, ...] = ()
    kind: ClassVar[str] = "amend"
    must_sync = "always"
    is_cause: ClassVar[bool] = True


_KINDS: Mapping[str, type[Entry]] = {
    each.kind: each
    for each in (
        SuggestEntry,
        StartEntry,
        ReportEntry,
        OverEntry,
        DecideEntry,
        CommittedEntry,
        EndEntry,
        TimeEntry,
        AmendEntry,
    )
}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def _is_count_or_none(value: Any) -> bool:
    return value is None or _is_count(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -MOST < value < MOST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_folder_name(value: Any) -> bool:
    return isinstance(value, str) and bool(_FOLDER_NAME.fullmatch(value))


def _are_counts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_count, value))


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "trial": lambda value: value == -1 or _is_count(value),
    **dict.fromkeys(("lane", "turn", "row_number", "num_more"), _is_count),
    **dict.fromkeys(("donor", "donor_row", "num_samples"), _is_count_or_none),
    **dict.fromkeys(("cpus", "elapsed_s"), _is_number),
    **dict.fromkeys(("attributes", "view"), _is_mapping),
    "params": lambda value: value is None or _is_mapping(value),
    **dict.fromkeys(("resumed", "restarted"), _are_counts),
    **dict.fromkeys(("is_done", "wants_checkpoint", "is_early", "has_new_stop"), _is_switch),
    **dict.fromkeys(
        ("cause", "digest", "saving", "how", "action", "reason", "by", "moment", "status"), _is_text
    ),
    "error": _is_text_or_none,
    "name": _is_folder_name,
}
"""What the fields of entries may hold, by their name: a journal may be a stranger's."""


_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    name: _defaults(kind) for name, kind in _KINDS.items()
}
"""Of each kind; worked out once, because journals are long."""


def entry_from_plain(plain: Mapping[str, Any]) -> Entry:
    """Reads what `Entry.to_plain()` gave; a JournalError for unknown kinds and fields."""
    fields = dict(plain)
    name = fields.pop("event", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise JournalError(
            f"The journal has an event {name!r:.80}, which this version does not know; expected "
            f"one of {', '.join(_KINDS)}. It was written by a newer version: restore with that one."
        )
    try:
        if unknown := fields.keys() - _DEFAULTS[kind.kind].keys():
            raise TypeError(f"unknown fields {sorted(unknown)}")
        if wrong := [each for each, value in fields.items() if not _FITS[each](value)]:
            raise TypeError(f"{wrong[0]} is {fields[wrong[0]]!r:.80}")
        entry = kind(**fields)
    except TypeError as error:
        raise JournalError(
            f"The journal has an event {name!r} that cannot be read: {error}. It is damaged or was "
            "written by another version; restore with the version that wrote it."
        ) from error
    tuples = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return dataclasses.replace(entry, **tuples) if tuples else entry

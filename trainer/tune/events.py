"""What the controller of an experiment keeps of trials, and what it gives out.

    causes in     rows, ends of trials, checkpoints …: `Cause` (`journal_entries.py`)
    actions out   starts, rows that count, pauses, ends …: `Action`
    steps out     a move for the journal, to be written first, then actions to be carried out

The loop that owns processes and files hands causes to `Controller.take()` in whatever order they
arrive. The controller keeps those that are early and gives back what to do. Rows of one trial are
numbered from 1; a trial's *start* is numbered from 1, too, so that rows of a process that was told
to end are recognised and dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer.tune.journal_entries import Move

# ---- the record of one trial


class TrialStatus(str, enum.Enum):
    """Where a trial stands; the words of Ray Tune."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    @property
    def is_over(self) -> bool:
        """Whether the trial has ended, with or without an error."""
        return self in (TrialStatus.TERMINATED, TrialStatus.ERROR)


@dataclass(frozen=True)
class CheckpointRef:
    """A checkpoint named by what it holds: the state of a trial after one of its rows.

    Attributes:
        trial: number of the trial.
        row_number: the row whose state it is, ≥ 1.
    """

    trial: int
    row_number: int


@dataclass(frozen=True)
class Clone:
    """One exploit: a trial went on from another one's state with changed settings.

    Attributes:
        row_number: the rows that the trial had when it was replaced.
        source: the checkpoint that it went on from; its `trial` is the donor.
        changes: {path: (value of the donor, new value)} of the settings explored.
        params_before: of the trial until then.
        generation: counts the exploits of this trial, ≥ 1; part of the clone's seed.
    """

    row_number: int
    source: CheckpointRef
    changes: Mapping[str, tuple[Any, Any]]
    params_before: Mapping[str, Any]
    generation: int


@dataclass(slots=True)
class Trial:
    """All that decisions need to know of one trial; owned and changed by the controller only.

    Attributes:
        number: 0, 1, 2 … in the order of suggestions.
        params: {path: value} of the settings that were searched or explored, paths such as
            "lr" or "model/fcnet_hiddens". `Controller.config_of(number)` gives the whole config.
        cpus: logical CPUs that it asks for.
        seed: the trial's seed, a function of experiment seed and number, in [0, 2**31).
        status: see `TrialStatus`.
        lane: the lane it holds; None while it is paused or over.
        num_rows: rows that were decided on; the row being made is `num_rows + 1`.
        num_starts: how often it was started, retries and resumes included, repairs not.
        num_failures: errors of the user's code so far.
        last_row: the newest row decided on, None before the first; of a trial that is over, or was
            read from a journal, only what decisions look at.
        stop_reason: why it ended, in words; None while it goes on.
        error: text of the error that ended it; None if there was none.
        clones: its exploits so far, oldest first.
        attributes: what the searcher keeps of its suggestion; plain data.
    """

    number: int
    params: dict[str, Any]
    cpus: float
    seed: int
    status: TrialStatus = TrialStatus.PENDING
    lane: int | None = None
    num_rows: int = 0
    num_starts: int = 0
    num_failures: int = 0
    last_row: Mapping[str, Any] | None = None
    stop_reason: str | None = None
    error: str | None = None
    clones: list[Clone] = field(default_factory=list)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trial_id(self) -> str:
        """The number as five digits: also the name and the folder by default."""
        return f"{self.number:05d}"


# ---- actions out


@dataclass(frozen=True)
class StartTrial:
    """Start a trial's process in a lane, or anew in the lane that it holds.

    It goes on from the newest of its own checkpoints with `base_row` < row ≤ `row_number`, or else
    from `start_from`. After a pause or a clone, `base_row` is `row_number`: only `start_from` will
    do, and must be committed first.

    Attributes:
        trial: number of the trial.
        start_number: to be handed back in the events of this process.
        lane: the lane that it holds from now on.
        cause: "new"; "resumed" after a pause; "retry" after an error of the user's code;
            "clone" of another trial; "repaired" when the tuner itself was restarted.
        params: those that it goes on with: before an exploit others than after it.
        config: the complete config for the user's code, of these params.
        seed: the trial's seed; of a clone the new one (`adopt_root_seed`).
        start_from: where no newer checkpoint of its own is there; None: the beginning.
        base_row: rows that the trial had at `start_from`.
        row_number: rows that were decided on already. What a start from an older checkpoint makes
            again up to this row is compared and dropped.
    """

    trial: int
    start_number: int
    lane: int
    cause: Literal["new", "resumed", "retry", "clone", "repaired"]
    params: Mapping[str, Any]
    config: Any
    seed: int
    start_from: CheckpointRef | None
    base_row: int
    row_number: int


@dataclass(frozen=True)
class CountRow:
    """The row counts: it goes to the trial's rows and to callbacks. The process may make the next.

    Attributes:
        trial: number of the trial.
        row_number: of the row.
        row: as it was reported.
        should_save: commit the state of this row as a checkpoint (`CommittedEntry` when done).
    """

    trial: int
    row_number: int
    row: Mapping[str, Any]
    should_save: bool


@dataclass(frozen=True)
class PauseTrial:
    """The trial leaves its lane after this row, whose state must be committed; end the process.

    The process may be kept for a `StartTrial` of the same trial from the same checkpoint.
    """

    trial: int
    row_number: int


@dataclass(frozen=True)
class EndTrial:
    """The trial is over: end its process if it has one.

    Attributes:
        trial: number of the trial.
        row_number: its last row; 0 if it made none.
        status: TERMINATED or ERROR.
        reason: why, in words.
        should_save: commit the state of the last row before (`checkpoint_at_end`).
    """

    trial: int
    row_number: int
    status: TrialStatus
    reason: str
    should_save: bool


@dataclass(frozen=True)
class CountCheckpoint:
    """The journal has the checkpoint: remove older ones that nothing needs, call callbacks."""

    trial: int
    name: str


@dataclass(frozen=True)
class EndExperiment:
    """Nothing is left to do.

    Attributes:
        reason: why, in words.
        is_failure: `fail_fast` ended it.
    """

    reason: str
    is_failure: bool = False


Action = StartTrial | CountRow | PauseTrial | EndTrial | CountCheckpoint | EndExperiment


@dataclass(frozen=True)
class Step:
    """What follows from one cause.

    Attributes:
        move: for the journal, to be written (and synced, as `Move.needs_sync` says) first; None
            where the journal has it already.
        actions: to be carried out in this order.
    """

    move: Move | None
    actions: tuple[Action, ...] = ()

"""The controller of an experiment: events in, decisions out. No clock, no process, no file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from trainer.tune.events import CheckpointRef, Event, Step, Trial
from trainer.tune.journal_entries import AmendEntry, Entry

RowOf = Callable[[int, int], Mapping[str, Any]]
"""(trial, row number) -> the complete row, from where rows are kept."""


@dataclass(frozen=True)
class ExperimentPlan:
    """Everything that decisions follow from; made by the `Tuner` out of what users write.

    Attributes:
        space: a `SearchSpace`, `search_space.SearchSpace(param_space)`.
        searcher: a `searchers.Searcher`.
        scheduler: a `schedulers.TrialScheduler`.
        stop: a `stoppers.StopCriteria`, `stoppers.StopCriteria(run_config.stop)`.
        metric: path into the row, or None.
        mode: "min", "max" or None.
        seed: of the experiment.
        num_samples: draws per grid; -1: no end.
        num_lanes: ≥ 1.
        cpus: logical CPUs that trials share.
        cpus_of: what a trial asks for, by its config.
        order: "turns" or "arrival".
        max_failures: errors of the user's code that a trial survives; -1: any number.
        fail_fast: the first failed trial ends the experiment.
        save_at_end: `checkpoint_at_end`.
        save_frequency: `checkpoint_frequency`; 0: never.
    """

    space: Any
    searcher: Any
    scheduler: Any
    stop: Any
    metric: str | None
    mode: Literal["min", "max"] | None
    seed: int
    num_samples: int
    num_lanes: int
    cpus: float
    cpus_of: Callable[[Any], float]
    order: Literal["turns", "arrival"] = "turns"
    max_failures: int = 0
    fail_fast: bool = False
    save_at_end: bool = False
    save_frequency: int = 0


class Controller:
    """Decides what an experiment does next; a function of the plan and of the events in order.

    Life: `begin()` or `replay()` once, then `take()` for every event until `is_done`. Each gives a
    `Step`; write its entries to the journal first, then carry out its actions in order. An error
    raised here leaves nothing to journal: end in order and let the user restore.
    """

    def __init__(self, plan: ExperimentPlan) -> None: ...

    def begin(self) -> Step:
        """The first trials of a new experiment."""
        raise NotImplementedError

    def take(self, event: Event) -> Step:
        """What follows from an event; events of different trials may come in any order.

        Those of a process that was told to end are dropped by their `start_number`.
        """
        raise NotImplementedError

    def replay(self, entries: Iterable[Entry], rows: RowOf) -> Step:
        """Rebuilds the state of an experiment from its journal, and goes on from there.

        The step has what a torn journal lacks, and a `StartTrial` with cause "repaired" for every
        trial that holds a lane. `unfinished_saves` tells which checkpoints are still to be made.

        Args:
            entries: all of the journal, header left out.
            rows: gives whole rows, asked only if `needs_whole_rows`.
        """
        raise NotImplementedError

    def amend(self, change: AmendEntry) -> Step:
        """Extends the experiment after a replay: more samples, other stop criteria, failures."""
        raise NotImplementedError

    @property
    def trials(self) -> list[Trial]:
        """All trials by number; read only."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Whether `EndExperiment` was given out."""
        raise NotImplementedError

    @property
    def awaited(self) -> tuple[int, int] | None:
        """(trial, row number) that the turn waits for, for "waiting for report 7 of trial 00003"."""
        raise NotImplementedError

    @property
    def num_trials_expected(self) -> int | None:
        """How many trials there will be in all; None: not known."""
        raise NotImplementedError

    @property
    def max_run_ahead(self) -> int | None:
        """Undelivered rows that a process may be ahead, if the user left it open; None: any."""
        raise NotImplementedError

    @property
    def deadline_s(self) -> float | None:
        """Running time after which `TimeUp` is to come; None: never."""
        raise NotImplementedError

    @property
    def needs_whole_rows(self) -> bool:
        """Whether stoppers, searchers or schedulers of the user look at rows in a replay."""
        raise NotImplementedError

    @property
    def unfinished_saves(self) -> Set[CheckpointRef]:
        """Checkpoints that decisions asked for and that `CheckpointCommitted` did not come for.

        After a restore those not on disk must be made again: run the trial from an older checkpoint
        up to that row, commit, and end the process (or let it go on, if it holds a lane).
        """
        raise NotImplementedError

    @property
    def pinned(self) -> Set[CheckpointRef]:
        """Checkpoints that decisions still need, to be kept beyond `num_to_keep`."""
        raise NotImplementedError

    @property
    def inexact_reasons(self) -> tuple[str, ...]:
        """Why the experiment is not a function of its plan; empty when it is."""
        raise NotImplementedError

    def config_of(self, number: int) -> Any:
        """The complete config of a trial, made anew from its params."""
        raise NotImplementedError

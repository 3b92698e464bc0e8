"""The controller of an experiment: events in, decisions out. No clock, no process, no file.

Decisions are taken in *turns*, an order that no clock influences (`turns.py`). They are one
sequence, and each sees exactly what came before. Rows of a trial follow from its config and seed,
decisions follow from rows in order: so the sequence is a function of the plan, whatever processes
do and however often they are killed. Where no decision depends on another trial, and with
`order="arrival"`, rows are decided on as they come.

A free lane gets the next trial: those that the scheduler resumes, in its order, then the next
suggestion. A trial takes a lane if the CPUs asked for, with it, are at most those there are, or if
all lanes are free; else the lanes after it stay free, too: no trial overtakes.

A row is acted on in this order: the trial's own stop criteria, those of the experiment, the
scheduler, the searcher.

The same code decides when an experiment is restored: it is fed the causes of the journal again, and
what it works out is compared with what was recorded, which wins (`Recorded`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final, Literal

from trainer.errors import TuneError
from trainer.seeding import trial_seed
from trainer.tune.events import (
    Action,
    CheckpointRef,
    Clone,
    CountCheckpoint,
    CountRow,
    EndExperiment,
    EndTrial,
    Event,
    PauseTrial,
    Reported,
    StartTrial,
    Step,
    Trial,
    TrialOver,
    TrialStatus,
)
from trainer.tune.journal_entries import (
    AmendEntry,
    CommittedEntry,
    DecideEntry,
    EndEntry,
    Entry,
    OverEntry,
    ReportEntry,
    StartEntry,
    SuggestEntry,
    TimeEntry,
)
from trainer.tune.positions import Kind, seed_at
from trainer.tune.replay import Recorded, Session, sessions_of
from trainer.tune.rows import AppearingKeys, Mode, Row, view_of
from trainer.tune.scheduling import SchedulerContext, TrialScheduler, Verdict
from trainer.tune.search_space import SearchSpace
from trainer.tune.searchers import HowOver, SearchContext, Searcher, Suggestion
from trainer.tune.stoppers import StopCriteria
from trainer.tune.turns import FILL, Turns
from trainer_toolkit.checks import shown
from trainer_toolkit.trees import copied_if_possible

RowOf = Callable[[int, int], Row]
"""(trial, row number) -> the complete row, from where rows are kept."""

WHOLE_EXPERIMENT: Final = -1
"""Stands for a trial's number in decisions about all of them."""


@dataclass(frozen=True)
class ExperimentPlan:
    """Everything that decisions follow from; made by the `Tuner` out of what users write.

    Attributes:
        space: where configs are drawn from.
        searcher: suggests.
        scheduler: judges.
        stop: criteria of `RunConfig.stop`, and a time budget.
        metric: path into the row, or None.
        mode: "min", "max" or None.
        seed: of the experiment.
        num_samples: draws per grid; -1: no end. At a restore what the experiment was begun with.
        num_lanes: trials that run at the same time at most, ≥ 1.
        cpus: logical CPUs that trials share.
        cpus_of: what a trial asks for, by its config.
        order: "turns" or "arrival".
        max_failures: errors of the user's code that a trial survives; -1: any number.
        fail_fast: the first failed trial ends the experiment.
        save_at_end: `checkpoint_at_end`.
        save_frequency: `checkpoint_frequency`; 0: never.
    """

    space: SearchSpace
    searcher: Searcher
    scheduler: TrialScheduler
    stop: StopCriteria
    metric: str | None
    mode: Mode | None
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


@dataclass(slots=True)
class _TrialState:
    """What the controller keeps of one trial besides its record.

    Attributes:
        base: the checkpoint that its present life began with; None: the beginning.
        base_row: rows that it had then.
        cause: of its next start.
        saving: whether a state was saved after its last row (given), can be (possible), or not.
        early_commits: rows that are on disk before they were decided on.
        newest_commit: the newest of its rows that is on disk.
    """

    base: CheckpointRef | None = None
    base_row: int = 0
    cause: Literal["new", "resumed", "retry", "clone"] = "new"
    saving: Literal["none", "possible", "given"] = "none"
    early_commits: set[int] | None = None
    newest_commit: int = 0


class Controller:
    """Decides what an experiment does next; a function of the plan and of the events in order.

    Life: `begin()` or `replay()` once, then `take()` for every event until `is_done`. Each gives a
    `Step`; write its entries to the journal first, then carry out its actions in order. An error
    raised here leaves nothing to journal: end in order and let the user restore.

    Raises:
        TuneError: the parts of the plan do not fit each other.
    """

    def __init__(self, plan: ExperimentPlan) -> None:
        self._plan = plan
        self._stop = plan.stop
        # Copies: what the user gave stays as it is, to be given to a restore once more.
        self._searcher = copied_if_possible(plan.searcher)
        self._scheduler = copied_if_possible(plan.scheduler)
        self._scheduler.extend(plan.space)
        self._searcher.set_search_properties(plan.metric, plan.mode)
        self._searcher.begin(SearchContext(plan.space, plan.seed, plan.num_samples))
        self._scheduler.set_search_properties(plan.metric, plan.mode)
        self._scheduler.begin(SchedulerContext(plan.seed, self._searcher.num_trials(), plan.space))
        if self._searcher.needs_whole_trials and not self._scheduler.is_independent:
            raise TuneError(
                f"{type(self._searcher).__name__} compares means over trials, which must be of one "
                f"length, and {type(self._scheduler).__name__} stops trials early. Leave one of "
                "them out."
            )
        compares = self._scheduler.needs_metric or not self._searcher.is_independent
        self._appearing = AppearingKeys([plan.metric] if plan.metric and compares else [])
        self._times = AppearingKeys({*(self._scheduler.keys or ())} - {self._scheduler.metric})
        keys = {"training_iteration", "stop_reason", *([plan.metric] if plan.metric else [])}
        for part in (self._searcher.keys, self._scheduler.keys, self._stop.keys):
            keys.update(part or ())
        self._keys = sorted(keys)
        self._num_samples = plan.num_samples
        self._trials: list[Trial] = []
        self._places: dict[int, _TrialState] = {}
        self._live: dict[int, None] = {}  # trials that are not over, by number
        self._resumed: deque[int] = deque()
        self._waiting: int | None = None
        self._no_more = False
        by_arrival = plan.order == "arrival" or self.is_independent
        self._turns = Turns(plan.num_lanes, by_arrival=by_arrival)
        self._unfinished: set[CheckpointRef] = set()
        self._is_done = False
        self._entries: list[Entry] = []
        self._actions: list[Action] = []
        self.undelivered: list[Action] = []
        self._recorded = Recorded()

    # ---- what the loop calls

    def begin(self) -> Step:
        """The first trials of a new experiment."""
        self._advance()
        return self._step()

    def take(self, event: Event) -> Step:
        """What follows from an event; events of different trials may come in any order.

        Those of a process that was told to end are dropped by their `start_number`.

        Raises:
            TuneError: the experiment cannot go on as it is written; or a stop criterion raised.
                What a searcher or scheduler raises comes out as it is.
        """
        if isinstance(event, CommittedEntry):
            self._commit(event)
        elif isinstance(event, TimeEntry):
            self._cause(event)
            self._settle("time", [_stop_all("time budget used up")])
        elif self._is_current(event):
            self._turns.deliver(event)
            self._advance()
        return self._step()

    def replay(
        self,
        entries: Iterable[Entry],
        rows: RowOf,
        *,
        has_new_stop: bool = False,
        num_delivered: int | None = None,
    ) -> Step:
        """Rebuilds the state of an experiment from its journal, and goes on from there.

        Args:
            entries: all of the journal, header left out.
            rows: gives whole rows; asked if `needs_whole_rows`, and for rows that other stop
                criteria decided on, because the journal has only what those looked at.
            has_new_stop: the plan's stop criteria did not decide on any of this; an `AmendEntry`
                that says so follows.
            num_delivered: causes that callbacks know; the others' actions are `undelivered`.

        Returns:
            Entries that a torn journal lacks; the actions of its last event once more, because
            it is unknown whether they were carried out; a `StartTrial` with cause "repaired" for
            every other trial that holds a lane. `unfinished_saves` tells which checkpoints are
            still to be made.
        """
        for index, session in enumerate(sessions_of(entries, has_new_stop=has_new_stop)):
            self._actions = []
            self._recorded.open(session)
            self._feed(session, rows)
            self._recorded.close()
            if not session.is_last:
                self._entries = []
                if num_delivered is not None and index > num_delivered:
                    self.undelivered += self._actions
        started = {each.trial for each in self._actions if isinstance(each, StartTrial)}
        for number in [each for each in self._turns.holders if each not in started]:
            start = self._start_order(self._trials[number], cause="repaired")
            self._entries.append(StartEntry(number, start.lane, self._turns.number, "repaired"))
            self._actions.append(start)
        return self._step()

    def amend(self, change: AmendEntry) -> Step:
        """Extends the experiment after a replay, and goes on.

        Raises:
            TuneError: a trial that is to go on has not ended, or the scheduler cannot take more.
        """
        self._amend(change)
        return self._step()

    # ---- what may be asked

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials by number; read only."""
        return self._trials

    @property
    def num_samples(self) -> int:
        """Samples wanted, amendments included."""
        return self._num_samples

    @property
    def is_done(self) -> bool:
        """Whether `EndExperiment` was given out."""
        return self._is_done

    @property
    def is_independent(self) -> bool:
        """Whether no decision about a trial depends on another one: order does not matter."""
        return (
            self._scheduler.is_independent
            and self._searcher.is_independent
            and self._stop.is_of_trial
            and not self._plan.fail_fast
        )

    @property
    def awaited(self) -> tuple[int, int] | None:
        """(trial, row number) that the turn waits for; None: it waits for any."""
        number = self._turns.awaited
        return None if number is None else (number, self._trials[number].num_rows + 1)

    @property
    def num_trials_expected(self) -> int | None:
        """How many trials there will be in all; None: not known."""
        return self._searcher.num_trials()

    @property
    def max_run_ahead(self) -> int | None:
        """Undelivered rows that a process may be ahead, if the user left it open; None: any."""
        if self.is_independent:
            return None
        return 1 if self._plan.num_lanes <= 3 else 4

    @property
    def deadline_s(self) -> float | None:
        """Running time after which a `TimeEntry` is to come; None: never."""
        return self._stop.deadline_s

    @property
    def needs_whole_rows(self) -> bool:
        """Whether stoppers, searchers or schedulers of the user look at rows in a replay."""
        parts = (self._searcher.keys, self._scheduler.keys, self._stop.keys)
        return any(keys is None for keys in parts)

    @property
    def unfinished_saves(self) -> Set[CheckpointRef]:
        """Checkpoints that decisions asked for and that no `CommittedEntry` came for.

        After a restore those not on disk must be made again: run the trial from an older checkpoint
        up to that row (`start_for`), commit, and end the process or let it go on, if it holds a
        lane.
        """
        return frozenset(self._unfinished)

    @property
    def pinned(self) -> Set[CheckpointRef]:
        """Checkpoints that decisions still need, to be kept beyond `num_to_keep`."""
        needed = set(self._unfinished) | set(self._scheduler.pinned)
        for number in self._live:
            trial, place = self._trials[number], self._places[number]
            if trial.status is TrialStatus.PAUSED and trial.num_rows:
                needed.add(CheckpointRef(trial.number, trial.num_rows))
            if place.base is not None and place.newest_commit <= place.base_row:
                needed.add(place.base)
        return needed

    @property
    def inexact_reasons(self) -> tuple[str, ...]:
        """Why the experiment is not a function of its plan; empty when it is."""
        reasons = [self._scheduler.inexact_reason, self._searcher.inexact_reason]
        if self._plan.order == "arrival" and not self.is_independent:
            reasons.append("order='arrival' decides as rows arrive")
        if not self._stop.is_exact:
            reasons.append("a time budget or TimeoutStopper follows the clock")
        reasons.append(self._recorded.difference)
        return tuple(each for each in reasons if each)

    def config_of(self, number: int) -> Any:
        """The complete config of a trial, made anew from its params."""
        return self._plan.space.config(self._trials[number].params)

    def start_for(self, ref: CheckpointRef) -> StartTrial:
        """How a process is started that can make the state of a row once more (`lane` is -1)."""
        trial = self._trials[ref.trial]
        clones = [each for each in trial.clones if each.row_number < ref.row_number]
        later = trial.clones[len(clones) :]
        params = later[0].params_before if later else trial.params
        return StartTrial(
            trial=ref.trial,
            start_number=0,
            lane=-1,
            cause="repaired",
            params=params,
            config=self._plan.space.config(params),
            seed=self._seed_of(trial, len(clones)),
            start_from=clones[-1].source if clones else None,
            base_row=clones[-1].row_number if clones else 0,
            row_number=ref.row_number,
        )

    # ---- turns

    def _advance(self) -> None:
        """Takes all decisions that can be taken with what has been delivered."""
        while not self._is_done:
            event = self._turns.next()
            if event is None:
                return
            if event == FILL:
                self._fill()
            elif isinstance(event, Reported):
                self._decide_on_row(event)
            elif isinstance(event, TrialOver):
                self._decide_on_end(event)

    # ---- filling

    def _fill(self) -> None:
        for lane, holder in enumerate(self._turns.lanes):
            if holder is not None:
                continue
            trial = self._next_trial()
            if trial is None or not self._fits(trial):
                break
            if self._resumed:
                self._resumed.popleft()
            else:
                self._waiting = None
            self._start(trial, lane)
        if self._is_done or self._turns.holders:
            return
        self._fill_when_idle()

    def _fill_when_idle(self) -> None:
        """Nothing runs and nothing can: paused trials go on, or the experiment is over."""
        paused = sorted(self._live)
        if not paused:
            if not self._no_more:
                # The searcher has nothing now, and nothing will happen that could change it.
                self._announce_no_more()
            self._end_experiment("all trials are over")
            return
        verdicts = self._scheduler.on_idle()
        if not any(each.action in ("resume", "clone", "stop") for each in verdicts):
            # Better than waiting for ever: a bracket that never closes, a batch that never ends.
            verdicts = tuple(Verdict(each, "resume", "nothing else runs") for each in paused)
        self._settle("idle", self._decisions(verdicts))
        if not self._is_done:
            self._fill()

    def _next_trial(self) -> Trial | None:
        if self._resumed:
            return self._trials[self._resumed[0]]
        if self._waiting is None:
            self._waiting = self._suggest()
        if self._resumed:  # the end of suggestions may have let paused trials go on
            return self._trials[self._resumed[0]]
        return None if self._waiting is None else self._trials[self._waiting]

    def _fits(self, trial: Trial) -> bool:
        held = [self._trials[each].cpus for each in self._turns.holders]
        return not held or sum(held) + trial.cpus <= self._plan.cpus + 1e-9

    def _suggest(self) -> int | None:
        number = len(self._trials)
        recorded = self._recorded.suggestion(number)
        if self._no_more and recorded is None:
            return None
        found: Suggestion | str | None
        if recorded is not None:
            rng_of = self._searcher.context.rng_of(number)
            params = self._plan.space.decode(recorded.params, rng_of)
            kept = Suggestion(params, recorded.attributes)
            again = self._searcher.replay_suggestion(number, kept)
            self._recorded.compare(recorded.params, self._plan.space.encode(again.params), number)
            found = kept
        else:
            found = self._ask_searcher(number)
            if isinstance(found, Suggestion) and self._recorded.refuse_suggestion(number):
                return None
        if found is None:
            return None
        if isinstance(found, str):
            self._announce_no_more()
            return None
        return self._add_trial(number, found, recorded)

    def _ask_searcher(self, number: int) -> Suggestion | str | None:
        total = self._searcher.num_trials()
        if total is not None and number >= total:
            return Searcher.FINISHED
        num_unfinished = len(self._live)
        num_running = len(self._turns.holders)
        if not self._searcher.may_suggest(num_running, num_unfinished):
            return None
        found = self._searcher.next_suggestion(number)
        if isinstance(found, Suggestion) or found in (None, Searcher.FINISHED):
            return found
        raise TuneError(
            f"{type(self._searcher).__name__}.suggest('{number:05d}') gave {shown(found)}; "
            "expected a dict of settings, None (not now) or Searcher.FINISHED."
        )

    def _announce_no_more(self) -> None:
        self._no_more = True
        self._settle("no-more", self._decisions(self._scheduler.on_no_more_trials()))

    def _add_trial(self, number: int, found: Suggestion, recorded: SuggestEntry | None) -> int:
        space = self._plan.space
        if recorded is None:
            cpus = float(self._plan.cpus_of(space.config(found.params)))
            entry = SuggestEntry(number, space.encode(found.params), cpus, found.attributes)
        else:
            cpus, entry = recorded.cpus, recorded
        self._consequence(entry)
        trial = Trial(
            number=number,
            params=dict(found.params),
            cpus=cpus,
            seed=trial_seed(self._plan.seed, number),
            attributes=found.attributes,
        )
        self._trials.append(trial)
        self._places[number] = _TrialState()
        self._live[number] = None
        self._scheduler.on_trial_add(trial)
        return number

    def _start(self, trial: Trial, lane: int) -> None:
        self._turns.lanes[lane] = trial.number
        trial.lane, trial.status = lane, TrialStatus.RUNNING
        trial.num_starts += 1
        cause = self._places[trial.number].cause
        self._consequence(StartEntry(trial.number, lane, self._turns.number, cause))
        self._actions.append(self._start_order(trial, cause))

    def _start_order(
        self, trial: Trial, cause: Literal["new", "resumed", "retry", "clone", "repaired"]
    ) -> StartTrial:
        place = self._places[trial.number]
        is_resumed = cause == "resumed" and trial.num_rows > 0
        return StartTrial(
            trial=trial.number,
            start_number=trial.num_starts,
            lane=-1 if trial.lane is None else trial.lane,
            cause=cause,
            params=trial.params,
            config=self.config_of(trial.number),
            seed=self._seed_of(trial, len(trial.clones)),
            start_from=(CheckpointRef(trial.number, trial.num_rows) if is_resumed else place.base),
            base_row=trial.num_rows if is_resumed else place.base_row,
            row_number=trial.num_rows,
        )

    def _seed_of(self, trial: Trial, generation: int) -> int:
        if generation == 0:
            return trial.seed
        return seed_at(self._plan.seed, Kind.CLONE, trial.number, generation)

    # ---- deciding

    def _decide_on_row(self, event: Reported) -> None:
        trial, place = self._trials[event.trial], self._places[event.trial]
        row = event.row
        trial.num_rows, trial.last_row, place.saving = event.row_number, row, event.saving
        if not self._recorded.is_replay:
            self._entries.append(self._report_entry(event))
            self._times.warn(row, type(self._scheduler).__name__)
        problem = self._appearing.look(row)
        if problem is not None:
            raise TuneError(
                f"The metric cannot be compared. {problem} Correct TuneConfig(metric=...)."
            )
        decisions = self._own_end(trial, event)
        decisions += self._end_of_all()
        if not decisions:
            decisions = self._decisions(self._scheduler_verdicts(trial, row))
        decisions = self._recorded.decisions("row", decisions)
        self._count_row(event, decisions)
        own = next((each for each in decisions if each.trial == trial.number), None)
        if own is None or own.action not in ("stop", "stop-all"):
            self._searcher.on_row(trial, row)
        self._apply(decisions)

    def _report_entry(self, event: Reported) -> ReportEntry:
        return ReportEntry(
            event.trial,
            event.row_number,
            view_of(event.row, self._keys),
            event.digest,
            event.saving,
            event.is_done,
            event.wants_checkpoint,
        )

    def _own_end(self, trial: Trial, event: Reported) -> list[DecideEntry]:
        """The end of the trial by what its row says, or by a criterion for single trials."""
        is_past = self._recorded.has_other_criteria
        reason = self._stop.stops_trial(trial.trial_id, event.row, is_past=is_past)
        if is_past:
            reason = self._recorded.criterion_reason(trial.number)
        if event.is_done:
            said = str(event.row.get("stop_reason") or "done")
            return [DecideEntry(trial.number, "stop", said, by="trial")]
        if reason is not None:
            return [DecideEntry(trial.number, "stop", reason, by="criterion")]
        return []

    def _end_of_all(self) -> list[DecideEntry]:
        reason = self._stop.stops_all()
        if self._recorded.has_other_criteria:
            reason = self._recorded.end_of_all_reason()
        return [] if reason is None else [_stop_all(reason)]

    def _scheduler_verdicts(self, trial: Trial, row: Row) -> Sequence[Verdict]:
        given = self._scheduler.on_trial_result(trial, row)
        if given == TrialScheduler.CONTINUE:
            return ()
        if given == TrialScheduler.PAUSE:
            return (Verdict(trial.number, "pause"),)
        if given == TrialScheduler.STOP:
            return (Verdict(trial.number, "stop", type(self._scheduler).__name__),)
        if isinstance(given, list | tuple) and all(isinstance(each, Verdict) for each in given):
            return given
        raise TuneError(
            f"{type(self._scheduler).__name__}.on_trial_result() gave {shown(given)}; expected "
            "CONTINUE, PAUSE, STOP or a list of verdicts."
        )

    def _decisions(self, verdicts: Sequence[Verdict]) -> list[DecideEntry]:
        return [
            DecideEntry(
                trial=each.trial,
                action=each.action,
                reason=each.reason,
                is_early=each.is_early and each.action == "stop",
                donor=each.donor,
                donor_row=each.donor_row,
                params=None if each.params is None else self._plan.space.encode(each.params),
            )
            for each in verdicts
        ]

    def _count_row(self, event: Reported, decisions: Sequence[DecideEntry]) -> None:
        ref = CheckpointRef(event.trial, event.row_number)
        is_paused = any(each.trial == event.trial and each.action == "pause" for each in decisions)
        if event.saving == "none" and (is_paused or ref in self._scheduler.pinned):
            raise TuneError(
                f"{type(self._scheduler).__name__} wants to go on from row {event.row_number} of "
                f"trial {event.trial:05d} later, and the row came without a checkpoint. Report one "
                "with such rows: tune.report(metrics, checkpoint=...)."
            )
        frequency = self._plan.save_frequency
        is_due = frequency > 0 and event.row_number % frequency == 0
        is_wanted = is_due or event.wants_checkpoint or ref in self._scheduler.pinned
        save = event.saving == "given" or (event.saving == "possible" and is_wanted)
        if save:
            self._ask_for(ref)
        self._actions.append(CountRow(event.trial, event.row_number, event.row, save))

    def _ask_for(self, ref: CheckpointRef) -> None:
        place = self._places[ref.trial]
        if ref.row_number in (place.early_commits or ()):
            place.early_commits, place.newest_commit = None, ref.row_number
        elif place.newest_commit < ref.row_number:
            self._unfinished.add(ref)

    def _decide_on_end(self, event: TrialOver) -> None:
        trial = self._trials[event.trial]
        self._cause(OverEntry(event.trial, event.how, event.error))
        if event.how == "returned":
            self._settle("over", [DecideEntry(trial.number, "stop", "returned", by="trial")])
            return
        trial.num_failures += event.how == "failed"
        limit = self._plan.max_failures
        is_retried = event.how == "failed" and (limit < 0 or trial.num_failures <= limit)
        retry = DecideEntry(trial.number, "retry", "an error in its code", by="experiment")
        # Limits may have been changed at a restore: what was decided before is not judged again.
        if self._recorded.retries(trial.number, or_else=is_retried):
            self._settle("over", [retry])
            return
        self._end_trial(trial, TrialStatus.ERROR, "failed", "failed", error=event.error)
        verdicts = self._scheduler.on_trial_complete(trial, trial.last_row, True)
        self._settle(f"end {trial.trial_id}", self._decisions(verdicts))
        if self._plan.fail_fast and not self._recorded.is_replay:
            # The others stay as they are, to be gone on with by a restore.
            self._end_experiment(f"trial {trial.trial_id} failed", is_failure=True)

    # ---- acting

    def _settle(self, moment: str, decisions: Sequence[DecideEntry]) -> None:
        self._apply(self._recorded.decisions(moment, decisions))

    def _apply(self, decisions: Sequence[DecideEntry]) -> None:
        for each in decisions:
            self._consequence(each)
        for each in decisions:
            if each.action == "stop-all":
                self._stop_all(each)
                return
            trial = self._trials[each.trial]
            if trial.status.is_over:
                continue
            if each.action == "stop":
                self._stop_trial(trial, each)
            elif each.action == "pause":
                self._pause(trial)
            elif each.action == "resume":
                self._queue(trial, "resumed")
            elif each.action == "clone":
                self._clone(trial, each)
            else:
                self._restart_in_lane(trial, "retry")

    def _stop_trial(self, trial: Trial, decision: DecideEntry) -> None:
        how: HowOver = "pruned" if decision.is_early else "complete"
        self._end_trial(trial, TrialStatus.TERMINATED, decision.reason, how)
        if decision.by != "scheduler":
            verdicts = self._scheduler.on_trial_complete(trial, trial.last_row, False)
            self._settle(f"end {trial.trial_id}", self._decisions(verdicts))

    def _end_trial(
        self,
        trial: Trial,
        status: TrialStatus,
        reason: str,
        how: HowOver,
        *,
        error: str | None = None,
    ) -> None:
        place, was_paused = self._places[trial.number], trial.status is TrialStatus.PAUSED
        self._leave_lane(trial)
        self._live.pop(trial.number, None)
        trial.status, trial.stop_reason, trial.error = status, reason, error
        if trial.number in self._resumed:
            self._resumed.remove(trial.number)
        if self._waiting == trial.number:
            self._waiting = None
        ended: Literal["ERROR", "TERMINATED"]
        ended = "ERROR" if status is TrialStatus.ERROR else "TERMINATED"
        self._consequence(EndEntry(trial.number, ended, reason, error))
        save = (
            self._plan.save_at_end
            and status is TrialStatus.TERMINATED
            and place.saving == "possible"
            and not was_paused
        )
        if save:
            self._ask_for(CheckpointRef(trial.number, trial.num_rows))
        if status is TrialStatus.ERROR:
            self._unfinished = {each for each in self._unfinished if each.trial != trial.number}
        self._actions.append(EndTrial(trial.number, trial.num_rows, status, reason, save))
        self._searcher.on_over(trial, trial.last_row, how)
        if trial.last_row is not None:
            trial.last_row = view_of(trial.last_row, self._keys)

    def _leave_lane(self, trial: Trial) -> None:
        self._turns.free(trial.number)
        trial.lane = None
        self._places[trial.number].early_commits = None

    def _pause(self, trial: Trial) -> None:
        self._leave_lane(trial)
        trial.status = TrialStatus.PAUSED
        self._ask_for(CheckpointRef(trial.number, trial.num_rows))
        self._actions.append(PauseTrial(trial.number, trial.num_rows))

    def _queue(self, trial: Trial, cause: Literal["resumed", "clone", "retry"]) -> None:
        self._places[trial.number].cause = cause
        if trial.number not in self._resumed:
            self._resumed.append(trial.number)

    def _clone(self, trial: Trial, decision: DecideEntry) -> None:
        source = CheckpointRef(int(decision.donor or 0), int(decision.donor_row or 0))
        rng_of = self._searcher.context.rng_of(trial.number)
        params = self._plan.space.decode(decision.params or {}, rng_of)
        donor = self._trials[source.trial].params
        changes = {
            path: (donor.get(path), value)
            for path, value in params.items()
            if path not in donor or donor[path] is not value
        }
        generation = len(trial.clones) + 1
        trial.clones.append(Clone(trial.num_rows, source, changes, trial.params, generation))
        trial.params = params
        place = self._places[trial.number]
        place.base, place.base_row = source, trial.num_rows
        if trial.lane is None:
            self._queue(trial, "clone")
        else:
            self._restart_in_lane(trial, "clone")

    def _restart_in_lane(self, trial: Trial, cause: Literal["retry", "clone"]) -> None:
        lane = int(trial.lane or 0)  # only what holds a lane is started anew on the spot
        self._leave_lane(trial)
        self._places[trial.number].cause = cause
        self._start(trial, lane)

    def _stop_all(self, decision: DecideEntry) -> None:
        running = [self._trials[each] for each in self._turns.holders]
        others = [self._trials[each] for each in sorted(self._live)]
        others = [each for each in others if each.lane is None]
        for trial in [*running, *others]:
            self._end_trial(trial, TrialStatus.TERMINATED, decision.reason, "pruned")
        self._no_more = True
        self._end_experiment(decision.reason)

    def _end_experiment(self, reason: str, *, is_failure: bool = False) -> None:
        self._is_done = True
        self._actions.append(EndExperiment(reason, is_failure))

    # ---- events, checkpoints, amendments

    def _is_current(self, event: Reported | TrialOver) -> bool:
        if self._is_done or not 0 <= event.trial < len(self._trials):
            return False
        trial = self._trials[event.trial]
        if trial.lane is None or event.start_number != trial.num_starts:
            return False
        expected = trial.num_rows + 1 + self._turns.num_rows_waiting(event.trial)
        if isinstance(event, Reported) and event.row_number != expected:
            raise TuneError(
                f"Row {event.row_number} of trial {event.trial:05d} was delivered; expected row "
                f"{expected}. Rows come one after the other, each once."
            )
        return True

    def _commit(self, event: CommittedEntry) -> None:
        ref = CheckpointRef(event.trial, event.row_number)
        place, trial = self._places[ref.trial], self._trials[ref.trial]
        self._cause(event)
        self._actions.append(CountCheckpoint(event.trial, event.name))
        self._unfinished.discard(ref)
        if ref.row_number > trial.num_rows:
            place.early_commits = {*(place.early_commits or ()), ref.row_number}
        else:
            place.newest_commit = max(place.newest_commit, ref.row_number)

    def _amend(self, change: AmendEntry) -> None:
        self._check_amendment(change)
        self._cause(change)
        if change.num_samples is not None:
            self._num_samples = change.num_samples
            self._searcher.extend(change.num_samples)
            self._no_more = False
        for number in [*change.resumed, *change.restarted]:
            trial, place = self._trials[number], self._places[number]
            trial.status, trial.stop_reason, trial.error = TrialStatus.PAUSED, None, None
            self._live[number] = None
            if number in change.restarted:
                trial.num_rows, trial.last_row, trial.clones = 0, None, []
                place.base, place.base_row, place.newest_commit = None, 0, 0
            self._queue(trial, "retry")
        self._is_done = False
        self._turns.fill_again()
        self._advance()

    def _check_amendment(self, change: AmendEntry) -> None:
        for number in [*change.resumed, *change.restarted]:
            if not 0 <= number < len(self._trials) or not self._trials[number].status.is_over:
                raise TuneError(
                    f"Trial {number:05d} cannot be taken up again: it has not ended. Only trials "
                    "that ended or failed can be."
                )
        more = change.num_samples
        if more is not None and self._scheduler.has_fixed_population:
            raise TuneError(
                f"num_samples={more}: {type(self._scheduler).__name__} has a population of "
                f"{self._num_samples} since the start, and it cannot grow. Begin a new experiment."
            )
        if more is not None and 0 <= more < self._num_samples:
            raise TuneError(
                f"num_samples={more} is less than the {self._num_samples} of the experiment; "
                "expected as many or more: trials that were begun cannot be taken back."
            )

    # ---- replaying

    def _feed(self, session: Session, rows: RowOf) -> None:
        """Does once more what followed from one cause of the journal."""
        cause = session.cause
        number = getattr(cause, "trial", 0)
        if cause is not None and number >= len(self._trials):
            raise self._recorded.damaged(f"trial {number:05d}")
        if cause is None:
            self._advance()
        elif isinstance(cause, ReportEntry):
            whole = self.needs_whole_rows or self._recorded.has_other_criteria
            row = rows(cause.trial, cause.row_number) if whole else cause.view
            self._feed_event(Reported.again(cause, self._trials[cause.trial].num_starts, row))
        elif isinstance(cause, OverEntry):
            start_number = self._trials[cause.trial].num_starts
            self._feed_event(TrialOver(cause.trial, start_number, cause.how, cause.error))
        elif isinstance(cause, CommittedEntry):
            self._commit(cause)
        elif isinstance(cause, TimeEntry):
            self._settle("time", [_stop_all("time budget used up")])
        elif isinstance(cause, AmendEntry):
            self._amend(cause)

    def _feed_event(self, event: Reported | TrialOver) -> None:
        if not self._is_current(event):
            raise self._recorded.damaged(f"a row or an end of trial {event.trial:05d}")
        self._turns.deliver(event)
        # The recorded order wins; in an exact experiment the turn stands there already.
        self._turns.stand_at(event.trial)
        self._advance()

    def _cause(self, entry: Entry) -> None:
        """Journals what was not decided but happened; in a replay it is there already."""
        if not self._recorded.is_replay:
            self._entries.append(entry)

    def _consequence(self, entry: Entry) -> None:
        if self._recorded.lacks(entry):
            self._entries.append(entry)

    def _step(self) -> Step:
        step = Step(tuple(self._entries), tuple(self._actions))
        self._entries, self._actions = [], []
        return step


def _stop_all(reason: str) -> DecideEntry:
    return DecideEntry(WHOLE_EXPERIMENT, "stop-all", reason, by="experiment")

"""The controller of an experiment: causes in, moves out. No clock, no process, no file.

    live       a cause is noted  →  those who decide are asked  →  each of their answers is an
               entry, which is applied, and what is answered to it follows
    restored   a line of the journal: its cause is noted, its entries are applied; those who
               decide are asked the same, and their answers are only compared (`Comparison`)

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

What stands in the journal is not judged by the criteria, limits and code of today. But a journal
may be a stranger's, so an entry that cannot have happened is refused where it is applied, before it
changes anything.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trainer.errors import JournalError, TuneError
from trainer.seeding import trial_seed
from trainer.tune.comparison import Comparison
from trainer.tune.events import (
    Action,
    CheckpointRef,
    Clone,
    CountCheckpoint,
    CountRow,
    EndExperiment,
    EndTrial,
    PauseTrial,
    StartTrial,
    Step,
    Trial,
    TrialStatus,
)
from trainer.tune.journal_entries import (
    AmendEntry,
    Cause,
    CloneEntry,
    CommittedEntry,
    Consequence,
    DecideEntry,
    Decision,
    EndAllEntry,
    EndEntry,
    FillEntry,
    IdleEntry,
    Move,
    NoMoreEntry,
    NoSuggestionEntry,
    Reported,
    StartEntry,
    SuggestEntry,
    TimeEntry,
    TrialOver,
    decision_on,
    is_over_by_itself,
    with_past,
)
from trainer.tune.parts import keys_of
from trainer.tune.plan import ExperimentPlan
from trainer.tune.positions import Kind, seed_at
from trainer.tune.rows import AppearingKeys, Row, row_of_end, view_of
from trainer.tune.scheduling import SchedulerContext, Verdict, entry_of
from trainer.tune.searchers import HowOver, SearchContext, Searcher, Suggestion
from trainer.tune.turns import FILL, Turns
from trainer_toolkit.trees import copied_if_possible

RowOf = Callable[[int, int], Row]
"""(trial, row number) -> the complete row, from where rows are kept."""


@dataclass(slots=True)
class _TrialState:
    """What the controller keeps of one trial besides its record.

    Attributes:
        base: the checkpoint that its present life began with; None: the beginning.
        base_row: rows that it had then.
        cause: of its next start, or of the last one.
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
    """Decides what an experiment does next; a function of the plan and of the causes in order.

    Life: `begin()` or `replay()` once, then `take()` for every cause until `is_done`. Each gives
    steps; write the move of each to the journal first, then carry out its actions in order. An
    error raised here leaves nothing to journal: end in order and let the user restore.

    Attributes:
        undelivered: after a replay, actions that callbacks do not know.
        comparison: what the code of today decided otherwise than the journal.

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
        self._times = AppearingKeys({*(keys_of(self._scheduler) or ())} - {self._scheduler.metric})
        keys = {"training_iteration", "stop_reason", *([plan.metric] if plan.metric else [])}
        keys.update(*(looked_at or () for looked_at in self._all_keys))
        self._keys = sorted(keys)
        self._num_samples = plan.num_samples
        self._trials: list[Trial] = []
        self._places: dict[int, _TrialState] = {}
        self._live: dict[int, None] = {}  # trials that are not over, by number
        self._resumed: deque[int] = deque()
        self._waiting: int | None = None
        self._is_search_over = False
        is_by_arrival = plan.order == "arrival" or self.is_independent
        self._turns = Turns(plan.num_lanes, is_by_arrival=is_by_arrival)
        self._unfinished: set[CheckpointRef] = set()
        self._end: EndAllEntry | None = None
        # The move that is being made; of one that is replayed the actions only.
        self._cause: Cause | None = None
        self._then: list[Consequence] = []
        self._actions: list[Action] = []
        self.comparison = Comparison()
        self.undelivered: list[Action] = []

    # ---- what the loop calls

    def begin(self) -> list[Step]:
        """The first trials of a new experiment."""
        return self._made(None)

    def take(self, cause: Reported | TrialOver | CommittedEntry | TimeEntry) -> list[Step]:
        """What follows from a cause; those of different trials may come in any order.

        Those of a process that was told to end are dropped by their `start_number`, and those that
        come early wait for their turn.

        Raises:
            TuneError: the experiment cannot go on as it is written; or a stop criterion raised.
                What a searcher or scheduler raises comes out as it is.
        """
        if not isinstance(cause, Reported | TrialOver):
            return self._made(cause)
        if not self._is_current(cause):
            return []
        self._turns.deliver(cause)
        return self._advance(is_open=False)

    def replay(
        self,
        moves: Sequence[Move],
        rows: RowOf,
        *,
        has_new_stop: bool = False,
        num_delivered: int | None = None,
    ) -> list[Step]:
        """Comes to where the journal ends, and goes on from there.

        Args:
            moves: all of the journal, header left out.
            rows: gives whole rows; asked if `needs_whole_rows`, and for rows that other stop
                criteria decided on, because the journal has only what those looked at.
            has_new_stop: the plan's stop criteria did not decide on any of this; an `AmendEntry`
                that says so follows.
            num_delivered: moves that callbacks know; the others' actions are `undelivered`.

        Returns:
            First, without a move, the actions of the last move once more, because it is unknown
            whether they were carried out, and a `StartTrial` with cause "repaired" for every other
            trial that holds a lane. `unfinished_saves`: checkpoints that are still to be made.

        Raises:
            JournalError: a move cannot have happened, or cannot be followed with the code of today.
                The controller is of no use then.
        """
        if not moves:
            return [Step(None), *self.begin()]
        for index, (move, is_past) in enumerate(with_past(moves, has_new_stop=has_new_stop)):
            if index and num_delivered is not None and index > num_delivered:
                self.undelivered += self._actions
            try:
                self._follow(move, rows, is_past=is_past)
            except TuneError as error:
                raise JournalError(
                    f"The journal cannot be followed, move {index + 1}: {error} It is damaged or "
                    "forged, or code of yours decides otherwise than before. Nothing was changed."
                ) from error
            if self._end is not None and self._end.is_failure:
                self._end = None  # the others stayed as they were, and go on
        started = {each.trial for each in self._actions if isinstance(each, StartTrial)}
        repairs = [
            self._start_order(self._trials[each], cause="repaired")
            for each in self._turns.holders
            if each not in started
        ]
        again = Step(None, (*self._actions, *repairs))
        return [again, *self._advance(is_open=False)]

    def amend(self, change: AmendEntry) -> list[Step]:
        """Extends the experiment after a replay, and goes on.

        Raises:
            TuneError: a trial that is to go on has not ended, or the scheduler cannot take more.
        """
        return self._made(change)

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
        return self._end is not None

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
        return None in self._all_keys

    @property
    def _all_keys(self) -> tuple[Sequence[str] | None, ...]:
        return keys_of(self._searcher), keys_of(self._scheduler), self._stop.keys

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
        return tuple(each for each in (*reasons, self.comparison.difference) if each)

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

    # ---- moves

    def _made(self, cause: Cause | None) -> list[Step]:
        """The move of a cause that waits for nothing, and those that follow."""
        self._make_move(cause)
        return self._advance(is_open=True)

    def _advance(self, *, is_open: bool) -> list[Step]:
        """All moves that can be made with what was delivered.

        Lanes are filled in the move before, which may be open.
        """
        steps: list[Step] = []
        while not self.is_done and (event := self._turns.next()) is not None:
            if event == FILL:
                if not is_open:
                    self._make_move(None)
                    is_open = True
                self._fill()
                continue
            assert isinstance(event, Reported | TrialOver)  # noqa: S101 - there is no third
            if is_open:
                steps.append(self._step())
            self._make_move(event)
            is_open = True
        if is_open:
            steps.append(self._step())
        return steps

    def _make_move(self, cause: Cause | None) -> None:
        """Begins a move: what happened, and what is decided about it."""
        self._cause, self._then, self._actions = cause, [], []
        self._note(cause)
        decided = self._ask(cause)
        if isinstance(cause, Reported):
            self._count_row(cause, decided)
            self._times.warn(cause.row, type(self._scheduler).__name__)
        for entry in decided:
            self._do(entry)

    def _do(self, entry: Consequence) -> None:
        """Writes an entry, applies it, and does what is answered to it."""
        if self.is_done or self._is_too_late(entry):
            return
        self._then.append(entry)
        for answer in self._apply(entry):
            self._do(answer)

    def _is_too_late(self, entry: Consequence) -> bool:
        """Whether it decides about a trial that is over."""
        return isinstance(entry, Decision) and self._trial(entry.trial).status.is_over

    def _step(self) -> Step:
        cause = self._cause
        if isinstance(cause, Reported):
            cause = dataclasses.replace(cause, row=view_of(cause.row, self._keys))
        return Step(Move(cause, tuple(self._then)), tuple(self._actions))

    def _follow(self, move: Move, rows: RowOf, *, is_past: bool) -> None:
        """Does a move of the journal once more; what is answered is compared and not done."""
        cause, self._actions = move.cause, []
        if isinstance(cause, Reported | TrialOver):
            if not self._is_current(cause):
                raise TuneError(
                    f"Trial {cause.trial:05d} made a row or ended, and start {cause.start_number} "
                    "of it did not run at that time."
                )
            self._turns.pass_by(cause.trial)
        if isinstance(cause, Reported) and (self.needs_whole_rows or is_past):
            cause = dataclasses.replace(cause, row=rows(cause.trial, cause.row_number))
        self._note(cause)
        answers = self._in_time(self._ask(cause, move.decided, is_past=is_past))
        if isinstance(cause, Reported):
            self._count_row(cause, move.decided)
        for entry in move.then:
            self._repeat_asking(entry)
            answers += self._in_time(self._apply(entry))
        self.comparison.compare(answers, move.then, has_other_criteria=is_past)

    def _in_time(self, answers: Iterable[Consequence]) -> list[Consequence]:
        """Judged when they are given: later, the recorded ends are applied."""
        return [each for each in answers if not self._is_too_late(each)]

    def _repeat_asking(self, entry: Consequence) -> None:
        """Has the searcher do what it did before a recorded entry, and compares."""
        number, space = len(self._trials), self._plan.space
        recorded: Mapping[str, Any] | str | None = None
        if isinstance(entry, SuggestEntry):
            self._may_suggest()  # a limiter counts its batches by being asked
            recorded = entry.params
            params = space.decode(recorded, self._searcher.context.rng_of(number))
            again = self._searcher.replay_suggestion(number, Suggestion(params, entry.attributes))
        elif entry in (NoSuggestionEntry(), NoMoreEntry(is_asked=True)):
            recorded = Searcher.FINISHED if isinstance(entry, NoMoreEntry) else None
            again = self._searcher.answer(number) if self._may_suggest() else None
        else:
            return
        today = space.encode(again.params) if isinstance(again, Suggestion) else again
        self.comparison.compare_suggestion(number, recorded, today)

    # ---- a cause: noted, then those who decide are asked

    def _note(self, cause: Cause | None) -> None:
        """Takes what happened into the records."""
        if isinstance(cause, Reported):
            trial = self._trials[cause.trial]
            trial.num_rows, trial.last_row = cause.row_number, cause.row
            self._places[cause.trial].saving = cause.saving
        elif isinstance(cause, TrialOver):
            self._trials[cause.trial].num_failures += cause.how == "failed"
        elif isinstance(cause, CommittedEntry):
            self._commit(cause)
        elif isinstance(cause, AmendEntry):
            self._amend(cause)

    def _ask(
        self,
        cause: Cause | None,
        recorded: Sequence[Consequence] | None = None,
        *,
        is_past: bool = False,
    ) -> list[Consequence]:
        """What stoppers and scheduler decide about a cause.

        In a replay `recorded` is in force: the scheduler hears of a row if it did then. `is_past`:
        the stop criteria were replaced later, so today's did not decide.
        """
        if isinstance(cause, Reported):
            return self._ask_about_row(cause, recorded, is_past=is_past)
        if isinstance(cause, TrialOver):
            return self._decided_on_end(cause)
        if isinstance(cause, TimeEntry):
            return self._ends_of_all("time budget used up")
        return []

    def _ask_about_row(
        self, event: Reported, recorded: Sequence[Consequence] | None, *, is_past: bool
    ) -> list[Consequence]:
        problem = self._appearing.look(event.row)
        if problem is not None:
            raise TuneError(
                f"The metric cannot be compared. {problem} Correct TuneConfig(metric=...)."
            )
        trial = self._trials[event.trial]
        answers = self._ends_by_criteria(trial, event, is_past=is_past)
        if not is_over_by_itself(answers if recorded is None else recorded):
            answers += self._decisions(self._scheduler.verdicts_on(trial, event.row))
        return answers

    def _ends_by_criteria(
        self, trial: Trial, event: Reported, *, is_past: bool
    ) -> list[Consequence]:
        """The end of the trial by what its row says, or by a criterion; and that of all."""
        found: list[Consequence] = []
        reason = self._stop.stops_trial(trial.trial_id, event.row, is_past=is_past)
        if event.is_done:
            said = str(event.row.get("stop_reason") or "done")
            found.append(EndEntry(trial.number, "TERMINATED", said, by="trial"))
        elif reason is not None:
            found.append(EndEntry(trial.number, "TERMINATED", reason, by="criterion"))
        if (reason := self._stop.stops_all()) is not None:
            found += self._ends_of_all(reason)
        return found

    def _ends_of_all(self, reason: str) -> list[Consequence]:
        running = self._turns.holders
        others = [each for each in sorted(self._live) if self._trials[each].lane is None]
        ends = [
            EndEntry(each, "TERMINATED", reason, by="experiment", is_early=True)
            for each in [*running, *others]
        ]
        return [*ends, EndAllEntry(reason)]

    def _decisions(self, verdicts: Iterable[Verdict] | None) -> list[Consequence]:
        return [entry_of(each, self._plan.space) for each in verdicts or ()]  # users' may be None

    def _decided_on_end(self, event: TrialOver) -> list[Consequence]:
        trial, limit = self._trials[event.trial], self._plan.max_failures
        if event.how == "returned":
            return [EndEntry(trial.number, "TERMINATED", "returned", by="trial")]
        if event.how == "failed" and (limit < 0 or trial.num_failures <= limit):
            return [DecideEntry(trial.number, "retry", "an error in its code")]
        end = EndEntry(trial.number, "ERROR", "failed", event.error, by="experiment")
        if not self._plan.fail_fast:
            return [end]
        return [end, EndAllEntry(f"trial {trial.trial_id} failed", is_failure=True)]

    def _count_row(self, event: Reported, decided: Iterable[Consequence]) -> None:
        """Has a row count, now that it is known whether its trial goes on."""
        ref, own = CheckpointRef(event.trial, event.row_number), decision_on(event.trial, decided)
        is_paused = isinstance(own, DecideEntry) and own.action == "pause"
        if event.saving == "none" and (is_paused or ref in self._scheduler.pinned):
            raise TuneError(
                f"{type(self._scheduler).__name__} wants to go on from row {event.row_number} of "
                f"trial {event.trial:05d} later, and the row came without a checkpoint. Report one "
                "with such rows: tune.report(metrics, checkpoint=...)."
            )
        frequency = self._plan.save_frequency
        is_due = frequency > 0 and event.row_number % frequency == 0
        is_wanted = is_due or event.wants_checkpoint or ref in self._scheduler.pinned
        should_save = event.saving == "given" or (event.saving == "possible" and is_wanted)
        if should_save:
            self._ask_for(ref)
        self._actions.append(CountRow(event.trial, event.row_number, event.row, should_save))
        if not isinstance(own, EndEntry):
            self._searcher.on_row(self._trials[event.trial], event.row)

    def _ask_for(self, ref: CheckpointRef) -> None:
        place = self._places[ref.trial]
        if ref.row_number in (place.early_commits or ()):
            place.early_commits, place.newest_commit = None, ref.row_number
        elif place.newest_commit < ref.row_number:
            self._unfinished.add(ref)

    def _commit(self, event: CommittedEntry) -> None:
        ref = CheckpointRef(event.trial, event.row_number)
        trial, place = self._trial(ref.trial), self._places[ref.trial]
        self._actions.append(CountCheckpoint(event.trial, event.name))
        self._unfinished.discard(ref)
        if ref.row_number > trial.num_rows:
            place.early_commits = {*(place.early_commits or ()), ref.row_number}
        else:
            place.newest_commit = max(place.newest_commit, ref.row_number)

    def _amend(self, change: AmendEntry) -> None:
        self._check_amendment(change)
        if change.num_samples is not None:
            self._searcher.extend(change.num_samples)
            self._num_samples, self._is_search_over = change.num_samples, False
        for number in [*change.resumed, *change.restarted]:
            trial, place = self._trials[number], self._places[number]
            trial.status, trial.stop_reason, trial.error = TrialStatus.PAUSED, None, None
            self._live[number] = None
            if number in change.restarted:
                trial.num_rows, trial.last_row, trial.clones = 0, None, []
                place.base, place.base_row, place.newest_commit = None, 0, 0
            self._queue(trial, "retry")
        self._end = None
        self._turns.fill_again()

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

    # ---- what follows: applied; gives what is answered to it

    def _apply(self, entry: Consequence) -> Sequence[Consequence]:
        """Raises a TuneError, before it changes anything, for what cannot be done."""
        if self._end is not None:
            raise TuneError(f"Something followed the end of the experiment ({self._end.reason}).")
        return self._APPLY[type(entry)](self, entry)

    def _trial(self, number: int) -> Trial:
        if not 0 <= number < len(self._trials):
            raise TuneError(f"There is no trial {number:05d} at that time.")
        return self._trials[number]

    def _begin_turn(self, _: FillEntry) -> Sequence[Consequence]:
        self._turns.begin()
        return ()

    def _add_trial(self, entry: SuggestEntry) -> Sequence[Consequence]:
        number = entry.trial
        if number != len(self._trials) or self._waiting is not None:
            raise TuneError(
                f"Trial {number:05d} was suggested; expected trial {len(self._trials):05d}, and "
                "not before the last one has begun."
            )
        params = self._plan.space.decode(entry.params, self._searcher.context.rng_of(number))
        trial = Trial(
            number=number,
            params=dict(params),
            cpus=entry.cpus,
            seed=trial_seed(self._plan.seed, number),
            attributes=entry.attributes,
        )
        self._trials.append(trial)
        self._places[number] = _TrialState()
        self._live[number] = None
        self._waiting = number
        self._scheduler.on_trial_add(trial)
        return ()

    def _end_search(self, _: NoMoreEntry) -> Sequence[Consequence]:
        self._is_search_over = True
        return self._decisions(self._scheduler.on_no_more_trials())

    def _wake(self, _: IdleEntry) -> Sequence[Consequence]:
        verdicts = self._scheduler.on_idle()
        if not any(each.action in ("resume", "clone", "stop") for each in verdicts):
            # Better than waiting for ever: a bracket that never closes, a batch that never ends.
            paused = sorted(self._live)
            verdicts = tuple(Verdict(each, "resume", "nothing else runs") for each in paused)
        return self._decisions(verdicts)

    def _start(self, entry: StartEntry) -> Sequence[Consequence]:
        number, lane, lanes = entry.trial, entry.lane, self._turns.lanes
        if number != self._next or lane >= len(lanes) or lanes[lane] is not None:
            raise TuneError(
                f"Trial {number:05d} took lane {lane}, and it is not its turn, or the lane is not "
                "free."
            )
        if self._resumed:
            self._resumed.popleft()
        else:
            self._waiting = None
        trial = self._trials[number]
        lanes[lane] = number
        trial.lane, trial.status = lane, TrialStatus.RUNNING
        trial.num_starts += 1
        self._actions.append(self._start_order(trial, self._places[number].cause))
        return ()

    def _decide(self, entry: DecideEntry) -> Sequence[Consequence]:
        trial, action = self._trial(entry.trial), entry.action
        expected = TrialStatus.PAUSED if action == "resume" else TrialStatus.RUNNING
        if trial.status is not expected:
            raise _not_possible(trial, action)
        if action == "retry":
            return self._restart(trial, "retry")
        if action == "resume":
            self._queue(trial, "resumed")
        else:
            self._pause(trial)
        return ()

    def _pause(self, trial: Trial) -> None:
        self._leave_lane(trial)
        trial.status = TrialStatus.PAUSED
        self._ask_for(CheckpointRef(trial.number, trial.num_rows))
        self._actions.append(PauseTrial(trial.number, trial.num_rows))

    def _clone(self, entry: CloneEntry) -> Sequence[Consequence]:
        trial, donor = self._trial(entry.trial), self._trial(entry.donor)
        if trial.status not in (TrialStatus.RUNNING, TrialStatus.PAUSED):
            raise _not_possible(trial, "clone")
        if not 1 <= entry.donor_row <= donor.num_rows:
            raise TuneError(
                f"Trial {trial.trial_id} went on from row {entry.donor_row} of trial "
                f"{donor.trial_id}, which has {donor.num_rows}."
            )
        rng_of = self._searcher.context.rng_of(trial.number)
        params = self._plan.space.decode(entry.params, rng_of)
        source = CheckpointRef(entry.donor, entry.donor_row)
        changes = {
            path: (donor.params.get(path), value)
            for path, value in params.items()
            if path not in donor.params or donor.params[path] is not value
        }
        generation = len(trial.clones) + 1
        trial.clones.append(Clone(trial.num_rows, source, changes, trial.params, generation))
        trial.params = params
        place = self._places[trial.number]
        place.base, place.base_row = source, trial.num_rows
        return self._restart(trial, "clone")

    def _restart(self, trial: Trial, cause: Literal["retry", "clone"]) -> Sequence[Consequence]:
        """On the spot if it holds a lane, else when there is one."""
        lane = trial.lane
        if lane is None:
            self._queue(trial, cause)
            return ()
        self._leave_lane(trial)
        self._queue(trial, cause)
        self._resumed.rotate()  # it is the next
        return [StartEntry(trial.number, lane)]

    def _queue(self, trial: Trial, cause: Literal["resumed", "clone", "retry"]) -> None:
        self._places[trial.number].cause = cause
        if trial.number not in self._resumed:
            self._resumed.append(trial.number)

    def _leave_lane(self, trial: Trial) -> None:
        self._turns.free(trial.number)
        trial.lane = None
        self._places[trial.number].early_commits = None

    def _end_trial(self, entry: EndEntry) -> Sequence[Consequence]:
        trial = self._trial(entry.trial)
        if trial.status.is_over:
            raise _not_possible(trial, "end")
        has_failed, was_paused = entry.status == "ERROR", trial.status is TrialStatus.PAUSED
        self._leave_lane(trial)
        self._live.pop(trial.number, None)
        trial.status = TrialStatus.ERROR if has_failed else TrialStatus.TERMINATED
        trial.stop_reason, trial.error = entry.reason, entry.error
        if trial.number in self._resumed:
            self._resumed.remove(trial.number)
        if self._waiting == trial.number:
            self._waiting = None
        is_possible = self._places[trial.number].saving == "possible" and not was_paused
        should_save = self._plan.save_at_end and not has_failed and is_possible
        if should_save:
            self._ask_for(CheckpointRef(trial.number, trial.num_rows))
        if has_failed:
            self._unfinished = {each for each in self._unfinished if each.trial != trial.number}
        self._actions.append(
            EndTrial(trial.number, trial.num_rows, trial.status, entry.reason, should_save)
        )
        how: HowOver = "failed" if has_failed else "pruned" if entry.is_early else "complete"
        last = trial.last_row if has_failed else row_of_end(trial.last_row)
        self._searcher.on_over(trial, last, how)
        verdicts: Sequence[Verdict] = ()
        if entry.by != "scheduler" and (entry.by != "experiment" or has_failed):  # else it knows
            verdicts = self._scheduler.on_trial_complete(trial, last, has_failed)
        trial.last_row = last and view_of(last, self._keys)
        return self._decisions(verdicts)

    def _end_all(self, entry: EndAllEntry) -> Sequence[Consequence]:
        if self._live and not entry.is_failure:
            raise TuneError(f"The experiment ended, and trials {sorted(self._live)} go on.")
        self._end = entry
        self._is_search_over = self._is_search_over or not entry.is_failure
        self._actions.append(EndExperiment(entry.reason, entry.is_failure))
        return ()

    _APPLY: ClassVar[Mapping[type, Callable[[Any, Any], Sequence[Consequence]]]] = {
        FillEntry: _begin_turn,
        SuggestEntry: _add_trial,
        NoSuggestionEntry: lambda *_: (),
        NoMoreEntry: _end_search,
        IdleEntry: _wake,
        StartEntry: _start,
        DecideEntry: _decide,
        CloneEntry: _clone,
        EndEntry: _end_trial,
        EndAllEntry: _end_all,
    }

    # ---- filling free lanes

    def _fill(self) -> None:
        self._do(FillEntry())
        while not self.is_done:
            self._fill_lanes()
            if self.is_done or self._turns.holders:
                return
            if self._live:
                self._do(IdleEntry())
                continue
            if not self._is_search_over:
                # The searcher has nothing now, and nothing will happen that could change it.
                self._do(NoMoreEntry())
            self._do(EndAllEntry("all trials are over"))

    def _fill_lanes(self) -> None:
        for lane, holder in enumerate(self._turns.lanes):
            if holder is not None:
                continue
            if self._next is None and not self._is_search_over:
                self._suggest(len(self._trials))
            if self._next is None or not self._fits(self._trials[self._next]):
                return
            self._do(StartEntry(self._next, lane))

    @property
    def _next(self) -> int | None:
        """The trial that the next free lane is for."""
        return self._resumed[0] if self._resumed else self._waiting

    def _fits(self, trial: Trial) -> bool:
        held = [self._trials[each].cpus for each in self._turns.holders]
        return not held or sum(held) + trial.cpus <= self._plan.cpus + 1e-9

    def _suggest(self, number: int) -> None:
        total, space = self._searcher.num_trials(), self._plan.space
        if total is not None and number >= total:
            self._do(NoMoreEntry())
        elif self._may_suggest():
            found = self._searcher.answer(number)
            if isinstance(found, Suggestion):
                cpus = float(self._plan.cpus_of(space.config(found.params)))
                params = space.encode(found.params)
                self._do(SuggestEntry(number, params, cpus, found.attributes))
            elif found is None:
                self._do(NoSuggestionEntry())
            else:
                self._do(NoMoreEntry(is_asked=True))

    def _may_suggest(self) -> bool:
        return self._searcher.may_suggest(len(self._turns.holders), len(self._live))

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

    # ---- what comes from outside

    def _is_current(self, event: Reported | TrialOver) -> bool:
        if self.is_done or not 0 <= event.trial < len(self._trials):
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


def _not_possible(trial: Trial, what: str) -> TuneError:
    return TuneError(
        f"Trial {trial.trial_id} cannot {what}: it is {trial.status.value} at that time."
    )

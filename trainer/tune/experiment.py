"""The one loop that drives an experiment: controller, lanes, journal, files, callbacks.

    wait for the lanes  →  what happened  →  an event for the controller  →  a step
    a step: rows and journal entries are written (and synced), then its actions are carried out

Everything that is decided is decided by the controller; everything that runs, runs in a lane.
Nothing is done that is not in the journal.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from callbacks.ready_made.rows_file import jsonable
from trainer.errors import TrialError, TuneError
from trainer.metrics import ResultDict
from trainer.runtime.engine import Engine
from trainer.runtime.signals import CutShort, OrderlyEnd
from trainer.tune.callbacks import CallbackCaller, Listeners, TrialView
from trainer.tune.checkpoint import Checkpoint, digest_of
from trainer.tune.configs import RunConfig, TuneConfig
from trainer.tune.controller import Controller
from trainer.tune.events import (
    Action,
    CheckpointRef,
    CountCheckpoint,
    CountRow,
    EndExperiment,
    EndTrial,
    PauseTrial,
    StartTrial,
    Step,
    TrialStatus,
)
from trainer.tune.journal_entries import (
    AmendEntry,
    Cause,
    CloneEntry,
    CommittedEntry,
    DecideEntry,
    EndEntry,
    Move,
    Reported,
    TimeEntry,
    TrialOver,
)
from trainer.tune.journal_file import JournalFile
from trainer.tune.lanes import (
    Happening,
    Lane,
    Lanes,
    Over,
    Repaired,
    RowMade,
    RowMadeAgain,
    Save,
    StateSaved,
    patience_with,
)
from trainer.tune.output import Progress
from trainer.tune.plan import ExperimentPlan
from trainer.tune.trainables import TrainableSpec
from trainer.tune.trial_files import (
    SavedCheckpoint,
    checkpoint_folder_name,
    read_json,
    write_json,
    write_whole,
)
from trainer.tune.trial_records import TrialRecords

_LOGGER = logging.getLogger(__name__)

EXPERIMENT_FILE: Final = "experiment.json"
_LOOK_EVERY_S: Final = 0.2
_SYNC_EVERY_S: Final = 1.0
_FINISHING_S: Final = 1.0
_LOG_AWAITED_AFTER_S: Final = 30.0
_ANY_RUN_AHEAD: Final = 64


class Experiment:
    """One experiment in one process, from its beginning or from its journal.

    Life: `begin()` or `restore()`, once, then `run()`. `close()` ends what is left.

    Attributes:
        controller: what decides.
        records: what is known of the trials' files.
        folder: of the experiment.
        causes: errors that ended trials in this process, by number.
    """

    def __init__(
        self,
        plan: ExperimentPlan,
        spec: TrainableSpec,
        folder: Path,
        *,
        tune_config: TuneConfig,
        run_config: RunConfig,
        engine: Engine | None,
        callbacks: CallbackCaller,
        progress: Progress,
    ) -> None:
        self.controller = Controller(plan)
        self.folder = folder
        self.records = TrialRecords(
            folder,
            self.controller,
            spec,
            tune_config=tune_config,
            run_config=run_config,
            seed=plan.seed,
        )
        self._plan, self._spec, self._engine = plan, spec, engine
        self._tune_config, self._run_config = tune_config, run_config
        self._callbacks, self._progress = callbacks, progress
        self._journal: JournalFile | None = None
        self._lanes: Lanes | None = None
        self._views: list[TrialView] = []
        self._steps: deque[Step] = deque()
        self._unsynced: set[int] = set()
        self._is_behind = False
        self._synced_at = self._noted_at = 0.0
        self._iteration = 0
        self._num_moves = 0  # that callbacks know when a step is done
        self._whom: Listeners = "all"
        self._pending: tuple[Action, ...] = ()
        self._elapsed_before_s = 0.0
        self._began_at = time.monotonic()
        self._has_said_alone = False
        self._errors: dict[int, BaseException | None] = {}
        self.causes: dict[int, BaseException] = {}
        self._first_error: BaseException | None = None
        self._is_writing = True
        self._is_restored = False
        self._read_rows: dict[int, list[dict[str, Any]]] = {}
        self.rows_differ = False

    # ---- beginning

    def begin(self, journal: JournalFile) -> None:
        """Begins a new experiment, whose header is in the journal."""
        self._journal = journal
        self._steps += self.controller.begin()

    def restore(
        self,
        journal: JournalFile,
        moves: list[Move],
        *,
        elapsed_s: float = 0.0,
        has_new_stop: bool = False,
    ) -> None:
        """Goes on with an experiment from its journal.

        `moves` are what the journal holds behind its header. With `has_new_stop`, other stop
        criteria decided until now; `amend` is called next.
        """
        self._journal = journal
        self._is_restored = True
        num_lost = self._num_lost_rows(moves)
        moves = moves[: len(moves) - num_lost]
        self._elapsed_before_s = elapsed_s
        again, *more = self._replayed(moves, has_new_stop=has_new_stop)
        if difference := self.controller.comparison.difference:
            _LOGGER.warning("%s. What is recorded holds.", difference)
        if num_lost:
            journal.cut_last(num_lost)
        self.records.read(moves, may_change=True)
        self.records.read_scores()
        journal.sync()  # what it says of checkpoints is on the disk before older ones are removed
        self.records.sweep()
        self._write_lost_facts()
        self._fire_pending(moves, again)
        self._steps += [Step(again.move, self._with_whole_rows(again.actions)), *more]

    def _fire_pending(self, moves: list[Move], step: Step) -> None:
        """Has the next step told to the callbacks whose states do not know it."""
        saved = self._callbacks.read(self.folder)
        self._num_moves = sum(not is_for_repairs(move.cause) for move in moves)
        self._iteration = saved.get("iteration", 0)
        self._pending = self._with_whole_rows(self.controller.undelivered)
        is_known = saved.get("num_delivered", self._num_moves) >= self._num_moves
        is_new = any(not _is_repair(action) for action in step.actions) and not is_known
        self._whom = "all" if is_new or self._pending else "without state"

    def _num_lost_rows(self, moves: list[Move]) -> int:
        """The last reports may have come to the disk before their rows: they are decided again."""
        num_lost = 0
        guaranteed: set[int] = set()
        for move in reversed(moves):
            guaranteed |= self._never_made_again(move)
            cause = move.cause
            if not isinstance(cause, Reported) or cause.trial in guaranteed:
                break
            if cause.row_number <= self.records.files_of(cause.trial).num_rows():
                break
            num_lost += 1
        return num_lost

    def amend(self, change: AmendEntry) -> None:
        """Changes what is still to be done, after `restore`."""
        self._steps += self.controller.amend(change)

    def look(self, moves: list[Move], *, has_new_stop: bool = False) -> None:
        """Brings controller and records to where the journal ends; nothing is changed or run."""
        self._replayed(moves, has_new_stop=has_new_stop)
        self.records.read(moves, may_change=False)

    def _replayed(self, moves: list[Move], *, has_new_stop: bool = False) -> list[Step]:
        self._read_rows = {}
        decided = [move for move in moves if not is_for_repairs(move.cause)]
        steps = self.controller.replay(
            decided,
            self._row_of,
            has_new_stop=has_new_stop,
            num_delivered=self._callbacks.read(self.folder).get("num_delivered"),
        )
        self._read_rows = {}
        return steps

    def _row_of(self, number: int, row_number: int) -> Mapping[str, Any]:
        if number not in self._read_rows:
            self._read_rows[number] = list(self.records.files_of(number).rows())
        rows = self._read_rows[number]
        if row_number > len(rows):
            raise TuneError(
                f"Row {row_number} of trial {number:05d} is missing in its results.jsonl, and a "
                "searcher, stopper or scheduler of yours must see it again. Bring the file back "
                "from a copy."
            )
        return rows[row_number - 1]

    def _with_whole_rows(self, given: Iterable[Action]) -> tuple[Action, ...]:
        """What the journal keeps of a row is what decisions look at; callbacks get all of it."""
        actions: list[Action] = []
        for action in given:
            if isinstance(action, CountRow):
                rows = list(self.records[action.trial].files.rows())
                if action.row_number > len(rows):
                    continue  # it was lost
                row = rows[action.row_number - 1]
                actions.append(CountRow(action.trial, action.row_number, row, action.should_save))
            else:
                actions.append(action)
        return tuple(actions)

    # ---- running

    def run(self) -> str:
        """Runs until nothing is left to do; returns why it ended.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM; everything that runs was saved where possible.
            TrialError: a trial failed and `fail_fast="raise"` says so.
            CallbackError: a callback raised.
            JournalError: the disk refuses; nothing is lost.
            TuneError: the experiment cannot go on as it is written.
        """
        self._lanes = Lanes(
            self._plan.num_lanes,
            self.records,
            in_process=self._tune_config.in_process,
            engine=self._engine,
            settings={
                "trial_timeout_s": self._run_config.trial_timeout_s,
                "patience": patience_with(self._spec),
                "reuses_process": self._tune_config.reuse_actors and self._spec.kind == "class",
            },
        )
        self._progress.begin()
        reason = ""
        with OrderlyEnd(on_asked=self._confirm_interrupt) as end:
            try:
                self._set_up_callbacks()
                with end.limited(_FINISHING_S) if self._tune_config.in_process else nullcontext():
                    self._make_states_again(self._lanes, end)
                    reason = self._drive(self._lanes, end)
            except CutShort:
                raise self._ended_in_order() from None
            finally:
                self._finish()
        failing = self._run_config.failure_config
        if self._first_error is not None and failing and failing.fail_fast == "raise":
            raise self._first_error
        return reason

    def _set_up_callbacks(self) -> None:
        num_samples = self.controller.num_samples
        self._callbacks.call(
            "setup",
            stop=self._plan.stop,
            num_samples=num_samples,
            total_num_samples=self.controller.num_trials_expected or num_samples,
        )
        if self._is_restored:
            self._callbacks.load(self.folder)
        else:
            self._save_callbacks(num_delivered=0)

    def _drive(self, lanes: Lanes, end: OrderlyEnd) -> str:
        self._set_run_ahead(lanes)
        reason = ""
        while True:
            reason = self._carry_out_all(lanes) or reason
            if end.was_asked:
                self._end_in_order(lanes)
            lanes.pump()
            if self.controller.is_done and all(lane.is_free for lane in lanes.lanes):
                self._let_go_of_sources()
                return reason
            self._wait(lanes)
            self._show_progress()

    def _let_go_of_sources(self) -> None:
        """Removes what was kept for copies that have saved their own states since then."""
        for trial in self.controller.trials:
            if self.records.saved_of(trial.number):
                self.records.remove_unneeded(trial.number)

    def _set_run_ahead(self, lanes: Lanes) -> None:
        number = self._tune_config.max_run_ahead
        if number is None:
            number = self.controller.max_run_ahead
        number = _ANY_RUN_AHEAD if number is None else number
        if self._spec.kind == "class" or self._tune_config.in_process:
            number = 0  # the state after a row is there only until the next one is begun
        for lane in lanes.lanes:
            lane.run_ahead(number)

    def _wait(self, lanes: Lanes) -> None:
        if not lanes.is_busy and not self._steps:
            names = [f"{lane.number}: {lane.trial}" for lane in lanes.lanes]
            raise TuneError(
                f"Nothing runs, and the experiment is not over (lanes {', '.join(names)}). This "
                "is a fault of the library; restore the experiment to go on."
            )
        awaited = self.controller.awaited
        lanes.wait(_LOOK_EVERY_S, prefer=None if awaited is None else awaited[0])
        for happening in lanes.happenings():
            self._take(happening, lanes)
        deadline_s = self.controller.deadline_s
        if deadline_s is not None:
            self._note_elapsed_if_due()
            if self.elapsed_s > deadline_s and not self.controller.is_done:
                self._steps += self.controller.take(TimeEntry(self.elapsed_s))
        self._sync_if_due()

    def _note_elapsed_if_due(self) -> None:
        """A kill does not give back the time that a budget has used."""
        if time.monotonic() - self._noted_at >= _SYNC_EVERY_S:
            self._noted_at = time.monotonic()
            self.write_summary()

    @property
    def elapsed_s(self) -> float:
        """Seconds that the experiment has run, before a restore, too."""
        return self._elapsed_before_s + time.monotonic() - self._began_at

    # ---- what happened

    def _take(self, happening: Happening, lanes: Lanes) -> None:
        start = happening.start
        number = start.trial
        if isinstance(happening, RowMade):
            self._steps += self.controller.take(self._reported(happening))
        elif isinstance(happening, RowMadeAgain):
            self._compare(happening)
        elif isinstance(happening, StateSaved):
            self._saved(happening)
        elif isinstance(happening, Repaired):
            _LOGGER.warning(
                "Trial %05d: its process %s. It is started again.", number, happening.why
            )
            self._fire("on_trial_recover", number)
        else:
            self._errors[number] = happening.cause
            event = TrialOver(number, start.start_number, happening.how, happening.error)
            self._steps += self.controller.take(event)
        self._carry_out_all(lanes)

    def _compare(self, happening: RowMadeAgain) -> None:
        number, row = happening.start.trial, happening.made.row or {}
        is_same = self.records.check_made_again(number, happening.row_number, row)
        self.rows_differ = self.rows_differ or not is_same
        ref = CheckpointRef(number, happening.row_number)
        # What is still to be decided on may be wanted: without it, the row is made once more.
        is_decided = ref.row_number <= self.controller.trials[number].num_rows
        if is_decided and ref not in self.controller.unfinished_saves:
            self.records[number].files.forget_pending(ref.row_number)

    def _reported(self, happening: RowMade) -> Reported:
        made, number = happening.made, happening.start.trial
        row = ResultDict(made.row or {})  # what users read takes the keys of `algo.train()`
        saving: Any = "given" if made.has_checkpoint else "none"
        if self._spec.saves:
            saving = "possible"
        return Reported(
            trial=number,
            start_number=happening.start.start_number,
            row_number=happening.row_number,
            row=row,
            digest=self.records.note_made(number, happening.row_number, row),
            saving=saving,
            is_done=made.is_done,
            wants_checkpoint=made.wants_checkpoint,
        )

    # ---- steps

    def _carry_out_all(self, lanes: Lanes) -> str:
        reason = ""
        while self._steps:
            step = self._steps.popleft()
            self._write(step)
            self._num_moves += step.move is not None
            reason = self._carry_out_step(step, lanes) or reason
        return reason

    def _carry_out_step(self, step: Step, lanes: Lanes) -> str:
        reason = ""
        undelivered, self._pending = self._pending, ()
        is_step = any(map(_is_decided, (*undelivered, *step.actions)))
        if is_step:
            self._iteration += self._whom == "all"
            self._fire_all("on_step_begin")
        for action in undelivered:
            self._fire_action(action, "with state")
        for action in step.actions:
            reason = self._carry_out(action, lanes) or reason
            self._fire_action(action, "all" if _is_repair(action) else self._whom)
        if is_step:
            self._fire_all("on_step_end")
        self._whom = "all"
        if step.actions or undelivered:
            self._save_callbacks(num_delivered=self._num_moves)
        return reason

    def _save_callbacks(self, *, num_delivered: int) -> None:
        if self._callbacks.has_states:
            self._sync()  # a state never knows of more than the journal on the disk
            iteration = self._iteration
            self._callbacks.save(self.folder, num_delivered=num_delivered, iteration=iteration)

    def _write(self, step: Step) -> None:
        assert self._journal is not None  # noqa: S101 - `begin` or `restore` came first
        for action in step.actions:
            if isinstance(action, CountRow):
                self.records.write_row(action.trial, action.row_number, action.row)
                self._unsynced.add(action.trial)
        try:
            if step.move is not None:
                self._sync_rows(self._never_made_again(step.move))
                self._journal.append([step.move.to_plain()])
                self._is_behind = True
                # What an exact experiment decides follows from what came before: if the machine
                # stops and the end of the journal is lost, the same is decided again.
                if step.move.needs_sync(is_exact=not self.controller.inexact_reasons):
                    self._sync()
        except BaseException:
            self._is_writing = False
            raise
        for action in step.actions:
            if isinstance(action, StartTrial) and action.row_number == 0:
                self.records.reset(action.trial)

    def _never_made_again(self, move: Move) -> set[int]:
        """The trials whose rows must be on the disk before this move is written.

        A trial that has ended makes no rows again, and one that pauses or is replaced by a copy not
        those before. Code of the user that looks at whole rows can't be told of lost ones.
        """
        if self.controller.needs_whole_rows:
            return set(self._unsynced)
        return {
            entry.trial
            for entry in move.then
            if isinstance(entry, EndEntry | CloneEntry)
            or (isinstance(entry, DecideEntry) and entry.action == "pause")
        }

    def _sync(self) -> None:
        assert self._journal is not None  # noqa: S101
        self._is_behind = False
        self._sync_rows(set(self._unsynced))
        self._journal.sync()
        self._synced_at = time.monotonic()

    def _sync_rows(self, trials: set[int]) -> None:
        for number in sorted(trials & self._unsynced):
            self.records.files_of(number).sync_rows()
            self._unsynced.discard(number)

    def _sync_if_due(self) -> None:
        if self._is_behind and time.monotonic() - self._synced_at >= _SYNC_EVERY_S:
            self._sync()

    def _carry_out(self, action: Any, lanes: Lanes) -> str:
        if isinstance(action, StartTrial):
            self._start(action, lanes)
        elif isinstance(action, CountRow):
            self._count(action, lanes)
        elif isinstance(action, PauseTrial):
            self._save_state(action.trial, action.row_number, lanes)
            self._end_in_lane(action.trial, lanes)
            self._write_facts(action.trial)
        elif isinstance(action, EndTrial):
            self._end(action, lanes)
        elif isinstance(action, CountCheckpoint):
            self.records.remove_unneeded(action.trial)
        elif isinstance(action, EndExperiment):
            if action.is_failure:
                for lane in lanes.lanes:
                    lane.kill()
            return action.reason
        return ""

    def _start(self, start: StartTrial, lanes: Lanes) -> None:
        trial = self.controller.trials[start.trial]
        saves = [
            self._save_order(ref.trial, ref.row_number)
            for ref in sorted(self.controller.unfinished_saves, key=lambda ref: ref.row_number)
            if ref.trial == start.trial
            and ref.row_number <= start.row_number
            and start.base_row < ref.row_number
            and not self._is_at_work_on(ref, lanes)
        ]
        lanes[start.lane].begin(start, saves=saves)
        if trial.cpus > self._plan.cpus and not self._has_said_alone:
            self._has_said_alone = True
            _LOGGER.warning(
                "Trial %s asks for %g CPUs, and there are %g: such trials run alone.",
                trial.trial_id,
                trial.cpus,
                self._plan.cpus,
            )
        self._write_facts(start.trial)
        if trial.clones:
            self._write_policy(start.trial)

    def _is_at_work_on(self, ref: CheckpointRef, lanes: Lanes) -> bool:
        return any(lane.is_saving(ref.trial, ref.row_number) for lane in lanes.lanes)

    def _count(self, action: CountRow, lanes: Lanes) -> None:
        number, row_number = action.trial, action.row_number
        record = self.records[number]
        lane = lanes.of_trial(number)
        if lane is not None:
            lane.count(row_number)
        self.records.note_score(number, row_number, action.row)
        if action.should_save:
            self._save_state(number, row_number, lanes)
        else:
            record.files.forget_pending(row_number)
            self._save_for_repairs(number, row_number, lane)
        self._progress.row(self.controller, number)

    def _save_for_repairs(self, number: int, row_number: int, lane: Lane | None) -> None:
        interval_s = self._run_config.recovery_interval_s
        record = self.records[number]
        now = time.monotonic()
        if record.last_saved_at == 0.0:
            record.last_saved_at = now
        if lane is None or interval_s is None or not self._spec.saves:
            return
        if now - record.last_saved_at >= interval_s and lane.is_resting:
            lane.save(self._save_order(number, row_number, is_recovery=True))

    def _save_order(self, number: int, row_number: int, *, is_recovery: bool = False) -> Save:
        name = checkpoint_folder_name(row_number, is_recovery=is_recovery)
        return Save(row_number, name, self.records[number].files.pending(row_number))

    def _save_state(self, number: int, row_number: int, lanes: Lanes) -> None:
        """Commits the state of a row: what was reported with it, or what the process saves."""
        ref = CheckpointRef(number, row_number)
        if ref not in self.controller.unfinished_saves or self._is_at_work_on(ref, lanes):
            return
        if self._adopt(ref):
            return
        lane = lanes.of_trial(number)
        if lane is not None and lane.holds(number):
            lane.save(self._save_order(number, row_number))

    def _saved(self, state: StateSaved) -> None:
        number, row_number = state.start.trial, state.row_number
        if state.digest is not None:
            self._commit(number, row_number, state.name, state.digest)
            return
        _LOGGER.warning(
            "The checkpoint of trial %05d after report %d is gone: its process was killed, and the "
            "function reported none when it made that row again.",
            number,
            row_number,
        )

    def _adopt(self, ref: CheckpointRef) -> bool:
        """Commits a checkpoint that is whole on the disk; returns whether there is one."""
        files = self.records[ref.trial].files
        name = checkpoint_folder_name(ref.row_number)
        found = digest_of(files.pending(ref.row_number))
        if found is None and (found := digest_of(files.checkpoint(name))) is None:
            return False
        self._commit(ref.trial, ref.row_number, name, found)
        return True

    def _commit(self, number: int, row_number: int, name: str, digest: str) -> None:
        record = self.records[number]
        if record.files.pending(row_number).is_dir():
            record.files.commit(row_number, name)
        saved = SavedCheckpoint(row_number, name, digest)
        self.records.add(number, saved)
        entry = CommittedEntry(number, row_number, name, digest)
        if saved.is_recovery:  # when it is taken follows the clock: decisions know nothing of it
            self._write(Step(Move(entry)))
            self.records.remove_unneeded(number)
        else:
            self._steps += self.controller.take(entry)

    def _end_in_lane(self, number: int, lanes: Lanes) -> None:
        for lane in lanes.lanes:
            lane.end(number)

    def _end(self, action: EndTrial, lanes: Lanes) -> None:
        number = action.trial
        if action.should_save:
            self._save_state(number, action.row_number, lanes)
        self._end_in_lane(number, lanes)
        trial = self.controller.trials[number]
        record = self.records[number]
        record.digests.clear()
        self._write_facts(number)
        has_failed = action.status is TrialStatus.ERROR
        if has_failed:
            record.files.write_error(trial.error or action.reason)
            cause = self._errors.get(number)
            if cause is not None:
                self.causes[number] = cause
            if self._first_error is None:
                self._first_error = cause or TrialError(trial.error or "")
        self._errors.pop(number, None)
        self._progress.ended(self.controller, number)
        if not action.should_save:
            self.records.forget(number)

    def _write_policy(self, number: int) -> None:
        """Writes how a trial came to its settings, for `PopulationBasedTrainingReplay`."""
        lines = self._plan.scheduler.policy_lines(
            self.controller.trials, number, self._plan.space.config
        )
        if lines:
            text = "".join(f"{line}\n" for line in lines)
            write_whole(self.folder / f"pbt_policy_{number:05d}.txt", text)

    def _write_lost_facts(self) -> None:
        """After a power failure: what trials that are over say for people is not synced."""
        for trial in self.controller.trials:
            files = self.records.files_of(trial.number)
            if not trial.status.is_over:
                continue
            facts = files.read_facts()
            if (facts.get("status"), facts.get("num_rows")) != (trial.status.value, trial.num_rows):
                self._write_facts(trial.number)
                if trial.error:
                    files.write_error(trial.error)

    def _write_facts(self, number: int) -> None:
        trial, record = self.controller.trials[number], self.records[number]
        record.files.create()
        record.files.write_facts(
            {
                "number": number,
                "name": record.name,
                "trainable": self._spec.name,
                "params": trial.params,
                "config": printable_config(self.controller.config_of(number)),
                "seed": trial.seed,
                "status": trial.status.value,
                "stop_reason": trial.stop_reason,
                "num_rows": trial.num_rows if trial.status.is_over else None,
                "error": trial.error,
                "num_failures": trial.num_failures,
                "exploits": [
                    {
                        "row": clone.row_number,
                        "donor": clone.source.trial,
                        "donor_row": clone.source.row_number,
                        "changes": dict(clone.changes),
                    }
                    for clone in trial.clones
                ],
            },
            must_sync=self._tune_config.trial_dirname_creator
            is not None,  # by it the folder is found again
        )

    # ---- after a restore

    def _make_states_again(self, lanes: Lanes, end: OrderlyEnd) -> None:
        """Commits what decisions asked for and a kill prevented, of trials that hold no lane."""
        for ref in sorted(self.controller.unfinished_saves, key=lambda ref: ref.trial):
            if not (self._adopt(ref) or self._is_made_on_the_way(ref)):
                self._make_state_again(ref, lanes, end)

    def _make_state_again(self, ref: CheckpointRef, lanes: Lanes, end: OrderlyEnd) -> None:
        """Before anything else runs, so that the first lane is free."""
        lane = lanes[0]
        order = self._save_order(ref.trial, ref.row_number)
        lane.begin(self.controller.start_for(ref), saves=[order], then_end=True)
        while True:
            if end.was_asked:
                self._end_in_order(lanes)
            lane.pump()
            if lane.is_free:
                return
            lanes.wait(_LOOK_EVERY_S)
            for happening in lanes.happenings():
                if isinstance(happening, Over) and happening.how != "returned":
                    raise TrialError(
                        f"The state of trial {ref.trial:05d} after report {ref.row_number} could "
                        f"not be made again: {happening.error}"
                    )
                if isinstance(happening, StateSaved):
                    self._saved(happening)
                elif isinstance(happening, RowMadeAgain):
                    self._compare(happening)

    def _is_made_on_the_way(self, ref: CheckpointRef) -> bool:
        """Whether the process that is to be started for the trial comes past that row again."""
        starts = [
            action
            for step in self._steps
            for action in step.actions
            if isinstance(action, StartTrial) and action.trial == ref.trial
        ]
        return any(each.base_row < ref.row_number <= each.row_number for each in starts)

    # ---- the end

    def _confirm_interrupt(self) -> None:
        self._progress.say("Ending in order; Ctrl-C again ends at once.")

    def _end_in_order(self, lanes: Lanes) -> None:
        """Ctrl-C: what is nearly done is taken, what rests is saved; nothing new is begun.

        A row of a function is not waited for, because nothing can be saved after it.

        Raises:
            KeyboardInterrupt: always.
        """
        until = time.monotonic() + _FINISHING_S
        if not self._spec.saves:
            for lane in lanes.lanes:
                lane.leave_row()
        while time.monotonic() < until:
            for lane in lanes.lanes:
                self._save_at_rest(lane)
            lanes.pump(may_make_rows=False)
            if not any(lane.has_asked for lane in lanes.lanes):
                break
            lanes.wait(min(_LOOK_EVERY_S, max(0.0, until - time.monotonic())))
            for happening in lanes.happenings():
                self._take(happening, lanes)
        raise self._ended_in_order()

    def _ended_in_order(self) -> KeyboardInterrupt:
        return KeyboardInterrupt(
            f"The experiment was ended in order. Go on with tune.Tuner.restore({str(self.folder)!r}"
            ", trainable).fit()"
        )

    def _save_at_rest(self, lane: Lane) -> None:
        trial, row_number = lane.trial, lane.counted
        if trial is None or not (lane.is_resting and self._spec.saves and row_number):
            return
        if all(saved.row_number != row_number for saved in self.records[trial].saved):
            lane.save(self._save_order(trial, row_number, is_recovery=True))

    def _finish(self) -> None:
        lanes, self._lanes = self._lanes, None
        try:
            if lanes is not None:
                lanes.stop()
            if self._is_writing and self._journal is not None:
                self._sync()
                self.records.drop_pending()
                self.write_summary()
        finally:
            if self._journal is not None:
                self._journal.close()
            self._progress.end(self.controller, elapsed_s=self.elapsed_s)
        self._fire_all("on_experiment_end")

    def write_summary(self) -> None:
        """Adds to `experiment.json` how far the experiment is, for people and time budgets."""
        statuses = [trial.status.value for trial in self.controller.trials]
        counts = {status: statuses.count(status) for status in sorted(set(statuses))}
        facts = {"elapsed_s": self.elapsed_s, "trials": counts}
        update_experiment_file(self.folder, facts)

    # ---- telling

    def views(self) -> list[TrialView]:
        """What callbacks see of all trials."""
        for trial in self.controller.trials[len(self._views) :]:
            number, record = trial.number, self.records[trial.number]
            newest = functools.partial(self.records.newest_path, number)
            view = self.records.view_of(trial, record.files.path, record.name, newest)
            self._views.append(view)
        return self._views

    def _fire_action(self, action: Action, whom: Listeners) -> None:
        if isinstance(action, StartTrial):
            name = "on_trial_start" if action.cause == "new" else "on_trial_restore"
            self._fire(name, action.trial, whom)
        elif isinstance(action, CountRow):
            self._fire("on_trial_result", action.trial, whom, result=ResultDict(action.row))
        elif isinstance(action, EndTrial):
            has_failed = action.status is TrialStatus.ERROR
            name = "on_trial_error" if has_failed else "on_trial_complete"
            self._fire(name, action.trial, whom)
        elif isinstance(action, CountCheckpoint):
            self._fire("on_trial_save", action.trial, whom)
            folder = self.records.files_of(action.trial).checkpoint(action.name)
            self._fire("on_checkpoint", action.trial, whom, checkpoint=Checkpoint(folder))

    def _fire(self, name: str, number: int, whom: Listeners = "all", **more: Any) -> None:
        if self._callbacks.listens_to(name):
            views = self.views()
            arguments = {"trials": views, "trial": views[number], **more}
            self._callbacks.call(name, whom=whom, iteration=self._iteration, **arguments)

    def _fire_all(self, name: str) -> None:
        if self._callbacks.listens_to(name):
            arguments = {"iteration": self._iteration, "trials": self.views()}
            self._callbacks.call(name, whom=self._whom, **arguments)

    def _show_progress(self) -> None:
        self._progress.show(self.controller, elapsed_s=self.elapsed_s)
        self._progress.log_silent(self._at_work(), after_s=_LOG_AWAITED_AFTER_S)

    def _at_work(self) -> dict[int, int]:
        """The trials whose next rows are awaited, with their numbers: that of the turn, or all."""
        trials, awaited = self.controller.trials, self.controller.awaited
        if awaited is not None:
            return {awaited[0]: awaited[1]}
        lanes = [] if self._lanes is None else self._lanes.lanes
        busy = [lane.trial for lane in lanes if lane.has_asked and lane.trial is not None]
        return {number: trials[number].num_rows + 1 for number in busy}


def _is_repair(action: Action) -> bool:
    """Whether it only starts a process again that a kill of the tuner ended."""
    return isinstance(action, StartTrial) and action.cause == "repaired"


def _is_decided(action: Action) -> bool:
    """Whether it follows from a decision, of which there are as many with kills as without."""
    return not _is_repair(action) and not isinstance(action, CountCheckpoint)


def is_for_repairs(cause: Cause | None) -> bool:
    """Whether it is a checkpoint that only shortens repairs; callbacks learn nothing of it."""
    return isinstance(cause, CommittedEntry) and not cause.name.isdecimal()


def printable_config(config: Any) -> Any:
    """A config as JSON for people: what JSON lacks becomes text."""
    if hasattr(config, "given_settings"):
        config = config.given_settings()
    return jsonable(config)


def update_experiment_file(folder: Path, facts: Mapping[str, Any]) -> None:
    """Changes entries of `experiment.json`; of these, `elapsed_s` counts for a time budget."""
    write_json(folder / EXPERIMENT_FILE, {**read_experiment_file(folder), **facts})


def read_experiment_file(folder: Path) -> dict[str, Any]:
    """What `experiment.json` says; empty if it is not there or damaged."""
    return read_json(folder / EXPERIMENT_FILE)

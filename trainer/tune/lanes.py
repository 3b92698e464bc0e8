"""Lanes: where trials run. Each does what it is told, one thing after the other, and is repaired.

    lane.begin(start)       start a trial's process        -> a RowMade per row …
    lane.count(row)         so many rows are decided       -> further rows are made
    lane.save(row, name)    the state of that row          -> StateSaved
    lane.end()              stop the trial, free the lane

What a lane has to tell comes as *happenings*, in order. A process that dies is started again from
the newest checkpoint that counts; the rows that it makes again are compared and dropped, and what
it was told to do is done then. Only a process that dies again and again in one place is given up.
Nothing here decides about trials.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from trainer.actors.registry import outer_registry_to_inherit
from trainer.runtime.engine import Engine, Place, StallLimit
from trainer.runtime.inline_engine import InlinePlace
from trainer.runtime.messages import Failed, Lost, Outcome, describe_failure
from trainer.runtime.restart_policy import Attempt, Attempts, RestartPolicy
from trainer.runtime.worker import refuse_while_unpacking
from trainer.runtime.worker_pool import WorkerPool
from trainer.seeding import GlobalGenerators
from trainer.tune.events import StartTrial
from trainer.tune.trainables import TrainableSpec
from trainer.tune.trial_files import checkpoint_folder_name
from trainer.tune.trial_handler import STOP_GRACE_S, Made, TrialBootstrap, TrialHandler

_LOGGER = logging.getLogger(__name__)

_CLOSE_GRACE_S: Final = 1.0
_STOPPING: Final = StallLimit(STOP_GRACE_S + _CLOSE_GRACE_S)
_TRIES_TO_START: Final = 3
_STALLS: Final = 3
_PRELOADED: Final = (
    "trainer.tune.trial_handler",
    "trainer.algorithms.algorithm",
    "trainer.env_runners.worker_service",
    "gymnasium.envs.classic_control",
)


# ---- what a lane tells


@dataclass(frozen=True)
class RowMade:
    """A trial made a row that it had not made before."""

    start: StartTrial
    row_number: int
    made: Made


@dataclass(frozen=True)
class RowMadeAgain:
    """After a repair: to be compared with what counts, and dropped."""

    start: StartTrial
    row_number: int
    made: Made


@dataclass(frozen=True)
class Over:
    """A trial ended by itself."""

    start: StartTrial
    how: Literal["returned", "failed", "lost"]
    error: str | None = None
    cause: BaseException | None = field(default=None, compare=False)


@dataclass(frozen=True)
class StateSaved:
    """The state of a row is complete on the disk, in its pending folder.

    `digest` is None if there is none: a function reported a checkpoint with the row, and none when
    it made the row again.
    """

    start: StartTrial
    row_number: int
    name: str
    digest: str | None


@dataclass(frozen=True)
class Repaired:
    """A trial's process was lost and is started again."""

    start: StartTrial
    why: str


Happening = RowMade | RowMadeAgain | Over | StateSaved | Repaired


@dataclass(frozen=True)
class Origin:
    """Where a process begins.

    Attributes:
        checkpoint: the folder; None is the beginning.
        row_number: rows made by then.
        is_clone: it is another trial's checkpoint.
    """

    checkpoint: Path | None
    row_number: int
    is_clone: bool = False


class Bootstraps(Protocol):
    """What a lane must know to start a process; the experiment answers."""

    def is_ready(self, start: StartTrial) -> bool:
        """Whether the checkpoint that it begins with is not still to be saved."""

    def origin(self, start: StartTrial, *, at_most: int) -> Origin:
        """Where it begins: the newest state of at most so many rows."""

    def boot(self, start: StartTrial, origin: Origin) -> TrialBootstrap:
        """What makes the process."""

    def factory(self, boot: TrialBootstrap) -> bytes | TrialBootstrap:
        """What a place is started with: the same, as bytes if it travels."""


def _stop(handler: TrialHandler) -> None:
    """Ends a trial of this process, which cannot be forced."""
    if not handler.stop():
        _LOGGER.warning(
            "A function trainable went on for %g s after it was stopped; its thread is left "
            "alone. In processes of their own such functions are ended.",
            STOP_GRACE_S,
        )


def _outcome(place: InlinePlace) -> Outcome:
    """Makes the call of a place of this process; how it ended, as if it were elsewhere."""
    try:
        return place.take()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of the user's code; told as one
        context = {} if place.handler is None else place.handler.failure_context()
        return Failed(describe_failure(error, context))


# ---- deaths


@dataclass(frozen=True)
class Patience:
    """How many deaths without a new row a trial survives.

    A kill from outside does not hit the same place; code that crashes does. The place is known of
    trials that show progress within a row, as algorithms do.

    Attributes:
        crashes: deaths that its own code may have caused, at one place.
        crashes_anywhere: the same, wherever they were.
        kills: SIGKILL and SIGTERM that the kernel did not send for lack of memory.
    """

    crashes: int = 3
    crashes_anywhere: int = 10
    kills: int = 10


def patience_with(spec: TrainableSpec) -> Patience:
    """How many deaths trials survive: an algorithm is exact however often it is killed."""
    if spec.algorithm is not None:
        return Patience(kills=100)
    return Patience(crashes=10) if spec.kind == "function" else Patience()


class Deaths:
    """Decides when a process that dies again and again is given up. Pure.

    Args:
        patience: how many deaths are too many.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.row_made()

    def row_made(self) -> None:
        """There was progress."""
        self._crashes = Attempts()
        self._num_kills = self._num_stalls = 0

    def add(
        self, lost: Lost, *, row_number: int, was_starting: bool, num_heartbeats: int = 0
    ) -> str:
        """Notes a death; returns why it is the last, or ""."""
        where = "while the trial was set up" if was_starting else f"at report {row_number}"
        if lost.stalled_s is not None:
            self._num_stalls += 1
            if self._num_stalls >= _STALLS:
                return f"its process hung {self._num_stalls} times {where}: {lost.describe()}"
            return ""
        if lost.was_killed:
            number, most, comes_again = self._num_kills + 1, self._patience.kills, False
            self._num_kills = number
        else:
            self._crashes.add(Attempt(was_starting=was_starting, num_steps=num_heartbeats))
            number, comes_again = self._crashes.num_failures, self._crashes.comes_again
            most = self._patience.crashes_anywhere if num_heartbeats else self._patience.crashes
            most = _TRIES_TO_START if was_starting else most
        if number < most and not comes_again:
            return ""
        return f"its process died {number} times {where}: {lost.describe()}"

    def back_off_s(self) -> float:
        """Seconds to wait before the next start: none at first, then growing."""
        num_deaths = self._crashes.num_failures + self._num_kills + self._num_stalls
        return RestartPolicy().back_off_s(num_deaths)


# ---- one lane


@dataclass(frozen=True)
class Save:
    """The state of a row that is to be saved.

    Attributes:
        row_number: of the row.
        name: of the checkpoint that it will be.
        folder: where its files go.
    """

    row_number: int
    name: str
    folder: Path


@dataclass(frozen=True)
class _Waiting:
    start: StartTrial
    saves: tuple[Save, ...]
    then_end: bool


@dataclass
class _Running:
    """A trial in its lane.

    Attributes:
        start: what it was started with.
        made: rows that the process has made.
        reported: rows that were reported as new; what is made up to here is made again.
        counted: rows that were decided.
        is_over: nothing more is made.
    """

    start: StartTrial
    made: int
    reported: int
    counted: int
    is_over: bool = False


class Lane:
    """One place for one trial at a time.

    Attributes:
        number: of the lane.
    """

    def __init__(
        self,
        number: int,
        place: Place,
        bootstraps: Bootstraps,
        happenings: deque[Happening],
        *,
        trial_timeout_s: float | None = None,
        patience: Patience = Patience(),
        reuses_process: bool = False,
    ) -> None:
        self.number = number
        self.place = place
        self._bootstraps = bootstraps
        self._happenings = happenings
        self._limit = StallLimit(trial_timeout_s, "trial_timeout_s")
        self._patience = patience
        self._reuses_process = reuses_process
        self._run_ahead = 0
        self._running: _Running | None = None
        self._waiting: deque[_Waiting] = deque()
        self._saves: deque[Save] = deque()
        self._asked: Literal["", "start", "row", "save", "stop"] = ""
        self._must_end_by: float | None = None
        self._is_ending = False
        self._restart_at: float | None = None
        self._deaths = Deaths(patience)

    # ---- what it is told

    def begin(
        self, start: StartTrial, *, saves: Sequence[Save] = (), then_end: bool = False
    ) -> None:
        """Starts a trial as soon as the one before is gone.

        States of `saves` are saved when its rows have been made again; with `then_end`, it is
        started for them alone.
        """
        self._waiting.append(_Waiting(start, tuple(saves), then_end))
        if self._running is not None:
            self._is_ending = True

    def run_ahead(self, number: int) -> None:
        """From now on, so many rows may be made that are not decided."""
        self._run_ahead = number

    def count(self, row_number: int) -> None:
        """So many rows of the trial are decided."""
        if self._running is not None:
            self._running.counted = max(self._running.counted, row_number)

    def save(self, save: Save) -> None:
        """Saves the state of a row, before anything further is made; once per row."""
        others = [entry for entry in self._saves if entry.row_number != save.row_number]
        self._saves = deque([*others, save])

    def end(self, trial: int) -> None:
        """Ends a trial when everything is saved that is to be."""
        running = self._running
        if running is None or running.start.trial != trial or self._is_ending:
            waiting = [entry for entry in self._waiting if entry.start.trial != trial]
            self._waiting = deque(waiting)
            return
        self._is_ending = True
        if self._asked in ("row", "start") and not self._saves:
            self._must_end_by = time.monotonic() + STOP_GRACE_S
            self.place.request_end()

    def leave_row(self) -> None:
        """Lets a row go that is being made: the process rests soon, in the middle of it."""
        if self._asked == "row":
            self.place.request_end()

    def kill(self) -> None:
        """Ends the process at once and forgets everything."""
        self.place.kill()
        self._forget()
        self._waiting.clear()

    # ---- what it is doing

    @property
    def trial(self) -> int | None:
        """The trial that runs or is about to; None if the lane is free."""
        if self._running is not None:
            return self._running.start.trial
        return self._waiting[0].start.trial if self._waiting else None

    @property
    def is_free(self) -> bool:
        """Whether there is no trial."""
        return self._running is None and not self._waiting

    @property
    def has_asked(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._asked)

    @property
    def is_resting(self) -> bool:
        """Whether all that was made is decided, so that a state saved now counts."""
        running = self._running
        return (
            running is not None
            and not (self._asked or self._saves or self._is_ending or running.is_over)
            and self._restart_at is None
            and running.made == running.counted
        )

    def holds(self, trial: int) -> bool:
        """Whether this trial runs here and does not end."""
        running = self._running
        return running is not None and running.start.trial == trial and not self._is_ending

    def is_saving(self, trial: int, row_number: int) -> bool:
        """Whether the state of that row is to be saved here already, to be kept."""
        running = self._running
        saves = list(self._saves) if running is not None and running.start.trial == trial else []
        for waiting in self._waiting:
            saves += waiting.saves if waiting.start.trial == trial else ()
        name = checkpoint_folder_name(row_number)
        return any(save.name == name for save in saves)

    @property
    def counted(self) -> int:
        """Rows of the running trial that are decided."""
        return 0 if self._running is None else self._running.counted

    def next_moment(self) -> float | None:
        """When it wants to be pumped again, by the monotonic clock; None: when it is told so."""
        moments = [at for at in (self._must_end_by, self._restart_at) if at is not None]
        return min(moments, default=None)

    # ---- going on

    def pump(self, *, may_make_rows: bool = True) -> None:
        """Asks for whatever comes next, if nothing is under way."""
        if self._must_end_by is not None and time.monotonic() >= self._must_end_by:
            self._must_end_by = None
            self.place.kill()
            self._asked = ""
        if self._asked:
            return
        running = self._running
        if running is None:
            waiting = self._waiting
            if may_make_rows and waiting and self._bootstraps.is_ready(waiting[0].start):
                self._start(waiting.popleft())
        elif self._restart_at is not None:
            if may_make_rows and time.monotonic() >= self._restart_at:
                self._restart_at = None
                self._start_process(running)
        elif self._saves:
            self._save_next(running)
        elif self._is_ending:
            self._end_next(may_begin=may_make_rows)
        elif not running.is_over and may_make_rows and running.made < self._wanted(running):
            self._ask("row", "make_row")

    def _wanted(self, running: _Running) -> int:
        return max(running.reported, running.counted + 1 + self._run_ahead)

    def _start(self, waiting: _Waiting) -> None:
        number = waiting.start.row_number
        self._deaths = Deaths(self._patience)
        self._running = _Running(waiting.start, made=0, reported=number, counted=number)
        self._saves.extend(waiting.saves)
        self._is_ending = waiting.then_end
        self._start_process(self._running)

    def _start_process(self, running: _Running) -> None:
        at_most = self._saves[0].row_number if self._saves else running.counted
        origin = self._bootstraps.origin(running.start, at_most=at_most)
        boot = self._bootstraps.boot(running.start, origin)
        running.made = origin.row_number
        self._asked = "start"
        if self._reuses_process and self.place.is_running and origin.checkpoint is None:
            self.place.submit("reset", (boot,))
            return
        self.place.start(self._bootstraps.factory(boot), self._limit)

    def _save_next(self, running: _Running) -> None:
        save = self._saves[0]
        if running.made < save.row_number:
            self._ask("row", "make_row")
        elif running.made > save.row_number:
            self.place.kill()
            self._start_process(running)
        else:
            self._ask("save", "save", str(save.folder))

    def _end_next(self, *, may_begin: bool) -> None:
        running = self._running
        has_failed = running is not None and running.is_over
        if self.place.is_running and (has_failed or not self._reuses_process):
            self._ask("stop", "stop")
        else:
            self._forget()
            self.pump(may_make_rows=may_begin)

    def _ask(self, kind: Literal["row", "save", "stop"], method: str, *arguments: object) -> None:
        self._asked = kind
        self.place.submit(method, arguments, _STOPPING if kind == "stop" else self._limit)

    def _forget(self) -> None:
        self._running = None
        self._saves.clear()
        self._asked, self._is_ending = "", False
        self._must_end_by = self._restart_at = None

    # ---- answers

    def answered(self, outcome: Outcome) -> None:
        """Takes what came of the thing that was asked."""
        asked, self._asked = self._asked, ""
        self._must_end_by = None
        running = self._running
        if running is None:
            return
        if isinstance(outcome, Lost):
            self._lost(outcome, running, asked)
        elif asked == "stop":
            if isinstance(outcome, Failed):
                _LOGGER.warning("Trial %05d: cleaning up %s", running.start.trial, _text(outcome))
            self.place.stop(_CLOSE_GRACE_S)
            self._forget()
        elif isinstance(outcome, Failed):
            self._failed(outcome, running, asked)
        elif asked == "row":
            self._row_made(outcome.value, running)
        elif asked == "save":
            save = self._saves.popleft()
            self._report(StateSaved(running.start, save.row_number, save.name, outcome.value))

    def _row_made(self, made: Made, running: _Running) -> None:
        if made.is_over:
            running.is_over = True
            for save in self._saves:
                self._report(StateSaved(running.start, save.row_number, save.name, None))
            self._saves.clear()
            self._report(Over(running.start, "returned"))
            return
        if made.row is None:
            return  # it was told to end
        running.made += 1
        if running.made <= running.reported:
            self._report(RowMadeAgain(running.start, running.made, made))
            return
        self._deaths.row_made()
        running.reported = running.made
        self._report(RowMade(running.start, running.made, made))

    def _failed(self, failed: Failed, running: _Running, asked: str) -> None:
        running.is_over = True
        if asked == "save" or self._saves:
            _LOGGER.error(
                "Trial %05d: its state after report %d could not be saved. A restore of the "
                "experiment makes and saves it again, when the cause is mended. %s",
                running.start.trial,
                self._saves[0].row_number if self._saves else running.made,
                _text(failed),
            )
            self._saves.clear()
        if asked == "start":
            self.place.kill()  # there is nothing to be cleaned up
        cause = failed.failure.unpack_error()
        self._report(Over(running.start, "failed", _text(failed), cause))

    def _lost(self, lost: Lost, running: _Running, asked: str) -> None:
        if asked == "stop" or (self._is_ending and not self._saves):
            self._forget()
            return
        row_number = running.made + 1
        why = self._deaths.add(
            lost,
            row_number=row_number,
            was_starting=asked == "start",
            num_heartbeats=self.place.num_heartbeats,
        )
        if why:
            running.is_over = True
            self._saves.clear()
            self._report(Over(running.start, "lost", f"The trial was given up: {why}."))
            return
        self._report(Repaired(running.start, lost.describe()))
        self._restart_at = time.monotonic() + self._deaths.back_off_s()

    def _report(self, happening: Happening) -> None:
        self._happenings.append(happening)


def _text(failed: Failed) -> str:
    failure = failed.failure
    return f"{failure.type_name}: {failure.message}\n{failure.traceback_text}".rstrip()


# ---- all lanes


class Lanes:
    """All lanes of an experiment.

    Args:
        number: how many.
        bootstraps: what starts processes.
        in_process: run trials in this process.
        engine: where processes run; None: on this machine.
        settings: for each `Lane`.
    """

    def __init__(
        self,
        number: int,
        bootstraps: Bootstraps,
        *,
        in_process: bool,
        engine: Engine | None = None,
        settings: Mapping[str, Any],
    ) -> None:
        self._happenings: deque[Happening] = deque()
        self._pool: WorkerPool | None = None
        self._inline: list[InlinePlace] = []
        names = [f"the process of lane {index}" for index in range(number)]
        places: Sequence[Place]
        if in_process:
            # The global generators are exchanged with the trial's, so that trials cannot disturb
            # each other or the caller.
            self._inline = [
                InlinePlace(name, around=GlobalGenerators, on_kill=_stop) for name in names
            ]
            places = self._inline
            settings = {**settings, "reuses_process": False}
        else:
            refuse_while_unpacking("Workers")
            self._pool = WorkerPool(
                names,
                engine=engine,
                preload_modules=_PRELOADED,
                inherit=outer_registry_to_inherit,
            )
            places = [self._pool[index] for index in range(1, number + 1)]
        self.lanes = [
            Lane(index, place, bootstraps, self._happenings, **settings)
            for index, place in enumerate(places)
        ]

    def __getitem__(self, number: int) -> Lane:
        return self.lanes[number]

    def of_trial(self, trial: int) -> Lane | None:
        """The lane of a trial; None if it has none."""
        return next((lane for lane in self.lanes if lane.trial == trial), None)

    def pump(self, *, may_make_rows: bool = True) -> None:
        """Lets every lane go on."""
        for lane in self.lanes:
            lane.pump(may_make_rows=may_make_rows)

    def happenings(self) -> list[Happening]:
        """What there is to tell; empties it."""
        found = list(self._happenings)
        self._happenings.clear()
        return found

    @property
    def is_busy(self) -> bool:
        """Whether anything will come without being told more."""
        return any(lane.has_asked or lane.next_moment() is not None for lane in self.lanes)

    def wait(self, timeout_s: float, *, prefer: int | None = None) -> None:
        """Waits until something has happened, or it is time to pump a lane.

        In this process, the trial whose turn it is comes first (`prefer`).
        """
        asked = [lane for lane in self.lanes if lane.has_asked]
        moments = [at for lane in self.lanes if (at := lane.next_moment()) is not None]
        if moments:
            timeout_s = min(timeout_s, max(0.0, min(moments) - time.monotonic()))
        if self._pool is None:
            self._run_one(asked, prefer, timeout_s)
            return
        if not self._pool.pending():
            if moments:
                time.sleep(timeout_s)
            return
        found = self._pool.outcome_within(timeout_s)
        while found is not None:  # and all others that have answered meanwhile
            index, outcome = found
            self.lanes[index - 1].answered(outcome)
            if not self._pool.pending():
                return
            found = self._pool.outcome_within(0.0)

    def _run_one(self, asked: Sequence[Lane], prefer: int | None, timeout_s: float) -> None:
        if not asked:
            time.sleep(timeout_s)
            return
        lane = next((lane for lane in asked if lane.trial == prefer), asked[0])
        lane.answered(_outcome(self._inline[lane.number]))

    def stop(self) -> None:
        """Lets trials that rest clean up, all at once, and ends the others. Idempotent."""
        if self._pool is not None:
            self._pool.stop(grace_s=_CLOSE_GRACE_S)
        for lane in self.lanes:
            lane.kill()
        if self._pool is not None:
            self._pool.engine.close()

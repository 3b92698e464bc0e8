"""Rounds of requests to runners, carried through whatever happens to their processes."""

from __future__ import annotations

import abc
import logging
import math
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, Protocol

from callbacks import CallbackError
from trainer.env_runners.env_runner import EnvRunner
from trainer.env_runners.messages import (
    DOING,
    DOINGS,
    ENV_INDEX,
    EPISODE,
    HEARTBEATS,
    PUTTING_BACK,
    RESETTING,
    SEED,
    STEPPING,
    STREAM,
    PolicySnapshot,
    RunnerReport,
    SampleReply,
    SampleRequest,
    Sync,
    is_putting_back,
)
from trainer.env_runners.worker_service import apply_to_runner, report_of
from trainer.errors import (
    DebuggerError,
    EngineError,
    EnvContractError,
    EpisodeError,
    MetricsError,
    RunnerFailedError,
    RunnerLostError,
)
from trainer.runner_group.crash_files import CrashFiles
from trainer.runner_group.records import RunnerRecord
from trainer.runtime.engine import UNLIMITED, StallLimit, own_heartbeat
from trainer.runtime.messages import Failed, Lost, Outcome, Success
from trainer.runtime.process_start import describe_shadows
from trainer.runtime.restart_policy import Attempt, Attempts, RestartPolicy
from trainer.runtime.threads import single_threaded_blas
from trainer.runtime.worker import NO_DEBUGGER_HERE
from trainer.runtime.worker_pool import WorkerPool
from trainer_toolkit.interrupts import signals_deferred

# ---- rounds
#
# What runners are asked in a round, how a round goes, and what comes out of it.

OnRecreated = Callable[[list[int]], None]
"""Told the numbers of runners that were made again."""


@dataclass(frozen=True)
class Ask:
    """A call to a runner's handler.

    Attributes:
        method: "sample" or "apply".
        arguments: what comes after the `Sync`, which is always the first argument.
        max_new_episodes: how many episodes at most it can start per slot: what numbers to skip if
            it must be given up.
        is_repeatable: it may be asked again and again; else once more if the process died, and not
            at all if the user's code raised.
        limit: how long it may go without an env step.
        must_be_played: its episodes cannot be given up for others: a failure that comes again at
            the same place is raised.
        handed_back_after: after so many failures it is noted as failed, and nothing is raised;
            the caller decides what next. Where it must be played, only if it still makes
            progress. None never hands it back.
    """

    method: str
    arguments: tuple[Any, ...]
    max_new_episodes: int = 1
    is_repeatable: bool = True
    limit: StallLimit = UNLIMITED
    must_be_played: bool = False
    handed_back_after: int | None = None


@dataclass
class RoundResult:
    """What came out of a round.

    Attributes:
        answers: by runner number.
        reports: of the runners that were made in this round, by number.
        failures: by runner number: calls that failed and are not repeated.
        attempts: by runner number: the last attempts at calls that were handed back.
        recreated: numbers of the runners that replace others, ascending; also those made in an
            earlier round that was cut short before it could tell.
        num_restarts: how often a runner was made again.
        num_episodes_lost, num_env_steps_lost: of running episodes that were given up.
        repair_s: seconds from noticing failures to the new processes' reports, summed.
    """

    answers: dict[int, Any] = field(default_factory=dict)
    reports: dict[int, RunnerReport] = field(default_factory=dict)
    failures: dict[int, Failed | Lost] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    recreated: list[int] = field(default_factory=list)
    num_restarts: int = 0
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    repair_s: float = 0.0

    def add_report(self, index: int, report: RunnerReport, *, record: RunnerRecord) -> None:
        """Notes what a runner says that was just made; counts episodes it could not put back."""
        self.reports[index] = report
        record.take_report(report)
        if not report.lost:
            return
        self.num_episodes_lost += len(report.lost)
        self.num_env_steps_lost += sum(report.lost.values())
        record.positions = tuple(
            position.restarted() if env_index in report.lost else position
            for env_index, position in enumerate(record.positions)
        )
        record.warn_of_lost_episodes(len(report.lost))

    def raise_first_failure(self, *, doing: str) -> None:
        """Raises the failure of the first runner that has one."""
        for index, outcome in sorted(self.failures.items()):
            summary = f"Env runner {index} {outcome.describe()} while it {doing}."
            if isinstance(outcome, Lost):
                raise RunnerLostError(
                    f"{summary} That happened twice without env steps in between; the runner is "
                    "replaced, and the function not called again."
                )
            raise_original(outcome, summary)


def raise_original(outcome: Failed, summary: str) -> NoReturn:
    """Raises what the user's code raised in a runner, of its own type.

    The summary is what the `RunnerFailedError` says that is chained as cause.
    """
    error = outcome.failure.unpack_error()
    cause = RunnerFailedError(f"{summary}\n\n{outcome.failure.traceback_text}")
    cause.__cause__ = error.__cause__
    raise error from cause


class Round(abc.ABC):
    """Asks some runners and takes their answers.

    It can be carried through at once (`run`), or bit by bit while the main process does something
    else: `begin`, `advance` now and then until the round is over, `end`.
    """

    def __init__(self) -> None:
        self._result = RoundResult()
        self._is_wanted = True

    def run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        """Carries the round through.

        An ask of None only sees to it that the runner is there.

        Raises:
            Exception: what the user's code raised in a runner that may not be repaired, with the
                remote traceback.
            RunnerLostError: a process died that may not be replaced.
            CallbackError: a callback raised; that is no failure of the runner.
        """
        self.begin(asks)
        while not self.advance(math.inf):
            pass
        return self.end()

    def begin(self, asks: Mapping[int, Ask | None]) -> None:
        """Asks without waiting; see `run`."""
        for index, ask in asks.items():
            self.ask(index, ask)

    @abc.abstractmethod
    def ask(self, index: int, ask: Ask | None) -> None:
        """Asks one runner that owes no answer."""

    @abc.abstractmethod
    def advance(self, timeout_s: float) -> bool:
        """Takes what has come in, and repairs what has failed.

        Args:
            timeout_s: how long to wait if nothing has come in; 0 looks only.

        Returns:
            whether all answers are in.
        """

    @abc.abstractmethod
    def end(self) -> RoundResult:
        """What came out of a round whose answers are all in."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Kills workers still busy with this round; the next round restarts them."""

    def forgo(self) -> None:
        """Notes that nobody wants the answers: no event tells whom `abandon` kills from now on.

        Whether a worker is still busy then depends on how fast it is, and events must not.
        """
        self._is_wanted = False

    def take_answers(self) -> dict[int, Any]:
        """The answers that have come in since this was last called, by runner number."""
        answers, self._result.answers = self._result.answers, {}
        return answers

    def take_handed_back(self) -> dict[int, Attempt]:
        """Likewise the last attempts at requests that failed and are not repeated."""
        attempts, self._result.attempts = self._result.attempts, {}
        self._result.failures = {}
        return attempts


# ---- trouble


@dataclass
class Trouble:
    """What went wrong with one runner since its last answer.

    Attributes:
        attempts: those that failed, of any kind.
        calls: of these, those that failed in a function of the user's.
        noticed_at: when the first failure came that is not repaired; seconds, None if all are.
    """

    attempts: Attempts = field(default_factory=Attempts)
    calls: Attempts = field(default_factory=Attempts)
    noticed_at: float | None = None

    def add(self, attempt: Attempt, *, now_s: float) -> bool:
        """Notes a failed attempt; returns whether it made progress."""
        if self.noticed_at is None:
            self.noticed_at = now_s
        return self.attempts.add(attempt)

    def may_call_again(self, attempt: Attempt) -> bool:
        """Notes a failure in a function of the user's; whether it is to be called once more.

        A process may be killed from outside once; after that the function is to blame, unless the
        envs that it steps get somewhere.
        """
        return self.calls.add(attempt) or self.calls.num_without_progress < 2

    def end(self, *, now_s: float) -> float:
        """Notes that the runner is back; returns the seconds that it took, waiting included."""
        begun, self.noticed_at = self.noticed_at, None
        return 0.0 if begun is None else now_s - begun


def attempt_of(outcome: Failed | Lost, *, was_starting: bool, num_heartbeats: int) -> Attempt:
    """What is known of an attempt from how the call ended, and its heartbeats."""
    if isinstance(outcome, Failed):
        return Attempt(was_starting=was_starting, num_steps=num_heartbeats, has_raised=True)
    return Attempt(
        was_starting=was_starting,
        num_steps=num_heartbeats,
        was_stalled=outcome.stalled_s is not None,
        was_killed=outcome.was_killed,
        was_refused=outcome.start_error is not None,
    )


def is_raised_by_env(failed: Failed, error: BaseException) -> bool:
    """Whether what a function of the user's raised comes from a sub-env that it let play."""
    context = failed.failure.context
    doing = context.get("during")
    is_at_env = doing == PUTTING_BACK or ("sub-env" in context and doing in (STEPPING, RESETTING))
    return is_at_env and not isinstance(error, EnvContractError)


# ---- post-mortem
#
# What the main process can tell of a lost process: what it noted, and what was committed.


def what_happened(outcome: Failed | Lost, record: RunnerRecord) -> str:
    """How a call to a runner ended, and where it was then, as the rest of a sentence."""
    return outcome.describe() + (post_mortem(outcome, record) if isinstance(outcome, Lost) else "")


def traceback_below(outcome: Failed | Lost) -> str:
    """The remote traceback on lines of its own; empty if there is none."""
    return f"\n{outcome.failure.traceback_text.rstrip()}" if isinstance(outcome, Failed) else ""


def post_mortem(lost: Lost, record: RunnerRecord) -> str:
    """What is known of what a lost process did, as the rest of a sentence; may be empty."""
    if lost.start_error is not None or not lost.notes:
        return ""
    doing = _doing(lost)
    parts = [f"during {doing}"] if doing else []
    parts += [_begun_last(lost, record)] if lost.notes[ENV_INDEX] else _continued(record)
    return f" ({'; '.join(parts)})" if parts else ""


def _doing(lost: Lost) -> str:
    code = lost.notes[DOING]  # what ended the process may have written into this memory as well
    return DOINGS[code] if 0 <= code < len(DOINGS) else ""


def _begun_last(lost: Lost, record: RunnerRecord) -> str:
    notes, spec = lost.notes, record.spec
    episode = f"{spec.role.name.lower()}-{notes[STREAM]}-{notes[EPISODE]}"
    text = f"sub-env {notes[ENV_INDEX] - 1}, episode {episode}, seed {notes[SEED]}"
    if spec.num_envs > 1:
        return f"the episode begun last: {text}"
    if _doing(lost) == RESETTING:
        return text
    # Every step is a heartbeat, and so is the reset before them.
    return f"{text}, step {max(0, lost.num_heartbeats - notes[HEARTBEATS] - 1)}"


def _continued(record: RunnerRecord) -> list[str]:
    """The episodes that were running before it was asked: it has begun none since."""
    running = [
        f"sub-env {index}, episode {position.episode['id_']}, seed {position.env_seed}, "
        f"after step {position.num_steps}"
        for index, position in enumerate(record.positions)
        if position.episode is not None
    ]
    more = [f"and {len(running) - 3} more"] if len(running) > 3 else []
    return running[:3] + more


# ---- request round
#
# One round of requests to remote runners, carried through whatever happens to their processes.
#     place:   (start →) report → request → answer
#     failure:           restart → report → the same request again
#
# Each runner goes through this by itself: a runner that has answered waits for no other, and is
# never asked twice.

_LOGGER = logging.getLogger(__name__)

_TIMES_LOGGED: Final = 20
_LOGGED_EVERY: Final = 100

_TOLD_AT_ONCE: Final = (
    CallbackError,
    EngineError,
    EnvContractError,
    # What callbacks stored in an episode: no metric, or nothing that can be copied.
    EpisodeError,
    MetricsError,
)


class RequestRound(Round):
    """Asks several remote runners, and repairs them until all have answered.

    It ends earlier for a runner that may not be repaired any more.
    """

    def __init__(
        self,
        pool: WorkerPool,
        records: Mapping[int, RunnerRecord],
        *,
        policy: PolicySnapshot,
        restart_policy: RestartPolicy,
        start_limit: StallLimit,
        crash_files: CrashFiles,
    ) -> None:
        super().__init__()
        self._crash_files = crash_files
        self._pool = pool
        self._records = records
        self._policy = policy
        self._restart_policy = restart_policy
        self._start_limit = start_limit
        self._is_end_requested = False
        self._asks: dict[int, Ask | None] = {}
        self._starting: set[int] = set()
        self._troubles: dict[int, Trouble] = {}
        # Runners that wait for their replacement, and since when it may start.
        self._due: dict[int, float] = {}

    def begin(self, asks: Mapping[int, Ask | None]) -> None:
        """Asks without waiting."""
        self._pool.kill_busy()  # none should be; a second Ctrl-C may have cut the clean-up short
        super().begin(asks)

    def ask(self, index: int, ask: Ask | None) -> None:
        """Asks one runner that owes no answer; one that is being made is asked afterwards."""
        try:
            with signals_deferred():
                self._ask(index, ask)
        except BaseException:
            self.abandon()
            raise

    def _ask(self, index: int, ask: Ask | None) -> None:
        self._asks[index] = ask
        if index in self._starting:
            return
        if not self._pool[index].is_running:
            # If there was one, it was ended when an earlier round was cut short, or died in one
            # that could not go on.
            record = self._records[index]
            record.is_replacement_unreported |= record.had_runner
            self._start(index)
        elif ask is not None:
            self._submit(index, ask)

    def advance(self, timeout_s: float) -> bool:
        """Takes what has come in, and repairs what has failed; see `Round`."""
        try:
            return self._advance(timeout_s)
        except BaseException:
            self.abandon()
            raise

    def _advance(self, timeout_s: float) -> bool:
        until = self._pool.now_s() + timeout_s
        while True:
            with signals_deferred():
                self._start_who_is_due()
            if not self._pool.pending() and not self._due:
                return True
            now = self._pool.now_s()
            found = self._outcome_within(max(0.0, min([until, *self._due.values()]) - now))
            if found is not None:
                with signals_deferred():
                    self._take_outcome(*found)
                until = now  # now only what else is there already
            elif self._pool.now_s() >= until:
                return False

    def _outcome_within(self, timeout_s: float) -> tuple[int, Outcome] | None:
        if self._pool.pending():
            return self._pool.outcome_within(timeout_s)
        self._pool.sleep(timeout_s)  # all wait for their replacement
        return None

    def request_end(self) -> None:
        """Tells requests without an end of their own to come to one."""
        self._is_end_requested = True
        for index in self._pool.pending():
            self._pool[index].request_end()

    def is_stuck(self, index: int, *, for_s: float) -> bool:
        """Whether a runner that owes an answer has made no progress for so long."""
        return self._pool[index].idle_s() >= for_s

    def end(self) -> RoundResult:
        """What came out of a round whose answers are all in."""
        self._result.recreated = self._take_recreated()
        return self._result

    def abandon(self) -> None:
        """Kills workers still busy with this round; the next round restarts them."""
        # Neither cut short nor, as the end of a context manager might be, put off until later:
        # no worker may go on with a round that is over.
        with signals_deferred():
            if not self._is_wanted:  # who comes after them replaces none that failed
                for index in {*self._pool.pending(), *self._starting}:
                    self._records[index].had_runner = False
            self._pool.kill_busy()
            # A process whose runner was not made could not answer the next round.
            for index in self._starting:
                self._pool[index].kill()
            self._starting.clear()
            self._due.clear()

    def _take_outcome(self, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, Success):
            self._take(index, outcome.value)
        else:
            self._repair(index, outcome)

    def _start_who_is_due(self) -> None:
        now = self._pool.now_s()
        for index in [index for index, at in self._due.items() if at <= now]:
            del self._due[index]
            self._start(index)

    def _take_recreated(self) -> list[int]:
        """Who was replaced in this round, and in earlier ones that were cut short."""
        recreated = [
            index for index, record in self._records.items() if record.is_replacement_unreported
        ]
        for index in recreated:
            self._records[index].is_replacement_unreported = False
        return [index for index in recreated if not self._records[index].is_given_up]

    def _start(self, index: int) -> None:
        self._starting.add(index)
        bootstrap = self._records[index].bootstrap(self._policy)
        self._pool[index].start(bootstrap.packed(), self._start_limit)

    def _submit(self, index: int, ask: Ask) -> None:
        record = self._records[index]
        try:
            sync = self._published(record.sync(self._policy))
            self._pool[index].submit(ask.method, (sync, *ask.arguments), ask.limit)
        except BaseException:
            # The arguments could not be pickled: the weights beside them have not arrived either.
            record.sent = None
            raise
        if self._is_end_requested:
            self._pool[index].request_end()

    def _published(self, sync: Sync) -> Sync:
        """The same, with what is large and goes to all runners packed once."""
        policy = sync.policy
        if policy.weights is None and policy.normalization is None:
            return sync
        weights = self._pool.publish("weights", policy.weights)
        normalization = self._pool.publish("normalization", policy.normalization)
        return replace(sync, policy=replace(policy, weights=weights, normalization=normalization))

    def _take(self, index: int, value: Any) -> None:
        if index not in self._starting:
            self._result.answers[index] = value
            self._troubles.pop(index, None)
            record = self._records[index]
            record.num_excess_failures = max(0, record.num_excess_failures - 1)
            return
        self._starting.discard(index)
        if index in self._troubles:
            self._result.repair_s += self._troubles[index].end(now_s=self._pool.now_s())
        self._result.add_report(index, value, record=self._records[index])
        ask = self._asks[index]
        if ask is not None:
            self._submit(index, ask)

    def _repair(self, index: int, outcome: Failed | Lost) -> None:
        was_starting, record = index in self._starting, self._records[index]
        trouble = self._troubles.setdefault(index, Trouble())
        attempt = attempt_of(
            outcome, was_starting=was_starting, num_heartbeats=self._pool[index].num_heartbeats
        )
        if not was_starting and self._is_end_of_function(index, outcome, attempt):
            self._result.failures[index] = outcome
            if isinstance(outcome, Failed):
                record.is_ahead = True
                return
            self._asks[index] = None
        self._raise_what_is_no_fault(index, outcome, was_starting=was_starting)
        has_progressed = trouble.add(attempt, now_s=self._pool.now_s())
        record.has_progressed |= has_progressed
        # Kills from outside, and steps that have to be made again, say nothing against the env.
        record.num_excess_failures += not has_progressed and not attempt.was_killed
        self._hand_back(index, outcome, attempt, has_progressed=has_progressed)
        why = self._why_given_up(index)
        if why:
            self._give_up(index, outcome, why)
        else:
            self._replace(index, outcome, self._give_up_episodes(index, outcome))

    def _is_end_of_function(self, index: int, outcome: Failed | Lost, attempt: Attempt) -> bool:
        """Whether a user's function failed that is not to be called again."""
        ask = self._asks[index]
        if ask is None or ask.is_repeatable:
            return False
        if isinstance(outcome, Failed):
            is_its_own = not is_raised_by_env(outcome, outcome.failure.unpack_error())
        else:
            is_its_own = attempt.was_stalled
        return is_its_own or not self._troubles[index].may_call_again(attempt)

    def _hand_back(
        self, index: int, outcome: Failed | Lost, attempt: Attempt, *, has_progressed: bool
    ) -> None:
        """Notes a request as failed if the caller wants to decide what next."""
        ask, trouble = self._asks[index], self._troubles[index]
        if ask is None or ask.handed_back_after is None:
            return
        if trouble.attempts.num_failures < ask.handed_back_after:
            return
        if ask.must_be_played and not has_progressed:
            return
        self._result.failures[index] = outcome
        self._result.attempts[index] = attempt
        self._asks[index] = None
        if attempt.was_starting:
            return
        # The request is to blame, and is given up: the runner begins with a clean slate.
        record = self._records[index]
        record.num_excess_failures -= not has_progressed and not attempt.was_killed
        record.has_progressed = True
        trouble.attempts = Attempts()
        trouble.attempts.add(attempt)

    def _why_given_up(self, index: int) -> str:
        """Why a runner that failed is not replaced; empty if it is."""
        record, ask = self._records[index], self._asks[index]
        attempts = self._troubles[index].attempts
        why = self._restart_policy.why_given_up(
            attempts,
            num_restarts=record.num_restarts,
            num_excess_failures=record.num_excess_failures,
            has_ever_progressed=record.has_answered or record.has_progressed,
        )
        if not why and ask is not None and ask.must_be_played and attempts.comes_again:
            return (
                "An episode of an evaluation cannot be left out for another one, and it fails at "
                "the same place each time."
            )
        return why

    def _give_up_episodes(self, index: int, outcome: Failed | Lost) -> str:
        """Gives up running episodes that are to blame; what is to be said of the file kept."""
        record, ask, attempts = (
            self._records[index],
            self._asks[index],
            self._troubles[index].attempts,
        )
        if ask is None or not attempts.comes_again:
            return ""
        kept = self._keep(index, outcome, ask)
        episodes, steps = record.give_up_episodes(ask.max_new_episodes)
        self._result.num_episodes_lost += episodes
        self._result.num_env_steps_lost += steps
        attempts.play_other()
        return kept

    def _replace(self, index: int, outcome: Failed | Lost, kept: str) -> None:
        record, attempts = self._records[index], self._troubles[index].attempts
        delay_s = self._restart_policy.back_off_s(attempts.num_without_progress)
        record.num_restarts += 1
        if _is_logged(record):
            _LOGGER.warning(
                "%s %s; it is replaced%s.%s%s%s%s",
                record.name.capitalize(),
                what_happened(outcome, record),
                f" in {delay_s:.2f} s" if delay_s else "",
                self._restart_policy.outlook(attempts, num_restarts=record.num_restarts),
                _rarely_logged(record),
                kept,
                traceback_below(outcome),
            )
        self._result.num_restarts += 1
        record.is_replacement_unreported = True
        self._starting.add(index)
        self._due[index] = self._pool.now_s() + delay_s

    def _keep(self, index: int, outcome: Failed | Lost, ask: Ask | None) -> str:
        """Keeps what a runner was asked that failed; see `CrashFiles.write`."""
        if ask is not None and ask.method != "sample":
            return ""  # a function of the user's
        record, request = self._records[index], None if ask is None else ask.arguments[0]
        why = f"{what_happened(outcome, record)}{traceback_below(outcome)}"
        return self._crash_files.write(record, self._policy, request, why=why)

    def _raise_what_is_no_fault(
        self, index: int, outcome: Failed | Lost, *, was_starting: bool
    ) -> None:
        """Raises errors that would come again however often the runner is made.

        Those are errors of callbacks, broken contracts, and whatever fails in a first construction.
        """
        if not isinstance(outcome, Failed):
            return
        record, notes = self._records[index], self._pool[index].notes
        error = outcome.failure.unpack_error()
        if outcome.failure.type_name == "bdb.BdbQuit":  # pdb.set_trace() finds no input to read
            where = record.name.capitalize()
            raise DebuggerError(f"{where} called the debugger pdb {NO_DEBUGGER_HERE}")
        if isinstance(error, DebuggerError):
            raise error from None  # the text says all: where it was called, and what to do
        is_first_start = was_starting and record.num_starts == 1
        if is_first_start and record.has_running_episodes and is_putting_back(notes):
            is_first_start = False  # it was made; an env step failed, as others may
        if isinstance(error, _TOLD_AT_ONCE) or is_first_start:
            kept = "" if is_first_start else self._keep(index, outcome, self._asks[index])
            if kept:
                _LOGGER.warning("%s failed.%s", record.name.capitalize(), kept)
            raise error

    def _give_up(self, index: int, outcome: Failed | Lost, why: str) -> None:
        record, failures = self._records[index], self._troubles[index].attempts.num_failures
        kept = self._keep(index, outcome, self._asks[index])
        record.num_excess_failures = 0  # told; it may begin anew
        if self._restart_policy.should_ignore:
            record.is_given_up = True
            self._pool[index].kill()
            _LOGGER.error(
                "%s %s; it is not replaced, training goes on without it. %s%s%s",
                record.name.capitalize(),
                what_happened(outcome, record),
                why,
                kept,
                traceback_below(outcome),
            )
            return
        times = "once" if failures == 1 else f"{failures} times in a row"
        summary = (
            f"{record.name.capitalize()} failed {times}; the last time it "
            f"{what_happened(outcome, record)}. "
            f"{why}{kept}{'' if record.has_answered else describe_shadows()}"
        )
        if isinstance(outcome, Lost):
            raise RunnerLostError(summary)
        raise_original(outcome, summary)


def _is_logged(record: RunnerRecord) -> bool:
    """Whether a replacement is logged: evaluations in the background may fail without end."""
    number = record.num_restarts
    return not record.spec.in_evaluation or number <= _TIMES_LOGGED or number % _LOGGED_EVERY == 0


def _rarely_logged(record: RunnerRecord) -> str:
    if not record.spec.in_evaluation or record.num_restarts < _TIMES_LOGGED:
        return ""
    number = record.num_restarts
    return f" This was replacement {number}; from now on every {_LOGGED_EVERY}th is logged."


# ---- local round
#
# A round of requests to the runner of the main process. The steps are those of a remote round,
# without a process that could be lost.


class LocalRound(Round):
    """Asks the local runner; what the user's code raises comes out as it is, and a debugger works.

    After an error the runner stands somewhere in the middle of the request; the next round puts it
    back first.
    """

    def __init__(
        self,
        records: Mapping[int, RunnerRecord],
        *,
        policy: PolicySnapshot,
        crash_files: CrashFiles,
    ) -> None:
        super().__init__()
        self._crash_files = crash_files
        self._records = records
        self._policy = policy
        self._waiting: deque[tuple[int, Ask | None]] = deque()

    def ask(self, index: int, ask: Ask | None) -> None:
        """Asks when the round is advanced."""
        self._waiting.append((index, ask))

    def advance(self, timeout_s: float) -> bool:  # noqa: ARG002 - it does its work right away
        """Does all that was asked."""
        # The same number of BLAS threads as in a worker process, so that both compute the same
        # bytes.
        with single_threaded_blas():
            while self._waiting:
                self._do(*self._waiting.popleft())
        return True

    def _do(self, index: int, ask: Ask | None) -> None:
        record = self._records[index]
        record.is_busy = True
        try:
            runner = self._make(index, record) if record.runner is None else record.runner
            if ask is not None:
                self._result.answers[index] = self._answer(record, runner, ask)
        finally:
            record.is_busy = False

    def _make(self, index: int, record: RunnerRecord) -> EnvRunner:
        runner = record.bootstrap(self._policy).make_runner(own_heartbeat())
        with signals_deferred():
            self._result.add_report(index, report_of(runner), record=record)
            record.runner = runner
        return runner

    def _answer(self, record: RunnerRecord, runner: EnvRunner, ask: Ask) -> Any:
        try:
            sync = record.sync(self._policy)
            if ask.method == "apply":
                return apply_to_runner(runner, sync, *ask.arguments)
            return self._sample(record, runner, sync, *ask.arguments)
        except BaseException:
            # It may not have arrived, or not as a whole.
            record.sent = None
            raise

    def _sample(
        self, record: RunnerRecord, runner: EnvRunner, sync: Sync, request: SampleRequest
    ) -> SampleReply:
        try:
            runner.synchronize(sync)
            return runner.answer(request)
        except Exception as error:
            why = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            kept = self._crash_files.write(record, self._policy, request, why=why)
            if kept:
                _LOGGER.warning("%s failed.%s", record.name.capitalize(), kept)
            raise

    def end(self) -> RoundResult:
        """What came out of it."""
        return self._result

    def abandon(self) -> None:
        """Does nothing of what is left to do."""
        self._waiting.clear()


class _Advancing(Protocol):
    def advance(self, timeout_s: float) -> bool: ...
    def abandon(self) -> None: ...


def wait_for_end(under_way: _Advancing, *, look_every_s: float) -> None:
    """Lets something go on until it is over; an interrupt ends it."""
    try:
        while not under_way.advance(look_every_s):
            pass
    except BaseException:
        under_way.abandon()
        raise

"""One round of requests to remote runners, carried through whatever happens to their processes.

    place:   (start →) report → request → answer
    failure:           restart → report → the same request again

Each runner goes through this by itself: a runner that has answered waits for nobody, and is never
asked twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from callbacks import CallbackError
from trainer.env_runners.crash_files import CrashFiles
from trainer.env_runners.last_words import traceback_below, what_happened
from trainer.env_runners.rounds import Ask, Round, RoundResult, raise_original
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.spec import Weights
from trainer.env_runners.trouble import Trouble, attempt_of, is_raised_by_env
from trainer.env_runners.whereabouts import is_putting_back
from trainer.errors import DebuggerError, EnvContractError, RunnerLostError
from trainer.runtime.deferred_signals import signals_deferred
from trainer.runtime.import_path import describe_shadows
from trainer.runtime.outcomes import Failed, Lost, Outcome, Success
from trainer.runtime.restart_policy import Attempt, Attempts, RestartPolicy
from trainer.runtime.worker_main import NO_DEBUGGER_HERE
from trainer.runtime.worker_pool import WorkerPool

_LOGGER = logging.getLogger(__name__)

_TIMES_TOLD: Final = 20
_TOLD_EVERY: Final = 100


class RequestRound(Round):
    """Asks several remote runners, and repairs them until all have answered.

    It ends earlier for a runner that may not be repaired any more.
    """

    def __init__(
        self,
        pool: WorkerPool,
        places: Mapping[int, RunnerPlace],
        *,
        weights: Weights | None,
        policy: RestartPolicy,
        start_limit_s: float | None,
        crash_files: CrashFiles,
    ) -> None:
        super().__init__()
        self._crash_files = crash_files
        self._pool = pool
        self._places = places
        self._weights = weights
        self._policy = policy
        self._start_limit_s = start_limit_s
        self._is_told_to_end = False
        self._asks: dict[int, Ask | None] = {}
        self._starting: set[int] = set()
        self._troubles: dict[int, Trouble] = {}
        # Runners that wait for their replacement, and since when it may start.
        self._due: dict[int, float] = {}

    def begin(self, asks: Mapping[int, Ask | None]) -> None:
        """Asks, and waits for nobody."""
        self._pool.kill_busy()  # nobody should be; a second Ctrl-C may have cut the clean-up short
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
        if not self._pool.slots[index].is_running:
            # If there was one, it was ended when an earlier round was cut short, or died in one
            # that could not go on.
            place = self._places[index]
            place.is_replacement_untold |= place.had_runner
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
        until = time.monotonic() + timeout_s
        while True:
            with signals_deferred():
                self._start_who_is_due()
            if not self._pool.pending() and not self._due:
                return True
            now = time.monotonic()
            found = self._outcome_within(max(0.0, min([until, *self._due.values()]) - now))
            if found is not None:
                with signals_deferred():
                    self._take_outcome(*found)
                until = now  # now only what else is there already
            elif time.monotonic() >= until:
                return False

    def _outcome_within(self, timeout_s: float) -> tuple[int, Outcome] | None:
        if self._pool.pending():
            return self._pool.outcome_within(timeout_s)
        time.sleep(timeout_s)  # all wait for their replacement
        return None

    def tell_to_end(self) -> None:
        """Tells requests without an end of their own to come to one."""
        self._is_told_to_end = True
        for index in self._pool.pending():
            self._pool.slots[index].tell_to_end()

    def is_stuck(self, index: int, *, for_s: float) -> bool:
        """Whether a runner that owes an answer has made no progress for so long."""
        return self._pool.slots[index].idle_s() >= for_s

    def end(self) -> RoundResult:
        """What came out of a round in which nobody owes an answer."""
        self._result.recreated = self._take_recreated()
        return self._result

    def abandon(self) -> None:
        """Ends whoever works on it; who is ended here starts again with the next round."""
        # Neither cut short nor, as the end of a context manager might be, put off until later:
        # nobody may go on working on a round that is over.
        with signals_deferred():
            self._pool.kill_busy()
            # A process whose runner was not made could not answer the next round.
            for index in self._starting:
                self._pool.slots[index].kill()
            self._starting.clear()
            self._due.clear()

    def _take_outcome(self, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, Success):
            self._take(index, outcome.value)
        else:
            self._mend(index, outcome)

    def _start_who_is_due(self) -> None:
        now = time.monotonic()
        for index in [index for index, at in self._due.items() if at <= now]:
            del self._due[index]
            self._start(index)

    def _take_recreated(self) -> list[int]:
        """Who was replaced in this round, and in earlier ones that were cut short."""
        recreated = [index for index, place in self._places.items() if place.is_replacement_untold]
        for index in recreated:
            self._places[index].is_replacement_untold = False
        return [index for index in recreated if not self._places[index].is_given_up]

    def _start(self, index: int) -> None:
        self._starting.add(index)
        bootstrap = self._places[index].bootstrap(self._weights)
        self._pool.slots[index].start(
            bootstrap.packed(),
            stall_limit_s=self._start_limit_s,
            limited_by="env_runner_restore_timeout_s",
        )

    def _submit(self, index: int, ask: Ask) -> None:
        place = self._places[index]
        try:
            sync = place.sync(self._weights)
            self._pool.slots[index].submit(
                ask.method,
                (sync, *ask.arguments),
                stall_limit_s=ask.stall_limit_s,
                limited_by=ask.limited_by,
            )
        except BaseException:
            # The arguments could not be pickled: the weights beside them have not arrived either.
            place.weights = place.sent_normalization = None
            raise
        if self._is_told_to_end:
            self._pool.slots[index].tell_to_end()

    def _take(self, index: int, value: Any) -> None:
        if index not in self._starting:
            self._result.answers[index] = value
            self._troubles.pop(index, None)
            place = self._places[index]
            place.num_excess_failures = max(0, place.num_excess_failures - 1)
            return
        self._starting.discard(index)
        if index in self._troubles:
            self._result.repair_s += self._troubles[index].end()
        self._result.add_report(index, value, place=self._places[index])
        ask = self._asks[index]
        if ask is not None:
            self._submit(index, ask)

    def _mend(self, index: int, outcome: Failed | Lost) -> None:
        was_starting, place = index in self._starting, self._places[index]
        trouble = self._troubles.setdefault(index, Trouble())
        attempt = attempt_of(
            outcome, was_starting=was_starting, num_signs=self._pool.slots[index].num_signs
        )
        if not was_starting and self._is_end_of_function(index, outcome, attempt):
            self._result.failures[index] = outcome
            if isinstance(outcome, Failed):
                place.is_ahead = True
                return
            self._asks[index] = None
        self._raise_what_is_no_fault(index, outcome, was_starting=was_starting)
        has_progressed = trouble.add(attempt)
        place.has_progressed |= has_progressed
        # Kills from outside, and steps that have to be made again, say nothing against the env.
        place.num_excess_failures += not has_progressed and not attempt.was_killed
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
        """Notes a request as failed if whoever asked wants to decide what next."""
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
        place = self._places[index]
        place.num_excess_failures -= not has_progressed and not attempt.was_killed
        place.has_progressed = True
        trouble.attempts = Attempts()
        trouble.attempts.add(attempt)

    def _why_given_up(self, index: int) -> str:
        """Why a runner that failed is not replaced; empty if it is."""
        place, ask = self._places[index], self._asks[index]
        attempts = self._troubles[index].attempts
        why = self._policy.why_given_up(
            attempts,
            num_restarts=place.num_restarts,
            num_excess_failures=place.num_excess_failures,
            has_ever_progressed=place.has_answered or place.has_progressed,
        )
        if not why and ask is not None and ask.must_be_played and attempts.comes_again:
            return (
                "An episode of an evaluation cannot be left out for another one, and it fails at "
                "the same place each time."
            )
        return why

    def _give_up_episodes(self, index: int, outcome: Failed | Lost) -> str:
        """Gives up running episodes that are to blame; what is to be said of the file kept."""
        place, ask, attempts = (
            self._places[index],
            self._asks[index],
            self._troubles[index].attempts,
        )
        if ask is None or not attempts.comes_again:
            return ""
        kept = self._keep(index, outcome, ask)
        episodes, steps = place.give_up_episodes(ask.max_new_episodes)
        self._result.num_episodes_lost += episodes
        self._result.num_env_steps_lost += steps
        attempts.play_other()
        return kept

    def _replace(self, index: int, outcome: Failed | Lost, kept: str) -> None:
        place, attempts = self._places[index], self._troubles[index].attempts
        delay_s = self._policy.back_off_s(attempts.num_without_progress)
        place.num_restarts += 1
        if _is_told(place):
            _LOGGER.warning(
                "%s %s; it is replaced%s.%s%s%s%s",
                place.name.capitalize(),
                what_happened(outcome, place),
                f" in {delay_s:.2f} s" if delay_s else "",
                self._policy.outlook(attempts, num_restarts=place.num_restarts),
                _rarely_told(place),
                kept,
                traceback_below(outcome),
            )
        self._result.num_restarts += 1
        place.is_replacement_untold = True
        self._starting.add(index)
        self._due[index] = time.monotonic() + delay_s

    def _keep(self, index: int, outcome: Failed | Lost, ask: Ask | None) -> str:
        """Keeps what a runner was asked that failed; see `CrashFiles.write`."""
        if ask is not None and ask.method != "sample":
            return ""  # a function of the user's
        place, request = self._places[index], None if ask is None else ask.arguments[0]
        why = f"{what_happened(outcome, place)}{traceback_below(outcome)}"
        return self._crash_files.write(place, self._weights, request, why=why)

    def _raise_what_is_no_fault(
        self, index: int, outcome: Failed | Lost, *, was_starting: bool
    ) -> None:
        """Raises errors that would come again however often the runner is made.

        Those are errors of callbacks, broken contracts, and whatever fails in a first construction.
        """
        if not isinstance(outcome, Failed):
            return
        place, notes = self._places[index], self._pool.slots[index].notes
        error = outcome.failure.unpack_error()
        if outcome.failure.type_name == "bdb.BdbQuit":  # pdb.set_trace() finds no input to read
            where = place.name.capitalize()
            raise DebuggerError(f"{where} called the debugger pdb {NO_DEBUGGER_HERE}")
        if isinstance(error, DebuggerError):
            raise error from None  # the text says all: where it was called, and what to do
        is_first_start = was_starting and place.num_starts == 1
        if is_first_start and place.has_running_episodes and is_putting_back(notes):
            is_first_start = False  # it was made; an env step failed, as others may
        if isinstance(error, (CallbackError, EnvContractError)) or is_first_start:
            kept = "" if is_first_start else self._keep(index, outcome, self._asks[index])
            if kept:
                _LOGGER.warning("%s failed.%s", place.name.capitalize(), kept)
            raise error

    def _give_up(self, index: int, outcome: Failed | Lost, why: str) -> None:
        place, failures = self._places[index], self._troubles[index].attempts.num_failures
        kept = self._keep(index, outcome, self._asks[index])
        place.num_excess_failures = 0  # told; it may begin anew
        if self._policy.should_ignore:
            place.is_given_up = True
            self._pool.slots[index].kill()
            _LOGGER.error(
                "%s %s; it is not replaced, training goes on without it. %s%s%s",
                place.name.capitalize(),
                what_happened(outcome, place),
                why,
                kept,
                traceback_below(outcome),
            )
            return
        times = "once" if failures == 1 else f"{failures} times in a row"
        summary = (
            f"{place.name.capitalize()} failed {times}; the last time it "
            f"{what_happened(outcome, place)}. "
            f"{why}{kept}{'' if place.has_answered else describe_shadows()}"
        )
        if isinstance(outcome, Lost):
            raise RunnerLostError(summary)
        raise_original(outcome, summary)


def _is_told(place: RunnerPlace) -> bool:
    """Whether a replacement is told: evaluations that nobody waits for may fail without end."""
    number = place.num_restarts
    return not place.spec.in_evaluation or number <= _TIMES_TOLD or number % _TOLD_EVERY == 0


def _rarely_told(place: RunnerPlace) -> str:
    if not place.spec.in_evaluation or place.num_restarts < _TIMES_TOLD:
        return ""
    return f" This was replacement {place.num_restarts}; from now on every {_TOLD_EVERY}th is told."

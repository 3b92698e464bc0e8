"""One round of requests to remote runners, carried through whatever happens to their processes.

    place:   (start →) report → request → answer
    failure:           restart → report → the same request again

Each runner goes through this by itself: a runner that has answered waits for nobody, and is never
asked twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from callbacks import CallbackError
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.spec import RunnerReport, Weights
from trainer.errors import EnvContractError, RunnerFailedError, RunnerLostError
from trainer.runtime.import_path import describe_shadows
from trainer.runtime.outcomes import Failed, Lost, Success
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.worker_pool import WorkerPool

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ask:
    """A call to a runner's servant.

    Attributes:
        method: "sample" or "apply".
        arguments: what comes after the `Sync`, which is always the first argument.
        max_new_episodes: how many episodes at most it can start per slot: what numbers to skip if
            it must be given up.
        is_repeatable: it may be asked again and again; else once more if the process died, and not
            at all if the user's code raised.
        stall_limit_s: how long it may go without an env step; None is for ever.
        tolerance: how many failures in a row it may see at most; None is as the policy says.
    """

    method: str
    arguments: tuple[Any, ...]
    max_new_episodes: int = 1
    is_repeatable: bool = True
    stall_limit_s: float | None = None
    tolerance: int | None = None


@dataclass
class RoundResult:
    """What came out of a round.

    Attributes:
        answers: by runner number.
        reports: of the runners that were made in this round, by number.
        failures: by runner number: calls that failed and were not to be repeated.
        recreated: numbers of the runners that replace others, ascending; also those made in an
            earlier round that was cut short before it could tell.
        num_restarts: how often a runner was made again.
        num_episodes_lost, num_env_steps_lost: of running episodes that were given up.
        repair_s: seconds from noticing failures to the new processes' reports, summed.
    """

    answers: dict[int, Any] = field(default_factory=dict)
    reports: dict[int, RunnerReport] = field(default_factory=dict)
    failures: dict[int, Failed | Lost] = field(default_factory=dict)
    recreated: list[int] = field(default_factory=list)
    num_restarts: int = 0
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    repair_s: float = 0.0

    def add_report(self, index: int, report: RunnerReport, *, place: RunnerPlace) -> None:
        """Notes what a runner says that was just made; counts episodes it could not put back."""
        self.reports[index] = report
        place.take_report(report)
        if not report.lost:
            return
        self.num_episodes_lost += len(report.lost)
        self.num_env_steps_lost += sum(report.lost.values())
        place.positions = tuple(
            position.restarted() if env_index in report.lost else position
            for env_index, position in enumerate(place.positions)
        )
        _LOGGER.warning(
            "Env %r does not repeat an episode from its seed and actions: %d running episode(s) of "
            "%s start anew (counted in num_episodes_lost). Make reset(seed=…) determine "
            "everything, or see docs/fault-tolerance.md.",
            place.spec.env_factory.name,
            len(report.lost),
            place.name,
        )

    def raise_first_failure(self, *, doing: str) -> None:
        """Raises the failure of the first runner that has one.

        Args:
            doing: what the runner did, for the message.
        """
        for index, outcome in sorted(self.failures.items()):
            summary = f"Env runner {index} {outcome.describe()} while it {doing}."
            if isinstance(outcome, Lost):
                raise RunnerLostError(f"{summary} That happened twice; it is replaced once more.")
            raise_original(outcome, summary)


def raise_original(outcome: Failed, summary: str) -> NoReturn:
    """Raises what the user's code raised in a runner, of its own type.

    Args:
        outcome: how the call ended.
        summary: what happened, for the `RunnerFailedError` that is chained as cause.
    """
    error = outcome.failure.unpack_error()
    cause = RunnerFailedError(f"{summary}\n\n{outcome.failure.traceback_text}")
    cause.__cause__ = error.__cause__
    raise error from cause


@dataclass
class _Trouble:
    """What went wrong with one runner in this round.

    Attributes:
        failures: in a row, of any kind.
        while_asked: those that came while it did what it was asked.
        with_episodes: those that came while it did that or was put back; its episodes may be why.
        noticed_at: when the first failure came that is not repaired; seconds, None if all are.
    """

    failures: int = 0
    while_asked: int = 0
    with_episodes: int = 0
    noticed_at: float | None = None

    def add(self, outcome: Failed | Lost, *, was_starting: bool, now: float) -> None:
        """Notes a failure."""
        self.failures += 1
        self.while_asked += not was_starting
        self.with_episodes += not isinstance(outcome, Lost) or outcome.start_error is None
        if self.noticed_at is None:
            self.noticed_at = now

    def end(self, now: float) -> float:
        """Notes that the runner is back; returns the seconds that it took, waiting included."""
        begun, self.noticed_at = self.noticed_at, None
        return 0.0 if begun is None else now - begun


class RequestRound:
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
    ) -> None:
        self._pool = pool
        self._places = places
        self._weights = weights
        self._policy = policy
        self._start_limit_s = start_limit_s
        self._result = RoundResult()
        self._asks: dict[int, Ask | None] = {}
        self._starting: set[int] = set()
        self._troubles: dict[int, _Trouble] = {}

    def run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        """Carries the round through.

        Args:
            asks: what to ask whom, by runner number; None only sees to it that the runner is there.

        Raises:
            Exception: what the user's code raised in a runner that may not be repaired, with the
                remote traceback.
            RunnerLostError: a process died that may not be replaced.
            CallbackError: a callback raised; that is no failure of the runner.
        """
        self._asks = dict(asks)
        self._pool.kill_busy()  # nobody should be; a second Ctrl-C may have cut the clean-up short
        try:
            for index, ask in asks.items():
                if not self._pool.slots[index].is_running:
                    # If there was one, it was ended when an earlier round was cut short, or died in
                    # one that could not go on.
                    place = self._places[index]
                    place.is_replacement_untold |= place.had_runner
                    self._start(index)
                elif ask is not None:
                    self._submit(index, ask)
            while self._pool.pending():
                index, outcome = self._pool.next_outcome()
                if isinstance(outcome, Success):
                    self._take(index, outcome.value)
                else:
                    self._mend(index, outcome)
        except BaseException:
            # Nobody may go on working on a round that is over; who is killed here starts again with
            # the next round. A process whose runner was not made could not answer it.
            self._pool.kill_busy()
            for index in self._starting:
                self._pool.slots[index].kill()
            raise
        self._result.recreated = self._take_recreated()
        return self._result

    def _take_recreated(self) -> list[int]:
        """Who was replaced in this round, and in earlier ones that were cut short."""
        recreated = [index for index, place in self._places.items() if place.is_replacement_untold]
        for index in recreated:
            self._places[index].is_replacement_untold = False
        return [index for index in recreated if not self._places[index].is_given_up]

    def _start(self, index: int) -> None:
        self._starting.add(index)
        bootstrap = self._places[index].bootstrap(self._weights)
        self._pool.slots[index].start(bootstrap.packed(), stall_limit_s=self._start_limit_s)

    def _submit(self, index: int, ask: Ask) -> None:
        place = self._places[index]
        try:
            sync = place.sync(self._weights)
            self._pool.slots[index].submit(
                ask.method, (sync, *ask.arguments), stall_limit_s=ask.stall_limit_s
            )
        except BaseException:
            # The arguments could not be pickled: the weights beside them have not arrived either.
            place.weights = place.sent_normalization = None
            raise

    def _take(self, index: int, value: Any) -> None:
        if index not in self._starting:
            self._result.answers[index] = value
            return
        self._starting.discard(index)
        if index in self._troubles:
            self._result.repair_s += self._troubles[index].end(time.monotonic())
        self._result.add_report(index, value, place=self._places[index])
        ask = self._asks[index]
        if ask is not None:
            self._submit(index, ask)

    def _mend(self, index: int, outcome: Failed | Lost) -> None:
        place, ask = self._places[index], self._asks[index]
        trouble = self._troubles.setdefault(index, _Trouble())
        was_starting = index in self._starting
        if ask is not None and not ask.is_repeatable and not was_starting:
            if isinstance(outcome, Failed):
                self._result.failures[index] = outcome
                place.is_ahead = True
                return
            if trouble.while_asked:
                # It may have been killed from outside once; now the function itself is to blame.
                self._result.failures[index] = outcome
                ask = self._asks[index] = None
        trouble.add(outcome, was_starting=was_starting, now=time.monotonic())
        failures = trouble.failures
        self._raise_what_is_no_fault(place, outcome, was_starting=was_starting)
        is_tolerated = ask is None or ask.tolerance is None or failures <= ask.tolerance
        if not is_tolerated or not self._policy.may_restart(
            num_restarts=place.num_restarts,
            num_failures_in_a_row=failures,
            has_ever_answered=place.has_answered,
        ):
            self._give_up(index, outcome, failures, is_last_of=ask if not is_tolerated else None)
            return
        if trouble.with_episodes > 1 and ask is not None:
            # The same request failed twice: something in these very episodes kills the runner.
            episodes, steps = place.give_up_episodes(ask.max_new_episodes)
            self._result.num_episodes_lost += episodes
            self._result.num_env_steps_lost += steps
        delay_s = self._policy.back_off_s(failures)
        _LOGGER.warning(
            "%s %s; it is replaced%s.",
            place.name.capitalize(),
            outcome.describe(),
            f" in {delay_s:.2f} s" if delay_s else "",
        )
        if delay_s:
            time.sleep(delay_s)
        place.num_restarts += 1
        self._result.num_restarts += 1
        place.is_replacement_untold = True
        self._start(index)

    @staticmethod
    def _raise_what_is_no_fault(
        place: RunnerPlace, outcome: Failed | Lost, *, was_starting: bool
    ) -> None:
        """Raises errors that would come again however often the runner is made.

        Those are errors of callbacks, broken contracts, and whatever fails in a first construction.
        """
        if not isinstance(outcome, Failed):
            return
        error = outcome.failure.unpack_error()
        is_first_start = was_starting and place.num_starts == 1
        if isinstance(error, (CallbackError, EnvContractError)) or is_first_start:
            raise error

    def _give_up(
        self, index: int, outcome: Failed | Lost, failures: int, *, is_last_of: Ask | None
    ) -> None:
        place = self._places[index]
        if self._policy.should_ignore:
            place.is_given_up = True
            self._pool.slots[index].kill()
            _LOGGER.error(
                "%s %s; it is not replaced, training goes on without it.",
                place.name.capitalize(),
                outcome.describe(),
            )
            return
        times = "once" if failures == 1 else f"{failures} times in a row"
        rule = self._policy.describe(has_ever_answered=place.has_answered)
        if is_last_of is not None:
            rule = (
                "Episodes of an evaluation cannot be left out, so they are tried "
                f"{failures} times at most, whatever the tolerance. {rule}"
            )
        summary = (
            f"{place.name.capitalize()} failed {times}; the last time it {outcome.describe()}. "
            f"{rule}{'' if place.has_answered else describe_shadows()}"
        )
        if isinstance(outcome, Lost):
            raise RunnerLostError(summary)
        raise_original(outcome, summary)


OnRecreated = Callable[[list[int]], None]
"""Told the numbers of runners that were made again."""

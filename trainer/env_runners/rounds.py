"""What runners are asked in a round, how a round goes, and what comes out of it."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.spec import RunnerReport
from trainer.errors import RunnerFailedError, RunnerLostError
from trainer.runtime.outcomes import Failed, Lost
from trainer.runtime.restart_policy import Attempt

OnRecreated = Callable[[list[int]], None]
"""Told the numbers of runners that were made again."""


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
        limited_by: the setting that says so, for messages.
        must_be_played: its episodes cannot be given up for others: a failure that comes again at
            the same place is raised.
        handed_back_after: after so many failures it is noted as failed, and nothing is raised;
            whoever asked decides what next. Where it must be played, only if it still makes
            progress. None never hands it back.
    """

    method: str
    arguments: tuple[Any, ...]
    max_new_episodes: int = 1
    is_repeatable: bool = True
    stall_limit_s: float | None = None
    limited_by: str = ""
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
        place.warn_of_lost_episodes(len(report.lost))

    def raise_first_failure(self, *, doing: str) -> None:
        """Raises the failure of the first runner that has one.

        Args:
            doing: what the runner did, for the message.
        """
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

    Args:
        outcome: how the call ended.
        summary: what happened, for the `RunnerFailedError` that is chained as cause.
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
        self.begin(asks)
        while not self.advance(math.inf):
            pass
        return self.end()

    def begin(self, asks: Mapping[int, Ask | None]) -> None:
        """Asks, and waits for nobody; see `run`."""
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
            whether nobody owes an answer any more.
        """

    @abc.abstractmethod
    def end(self) -> RoundResult:
        """What came out of a round in which nobody owes an answer."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Ends whoever works on it; who is ended here starts again with the next round."""

    def take_answers(self) -> dict[int, Any]:
        """The answers that have come in since this was last called, by runner number."""
        answers, self._result.answers = self._result.answers, {}
        return answers

    def take_handed_back(self) -> dict[int, Attempt]:
        """Likewise the last attempts at requests that failed and are not repeated."""
        attempts, self._result.attempts = self._result.attempts, {}
        self._result.failures = {}
        return attempts

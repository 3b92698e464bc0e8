"""What went wrong with a runner while it was asked, and since when."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from trainer.env_runners.whereabouts import PUTTING_BACK, RESETTING, STEPPING
from trainer.errors import EnvContractError
from trainer.runtime.outcomes import Failed, Lost
from trainer.runtime.restart_policy import Attempt, Attempts


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

    def add(self, attempt: Attempt) -> bool:
        """Notes a failed attempt; returns whether it made progress."""
        if self.noticed_at is None:
            self.noticed_at = time.monotonic()
        return self.attempts.add(attempt)

    def may_call_again(self, attempt: Attempt) -> bool:
        """Notes a failure in a function of the user's; whether it is to be called once more.

        A process may be killed from outside once; after that the function is to blame, unless the
        envs that it steps get somewhere.
        """
        return self.calls.add(attempt) or self.calls.num_without_progress < 2

    def end(self) -> float:
        """Notes that the runner is back; returns the seconds that it took, waiting included."""
        begun, self.noticed_at = self.noticed_at, None
        return 0.0 if begun is None else time.monotonic() - begun


def attempt_of(outcome: Failed | Lost, *, was_starting: bool, num_signs: int) -> Attempt:
    """What is known of an attempt from how the call ended, and its signs of progress."""
    if isinstance(outcome, Failed):
        return Attempt(was_starting=was_starting, num_steps=num_signs, has_raised=True)
    return Attempt(
        was_starting=was_starting,
        num_steps=num_signs,
        was_stalled=outcome.stalled_s is not None,
        was_killed=outcome.was_killed,
    )


def is_raised_by_env(failed: Failed, error: BaseException) -> bool:
    """Whether what a function of the user's raised comes from a sub-env that it let play."""
    context = failed.failure.context
    doing = context.get("during")
    is_at_env = doing == PUTTING_BACK or ("sub-env" in context and doing in (STEPPING, RESETTING))
    return is_at_env and not isinstance(error, EnvContractError)

"""A call of a runner: what it is asked (`Ask`), and what has come of it so far (`Pending`)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from trainer.env_runners.messages import PolicySnapshot, RunnerReport
from trainer.runner_group.records import RunnerRecord
from trainer.runtime.engine import UNLIMITED, StallLimit
from trainer.runtime.messages import Failed, Lost
from trainer.runtime.restart_policy import Attempt, Attempts

AT_ONCE: Final = -math.inf


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
        handed_back_after: after so many failures it is over, and nothing is raised; the caller
            decides what next. Where it must be played, only if it still makes progress. None never
            hands it back.
    """

    method: str
    arguments: tuple[Any, ...]
    max_new_episodes: int = 1
    is_repeatable: bool = True
    limit: StallLimit = UNLIMITED
    must_be_played: bool = False
    handed_back_after: int | None = None


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


@dataclass(eq=False, slots=True)
class Pending:
    """A call of a runner, from when it is asked until it is over.

        due            its runner is to be made or asked at `due_at`
        in flight      its runner is being made, or at work
        over           there is an answer, or a failure that its caller is to hear of, or neither:
                       nothing was asked, the runner was given up, or the call was dropped

    Attributes:
        index: the runner's number.
        record: what is known of the runner.
        policy: how it acts.
        ask: the call; None only sees to it that the runner is there.
        is_wanted: False for what is asked ahead, until it is taken: a runner that is killed with it
            is replaced without an event.
        due_at: when the runner is to be made or asked, in seconds; None while that goes on.
        is_starting: the runner has to be made first, or is being made.
        must_end: a call without an end of its own is to come to one.
        is_over: see above.
        answer: what the call returned.
        failure: why there is no answer, if its caller is to decide what next.
        error: what would have been raised, if it was not wanted then: its caller raises it when the
            call is wanted.
        is_replaced: its runner was made again for it, in place of one that failed.
        attempt: the last one at a call that was handed back.
        report: of the runner, if it was made for this call.
        trouble: what went wrong on the way; None if nothing did.
        num_restarts: how often the runner was made again.
        num_episodes_lost, num_env_steps_lost: of running episodes that were given up.
        repair_s: seconds from noticing failures to the new processes' reports, summed.
    """

    index: int
    record: RunnerRecord
    policy: PolicySnapshot
    ask: Ask | None
    is_wanted: bool = True
    due_at: float | None = AT_ONCE
    is_starting: bool = False
    must_end: bool = False
    is_over: bool = False
    answer: Any = None
    failure: Failed | Lost | None = None
    error: Exception | None = None
    is_replaced: bool = False
    attempt: Attempt | None = None
    report: RunnerReport | None = None
    trouble: Trouble | None = None
    num_restarts: int = 0
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    repair_s: float = 0.0

    def add_losses(self, num_episodes: int, num_env_steps: int) -> None:
        """Counts running episodes that were given up."""
        self.num_episodes_lost += num_episodes
        self.num_env_steps_lost += num_env_steps

    def for_nobody(self) -> Pending:
        """What makes the runner again after this was handed back; it may be asked for more."""
        return Pending(self.index, self.record, self.policy, None, trouble=self.trouble)


def answers(pendings: Collection[Pending]) -> dict[int, Any]:
    """What calls returned, by runner number, ascending."""
    found = {each.index: each.answer for each in pendings if each.answer is not None}
    return dict(sorted(found.items())) if len(found) > 1 else found

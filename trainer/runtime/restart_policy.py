"""When a lost or failed worker is replaced, how long to wait before, and when to give up.

Retries are decided by progress. A call is pure: a retry makes the same steps again, so a fault that
follows from them comes at the same step every time, while an unstable simulator fails anywhere.

    progress             the attempt made some steps, and failed where no other did
    no progress          it failed at once, or again where attempts failed and none got past
    three times there    the fault follows from what is played: it is given up, if it may be
    no progress, often   the worker is given up

Pure: no clocks, no processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_FIRST_BACK_OFF_S: Final = 0.05
_LONGEST_BACK_OFF_S: Final = 1.0
_LOGGED_EVERY: Final = 5

_Progress = tuple[bool, int]
"""Whether the worker had been made, and the steps that an attempt made."""

STEPS_OF_PROGRESS: Final = 10
"""Steps that an attempt must make to count as progress: a worker that never makes more is of no
use, and one that fails once in 1,000 steps makes fewer in one attempt of a hundred."""

_TIMES_AT_ONE_PLACE: Final = 3
"""With one random failure in 1,000 steps, two attempts end at the same step once in some 1,000
failures; three, once in a million."""
_TIMES_NEAR_ONE_PLACE: Final = 5
_NEAR: Final = 0.95
"""Some faults depend on memory or the clock: they come near the same step. Random failures are
spread: the chance of one in the last twentieth before the furthest step is below 2 %."""

_TRIES_OF_A_NEWCOMER: Final = 3
_TRIES_WITHOUT_PROGRESS: Final = 8
"""With the growing waits in between, some three seconds."""
_STALLS_WITHOUT_PROGRESS: Final = 3
"""Each costs as long as the limit for calls without progress."""


@dataclass(frozen=True)
class Attempt:
    """An attempt that failed.

    Attributes:
        was_starting: while the worker was made; else while it did what it was asked.
        num_steps: steps that it made before, ≥ 0.
        has_raised: code in the worker raised; else the process was lost.
        was_stalled: it made no progress for too long.
        was_killed: by a signal that another program may have sent.
        was_refused: the machine could not start a process for it.
    """

    was_starting: bool = False
    num_steps: int = 0
    has_raised: bool = False
    was_stalled: bool = False
    was_killed: bool = False
    was_refused: bool = False

    @property
    def progress(self) -> _Progress | None:
        """How far it was, comparable; None if that tells nothing."""
        if not self.num_steps and not self.has_raised:
            return None
        return not self.was_starting, self.num_steps


@dataclass
class Attempts:
    """The failed attempts at one thing since it last succeeded.

    Attributes:
        num_failures: all of them.
        num_without_progress: failures since the last progress.
        num_idle: those of them that the worker is to blame for.
        num_stalled: those of these that were stalls.
        was_refused: the machine could not start a process for the last one.
    """

    num_failures: int = 0
    num_without_progress: int = 0
    num_idle: int = 0
    num_stalled: int = 0
    was_refused: bool = False
    _progresses: list[_Progress] = field(default_factory=list)
    _furthest_of_others: _Progress | None = None

    def add(self, attempt: Attempt) -> bool:
        """Notes a failed attempt; returns whether it made progress."""
        self.num_failures += 1
        self.was_refused = attempt.was_refused
        progress = attempt.progress
        known = (self._furthest, self._furthest_of_others, *self._progresses[-1:])
        comes_again = any(_is_near(progress, other) for other in known)
        if progress is not None:
            self._progresses.append(progress)
        if attempt.num_steps >= STEPS_OF_PROGRESS and not comes_again:
            self.num_without_progress = self.num_idle = self.num_stalled = 0
            return True
        self.num_without_progress += 1
        if not attempt.was_killed or comes_again:
            self.num_idle += 1
            self.num_stalled += attempt.was_stalled
        return False

    @property
    def _furthest(self) -> _Progress | None:
        return max(self._progresses, default=None)

    @property
    def comes_again(self) -> bool:
        """Whether the fault follows from what is played, as far as one can tell.

        A point that some attempt got past is not to blame, so only the furthest one may be; or that
        of the last ones, if the env broke meanwhile.
        """
        furthest, last = self._furthest, self._progresses[-_TIMES_AT_ONE_PLACE:]
        num_near = sum(_is_near(progress, furthest) for progress in self._progresses)
        num_same = sum(progress == furthest for progress in self._progresses)
        return (
            max(num_same, last.count(last[0]) if last else 0) >= _TIMES_AT_ONE_PLACE
            or num_near >= _TIMES_NEAR_ONE_PLACE
        )

    def play_other(self) -> None:
        """Notes that something else is played from now on, so that no fault need come again."""
        self._furthest_of_others = self._furthest
        self._progresses.clear()


def _is_near(progress: _Progress | None, furthest: _Progress | None) -> bool:
    return (
        progress is not None
        and furthest is not None
        and progress[0] == furthest[0]
        and _NEAR * furthest[1] <= progress[1] <= furthest[1]
    )


@dataclass(frozen=True)
class RestartPolicy:
    """The settings of `fault_tolerance()` that decide about workers.

    Attributes:
        should_restart: replace failed workers.
        should_ignore: where a worker is not replaced, go on without it instead of raising.
        max_restarts: replacements per worker over the whole run, ≥ 0.
        delay_s: seconds to wait before every replacement, ≥ 0.
        tolerance: failures of one worker without progress that are tolerated in a row, ≥ 0, and in
            excess of its answers.
        stall_limit_s: a worker that makes no progress for so long has failed; None waits.
        start_limit_s: the same while it is made and put to its position.
    """

    should_restart: bool = True
    should_ignore: bool = False
    max_restarts: int = 1000
    delay_s: float = 0.0
    tolerance: int = 100
    stall_limit_s: float | None = None
    start_limit_s: float | None = None

    def why_given_up(
        self,
        attempts: Attempts,
        *,
        num_restarts: int,
        num_excess_failures: int,
        has_ever_progressed: bool,
    ) -> str:
        """Why a worker that failed just now is not replaced; empty if it is.

        A worker that has never made progress gets three tries: it is misconfigured rather than
        unlucky, and its user should see the error soon. Any other gets eight: a simulator may need
        a moment. One that makes a little progress now and then, but fails more often than it
        answers, would never reach a limit in a row, and most of the time go into replacing it: so
        an answer makes good one such failure only. Failures after progress are limited by the
        maximum of replacements alone.

        Args:
            attempts: the failures since its last answer, this one included.
            num_restarts: replacements of this worker so far.
            num_excess_failures: failures without progress that no answer has made good, this one
                included.
            has_ever_progressed: whether it, or a worker before it in the same place, answered a
                request or made progress.

        Returns:
            a sentence that names the setting that decided, if one did.
        """
        tolerance = f"num_consecutive_env_runner_failures_tolerance={self.tolerance}"
        if not self.should_restart:
            return "It is not replaced, as restart_failed_env_runners=False says."
        if num_restarts >= self.max_restarts:
            return (
                f"It was replaced {num_restarts} times, as often as "
                f"max_num_env_runner_restarts={self.max_restarts} allows."
            )
        if attempts.num_without_progress > self.tolerance:
            return f"No more failures in a row without progress are tolerated: {tolerance}."
        if num_excess_failures > self.tolerance:
            return (
                f"It has failed {num_excess_failures} times more often than it has answered, so "
                "most of its time goes into replacing it: the env fails too often to train with. "
                f"No more are tolerated: {tolerance}."
            )
        if attempts.num_stalled >= _STALLS_WITHOUT_PROGRESS:
            return (
                f"It hung {attempts.num_stalled} times without progress in between: it would hang "
                "again."
            )
        tries = _TRIES_WITHOUT_PROGRESS if has_ever_progressed else _TRIES_OF_A_NEWCOMER
        if attempts.num_idle < tries:
            return ""
        if attempts.was_refused:
            return (
                f"No process came up for it in {tries} tries: that is a matter of the machine, not "
                "of the env, which was not reached."
            )
        if not has_ever_progressed:
            return (
                f"A runner that has never made {STEPS_OF_PROGRESS} env steps gets {tries} tries: "
                "something is wrong with the config or the env rather than bad luck."
            )
        return (
            f"It made no progress in {tries} tries, so it would not in more of them. If the env "
            "needs time to come back, wait before each try: "
            f"delay_between_env_runner_restarts_s={self.delay_s} now."
        )

    def back_off_s(self, num_without_progress: int) -> float:
        """Seconds to wait before the next replacement.

        The fixed delay; from the second failure without progress on, a growing one is added.
        """
        if num_without_progress < 2:
            return self.delay_s
        # The exponent is bounded so that a thousand failures in a row do not overflow.
        growing = _FIRST_BACK_OFF_S * 2.0 ** min(num_without_progress - 2, 20)
        return self.delay_s + min(growing, _LONGEST_BACK_OFF_S)

    def outlook(self, attempts: Attempts, *, num_restarts: int) -> str:
        """How long this may go on, logged after every fifth failure in a row; else ''."""
        failures = attempts.num_failures
        if failures % _LOGGED_EVERY:
            return ""
        if attempts.num_without_progress == 0:
            return (
                f" This was failure {failures} in a row, each after some env steps, which have to "
                "be made again: smaller requests get through sooner (more env runners, a smaller "
                f"train batch). It has been replaced {num_restarts} times so far, and will be "
                f"max_num_env_runner_restarts={self.max_restarts} times."
            )
        return (
            f" This was failure {failures} in a row, {attempts.num_without_progress} of them "
            "without progress since; it is given up after more than "
            f"num_consecutive_env_runner_failures_tolerance={self.tolerance}, or sooner if it "
            "fails in the same way."
        )

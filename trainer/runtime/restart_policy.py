"""When a lost or failed worker is replaced, how long to wait before, and when to give up.

Pure: no clocks, no processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FIRST_BACK_OFF_S: Final = 0.05
_LONGEST_BACK_OFF_S: Final = 1.0
_TRIES_OF_A_NEWCOMER: Final = 3
_TOLD_EVERY: Final = 5


@dataclass(frozen=True)
class RestartPolicy:
    """The settings of `fault_tolerance()` that decide about workers.

    Attributes:
        should_restart: replace failed workers.
        should_ignore: where a worker is not replaced, go on without it instead of raising.
        max_restarts: replacements per worker over the whole run, ≥ 0.
        delay_s: seconds to wait before every replacement, ≥ 0.
        tolerance: failures of one worker that are tolerated in a row, ≥ 0, and in excess of its
            answers.
    """

    should_restart: bool = True
    should_ignore: bool = False
    max_restarts: int = 1000
    delay_s: float = 0.0
    tolerance: int = 100

    def may_restart(
        self,
        *,
        num_restarts: int,
        num_failures_in_a_row: int,
        num_excess_failures: int,
        has_ever_answered: bool,
    ) -> bool:
        """Whether a worker that failed just now is replaced.

        A worker that has never answered gets three tries at most: it is misconfigured rather than
        unlucky, and its user should see the error soon. One that answers now and then, but fails
        more often, would never reach a limit in a row, and most of the time go into replacing it:
        so an answer makes good one failure only.

        Args:
            num_restarts: replacements of this worker so far.
            num_failures_in_a_row: failures since its last answer, this one included.
            num_excess_failures: failures that no answer has made good, this one included.
            has_ever_answered: whether it, or a worker before it in the same place, answered a
                request.
        """
        if not self.should_restart or num_restarts >= self.max_restarts:
            return False
        limit = (
            self.tolerance if has_ever_answered else min(self.tolerance, _TRIES_OF_A_NEWCOMER - 1)
        )
        return num_failures_in_a_row <= limit and num_excess_failures <= self.tolerance

    def back_off_s(self, num_failures_in_a_row: int) -> float:
        """Seconds to wait before the next replacement.

        The fixed delay; from the second failure in a row on, a growing one is added.
        """
        if num_failures_in_a_row < 2:
            return self.delay_s
        # The exponent is bounded so that a thousand failures in a row do not overflow.
        growing = _FIRST_BACK_OFF_S * 2.0 ** min(num_failures_in_a_row - 2, 20)
        return self.delay_s + min(growing, _LONGEST_BACK_OFF_S)

    def outlook(self, num_failures_in_a_row: int) -> str:
        """How long this may go on, told after every fifth failure in a row; else ''."""
        if num_failures_in_a_row % _TOLD_EVERY:
            return ""
        return (
            f" This was failure {num_failures_in_a_row} in a row; it is given up after more than "
            f"num_consecutive_env_runner_failures_tolerance={self.tolerance}. If it will not get "
            "better, set less with fault_tolerance()."
        )

    def describe(
        self,
        *,
        num_restarts: int,
        num_failures_in_a_row: int,
        num_excess_failures: int,
        has_ever_answered: bool,
    ) -> str:
        """Why a worker is not replaced; the arguments are those of `may_restart`."""
        text = "The settings of fault_tolerance() that decide this: " + ", ".join(
            (
                f"restart_failed_env_runners={self.should_restart}",
                f"max_num_env_runner_restarts={self.max_restarts}",
                f"num_consecutive_env_runner_failures_tolerance={self.tolerance}",
                f"ignore_env_runner_failures={self.should_ignore}.",
            )
        )
        if self.should_restart and num_restarts >= self.max_restarts:
            return f"It was replaced {num_restarts} times, as often as it may be. {text}"
        if num_failures_in_a_row <= self.tolerance < num_excess_failures:
            return (
                f"It has failed {num_excess_failures} times more often than it has answered, so "
                "most of its time goes into replacing it: the env fails too often to train with. "
                f"{text}"
            )
        is_newcomer = not has_ever_answered and num_failures_in_a_row >= _TRIES_OF_A_NEWCOMER
        if not is_newcomer or not self.should_restart or self.tolerance < _TRIES_OF_A_NEWCOMER:
            return text
        return (
            f"A runner that has never answered a request gets {_TRIES_OF_A_NEWCOMER} tries, even "
            "where num_consecutive_env_runner_failures_tolerance allows more: something is wrong "
            f"with the config or the env rather than bad luck. {text}"
        )

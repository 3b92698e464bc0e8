"""What is done about a runner that failed: made again, its call handed back, or given up.

made again      and asked the same, as long as that gets somewhere; see `RestartPolicy`
handed back     its caller decides what next, and the runner is made again
given up        nothing is asked of it any more, or its failure is raised
raised at once  whatever would come again however often it is made
"""

from __future__ import annotations

import logging
from typing import Final, NoReturn

from callbacks import CallbackError
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
    is_putting_back,
)
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
from trainer.runner_group.pending import Pending, Trouble
from trainer.runner_group.records import RunnerRecord
from trainer.runtime.engine import Place
from trainer.runtime.messages import Failed, Lost
from trainer.runtime.process_start import describe_shadows
from trainer.runtime.restart_policy import Attempt, Attempts, RestartPolicy
from trainer.runtime.worker import NO_DEBUGGER_HERE

_LOGGER = logging.getLogger(__name__)

_TIMES_LOGGED: Final = 20
_LOGGED_EVERY: Final = 100

_RAISED_AT_ONCE: Final = (
    CallbackError,
    EngineError,
    EnvContractError,
    # What callbacks stored in an episode: no metric, or nothing that can be copied.
    EpisodeError,
    MetricsError,
)


class Repair:
    """Decides about failures of runners, notes them in records and pendings, and logs them."""

    def __init__(self, policy: RestartPolicy, crash_files: CrashFiles) -> None:
        self._policy = policy
        self._crash_files = crash_files

    def after(
        self, pending: Pending, outcome: Failed | Lost, place: Place, *, now_s: float
    ) -> float | None:
        """Decides what follows from a failed attempt at a call.

        Args:
            pending: the call; its `failure` is set if its caller is to hear of it.
            outcome: how the attempt ended.
            place: of the runner.
            now_s: by the clock of the engine.

        Returns:
            the seconds until the runner is to be made again; None if it is not.

        Raises:
            Exception: what the user's code raised in a runner that may not be repaired, with the
                remote traceback.
            RunnerLostError: a process died that may not be replaced.
            CallbackError: a callback raised; that is no failure of the runner.
        """
        record, was_starting = pending.record, pending.is_starting
        trouble = pending.trouble = pending.trouble or Trouble()
        attempt = attempt_of(
            outcome, was_starting=was_starting, num_heartbeats=place.num_heartbeats
        )
        if not was_starting and _is_end_of_function(pending, outcome, attempt, trouble):
            pending.failure = outcome
            if isinstance(outcome, Failed):
                record.must_be_put_back = True
                return None
            pending.ask = None
        self._reraise_if_not_retryable(pending, outcome, place)
        if trouble.noticed_at is None:
            trouble.noticed_at = now_s
        has_progressed = trouble.attempts.add(attempt)
        if _is_handed_back(pending, trouble, has_progressed=has_progressed):
            pending.failure, pending.attempt, pending.ask = outcome, attempt, None
        if pending.attempt is not None and not was_starting:
            # The call is to blame, and is given up: the runner begins with a clean slate.
            trouble.attempts = Attempts()
            trouble.attempts.add(attempt)
            record.has_progressed = True
        else:
            record.has_progressed |= has_progressed
            # Kills from outside, and steps that have to be made again, say nothing against the env.
            record.num_excess_failures += not has_progressed and not attempt.was_killed
        why = self._why_given_up(pending, trouble)
        if why:
            self._give_up(pending, outcome, trouble, why)
            place.kill()
            return None
        return self._replace(pending, outcome, trouble)

    def _reraise_if_not_retryable(
        self, pending: Pending, outcome: Failed | Lost, place: Place
    ) -> None:
        """Raises errors that would come again however often the runner is made.

        Those are errors of callbacks, broken contracts, and whatever fails in a first construction.
        """
        if not isinstance(outcome, Failed):
            return
        record, error = pending.record, outcome.failure.unpack_error()
        if outcome.failure.type_name == "bdb.BdbQuit":  # pdb.set_trace() finds no input to read
            where = record.name.capitalize()
            raise DebuggerError(f"{where} called the debugger pdb {NO_DEBUGGER_HERE}")
        if isinstance(error, DebuggerError):
            raise error from None  # the text says all: where it was called, and what to do
        is_first_start = pending.is_starting and record.num_starts == 1
        if is_first_start and record.has_running_episodes and is_putting_back(place.notes):
            is_first_start = False  # it was made; an env step failed, as others may
        if isinstance(error, _RAISED_AT_ONCE) or is_first_start:
            if not is_first_start:
                self.keep(pending, _why(outcome, record), log="failed")
            raise error

    def _why_given_up(self, pending: Pending, trouble: Trouble) -> str:
        """Why a runner that failed is not replaced; empty if it is."""
        record, ask, attempts = pending.record, pending.ask, trouble.attempts
        why = self._policy.why_given_up(
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

    def _replace(self, pending: Pending, outcome: Failed | Lost, trouble: Trouble) -> float:
        record, attempts = pending.record, trouble.attempts
        kept = self._give_up_episodes(pending, outcome, attempts)
        delay_s = self._policy.back_off_s(attempts.num_without_progress)
        record.num_restarts += 1
        if _is_logged(record):
            _LOGGER.warning(
                "%s %s; it is replaced%s.%s%s%s%s",
                record.name.capitalize(),
                what_happened(outcome, record),
                f" in {delay_s:.2f} s" if delay_s else "",
                self._policy.outlook(attempts, num_restarts=record.num_restarts),
                _rarely_logged(record),
                kept,
                traceback_below(outcome),
            )
        pending.num_restarts += 1
        return delay_s

    def _give_up_episodes(
        self, pending: Pending, outcome: Failed | Lost, attempts: Attempts
    ) -> str:
        """Gives up running episodes that are to blame; what is to be said of the file kept."""
        if pending.ask is None or not attempts.comes_again:
            return ""
        kept = self.keep(pending, _why(outcome, pending.record))
        pending.add_losses(*pending.record.give_up_episodes(pending.ask.max_new_episodes))
        attempts.play_other()
        return kept

    def _give_up(
        self, pending: Pending, outcome: Failed | Lost, trouble: Trouble, why: str
    ) -> None:
        record, failures = pending.record, trouble.attempts.num_failures
        kept = self.keep(pending, _why(outcome, record))
        record.num_excess_failures = 0  # told; it may begin anew
        if self._policy.should_ignore:
            record.is_given_up = True
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

    def keep(self, pending: Pending, why: str, *, log: str = "") -> str:
        """Keeps what a runner was asked that failed; see `CrashFiles.write`.

        `log` says in a warning what the runner did.
        """
        ask, record = pending.ask, pending.record
        if ask is not None and ask.method != "sample":
            return ""  # a function of the user's
        request = None if ask is None else ask.arguments[0]
        kept = self._crash_files.write(record, pending.policy, request, why=why)
        if kept and log:
            _LOGGER.warning("%s %s.%s", record.name.capitalize(), log, kept)
        return kept


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


def _is_end_of_function(
    pending: Pending, outcome: Failed | Lost, attempt: Attempt, trouble: Trouble
) -> bool:
    """Whether a user's function failed that is not to be called again.

    A process may be killed from outside once; after that the function is to blame, unless the envs
    that it steps get somewhere.
    """
    if pending.ask is None or pending.ask.is_repeatable:
        return False
    if isinstance(outcome, Failed):
        is_its_own = not is_raised_by_env(outcome, outcome.failure.unpack_error())
    else:
        is_its_own = attempt.was_stalled
    return is_its_own or not (trouble.calls.add(attempt) or trouble.calls.num_without_progress < 2)


def is_raised_by_env(failed: Failed, error: BaseException) -> bool:
    """Whether what a function of the user's raised comes from a sub-env that it let play."""
    context = failed.failure.context
    doing = context.get("during")
    is_at_env = doing == PUTTING_BACK or ("sub-env" in context and doing in (STEPPING, RESETTING))
    return is_at_env and not isinstance(error, EnvContractError)


def _is_handed_back(pending: Pending, trouble: Trouble, *, has_progressed: bool) -> bool:
    ask = pending.ask
    return (
        ask is not None
        and ask.handed_back_after is not None
        and trouble.attempts.num_failures >= ask.handed_back_after
        and (has_progressed or not ask.must_be_played)
    )


def raise_original(outcome: Failed, summary: str) -> NoReturn:
    """Raises what the user's code raised in a runner, of its own type.

    The summary is what the `RunnerFailedError` says that is chained as cause.
    """
    error = outcome.failure.unpack_error()
    cause = RunnerFailedError(f"{summary}\n\n{outcome.failure.traceback_text}")
    cause.__cause__ = error.__cause__
    raise error from cause


def _is_logged(record: RunnerRecord) -> bool:
    """Whether a replacement is logged: evaluations in the background may fail without end."""
    number = record.num_restarts
    return not record.spec.in_evaluation or number <= _TIMES_LOGGED or number % _LOGGED_EVERY == 0


def _rarely_logged(record: RunnerRecord) -> str:
    if not record.spec.in_evaluation or record.num_restarts < _TIMES_LOGGED:
        return ""
    number = record.num_restarts
    return f" This was replacement {number}; from now on every {_LOGGED_EVERY}th is logged."


# ---- post-mortem
#
# What the main process can tell of a lost process: what it noted, and what was committed.


def what_happened(outcome: Failed | Lost, record: RunnerRecord) -> str:
    """How a call to a runner ended, and where it was then, as the rest of a sentence."""
    return outcome.describe() + (post_mortem(outcome, record) if isinstance(outcome, Lost) else "")


def traceback_below(outcome: Failed | Lost) -> str:
    """The remote traceback on lines of its own; empty if there is none."""
    return f"\n{outcome.failure.traceback_text.rstrip()}" if isinstance(outcome, Failed) else ""


def _why(outcome: Failed | Lost, record: RunnerRecord) -> str:
    return f"{what_happened(outcome, record)}{traceback_below(outcome)}"


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

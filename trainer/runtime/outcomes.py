"""How a call to a worker can end: one class per ending.

So nobody has to guess from an exception.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any, Final

from trainer.runtime.messages import Failure

_NO_FORK_SERVER: Final = 255
_SENT_FROM_OUTSIDE: Final = (-signal.SIGKILL, -signal.SIGTERM)


@dataclass(frozen=True)
class Success:
    """The worker answered."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """Code in the worker raised; the process lives."""

    failure: Failure

    def describe(self) -> str:
        """One line: what was raised, and where in the servant's work."""
        where = ", ".join(f"{key} {value}" for key, value in self.failure.context.items())
        text = f"raised {self.failure.type_name}: {self.failure.message}"
        return f"{text} ({where})" if where else text


@dataclass(frozen=True)
class Lost:
    """The process is gone.

    Attributes:
        exit_code: as the operating system gave it: negative for a signal, None if it is not known.
        stalled_s: the seconds without progress after which we killed it; None if it died by itself.
        stall_limit: the setting that says so, and its value.
        start_error: what kept it from being started at all; None if it was.
        num_oom_kills: processes that the kernel ended for lack of memory since this one was
            started, on the whole machine; None if it does not say.
        num_signs: `CallSignals.num_signs` at the end.
        notes: `CallSignals.notes` at the end; empty if it was not asked anything.
    """

    exit_code: int | None
    stalled_s: float | None = None
    start_error: str | None = None
    num_oom_kills: int | None = field(default=None, compare=False)
    num_signs: int = field(default=0, compare=False)
    notes: tuple[int, ...] = field(default=(), compare=False)
    stall_limit: str = field(default="", compare=False)

    @property
    def was_killed(self) -> bool:
        """Whether another program may have ended it, as far as the kernel tells."""
        return self.exit_code in _SENT_FROM_OUTSIDE and not self.num_oom_kills

    def describe(self) -> str:
        """One line: how the process ended, with the signal's name and what it usually means."""
        if self.stalled_s is not None:
            limit = f" ({self.stall_limit})" if self.stall_limit else ""
            return f"made no progress for {self.stalled_s:.1f} s and was killed{limit}"
        if self.start_error is not None:
            return f"could not be started ({self.start_error})"
        if self.exit_code is None:
            return "died (its exit code is not known)"
        if self.exit_code >= 0:
            # What multiprocessing says of a process whose fork server is gone.
            hint = " or with its fork server" if self.exit_code == _NO_FORK_SERVER else ""
            return f"ended with exit code {self.exit_code}{hint}"
        name = _signal_name(-self.exit_code)
        hints = {
            "SIGKILL": f", {_why_killed(self.num_oom_kills)}",
            "SIGSEGV": ", a crash in compiled code",
            "SIGBUS": ", a crash in compiled code, or no room in shared memory",
            "SIGFPE": ", a crash in compiled code",
            "SIGILL": ", compiled code made for another processor",
            "SIGABRT": ", compiled code gave up",
            "SIGTERM": ", told to end by another program",
        }
        return f"was killed by signal {-self.exit_code} ({name}{hints.get(name, '')})"


Outcome = Success | Failed | Lost


def _why_killed(num_oom_kills: int | None) -> str:
    if num_oom_kills is None:
        return "probably out of memory, or killed by hand"
    if num_oom_kills:
        return "out of memory: the kernel counts such a kill meanwhile"
    return "killed by hand or by another program: the kernel counts no kill for lack of memory"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown signal"

"""The engine of this process: its workers are objects here, so a debugger works in them.

Nothing travels: a place is started with the factory itself, and takes and gives objects as they
are. A call is made when its answer is taken, and what it raises is raised there. There is nothing
to watch, and nothing that could be lost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from trainer.runtime.engine import (
    NO_NOTES,
    UNLIMITED,
    Arrivals,
    HeardSignals,
    Inherit,
    Signals,
    StallLimit,
    nothing,
)
from trainer.runtime.machine_facts import MachineFacts, facts_of_this_machine
from trainer.runtime.messages import Success, describe_failure, warn_of_close
from trainer_toolkit.interrupts import ArrivalFlag

Around = Callable[[], AbstractContextManager[object]]
"""Called when a worker is started; its calls are made inside of what it gives."""


class InlinePlace:
    """A place for a worker of this process; see `Place`.

    Attributes:
        name: what messages call it.
        handler: what answers calls; None before it is made, and after it is ended.
        is_busy: a call is being made.
    """

    identity: Final = None
    stall_limit_s: Final = None
    num_heartbeats: Final = 0
    notes: Final = NO_NOTES

    def __init__(
        self,
        name: str,
        *,
        around: Around = contextlib.nullcontext,
        on_kill: Callable[[Any], object] | None = None,
    ) -> None:
        """Is empty.

        Args:
            name: what messages call it.
            around: see `Around`.
            on_kill: called with a handler that is ended in any way; None leaves one alone that is
                killed, and closes one that is stopped.
        """
        self.name = name
        self.handler: Any = None
        self.is_busy = False
        self._call: Callable[[], Any] | None = None
        self._signals = HeardSignals(nothing)
        self._make_around, self._around = around, around()
        self._on_kill = on_kill

    @property
    def is_running(self) -> bool:
        return self.handler is not None or self._call is not None

    @property
    def owes_answer(self) -> bool:
        return self._call is not None

    has_answer = owes_answer

    def start(self, factory: Callable[[Signals], Any], /, limit: StallLimit = UNLIMITED) -> None:
        """Lets another handler be made; the answer is its report."""
        del limit
        self.kill()
        self._signals.must_end = False
        self._around = self._make_around()
        self._call = partial(self._make, factory)

    def _make(self, factory: Callable[[Signals], Any]) -> Any:
        self.handler = factory(self._signals)
        return self.handler.report()

    def submit(
        self, method: str, arguments: Sequence[object], limit: StallLimit = UNLIMITED
    ) -> None:
        """Lets a method of the handler be called, in place of a call that was not taken."""
        del limit
        self._signals.must_end = False
        self._call = partial(getattr(self.handler, method), *arguments)

    def take(self) -> Success:
        """Makes the call; raises what it raises."""
        call, self._call = self._call, None
        if call is None:
            raise RuntimeError(f"{self.name} was not asked anything.")
        self.is_busy = True
        try:
            with self._around:
                return Success(call())
        finally:
            self.is_busy = False

    def request_end(self) -> None:
        """Tells a call that was not made yet to come to an end at once."""
        self._signals.must_end = True

    def idle_s(self) -> float:
        return 0.0  # it is never waited for

    def kill_if_stalled(self) -> None:
        return  # nothing goes on between two looks

    def kill(self) -> None:
        """Lets go of the handler, and of a call that was not made."""
        self._call = None
        handler, self.handler = self.handler, None
        if handler is not None and self._on_kill is not None:
            self._on_kill(handler)

    def request_close(self) -> None:
        pass  # `stop` closes at once

    def stop(self, grace_s: float) -> None:
        """Closes the handler and lets go of it."""
        del grace_s
        try:
            if self.handler is not None and self._on_kill is None:
                self.handler.close()
        except Exception as error:  # noqa: BLE001 - told; nothing depends on it any more
            warn_of_close(self.name, describe_failure(error))
        finally:
            self.kill()


class InlineEngine:
    """Runs workers in this process; see `Engine`.

    Attributes:
        name: "inline".
        places: all that were made.
    """

    name = "inline"

    def __init__(self, *, around: Around = contextlib.nullcontext) -> None:
        """Has no places yet."""
        self.places: list[InlinePlace] = []
        self._around = around

    now_s = staticmethod(time.monotonic)

    def make_arrivals(self) -> ArrivalFlag:
        return ArrivalFlag()

    def make_place(
        self, name: str, *, arrivals: Arrivals, inherit: Inherit = nothing
    ) -> InlinePlace:
        del arrivals, inherit
        place = InlinePlace(name, around=self._around)
        self.places.append(place)
        return place

    def preload(self, modules: Sequence[str]) -> None:
        pass

    def publish(self, value: Any, *, name: str) -> Any:
        del name
        return value  # nothing travels

    def machines(self) -> Sequence[MachineFacts]:
        return [facts_of_this_machine()]

    def close(self) -> None:
        pass

"""Undoing what was half done: the one way in which a change that fails is taken back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType

from trainer_toolkit.interrupts import signals_deferred

Undo = Callable[[], object]
"""Takes back all that was changed since it was made; called once at most."""


class undone_on_error:  # noqa: N801 - reads as a verb: `with undone_on_error() as undo:`
    """A block whose changes are taken back if it raises, whatever it raises.

        with undone_on_error() as undo:
            undo(learner.mark())        # before the change: what takes it back
            learner.set_state(state)

    Last first, each of them also if another one raises, while signals wait. It is no generator: one
    that is interrupted on its way out would go on when it is collected, and undo what was done.
    """

    __slots__ = ("_undos",)

    def __init__(self) -> None:
        self._undos: list[Undo] = []

    def __enter__(self) -> undone_on_error:
        return self

    def __call__(self, undo: Undo) -> None:
        """Remembers what takes back the change to come."""
        self._undos.append(undo)

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None
    ) -> None:
        with signals_deferred(), contextlib.ExitStack() as last_first:
            # Not kept here: a traceback may live for long, and what is undone with it.
            undos, self._undos = self._undos, []
            if kind is not None:
                for undo in undos:
                    last_first.callback(undo)

"""What undoes the changes of a replay buffer."""

from __future__ import annotations

import weakref

from trainer_toolkit.undo import Undo


class UndoLog:
    """What undoes the changes of a replay buffer, one by one, as long as a mark is kept.

    A mark is a function that undoes all since it was made. Marks may be nested: an inner one that
    was not called leaves its changes to the outer one.
    """

    def __init__(self) -> None:
        self._undos: list[Undo] = []
        self._outermost: weakref.ref[_Mark] | None = None

    def __reduce__(self) -> tuple[type[UndoLog], tuple[()]]:
        return UndoLog, ()  # of a copy nobody has a mark

    @property
    def is_kept(self) -> bool:
        """Whether somebody could undo what is changed now."""
        return self._outermost is not None and self._outermost() is not None

    def mark(self) -> Undo:
        """What undoes everything that is added from now on."""
        if self.is_kept:
            return _Mark(self._undos, len(self._undos))
        undos = self._undos = []
        outermost = _Mark(undos, 0)
        # What it held, such as whole columns, goes with it.
        self._outermost = weakref.ref(outermost, lambda _: undos.clear())
        return outermost

    def add(self, undo: Undo) -> None:
        """Remembers what undoes a change, if there is a mark."""
        if self.is_kept:
            self._undos.append(undo)


class _Mark:
    """Undoes what was added to a log since it was made."""

    __slots__ = ("__weakref__", "_begin", "_undos")

    def __init__(self, undos: list[Undo], begin: int) -> None:
        self._undos, self._begin = undos, begin

    def __call__(self) -> None:
        while len(self._undos) > self._begin:
            self._undos.pop()()

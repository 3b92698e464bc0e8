"""Names of semaphores, given back as soon as nobody needs them any more.

multiprocessing gives each of its locks a name in the file system, by which a child opens it, and
removes the name when the lock is collected. Where Python ends without that (SIGTERM, SIGKILL), its
resource tracker removes the names, and complains of leaked semaphores. Without a name there is
nothing to leak, and the lock works on: like an open file that was removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from multiprocessing import util
from multiprocessing.context import BaseContext
from typing import Any, Final

_KINDS: Final = ("Lock", "BoundedSemaphore")
"""What the queues of an executor are made of."""


class NamedSemaphores:
    """The names of the locks that a context makes, until `unlink` removes them."""

    def __init__(self, context: BaseContext) -> None:
        """Notes the names of what the context makes from now on."""
        self._names: set[str] = set()
        for kind in _KINDS:
            setattr(context, kind, self._noting(getattr(context, kind)))

    def _noting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def make_and_note(*args: Any, **kwargs: Any) -> Any:
            made = make(*args, **kwargs)
            # There is no public way to a name. Where this one is gone, Python complains as before.
            name = getattr(getattr(made, "_semlock", None), "name", None)
            if isinstance(name, str):
                self._names.add(name)
            return made

        return make_and_note

    def unlink(self) -> None:
        """Removes the names; only for when the child has opened the semaphores."""
        if not self._names:
            return
        names, self._names = self._names, set()
        for finalizer in list(getattr(util, "_finalizer_registry", {}).values()):
            # A finalizer that is running just now, in another thread, has no arguments any more.
            if not names.isdisjoint(_texts(getattr(finalizer, "_args", None) or ())):
                with contextlib.suppress(OSError):  # somebody else has removed it
                    finalizer()


def _texts(values: Iterable[object]) -> list[str]:
    return [value for value in values if isinstance(value, str)]

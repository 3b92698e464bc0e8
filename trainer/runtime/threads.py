"""Threads while we compute: one BLAS thread, no garbage collection.

And threads of the user's: `OneThread` lets one of them at a time work with an object.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from trainer.blas import blas_functions
from trainer.errors import TrainerError

_LOGGER = logging.getLogger(__name__)

# ---- threads of the user's

_READING_TAKES_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.001


class OneThread:
    """Refuses calls of other threads while one is at work with an object.

    No lock: a callback that waits for another thread would wait for ever, and an interrupt could
    leave it taken. Only the end of calls that read is waited for: they compute actions, or copy
    weights.
    """

    def __init__(self) -> None:
        # At most one entry. A dict, because its `setdefault` cannot be divided.
        self._at_work: dict[None, tuple[threading.Thread, str]] = {}
        self._reading: dict[object, tuple[threading.Thread, str]] = {}

    @contextlib.contextmanager
    def alone(self, call: str) -> Iterator[None]:
        """Surrounds a call, named as in "train()"; this thread's calls within it are part of it.

        Raises:
            TrainerError: another thread is at work, or does not stop reading.
        """
        own = threading.current_thread(), call
        try:
            while self._at_work.setdefault(None, own)[0] is not own[0]:
                self.refuse_others(call)
            if self._at_work.get(None) is own:  # inside a call, all others are refused already
                self._wait_for_readers(*own)
            yield
        finally:
            if self._at_work.get(None) is own:  # it is not of a call around this one
                self._at_work.pop(None)

    def _wait_for_readers(self, own: threading.Thread, call: str) -> None:
        until = time.monotonic() + _READING_TAKES_S
        while True:
            others = [one for one in tuple(self._reading.values()) if one[0] is not own]
            readers = [one for one in others if one[0].is_alive()]
            if not readers:
                return
            if time.monotonic() >= until:
                raise _refused(call, *readers[0])
            time.sleep(_LOOK_AGAIN_S)

    def other_at_work(self, *, after_s: float = 0.0) -> str:
        """Says what another thread is doing, after waiting for its end so long; "" for nothing."""
        until = time.monotonic() + after_s
        while True:
            thread, doing = self._at_work.get(None, (threading.current_thread(), ""))
            if thread is threading.current_thread() or not thread.is_alive():
                return ""
            if time.monotonic() >= until:
                return f"{doing} in thread {thread.name!r}"
            time.sleep(_LOOK_AGAIN_S)

    @contextlib.contextmanager
    def reading(self, call: str) -> Iterator[None]:
        """Surrounds a call that changes nothing: threads may read together, while none is at work.

        Raises:
            TrainerError: another thread is at work.
        """
        place = object()
        try:
            # In this order, as `alone` looks here last: of two that begin at once, one sees the
            # other.
            self._reading[place] = threading.current_thread(), call
            self.refuse_others(call)
            yield
        finally:
            self._reading.pop(place, None)

    def refuse_others(self, call: str) -> None:
        """Raises a TrainerError if another thread is at work."""
        thread, doing = self._at_work.get(None, (None, ""))
        if thread is None or thread is threading.current_thread():
            return
        if not thread.is_alive():  # it was lost on its way, by an interrupt or a fork
            self._at_work.pop(None, None)
            return
        raise _refused(call, thread, doing)


def _refused(call: str, thread: threading.Thread, doing: str) -> TrainerError:
    return TrainerError(
        f"{call} was called in thread {threading.current_thread().name!r} while {doing} runs in "
        f"thread {thread.name!r}. An algorithm and its env runners serve one thread at a time: "
        "wait until the other call has returned, or make all calls in one thread. Only stop() may "
        "be called at any time; and a TrainedPolicy, made from a checkpoint, acts at any time."
    )


# ---- blas threads
#
# One BLAS thread while we compute: results do not depend on the number of cores. A matrix product
# that BLAS splits over threads may be rounded differently, so a result that is to be equal in a
# worker process (one thread) and in the main process (as many as there are cores) has to be
# computed with the same number. Small matrices are faster so, too. NumPy offers no function for
# that; its BLAS does, found here by the names that the common builds give it.


@functools.cache
def _thread_functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The getter and setter of BLAS' number of threads; None for a BLAS that we do not know."""
    found = blas_functions("openblas_get_num_threads", "openblas_set_num_threads")
    if found is None:
        _LOGGER.info(
            "This NumPy uses a BLAS other than OpenBLAS: its number of threads stays as it is."
        )
        return None
    getter, setter = found.functions
    getter.restype, getter.argtypes = ctypes.c_int, []
    setter.restype, setter.argtypes = None, [ctypes.c_int]
    return getter, setter


def blas_threads() -> int | None:
    """The number of BLAS threads of this process; None where it is not known."""
    functions = _thread_functions()
    return None if functions is None else functions[0]()


def set_blas_threads(number: int) -> int | None:
    """Sets the number of BLAS threads of this process.

    Returns:
        the number before; None where it is not known.
    """
    before, functions = blas_threads(), _thread_functions()
    if functions is not None and before != number:
        functions[1](number)
    return before


class SingleThreadedBlas:
    """The block of `single_threaded_blas`; as a generator it would cost twice as much.

    The number belongs to the process: threads may be in such blocks at the same time, one inside
    the other or overlapping. The first that comes sets it, the last that goes puts it back; after
    an interrupt in just that moment, the next one.
    """

    _lock = threading.RLock()  # a signal handler may compute, too
    _users: ClassVar[dict[int, weakref.ref[SingleThreadedBlas]]] = {}
    """The threads in such blocks, and the outermost of each; an interrupt may leave a dead one."""
    _before: ClassVar[int | None] = None

    def __enter__(self) -> None:
        cls, thread = SingleThreadedBlas, threading.get_ident()
        with cls._lock:
            outermost = cls._users.get(thread)
            if outermost is not None and outermost() is not None:
                return
            if not cls._users:
                if cls._before is None:  # else it was not put back, and may be 1 now
                    cls._before = blas_threads()
                set_blas_threads(1)
            cls._users[thread] = weakref.ref(self)

    def __exit__(self, *_: object) -> None:
        cls, thread = SingleThreadedBlas, threading.get_ident()
        with cls._lock:
            outermost = cls._users.get(thread)
            if outermost is not None and outermost() is self:
                del cls._users[thread]
                cls._put_back()

    @classmethod
    def _put_back(cls) -> None:
        if not cls._users and cls._before is not None:
            set_blas_threads(cls._before)
            cls._before = None

    @classmethod
    def forget_other_threads(cls) -> None:
        """In a forked process, where they do not exist."""
        cls._lock.release()
        here = threading.get_ident()
        cls._users = {user: block for user, block in cls._users.items() if user == here}
        cls._put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=SingleThreadedBlas._lock.acquire,
        after_in_parent=SingleThreadedBlas._lock.release,
        after_in_child=SingleThreadedBlas.forget_other_threads,
    )


def single_threaded_blas() -> SingleThreadedBlas:
    """Computes with one BLAS thread inside the block, then puts the number back (about 1 µs)."""
    return SingleThreadedBlas()


# ---- garbage


_FROZEN_BY_PYTHON: Final = 1_000
"""Python 3.12 begins with some 400 frozen objects. A program that freezes has many thousands."""


class _Frozen:
    """Who froze objects of this process. Python counts them one by one: 30 ms for 2 million."""

    here = False
    by_the_program = False


def _thaw_after_fork() -> None:
    """A child that is forked inside the block is outside of it, and has the frozen objects."""
    if _Frozen.here:
        gc.unfreeze()
        _Frozen.here = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thaw_after_fork)


@contextlib.contextmanager
def sparing_old_objects() -> Iterator[None]:
    """Lets garbage collections inside the block look at objects that were made inside it only.

    Sampling makes so many objects that Python keeps looking through everything that the program has
    ever imported. Measured for CartPole: a fifth of the median time of a request.

    Not for short blocks: each begins the count anew after which Python looks for garbage, so that
    it never would. A program that was once seen with frozen objects of its own is left alone from
    then on: `gc.unfreeze()` would thaw them, too.
    """
    if not (_Frozen.here or _Frozen.by_the_program):
        _Frozen.by_the_program = gc.get_freeze_count() > _FROZEN_BY_PYTHON
    if _Frozen.here or _Frozen.by_the_program:
        yield
        return
    try:
        _Frozen.here = True
        gc.freeze()
        yield
    finally:  # in this order: an interrupt between the two leaves it able to do so again
        _Frozen.here = False
        gc.unfreeze()

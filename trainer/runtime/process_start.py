"""How worker processes start: which way, with what preloaded, without the user's main module."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Final

START_METHOD_VARIABLE: Final = "LOCAL_TRAINER_START_METHOD"
"""Environment variable that forces "forkserver" or "spawn"."""

_ONE_THREAD_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_LOCK: Final = threading.Lock()


def choose_start_method() -> str:
    """The way to start workers: "forkserver" or "spawn".

    The environment variable decides, else what the user told multiprocessing, else the best there
    is. `fork` is never used: a forked copy of a process that has threads (BLAS, the user's) can
    hang.

    Raises:
        ValueError: the environment variable names something else.
    """
    available = multiprocessing.get_all_start_methods()
    forced = os.environ.get(START_METHOD_VARIABLE)
    if forced:
        if forced not in {"forkserver", "spawn"} or forced not in available:
            raise ValueError(
                f"{START_METHOD_VARIABLE}={forced!r}: workers can be started by 'forkserver' "
                "(where there is fork) or 'spawn'. Set it to one of these or leave it unset."
            )
        return forced
    if multiprocessing.get_start_method(allow_none=True) == "spawn" and sys.platform != "darwin":
        return "spawn"
    return "forkserver" if "forkserver" in available else "spawn"


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Hides `__main__` while a process starts: the child must not run the user's script again.

    multiprocessing imports the main module in the child, for the sake of classes pickled by name.
    We send these by value, so the import has no use, and scripts need no
    `if __name__ == "__main__":` guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _one_thread_variables() -> Iterator[None]:
    """Lets the child's numeric libraries start with one thread each, whichever they are."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_ONE_THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def preload(modules: Sequence[str], start_method: str) -> None:
    """Tells the fork server which modules to import once, for all workers to come.

    No effect with spawn.
    """
    if start_method == "forkserver":
        multiprocessing.get_context("forkserver").set_forkserver_preload(list(modules))


class _QuietProcess:
    """A process that starts as described in this module; everything else is the process' own.

    A wrapper and not a subclass, because multiprocessing pickles the process object for the child
    by its class.
    """

    def __init__(self, process: BaseProcess, on_start: Callable[[BaseProcess], None]) -> None:
        self._process = process
        self._on_start = on_start

    def start(self) -> None:
        with _LOCK, _without_main_module(), _one_thread_variables():
            self._process.start()
        self._on_start(self._process)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


def make_context(start_method: str, on_start: Callable[[BaseProcess], None]) -> BaseContext:
    """A multiprocessing context whose processes start as described in this module.

    Args:
        start_method: "forkserver" or "spawn".
        on_start: is given each process' handle right after its start: the handle is how its owner
            kills the process and learns its exit code, without process ids that may be used again.
    """
    context: Any = type(multiprocessing.get_context(start_method))()
    make_process = context.Process

    def make_quiet_process(*args: Any, **kwargs: Any) -> _QuietProcess:
        return _QuietProcess(make_process(*args, **kwargs), on_start)

    context.Process = make_quiet_process
    return context  # type: ignore[no-any-return]

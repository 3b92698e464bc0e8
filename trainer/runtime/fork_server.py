"""The fork server, from which workers are copied: it may hang, or belong to another process.

multiprocessing keeps one per process. It waits without limit for a server that is stopped or hangs:
where a worker is started, and where the exit code of one is awaited. `ForkServerWatch` ends such a
server, and its workers end with it: all of that is noticed and repaired like the death of any
worker, and the next start makes another server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from multiprocessing import forkserver
from types import TracebackType
from typing import Final

_LOGGER = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.1
"""How often a server that something waits for is looked at."""
STOPPED_LIMIT_S = 1.0
"""How long a stopped server is waited for, in seconds."""
ANSWER_LIMIT_S = 60.0
"""How long one that runs is waited for: a new one imports modules first, which takes some time."""


def fork_server_pid() -> int | None:
    """The process id of the fork server that this process started; None if it has none."""
    # There is no public way. Where this one is gone, nobody watches.
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    return pid if isinstance(pid, int) else None


def end_stopped_fork_server() -> bool:
    """Ends the fork server if it is stopped; returns whether it was."""
    pid = fork_server_pid()
    if pid is None or not _is_stopped(pid):
        return False
    _end(pid, "is stopped (SIGSTOP)")
    return True


class ForkServerWatch:
    """Ends a fork server that does not answer while something waits for it.

        with ForkServerWatch():         # from a thread
            process.start()             # raises EOFError or OSError if the server was ended

    Who waits bit by bit needs no thread, and calls `look` every `LOOK_EVERY_S` instead.
    """

    def __init__(self) -> None:
        self._begun_at = self._stopped_at = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="watch of the fork server", daemon=True
        )

    def __enter__(self) -> None:
        # Without a thread (there are too many) the wait has no limit: better than no wait.
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Ends the fork server if it has not answered for too long."""
        pid, now = fork_server_pid(), time.monotonic()
        if pid is None:
            return
        if not _is_stopped(pid):
            self._stopped_at = now
        if now - self._stopped_at >= STOPPED_LIMIT_S:
            _end(pid, "is stopped (SIGSTOP)")
        elif now - self._begun_at >= ANSWER_LIMIT_S:
            _end(pid, f"has not answered for {ANSWER_LIMIT_S:g} s")
        else:
            return
        self._begun_at = self._stopped_at = now


def _is_stopped(pid: int) -> bool:
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has ended
        return False


def _end(pid: int, why: str) -> None:
    _LOGGER.warning(
        "The fork server, from which worker processes are started (process %d), %s. It is ended, "
        "and the workers that it has started with it; another one is started.",
        pid,
        why,
    )
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def forget_fork_server() -> None:
    """The next worker gets another server; this one is not, or no longer, a child of this process.

    So it is in a forked copy of the process that started it. A fork server ends when nobody holds
    its pipe any more, so such a copy must not; and multiprocessing asks for the state of the server
    as of a child.
    """
    if fork_server_pid() is None:
        return
    server: object = getattr(forkserver, "_forkserver", None)
    alive_fd = getattr(server, "_forkserver_alive_fd", None)
    vars(server).update(
        _forkserver_address=None,
        _forkserver_alive_fd=None,
        _forkserver_pid=None,
        _lock=threading.Lock(),
    )
    if isinstance(alive_fd, int):
        with contextlib.suppress(OSError):
            os.close(alive_fd)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_fork_server)

"""The local engine: every worker is a process of this machine; see `trainer.runtime.engine`.

Each start makes a new single-worker `ProcessPoolExecutor`. In a pool that is shared, the death of
one process breaks the calls of all the others (tried); in a pool of one it breaks its own call
only.

An interrupt may come at any moment. It is put off while the executor is at work for us, whose locks
and threads could not bear it; and we wait for answers without its locks.

Of a worker that died, Linux tells the signal, and whether it ended processes for lack of memory
meanwhile (`num_oom_kills`): evidence for what a SIGKILL means.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, TimeoutError  # noqa: A004 - 3.10's
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue, SimpleQueue
from pathlib import Path
from typing import Any, Final

from trainer.errors import RunnerError
from trainer.runtime import worker as worker_main
from trainer.runtime.engine import (
    UNLIMITED,
    Arrivals,
    Inherit,
    PlaceIdentity,
    StallLimit,
    TakeOver,
    WatchedPlace,
    nothing,
)
from trainer.runtime.machine_facts import MachineFacts, facts_of_this_machine
from trainer.runtime.messages import (
    Failed,
    Lost,
    Outcome,
    Published,
    outcome_of,
    pack_arguments,
    published,
    warn_of_close,
)
from trainer.runtime.process_start import (
    LOOK_EVERY_S,
    ForkServerWatch,
    ImportPath,
    choose_start_method,
    end_group,
    end_stopped_fork_server,
    guard_group,
    keep_temporary_directory,
    make_context,
    preload,
    starting,
)
from trainer.runtime.start_errors import describe_start_error
from trainer_toolkit.interrupts import ArrivalFlag, signals_deferred

# ---- oom kills

_COUNTERS: Final = Path("/proc/vmstat")


def num_oom_kills(counters: Path = _COUNTERS) -> int | None:
    """Processes of this machine that were ended so since it was started.

    The kernel counts before it sends the signal, so the count is there before the death shows.
    Processes that exceed the limit of a container count as well.

    Args:
        counters: Linux' file of them.

    Returns:
        None where there is no such count.
    """
    try:
        lines = counters.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    found = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(found[0]) if found and found[0].isdigit() else None


# ---- local place

_LOGGER = logging.getLogger(__name__)
_REAP_TIMEOUT_S: Final = 2.0
SUSPICIOUS_S = 5.0
"""After so many seconds without progress the fork server is looked at: it tells who has died."""


class LocalPlace(WatchedPlace):
    """One place for a worker process; see `Place`.

    Attributes:
        name: what messages call it.
        is_busy: it may be working. Noted before it is asked, so that an interrupt in between does
            not make it look idle.
    """

    def __init__(
        self,
        name: str,
        *,
        start_method: str,
        arrivals: Arrivals,
        inherit: Inherit = nothing,
    ) -> None:
        """Makes an empty place.

        Args:
            name: what messages call it.
            start_method: "forkserver" or "spawn".
            arrivals: is notified whenever an answer has come in.
            inherit: see `WorkerPool`.
        """
        super().__init__(name, time.monotonic)
        self._inherit = inherit
        self._arrivals = arrivals
        self._pending: Future[bytes] | None = None
        self._answered: Future[bytes] | None = None
        self._start_method = start_method
        self._executor: ProcessPoolExecutor | None = None
        self._process: BaseProcess | None = None
        self._closing: Future[bytes] | None = None
        self._oom_kills_before: int | None = None
        self._is_inherited = False
        self._make_own()

    def _make_own(self) -> None:
        """Makes what belongs to this process, and not to one that was forked from it."""
        self._context = make_context(self._start_method, self._keep_process)
        try:
            self._signals: Any = self._context.RawValue(worker_main.CallSignals)
        except OSError as error:
            raise RunnerError(
                f"{self.name.capitalize()} could not be made: {describe_start_error(error)}."
            ) from error
        self._is_inherited = False

    @property
    def pid(self) -> int | None:
        """The process id of the running worker; None if there is none."""
        process = self._process  # looked at once: other threads may ask, too
        return None if process is None else process.pid

    @property
    def identity(self) -> PlaceIdentity | None:
        """This machine and the process id of the running worker; None if there is none."""
        pid = self.pid
        return None if pid is None else PlaceIdentity(socket.gethostname(), pid)

    @property
    def is_running(self) -> bool:
        """Whether a process was started and not yet found dead or stopped."""
        return self._executor is not None

    @property
    def owes_answer(self) -> bool:
        """Whether something was asked whose outcome was not taken yet."""
        return self._pending is not None

    def start(self, packed_factory: bytes, /, limit: StallLimit = UNLIMITED) -> None:
        """Starts a new process that makes its handler; see `Place`."""
        self.kill()
        if self._is_inherited:
            self._make_own()
        _end_before_exit(self)
        self._oom_kills_before = num_oom_kills()
        path = ImportPath.of_this_process()  # before `starting` changes it
        # multiprocessing starts processes of its own for the first semaphore.
        with signals_deferred(), starting():
            self._begin_call()
            try:
                future = self._start_process(packed_factory, path)
            except (OSError, EOFError, RuntimeError) as error:
                # The fork server died, or nothing can be started now. The next start tries anew,
                # with another fork server.
                if isinstance(error, RuntimeError) and "thread" not in str(error):
                    raise  # the interpreter is ending
                if self._process is not None:  # only the thread is missing that looks after it
                    self._process.kill()
                future = _broken(_NotStartedError(describe_start_error(error)))
            self._begin_waiting(future, limit)

    def _start_process(self, packed_factory: bytes, path: ImportPath) -> Future[bytes]:
        keep_temporary_directory()
        has_forkserver = self._start_method == "forkserver"
        self._executor = ProcessPoolExecutor(
            max_workers=1,
            mp_context=self._context,
            initializer=_initialize,
            initargs=(self._signals, has_forkserver, path, self._inherit()),
        )
        return self._executor.submit(worker_main.construct, packed_factory)

    def submit(
        self, method: str, arguments: Sequence[object], limit: StallLimit = UNLIMITED
    ) -> None:
        """Calls a method of the handler; see `Place`."""
        self.submit_packed(method, pack_arguments(self.name, method, arguments), limit)

    def submit_packed(
        self,
        method: str,
        packed: bytes,
        limit: StallLimit = UNLIMITED,
        *,
        buffers: Sequence[bytes] = (),
    ) -> None:
        """Calls a method of the handler with arguments that are packed already.

        Args:
            method: its name.
            packed: the arguments.
            limit: how long it may go without progress.
            buffers: what was kept out of them; see `trainer.runtime.worker.unpack`.
        """
        if self._executor is None:
            raise RuntimeError(f"{self.name} has no process: start it first.")
        with signals_deferred():
            self._begin_call()
            self._signals.must_end = False
            future = self._submitted(worker_main.call, method, packed, buffers)
            self._begin_waiting(future, limit)

    def _begin_waiting(self, future: Future[bytes], limit: StallLimit) -> None:
        self._pending = future
        self._watch.begin(self._heartbeats_before, limit)
        future.add_done_callback(functools.partial(self._note_end, self.pid))

    def _note_end(self, pid: int | None, future: Future[bytes]) -> None:
        """Is called at once when a call ends, in whichever thread."""
        self._answered = future
        error = None if future.cancelled() else future.exception()
        if pid is not None and isinstance(error, BrokenProcessPool):
            end_group(pid, is_leader_known=not isinstance(error, _DiedIdleError))
        self._arrivals.put()

    @property
    def has_answer(self) -> bool:
        """Whether `take` will not wait."""
        # Not `done()`: its lock, left locked by an interrupt, would stop the executor's thread.
        return self._pending is not None and self._answered is self._pending

    def take(self) -> Outcome:
        """Waits for the pending answer; returns how the call ended.

        A dead process is cleared away.
        """
        answer = self.take_packed()
        return answer if isinstance(answer, Lost) else outcome_of(answer)

    def take_packed(self) -> bytes | Lost:
        """The same, with the worker's `Reply` still packed."""
        if self._pending is None:
            raise RuntimeError(f"{self.name} was not asked anything.")
        while not self.has_answer:
            self._arrivals.wait(math.inf)
        with signals_deferred():
            future, self._pending = self._pending, None
            try:
                packed = future.result()
            except _NotStartedError as error:
                self._reap()
                return Lost(exit_code=None, start_error=str(error))
            except BrokenProcessPool:
                return self._lost(self._reap())
            self.is_busy = False
        return packed

    @property
    def num_heartbeats_ever(self) -> int:
        """Heartbeats of all calls since the place was made, as handlers count them."""
        return self._signals.num_heartbeats  # type: ignore[no-any-return]

    def kill_if_stalled(self) -> Lost | None:
        """Ends a worker that made no progress for as long as its call allows."""
        if self._pending is None:
            return None
        stalled_s = self._watch.stalled_s(self._signals.num_heartbeats)
        if stalled_s is not None:
            self.kill()
            return self._lost(None, stalled_s=stalled_s)
        if self.idle_s() >= SUSPICIOUS_S:
            end_stopped_fork_server()
        return None

    def _lost(self, exit_code: int | None, *, stalled_s: float | None = None) -> Lost:
        """How the call of a process ended that is gone, and what is known of its last moments."""
        before, now = self._oom_kills_before, num_oom_kills()
        return Lost(
            exit_code,
            stalled_s,
            num_oom_kills=None if before is None or now is None else now - before,
            num_heartbeats=self._signals.num_heartbeats,
            notes=self.notes,
            stall_limit=self._watch.limit.text,
        )

    def kill(self) -> None:
        """Ends the process at once, whatever it is doing; nothing happens if there is none."""
        with signals_deferred():
            self._pending = None
            process = self._process
            if process is not None:
                with contextlib.suppress(ValueError, OSError):  # already ended
                    is_alive = not wait([process.sentinel], 0)
                    end_group(process.pid or 0, is_leader_known=is_alive)
                    process.kill()
            self._reap()

    def request_close(self) -> None:
        """Lets the handler close and the process end in order, if it is idle; `stop` waits."""
        if self._executor is None or self.is_busy or self._closing is not None:
            return
        with signals_deferred():
            self._closing = self._submitted(worker_main.end_in_order)

    def stop(self, grace_s: float) -> None:
        """Lets the process end in order, then ends it; an interrupt ends it at once."""
        try:
            self.request_close()
            self.await_close(grace_s)
        finally:
            self.kill()

    def await_close(self, grace_s: float) -> None:
        """Waits for what `request_close` began; the process may be there still."""
        closing, self._closing = self._closing, None
        if closing is None:
            return
        closed = ArrivalFlag()
        with signals_deferred():
            closing.add_done_callback(lambda _: closed.put())
        closed.wait(grace_s)
        try:
            with signals_deferred():
                packed = closing.result(timeout=0)
            outcome = outcome_of(packed)
            if isinstance(outcome, Failed):
                warn_of_close(self.name, outcome.failure)
        except TimeoutError:
            _LOGGER.warning(
                "%s did not close within %.1f s: close() of its envs or an atexit handler takes "
                "longer. It was ended without.",
                self.name,
                grace_s,
            )
        except BrokenProcessPool:
            pass  # it is gone already
        except Exception as error:  # noqa: BLE001 - whatever it is, the process is ended next
            _LOGGER.warning("%s did not close: %r", self.name, error)

    def forget_process(self) -> None:
        """In a forked copy of this process: the worker is the original's, and is left alone.

        Who waits for an answer here gets none: the call is lost, and can be made again.
        """
        executor, self._executor = self._executor, None
        self._process = self._closing = None
        self.is_busy = False
        self._is_inherited = True
        if executor is not None:
            # Nor is it collected: that takes a lock which the original may have held.
            _INHERITED.append(executor)
        if self._pending is not None:
            future = _broken(_NotStartedError("this process was forked"))
            self._begin_waiting(future, self._watch.limit)

    def _submitted(self, function: Callable[..., bytes], *arguments: Any) -> Future[bytes]:
        """Asks the worker; if it died while it was idle, the call fails like one under way."""
        assert self._executor is not None  # noqa: S101 - the callers have looked
        try:
            future = self._executor.submit(function, *arguments)
        except BrokenProcessPool as error:
            return _broken(_DiedIdleError(str(error)))
        # Before Python 3.12, the executor's thread can fail all calls between the moment in which
        # `submit` finds it in order and that in which it notes this one, which would never end. So
        # a call of a process that is dead by now is not waited for.
        if _has_ended(self._process):
            return _broken(_DiedIdleError("The process has ended."))
        return future

    def _keep_process(self, process: BaseProcess, arguments: Sequence[Any]) -> None:
        _leave_pipes_to_worker(arguments)
        self._process = process
        if process.pid is not None:
            guard_group(process.pid)

    def _reap(self) -> int | None:
        executor, self._executor = self._executor, None
        process, self._process = self._process, None
        self.is_busy = False
        self._closing = None
        if executor is not None:
            _shut_down(executor)
        if process is None:
            return None
        end_group(process.pid or 0, is_leader_known=False)
        process.join(_REAP_TIMEOUT_S)
        return process.exitcode


def _shut_down(executor: ProcessPoolExecutor) -> None:
    """Waits for the executor's thread, which alone may collect the exit code.

    It waits for the fork server, which tells the end of the process. So another thread waits for
    it, and this one is free to see that the fork server does not answer.
    """
    shutting = threading.Thread(
        target=_await_shutdown, args=(executor,), name="shuts an executor down", daemon=True
    )
    try:
        shutting.start()
    except RuntimeError:  # there are too many threads, or the interpreter is ending
        _await_shutdown(executor)
        return
    watch = ForkServerWatch()
    while shutting.is_alive():
        shutting.join(LOOK_EVERY_S)
        watch.look()


def _await_shutdown(executor: ProcessPoolExecutor) -> None:
    with contextlib.suppress(RuntimeError):  # its thread could not be started
        executor.shutdown(wait=True, cancel_futures=True)


class _NotStartedError(BrokenProcessPool):
    """There was no process from the start; the text says why."""


class _DiedIdleError(BrokenProcessPool):
    """The process was gone before it was asked, since an unknown time."""


def _leave_pipes_to_worker(arguments: Sequence[Any]) -> None:
    """Closes our copies of the worker's ends of the executor's pipes, once it has its own.

    As long as any process holds the writing end, there is no end of file: a worker that is killed
    in the middle of a long answer would leave the executor's thread waiting for the other half, and
    ourselves for that thread, for ever. The same holds for a long request that is not read, before
    Python 3.11.5. Both ends are private.

    Args:
        arguments: what the executor sends its process: among others the queue of its calls and that
            of their results.
    """
    for argument in arguments:
        end: Connection[Any, Any] | None = None
        if isinstance(argument, SimpleQueue):
            end = getattr(argument, "_writer", None)
        elif isinstance(argument, Queue):
            end = getattr(argument, "_reader", None)
        if end is not None:
            end.close()


def _has_ended(process: BaseProcess | None) -> bool:
    return process is not None and bool(wait([process.sentinel], 0))


def _broken(error: BrokenProcessPool) -> Future[bytes]:
    """An answer that will not come."""
    future: Future[bytes] = Future()
    future.set_exception(error)
    return future


def _initialize(
    signals: Any, has_forkserver: bool, import_path: ImportPath, take_over: TakeOver | None
) -> None:
    # The executor gives an initializer's arguments by position.
    worker_main.initialize(
        signals,
        has_forkserver=has_forkserver,
        import_path=import_path,
        take_over=take_over,
    )


# Global because the exit and the fork of a process are; weak, so that it keeps no slot alive.
_LIVE: Final[weakref.WeakSet[LocalPlace]] = weakref.WeakSet()
_INHERITED: Final[list[ProcessPoolExecutor]] = []


class _Exit:
    """What this process does at its end; global because a process ends once."""

    finalizer: util.Finalize | None = None
    is_registered = False


def _end_before_exit(place: LocalPlace) -> None:
    """Lets a worker be killed before the interpreter waits for its executor's thread.

    Finalizers run after that wait, which lasts for ever if a worker hangs. The only hook before it
    is private; where it is missing, only such exits would hang. A process of multiprocessing waits
    for its children even earlier, and forgets at its beginning what was to be done at its end: so
    this is looked at with every start.
    """
    _LIVE.add(place)
    if _Exit.finalizer is None or not _Exit.finalizer.still_active():
        _Exit.finalizer = util.Finalize(None, kill_live_workers, exitpriority=100)
    register = getattr(threading, "_register_atexit", None)
    if register is not None and not _Exit.is_registered:
        _Exit.is_registered = True
        with contextlib.suppress(RuntimeError):  # the interpreter is ending already
            register(kill_live_workers)


def kill_live_workers() -> None:
    """Ends all workers of this process at once."""
    with signals_deferred():
        for place in list(_LIVE):
            place.kill()


def _forget_workers() -> None:
    _Exit.finalizer = None  # it knows whose it is, and does nothing here
    for place in list(_LIVE):
        place.forget_process()
    _LIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)


# ---- local engine


class LocalEngine:
    """Runs each worker in a process of its own on this machine; see `Engine`.

    Attributes:
        name: "local".
        start_method: how processes are started, "forkserver" or "spawn".
    """

    name = "local"

    def __init__(self) -> None:
        """Chooses how processes are started.

        Raises:
            ConfigError: the variable `LOCAL_TRAINER_START_METHOD` names no safe way.
        """
        self.start_method = choose_start_method()

    def now_s(self) -> float:
        """Seconds of the machine's monotonic clock."""
        return time.monotonic()

    def make_arrivals(self) -> ArrivalFlag:
        """What a new pool of places waits with."""
        return ArrivalFlag()

    def make_place(
        self, name: str, *, arrivals: Arrivals, inherit: Inherit = nothing
    ) -> LocalPlace:
        """Makes an empty place; see `Engine`."""
        return LocalPlace(name, start_method=self.start_method, arrivals=arrivals, inherit=inherit)

    def preload(self, modules: Sequence[str]) -> None:
        """Lets the fork server import modules once for all workers to come."""
        preload(modules, self.start_method)

    def publish(self, value: object, *, name: str) -> Published:
        """Packs a value once for all workers."""
        return published(value, name=name)

    def machines(self) -> list[MachineFacts]:
        """The facts of this machine."""
        return [facts_of_this_machine()]

    def close(self) -> None:
        """Does nothing: it holds nothing besides places."""

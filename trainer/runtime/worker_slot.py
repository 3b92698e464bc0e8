"""A place for one worker process: start, ask, kill, start again.

    slot = WorkerSlot(name="env runner 1", start_method="forkserver")
    slot.start(packed_factory)             # returns at once; the process comes up meanwhile
    outcome = slot.take()      # Success(report) | Failed | Lost
    slot.submit("sample", (request,))
    …
    slot.stop()

Each start makes a new single-worker `ProcessPoolExecutor`. In a pool that is shared, the death of
one process breaks the calls of all the others (tried); in a pool of one it breaks its own call
only.

An interrupt may come at any moment. It is put off while the executor is at work for us, whose locks
and threads could not bear it; and we wait for answers without its locks.

How often the kernel ended a process for lack of memory: evidence for what a SIGKILL means.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import process as executors
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import util
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import cloudpickle

from callbacks import PackingError
from callbacks.packing import pack_object
from trainer.errors import RunnerError, SerializationError
from trainer.runtime import worker as worker_main
from trainer.runtime.messages import (
    Failed,
    Failure,
    Lost,
    Outcome,
    Reply,
    Success,
    describe_failure,
)
from trainer.runtime.process_groups import end_group, guard_group, keep_temporary_directory
from trainer.runtime.process_start import (
    LOOK_EVERY_S,
    ForkServerWatch,
    ImportPath,
    NamedSemaphores,
    describe_start_error,
    make_context,
    starting,
)
from trainer.runtime.signals import signals_deferred
from trainer.runtime.worker import TakeOver

# ---- oom kills

_COUNTERS: Final = Path("/proc/vmstat")


def num_oom_kills(counters: Path = _COUNTERS) -> int | None:
    """Processes of this machine that were ended so since it was started.

    The kernel counts before it sends the signal, so whoever sees a process dead sees the count.
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


# ---- worker slot

_LOGGER = logging.getLogger(__name__)
_REAP_TIMEOUT_S: Final = 2.0
_NOTHING: Final = (0,) * worker_main.NUM_NOTES


Inherit = Callable[[], TakeOver | None]
"""Called at each start of a worker; gives what the worker calls first, or None."""


def nothing() -> None:
    """Workers bring nothing along."""


class WorkerSlot:
    """One place for a worker process; at most one call is under way at a time.

    Attributes:
        name: what messages call it.
        pending: the answer to come; None if nothing was asked.
        is_busy: it may be working. Noted before it is asked, so that an interrupt in between does
            not make it look idle.
        stall_limit_s: how long the pending call may go without progress; None is for ever.
        limited_by: the setting that says so, for messages.
    """

    def __init__(
        self,
        name: str,
        *,
        start_method: str,
        arrivals: SimpleQueue[object] | None = None,
        inherit: Inherit = nothing,
    ) -> None:
        """Makes an empty place.

        Args:
            name: what messages call it.
            start_method: "forkserver" or "spawn".
            arrivals: gets an item whenever an answer has come in.
            inherit: see `WorkerPool`.
        """
        self.name = name
        self._inherit = inherit
        self._arrivals: SimpleQueue[object] = SimpleQueue() if arrivals is None else arrivals
        self.pending: Future[bytes] | None = None
        self.is_busy = False
        self.stall_limit_s: float | None = None
        self.limited_by = ""
        self._start_method = start_method
        self._executor: ProcessPoolExecutor | None = None
        self._process: BaseProcess | None = None
        self._closing: Future[bytes] | None = None
        self._limit_at_work: tuple[float, str] | None = None
        self._signs_before = self._signs_seen = 0
        self._signs_seen_at = 0.0
        self._oom_kills_before: int | None = None
        self._has_warned = False
        self._is_inherited = False
        self._make_own()

    def _make_own(self) -> None:
        """Makes what belongs to this process, and not to one that was forked from it."""
        self._context = make_context(self._start_method, self._keep_process)
        self._semaphores = NamedSemaphores(self._context)
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
    def is_running(self) -> bool:
        """Whether a process was started and not yet found dead or stopped."""
        return self._executor is not None

    def start(
        self,
        packed_factory: bytes,
        *,
        stall_limit_s: float | None = None,
        limited_by: str = "",
        limit_at_work: tuple[float, str] | None = None,
    ) -> None:
        """Starts a new process that makes its servant; the answer is the servant's report.

        Args:
            packed_factory: pickled callable that makes the servant from the shared signals.
            stall_limit_s: how long it may go without progress.
            limited_by: the setting that says so.
            limit_at_work: both, from the first sign of progress on; the same if None.
        """
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
            self._watch(future, stall_limit_s, limited_by)
            self._limit_at_work = limit_at_work

    def _start_process(self, packed_factory: bytes, path: ImportPath) -> Future[bytes]:
        keep_temporary_directory()
        has_forkserver = self._start_method == "forkserver"
        self._executor = ProcessPoolExecutor(
            max_workers=1,
            mp_context=self._context,
            initializer=_initialize,
            initargs=(self._signals, has_forkserver, path, self._inherit()),
        )
        future = self._executor.submit(worker_main.construct, packed_factory)
        _leave_pipes_to_worker(self._executor)
        return future

    def submit(
        self,
        method: str,
        arguments: Sequence[object],
        *,
        stall_limit_s: float | None = None,
        limited_by: str = "",
    ) -> None:
        """Calls a method of the servant; returns at once, `pending` is the answer to come.

        Args:
            method: its name.
            arguments: what it is given.
            stall_limit_s: how long it may go without progress.
            limited_by: the setting that says so.

        Raises:
            SerializationError: the arguments cannot be pickled; the worker is untouched.
        """
        try:
            packed = pack_object(tuple(arguments), name=f"the arguments of {method}()")
        except PackingError as error:
            raise SerializationError(f"{self.name} was not asked: {error}") from error
        if self._executor is None:
            raise RuntimeError(f"{self.name} has no process: start it first.")
        with signals_deferred():
            self._begin_call()
            self._signals.must_end = False
            try:
                future = self._executor.submit(worker_main.call, method, packed)
            except BrokenProcessPool as error:
                # It died while it was idle: the call fails like one that was under way.
                future = _broken(_DiedIdleError(str(error)))
            self._watch(future, stall_limit_s, limited_by)

    def _begin_call(self) -> None:
        """Notes where the signals stand, before the worker is asked: it may be at work at once."""
        self.is_busy = True
        self._signals.notes[:] = _NOTHING
        self._signs_before = self._signs_seen = self._signals.num_signs

    def _watch(self, future: Future[bytes], stall_limit_s: float | None, limited_by: str) -> None:
        self.pending = future
        self.stall_limit_s, self.limited_by = stall_limit_s, limited_by
        self._limit_at_work = None
        self._has_warned = False
        self._signs_seen_at = time.monotonic()
        future.add_done_callback(functools.partial(self._note_end, self.pid))

    def _note_end(self, pid: int | None, future: Future[bytes]) -> None:
        """Is told at once when a call ends, in whichever thread."""
        error = None if future.cancelled() else future.exception()
        if pid is not None and isinstance(error, BrokenProcessPool):
            end_group(pid, is_leader_known=not isinstance(error, _DiedIdleError))
        self._arrivals.put(future)

    @property
    def has_answer(self) -> bool:
        """Whether `take` will not wait."""
        return self.pending is not None and self.pending.done()

    def take(self) -> Outcome:
        """Waits for the pending answer; returns how the call ended.

        A dead process is cleared away.
        """
        if self.pending is None:
            raise RuntimeError(f"{self.name} was not asked anything.")
        while not self.has_answer:
            self._arrivals.get()
        with signals_deferred():
            future, self.pending = self.pending, None
            try:
                packed = future.result()
            except _NotStartedError as error:
                self._reap()
                return Lost(exit_code=None, start_error=str(error))
            except BrokenProcessPool:
                return self._lost(self._reap())
            self.is_busy = False
            self._semaphores.unlink()  # it has answered, so it has opened them
        try:
            reply: Reply = cloudpickle.loads(packed)
        except Exception as error:  # noqa: BLE001 - unpickling runs the user's code; told like its other errors
            return Failed(describe_failure(error, {"while": "its answer was unpacked"}))
        return Success(reply.value) if reply.failure is None else Failed(reply.failure)

    @property
    def num_signs(self) -> int:
        """Signs of progress in the call that was made last; they stay when its process dies."""
        return self._signals.num_signs - self._signs_before  # type: ignore[no-any-return]

    @property
    def notes(self) -> tuple[int, ...]:
        """What the servant noted last; it stays when its process dies. See `CallSignals`."""
        return tuple(self._signals.notes)

    def tell_to_end(self) -> None:
        """Tells a call that has no end of its own to come to one."""
        self._signals.must_end = True

    def idle_s(self) -> float:
        """Seconds without progress, as far as it was looked at."""
        num_signs = self._signals.num_signs
        if num_signs != self._signs_seen:
            self._signs_seen = num_signs
            self._signs_seen_at = time.monotonic()
            if self._limit_at_work is not None:
                self.stall_limit_s, self.limited_by = self._limit_at_work
        return time.monotonic() - self._signs_seen_at

    def kill_if_stalled(self) -> Lost | None:
        """Ends a worker that made no progress for as long as its call allows."""
        idle_s = self.idle_s()
        limit_s = self.stall_limit_s
        if self.pending is None or limit_s is None or idle_s < limit_s / 2:
            return None
        if idle_s >= limit_s:
            self.kill()
            return self._lost(None, stalled_s=idle_s)
        if not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "%s has made no progress for %.1f s; it is replaced after %s.",
                self.name,
                idle_s,
                f"{self.limited_by}={limit_s}" if self.limited_by else f"{limit_s:.1f} s",
            )
        return None

    def _lost(self, exit_code: int | None, *, stalled_s: float | None = None) -> Lost:
        """How the call of a process ended that is gone, and what is known of its last moments."""
        before, now = self._oom_kills_before, num_oom_kills()
        return Lost(
            exit_code,
            stalled_s,
            num_oom_kills=None if before is None or now is None else now - before,
            num_signs=self._signals.num_signs,
            notes=self.notes,
            stall_limit=f"{self.limited_by}={self.stall_limit_s}" if self.limited_by else "",
        )

    def kill(self) -> None:
        """Ends the process at once, whatever it is doing; nothing happens if there is none."""
        with signals_deferred():
            self.pending = None
            process = self._process
            if process is not None:
                with contextlib.suppress(ValueError, OSError):  # already ended
                    is_alive = not wait([process.sentinel], 0)
                    end_group(process.pid or 0, is_leader_known=is_alive)
                    process.kill()
            self._reap()

    def tell_to_close(self) -> None:
        """Lets the servant close and the process end in order, if it is idle; `stop` waits."""
        if self._executor is None or self.is_busy or self._closing is not None:
            return
        with signals_deferred(), contextlib.suppress(BrokenProcessPool):  # it is gone already
            self._closing = self._executor.submit(worker_main.end_in_order)

    def stop(self, grace_s: float) -> None:
        """Lets the process end in order, then ends it; an interrupt ends it at once.

        Args:
            grace_s: seconds that the servant's `close()` and the `atexit` handlers of code in the
                process may take.
        """
        try:
            self.tell_to_close()
            self._await_close(grace_s)
        finally:
            self.kill()

    def _await_close(self, grace_s: float) -> None:
        closing, self._closing = self._closing, None
        if closing is None:
            return
        closed: SimpleQueue[Future[bytes]] = SimpleQueue()
        with signals_deferred():
            closing.add_done_callback(closed.put)
        try:
            reply: Reply = cloudpickle.loads(closed.get(timeout=grace_s).result())
            if reply.failure is not None:
                warn_of_close(self.name, reply.failure)
        except BrokenProcessPool:
            pass  # it is gone already
        except Empty:
            _LOGGER.warning(
                "%s did not close within %.1f s: close() of its envs or an atexit handler takes "
                "longer. It was ended without.",
                self.name,
                grace_s,
            )
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
            # Nor is it collected, or told to end with this process: it would write into a pipe of
            # the original's. There is no public way.
            _INHERITED.append(executor)
            thread = getattr(executor, "_executor_manager_thread", None)
            getattr(executors, "_threads_wakeups", {}).pop(thread, None)
        if self.pending is not None:
            future = _broken(_NotStartedError("this process was forked"))
            self._watch(future, self.stall_limit_s, self.limited_by)

    def _keep_process(self, process: BaseProcess) -> None:
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

    It waits for the fork server, which tells the end of the process.
    """
    thread = getattr(executor, "_executor_manager_thread", None)
    executor.shutdown(wait=thread is None, cancel_futures=True)
    if thread is None or thread.ident is None:
        return  # there is no such thread, or it was never started: there is nothing to end
    watch = ForkServerWatch()
    while thread.is_alive():
        thread.join(LOOK_EVERY_S)
        watch.look()


def warn_of_close(name: str, failure: Failure) -> None:
    """Says that a servant could not be closed properly; nothing depends on it any more."""
    _LOGGER.warning(
        "%s was stopped, but closing it raised %s: %s\n%s",
        name.capitalize(),
        failure.type_name,
        failure.message,
        failure.traceback_text.rstrip(),
    )


class _NotStartedError(BrokenProcessPool):
    """There was no process from the start; the text says why."""


class _DiedIdleError(BrokenProcessPool):
    """The process was gone before it was asked, nobody knows since when."""


def _leave_pipes_to_worker(executor: ProcessPoolExecutor) -> None:
    """Closes our copies of the worker's ends of the executor's pipes, once it has its own.

    As long as somebody holds the writing end, there is no end of file: a worker that is killed in
    the middle of a long answer would leave the executor's thread waiting for the other half, and
    ourselves for that thread, for ever. The same holds for a long request that nobody reads. There
    is no public way to it.
    """
    for queue, end in (("_result_queue", "_writer"), ("_call_queue", "_reader")):
        connection = getattr(getattr(executor, queue, None), end, None)
        if connection is not None:
            connection.close()


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
_LIVE: Final[weakref.WeakSet[WorkerSlot]] = weakref.WeakSet()
_INHERITED: Final[list[ProcessPoolExecutor]] = []


class _Exit:
    """What this process does at its end; global because a process ends once."""

    finalizer: util.Finalize | None = None
    is_registered = False


def _end_before_exit(slot: WorkerSlot) -> None:
    """Lets a worker be killed before the interpreter waits for its executor's thread.

    Finalizers run after that wait, which lasts for ever if a worker hangs. There is no public hook
    before it; where the private one is missing, only such exits would hang. A process of
    multiprocessing waits for its children even earlier, and forgets at its beginning what was to be
    done at its end: so this is looked at with every start.
    """
    _LIVE.add(slot)
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
        for slot in list(_LIVE):
            slot.kill()


def _forget_workers() -> None:
    _Exit.finalizer = None  # it knows whose it is, and does nothing here
    for slot in list(_LIVE):
        slot.forget_process()
    _LIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)

"""The worker's side: what runs inside a worker process, and what it prints.

A worker holds one *handler*, an object that a packed factory makes, and calls its methods as it is
told:

    HandlerHost               makes and holds the handler; the same for the workers of every engine

    of a local process:
    initialize(...)           the executor's initializer: signal handlers, parent watch, BLAS
    construct(factory)        unpacks the factory, calls it, keeps the handler
    call(method, arguments)   calls a method of the handler, answers with a packed Reply
    end_in_order()            closes the handler, runs the `atexit` handlers of the user's code

No error leaves this module by itself: all come back as `Failure`, because an error that the
executor cannot pickle would break the pool.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import io
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final, cast

import cloudpickle

from trainer.errors import DebuggerError, RunnerError
from trainer.runtime.engine import NUM_NOTES, Signals, TakeOver, show_progress_by
from trainer.runtime.messages import Reply, describe_failure, pack
from trainer.runtime.process_start import ImportPath, lead_group
from trainer.runtime.signals import FOR_MAIN_PROCESS
from trainer.runtime.threads import set_blas_threads

# ---- worker output
#
# What workers print: whole lines, although several processes write to one place. Python collects
# what is printed into a pipe or file and writes it in blocks, whose borders are in the middle of
# lines; those of two processes then end up in each other. The operating system keeps a write to a
# pipe in one piece if it is small (`PIPE_BUF`, 4096 bytes on Linux).

_ONE_PIECE_BYTES: Final[int] = getattr(select, "PIPE_BUF", 512)


class WholeLines(io.BufferedIOBase):
    """Keeps the beginning of a line until its end comes, then writes it.

    Several lines at once are written in pieces that end with a line, except within a line that is
    longer than a piece can be. `flush()` writes what there is.
    """

    def __init__(self, descriptor: int) -> None:
        """Writes to an open file; closing this object does not close that."""
        self._descriptor = descriptor
        self._beginning = b""

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Whether it writes to a terminal."""
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        """The number of the open file."""
        return self._descriptor

    def write(self, data: Any) -> int:
        """Takes bytes; returns how many, which is all of them."""
        everything = self._beginning + bytes(data)
        end = everything.rfind(b"\n") + 1
        if len(everything) - end > _ONE_PIECE_BYTES:
            end = len(everything)
        self._beginning = everything[end:]
        self._write_out(everything[:end])
        return len(data)

    def flush(self) -> None:
        """Writes the line that has no end yet."""
        rest, self._beginning = self._beginning, b""
        self._write_out(rest)

    def _write_out(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data[: _end_of_piece(data)]) :]


def _end_of_piece(data: bytes) -> int:
    if len(data) <= _ONE_PIECE_BYTES:
        return len(data)
    return data.rfind(b"\n", 0, _ONE_PIECE_BYTES) + 1 or _ONE_PIECE_BYTES


def print_whole_lines() -> None:
    """Lets what this process prints appear line by line, each in one piece."""
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        # It may be missing or closed, or an object of its own kind without a file.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            lines = io.TextIOWrapper(
                cast(BinaryIO, WholeLines(stream.fileno())),
                encoding=stream.encoding,
                errors=stream.errors,
                write_through=True,  # line by line is our business
            )
            setattr(sys, name, lines)


def flush_output() -> None:
    """Lets a line that is not finished yet appear now, and not be lost later."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the stream may be closed or missing
            stream.flush()


# ---- unpacking
#
# No processes from processes without end. A class or function of a module travels as the module's
# name, and the receiving process imports the module. If that very import trains, the process
# starts processes of its own, which import it, too. The program itself is safe from that
# (`process_start`): what it defines travels by value.


class _Unpacking:
    """What this process is doing; global because a process is one thing."""

    is_unpacking = False


def unpack(packed: bytes, buffers: Sequence[bytes] = ()) -> Any:
    """Unpickles what came from another process, importing modules; buffers as of PEP 574."""
    _Unpacking.is_unpacking = True
    try:
        return cloudpickle.loads(packed, buffers=buffers)
    finally:
        _Unpacking.is_unpacking = False


def refuse_while_unpacking(what: str) -> None:
    """Raises a RunnerError while `unpack` runs; `what` are the processes not to be started."""
    if _Unpacking.is_unpacking:
        raise RunnerError(
            f"{what} were to be started while one of your modules was imported by a process that "
            "needs a class or function of it; each would start further ones, without end. Build "
            'and train in a function, or under `if __name__ == "__main__":`, so that importing the '
            "module starts nothing; or run the module itself as the program."
        )


# ---- worker main

NO_DEBUGGER_HERE: Final = (
    "in a process of its own, which has no terminal. To debug an env or a callback, let runners "
    "live in the main process: config.env_runners(num_env_runners=0), and "
    "evaluation_num_env_runners=0 for evaluation. Both play the same episodes there."
)
_PR_SET_PDEATHSIG = 1


class CallSignals(ctypes.Structure):
    """The `Signals` of a local process, in memory that both sides share."""

    num_heartbeats: int
    must_end: bool
    notes: Any
    _fields_ = (
        ("num_heartbeats", ctypes.c_uint64),
        ("must_end", ctypes.c_bool),
        ("notes", ctypes.c_int64 * NUM_NOTES),
    )


class HandlerHost:
    """Makes a handler, holds it, and calls its methods: bytes in, bytes out.

    No error leaves it: each becomes a `Failure` in the packed `Reply`.
    """

    def __init__(self, signals: Signals | None = None) -> None:
        """Holds no handler yet; it is made with the signals."""
        self._signals = signals
        self._handler: Any = None

    def construct(self, packed_factory: bytes) -> bytes:
        """Makes the handler by calling the factory with the signals.

        Returns:
            a packed `Reply` with the handler's `report()`.
        """
        try:
            factory: Callable[[Signals | None], Any] = unpack(packed_factory)
            handler = factory(self._signals)
            self._handler = handler
            return _packed_reply(handler.report())
        except BaseException as error:  # noqa: BLE001 - sent to the main process, which raises it
            return pack(Reply(failure=describe_failure(error)))
        finally:
            flush_output()

    def call(self, method: str, packed_arguments: bytes, buffers: Sequence[bytes] = ()) -> bytes:
        """Calls `handler.method(*arguments)`.

        Args:
            method: of the handler.
            packed_arguments: the arguments, a tuple.
            buffers: see `unpack`.

        Returns:
            a packed `Reply`; the handler's `failure_context()` is added to what the method raises.
        """
        handler = self._handler
        try:
            arguments = unpack(packed_arguments, buffers)
            return _packed_reply(getattr(handler, method)(*arguments))
        except BaseException as error:  # noqa: BLE001 - sent to the main process, which raises it
            context = handler.failure_context() if handler else None
            return pack(Reply(failure=describe_failure(error, context)))
        finally:
            flush_output()


class _Process:
    """All that a worker process remembers between calls.

    The one object that is global, because calls are functions.
    """

    host = HandlerHost()


def initialize(
    signals: CallSignals,
    *,
    has_forkserver: bool,
    import_path: ImportPath,
    take_over: TakeOver | None,
) -> None:
    """Prepares a fresh process.

    Args:
        signals: those of this worker's place.
        has_forkserver: whether the operating system's parent of this process is a fork server.
        import_path: where the user's modules are found; this library is imported already.
        take_over: called once the user's modules can be found; see `WorkerPool`.
    """
    prepare_process(import_path, take_over)
    _Process.host = HandlerHost(signals)
    show_progress_by(signals)
    die_with_parent(has_forkserver=has_forkserver)


def prepare_process(import_path: ImportPath, take_over: TakeOver | None) -> None:
    """What every process of ours does first; it does not yet end with its parent."""
    lead_group()
    if sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _refuse_breakpoint
    import_path.take_over()
    if take_over is not None:
        take_over()
    print_whole_lines()
    # They reach the whole process group; the main process alone decides what they mean.
    for number in FOR_MAIN_PROCESS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_MAIN_PROCESS)  # see `process_start.starting`
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # stderr may be closed or replaced by an object without a file.
    with contextlib.suppress(Exception):
        faulthandler.enable()
    set_blas_threads(1)


def _refuse_breakpoint(*arguments: Any, **settings: Any) -> Any:
    """What `breakpoint()` does here, unless PYTHONBREAKPOINT says something else than pdb."""
    if os.environ.get("PYTHONBREAKPOINT", "") not in ("", "pdb.set_trace"):
        return sys.__breakpointhook__(*arguments, **settings)  # noqa: T100 - as the user said
    caller = sys._getframe(1)
    raise DebuggerError(
        f"breakpoint() was called at {caller.f_code.co_filename}:{caller.f_lineno}, "
        f"{NO_DEBUGGER_HERE}"
    )


def die_with_parent(*, has_forkserver: bool) -> None:
    """Ends this process when the one that asked for it has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    if has_forkserver and sys.platform == "linux":
        # The thread above cannot run while C code holds the interpreter lock. The kernel can: the
        # workers of a fork server that was killed cannot be told of, and end with it. (Not with
        # spawn: there the "parent" is the *thread* that started us, which may end long before the
        # main process.)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def construct(packed_factory: bytes) -> bytes:
    """Makes the handler of this process; see `HandlerHost`."""
    return _Process.host.construct(packed_factory)


def call(method: str, packed_arguments: bytes, buffers: Sequence[bytes] = ()) -> bytes:
    """Calls a method of the handler of this process; see `HandlerHost`."""
    return _Process.host.call(method, packed_arguments, buffers)


def end_in_order() -> bytes:
    """Closes the handler, then does what Python does at the end of a program.

    The process itself is ended by its parent, which waits for this no longer than it likes.

    Returns:
        what `call("close")` returns.
    """
    reply = call("close", pack(()))
    # Private: we end the process from outside, and before Python 3.13 copies of a fork server end
    # without handlers. What libraries leave to them (temporary folders, licences) would stay.
    run_handlers = getattr(atexit, "_run_exitfuncs", None)
    if run_handlers is not None:
        run_handlers()
    flush_output()
    return reply


def _packed_reply(value: object) -> bytes:
    try:
        return pack(Reply(value=value))
    except Exception as error:  # noqa: BLE001 - sent to the main process, which raises it
        return pack(Reply(failure=describe_failure(error)))

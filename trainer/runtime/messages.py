"""What travels between the main process and a worker: bytes made by cloudpickle, both ways.

cloudpickle sends lambdas, closures and classes of `__main__` by value, and knows a class again that
comes back, so a worker needs nothing of the user's main module. We pickle ourselves instead of
leaving it to the executor: whatever goes wrong while packing then happens in our code, on the side
that can say what it was.
"""

from __future__ import annotations

import logging
import pickle
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import cloudpickle

from callbacks import PackingError
from callbacks.packing import BufferCallback, find_culprit, pack_object
from trainer.errors import RemoteError, SerializationError

_LOGGER = logging.getLogger(__name__)

# ---- messages


@dataclass(frozen=True)
class Failure:
    """An error that code raised inside a worker, in a form that always travels.

    Attributes:
        type_name: qualified name of the error's class.
        message: its text.
        traceback_text: the worker's traceback, formatted there.
        packed_error: the error itself and its cause, pickled; None if they could not be pickled.
        context: facts the handler added (env index, episode number and seed, last event …).
    """

    type_name: str
    message: str
    traceback_text: str
    packed_error: bytes | None
    context: dict[str, Any]

    def unpack_error(self) -> BaseException:
        """The original error, with the remote traceback as its cause.

        Returns:
            a `RemoteError` with its text if it could not travel, or is no `Exception`.
        """
        stand_in = RemoteError(f"{self.type_name}: {self.message}\n\n{self.traceback_text}")
        if self.packed_error is None:
            return stand_in
        try:
            error, cause = cloudpickle.loads(self.packed_error)
        except Exception:  # noqa: BLE001 - it loads in the worker; here it may miss something
            return stand_in
        if not isinstance(error, Exception):
            # A SystemExit of user code in a worker is no reason to end the main process.
            return stand_in
        remote = RemoteTraceback(self.traceback_text)
        if cause is None:
            error.__cause__ = remote
        else:
            cause.__cause__ = remote
            error.__cause__ = cause
        return error


class RemoteTraceback(Exception):  # noqa: N818 - it is no error of its own but shows where one came from
    """Shows a worker's traceback as the cause of the error that it sent."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}" if self.args else ""


@dataclass(frozen=True)
class Reply:
    """A worker's answer to one call: a value or a failure."""

    value: Any = None
    failure: Failure | None = None


def pack(value: object) -> bytes:
    """Pickles a value for the other side; a SerializationError if that cannot be done."""
    try:
        return cloudpickle.dumps(value)  # type: ignore[no-any-return]
    except Exception as error:
        # Pickling runs user code (__reduce__, __getstate__), which may raise anything.
        answer, name = (value.value, "the answer") if isinstance(value, Reply) else (value, "it")
        culprit = find_culprit(answer, name, dumps=cloudpickle.dumps)
        raise SerializationError(
            f"{culprit.text[0].upper()}{culprit.text[1:]}, which cannot be sent to another "
            f"process: {type(error).__name__}: {error}"
        ) from error


def pack_arguments(
    name: str,
    method: str,
    arguments: Sequence[object],
    *,
    buffer_callback: BufferCallback | None = None,
) -> bytes:
    """Pickles the arguments of a call of a handler's method.

    Args:
        name: what messages call the worker.
        method: of the handler.
        arguments: of the call.
        buffer_callback: see `pack_object`.

    Raises:
        SerializationError: they cannot be pickled; the worker was not asked.
    """
    try:
        return pack_object(
            tuple(arguments),
            name=f"the arguments of {method}()",
            buffer_callback=buffer_callback,
        )
    except PackingError as error:
        raise SerializationError(f"{name} was not asked: {error}") from error


def describe_failure(error: BaseException, context: dict[str, Any] | None = None) -> Failure:
    """Puts an error into a form that always travels; what cannot be pickled is left out."""
    cls = type(error)
    # Pickle leaves the cause of an error out. One that cannot travel stays behind by itself: the
    # error keeps its own type, which decides what is done about it.
    packed = _packed_error(error, error.__cause__) or _packed_error(error, None)
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may fail in any way
        message = f"<its text could not be made: {type(broken).__name__}>"
    return Failure(
        type_name=f"{cls.__module__}.{cls.__qualname__}",
        message=message,
        traceback_text="".join(traceback.format_exception(cls, error, error.__traceback__)),
        packed_error=packed,
        context=dict(context or {}),
    )


def _packed_error(error: BaseException, cause: BaseException | None) -> bytes | None:
    """An error and its cause as bytes that are known to load again; None if there are none."""
    try:
        packed: bytes = cloudpickle.dumps((error, cause))
        # Some errors pickle but do not unpickle: those with other constructor arguments.
        cloudpickle.loads(packed)
    except Exception:  # noqa: BLE001 - any failure means that the error itself stays behind
        return None
    return packed


# ---- what is sent to many


@dataclass(frozen=True, eq=False)
class Published:
    """Stands for a value on its way to many workers: packed once; unpickled, it is the value.

    Engines may send the bytes beside a call (PEP 574), and so once per machine instead of once per
    worker.

    Attributes:
        packed: the pickled value.
    """

    packed: bytes

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _unpacked, (pickle.PickleBuffer(self.packed),)


def published(value: object, *, name: str) -> Published:
    """Packs a value for many workers.

    Args:
        value: any that can travel.
        name: what messages call it.

    Raises:
        SerializationError: it cannot be pickled.
    """
    try:
        return Published(pack_object(value, name=name))
    except PackingError as error:
        raise SerializationError(f"No worker was asked: {error}") from error


def _unpacked(packed: bytes) -> Any:
    return cloudpickle.loads(packed)


# ---- outcomes
#
# How a call to a worker can end: one class per ending. So no caller has to guess from an exception.

_NO_FORK_SERVER: Final = 255
_SENT_FROM_OUTSIDE: Final = (-signal.SIGKILL, -signal.SIGTERM)


@dataclass(frozen=True)
class Success:
    """The worker answered."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """Code in the worker raised; the process lives."""

    failure: Failure

    def describe(self) -> str:
        """One line: what was raised, and where in the handler's work."""
        where = ", ".join(f"{key} {value}" for key, value in self.failure.context.items())
        text = f"raised {self.failure.type_name}: {self.failure.message}"
        return f"{text} ({where})" if where else text


@dataclass(frozen=True)
class Lost:
    """The process is gone.

    Attributes:
        exit_code: as the operating system gave it: negative for a signal, None if it is not known.
        stalled_s: the seconds without progress after which we killed it; None if it died by itself.
        stall_limit: the setting that says so, and its value.
        start_error: what kept it from being started at all; None if it was.
        num_oom_kills: processes that the kernel ended for lack of memory since this one was
            started, on the whole machine; None if it does not say.
        num_heartbeats: `Signals.num_heartbeats` at the end.
        notes: `Signals.notes` at the end; empty if it was not asked anything.
        cause: what the engine says about the end where there is no exit code, as the rest of a
            sentence; empty if it says nothing.
        where: the machine it ran on, where that is not this one.
        was_taken_along: it was ended by the loss of its machine, or of what the engine had started
            it from there, which nothing inside it has caused.
    """

    exit_code: int | None
    stalled_s: float | None = None
    start_error: str | None = None
    num_oom_kills: int | None = field(default=None, compare=False)
    num_heartbeats: int = field(default=0, compare=False)
    notes: tuple[int, ...] = field(default=(), compare=False)
    stall_limit: str = field(default="", compare=False)
    cause: str = field(default="", compare=False)
    where: str = field(default="", compare=False)
    was_taken_along: bool = field(default=False, compare=False)

    @property
    def was_killed(self) -> bool:
        """Whether something outside of it may have ended it, as far as the kernel tells."""
        by_signal = self.exit_code in _SENT_FROM_OUTSIDE and not self.num_oom_kills
        return by_signal or self.was_taken_along

    def describe(self) -> str:
        """One line: how the process ended, with the signal's name and what it usually means."""
        return f"{self._end()} on {self.where}" if self.where else self._end()

    def _end(self) -> str:
        if self.stalled_s is not None:
            limit = f" ({self.stall_limit})" if self.stall_limit else ""
            return f"made no progress for {self.stalled_s:.1f} s and was killed{limit}"
        if self.start_error is not None:
            return f"could not be started ({self.start_error})"
        if self.exit_code is None:
            return f"died ({self.cause or 'its exit code is not known'})"
        if self.exit_code >= 0:
            # What multiprocessing says of a process whose fork server is gone.
            hint = " or with its fork server" if self.exit_code == _NO_FORK_SERVER else ""
            return f"ended with exit code {self.exit_code}{hint}"
        name = _signal_name(-self.exit_code)
        hints = {
            "SIGKILL": f", {_why_killed(self.num_oom_kills)}",
            "SIGSEGV": ", a crash in compiled code",
            "SIGBUS": ", no room in shared memory (`df /dev/shm`; a container has 64 MB: "
            "`docker run --shm-size=1g`), or a crash in compiled code",
            "SIGFPE": ", a crash in compiled code",
            "SIGILL": ", compiled code made for another processor",
            "SIGABRT": ", compiled code gave up",
            "SIGTERM": ", told to end by another program",
        }
        return f"was killed by signal {-self.exit_code} ({name}{hints.get(name, '')})"


Outcome = Success | Failed | Lost


def outcome_of(packed: bytes) -> Success | Failed:
    """How a call ended whose packed `Reply` has arrived.

    Unpickling runs the user's code: what it raises is told like that code's other errors.
    """
    try:
        reply: Reply = cloudpickle.loads(packed)
    except Exception as error:  # noqa: BLE001 - told to the caller, which raises it
        return Failed(describe_failure(error, {"while": "its answer was unpacked"}))
    return Success(reply.value) if reply.failure is None else Failed(reply.failure)


def warn_of_close(name: str, failure: Failure) -> None:
    """Says that a handler could not be closed properly; nothing depends on it any more."""
    _LOGGER.warning(
        "%s was stopped, but closing it raised %s: %s\n%s",
        name.capitalize(),
        failure.type_name,
        failure.message,
        failure.traceback_text.rstrip(),
    )


def _why_killed(num_oom_kills: int | None) -> str:
    if num_oom_kills is None:
        return "probably out of memory, or killed by hand"
    if num_oom_kills:
        return "out of memory: the kernel counts such a kill meanwhile"
    return "killed by hand or by another program: the kernel counts no kill for lack of memory"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown signal"

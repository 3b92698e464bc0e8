"""What travels between the main process and a worker: bytes made by cloudpickle, both ways.

cloudpickle sends lambdas, closures and classes of `__main__` by value, and knows a class again that
comes back, so a worker needs nothing of the user's main module. We pickle ourselves instead of
leaving it to the executor: whatever goes wrong while packing then happens in our code, on the side
that can say what it was.
"""

from __future__ import annotations

import dataclasses
import traceback
from dataclasses import dataclass
from typing import Any

import cloudpickle

from trainer.errors import RemoteError, SerializationError


@dataclass(frozen=True)
class Failure:
    """An error that code raised inside a worker, in a form that always travels.

    Attributes:
        type_name: qualified name of the error's class.
        message: its text.
        traceback_text: the worker's traceback, formatted there.
        packed_error: the error itself and its cause, pickled; None if they could not be pickled.
        context: facts the servant added (env index, episode number and seed, last event …).
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
    """Pickles a value for the other side.

    Raises:
        SerializationError: the value cannot be pickled.
    """
    try:
        return cloudpickle.dumps(value)  # type: ignore[no-any-return]
    except Exception as error:
        # Pickling runs user code (__reduce__, __getstate__), which may raise anything.
        raise SerializationError(
            f"{_culprit(value)} cannot be sent to another process: {type(error).__name__}: {error}"
        ) from error


def _culprit(value: Any) -> str:
    """What of an answer cannot be pickled, as a phrase."""
    if isinstance(value, Reply):
        value = value.value
    for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        part = getattr(value, field.name)
        try:
            cloudpickle.dumps(part)
        except Exception:  # noqa: BLE001 - whatever it is, this is the part
            return f"Of the answer, `{field.name}`, a {type(part).__name__},"
    return f"A {type(value).__name__}"


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

"""What a call to an actor will give: a value or an error, for those who ask, now or later."""

from __future__ import annotations

import concurrent.futures
import logging
from typing import Any, Final

import cloudpickle

from checkpoints.arguments import argument_error
from trainer.errors import ActorError, ActorTimeoutError, RemoteError, SerializationError
from trainer.runtime.actor_process import FAILURE, VALUE
from trainer.runtime.messages import Failure

_LOGGER: Final = logging.getLogger(__name__)


class Answer:
    """What a call will give: a value or an error."""

    _was_asked = True  # until it is made: of one that was refused nothing is told

    def __init__(self, label: str, told: set[str] | None = None) -> None:
        """Nothing is known yet.

        Args:
            label: which call it is, for messages.
            told: which calls a warning was given for already.
        """
        if not isinstance(label, str):
            raise argument_error("Future()", "label", label, "a string")
        if told is not None and not isinstance(told, set):
            raise argument_error("Future()", "told", told, "None or a set of strings")
        self.label = label
        self._told: set[str] = set() if told is None else told
        self._was_asked = False
        self.arrival: concurrent.futures.Future[tuple[int, bytes] | ActorError] = (
            concurrent.futures.Future()
        )
        self._value: tuple[Any] | None = None

    def __repr__(self) -> str:
        state = "there" if self.arrival.done() else "under way"
        return f"<future of {self.label}, {state}>"

    def __del__(self) -> None:
        # Nobody will ask any more: an error must not vanish. Once per method is enough.
        is_wanted = not self._was_asked and self.label not in self._told
        if is_wanted and self.arrival.done() and self.packed is None:
            self._told.add(self.label)
            try:
                self.value()
            except Exception as error:  # noqa: BLE001 - it is what is told
                _LOGGER.warning("%s failed, and nobody asked: %r", self.label, error)

    def __reduce__(self) -> Any:
        raise SerializationError(
            f"The future of {self.label} cannot be sent to another process inside something else. "
            "Give it as an argument of its own, or send what `actors.get(future)` returns."
        )

    @property
    def packed(self) -> bytes | None:
        """The value as bytes; None as long as it is not there, or if there is an error instead."""
        if not self.arrival.done():
            return None
        arrived = self.arrival.result()
        return arrived[1] if isinstance(arrived, tuple) and arrived[0] == VALUE else None

    def value(self, timeout_s: float | None = None) -> Any:
        """Waits for the value.

        Args:
            timeout_s: seconds to wait; None waits for ever.

        Raises:
            ActorTimeoutError: it did not come in time.
            ActorDiedError: the actor is gone.
            Exception: whatever the method raised, with the actor's traceback as its cause.
        """
        if self._value is not None:
            return self._value[0]
        self._was_asked = True
        try:
            arrived = self.arrival.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            raise ActorTimeoutError(
                f"{self.label} gave no answer within {timeout_s:g} s. The call goes on; `get` may "
                "be asked again, and `actors.kill(handle)` ends the actor."
            ) from error
        if isinstance(arrived, ActorError):
            raise type(arrived)(*arrived.args) from arrived.__cause__
        kind, data = arrived
        if kind == FAILURE:
            raise unpack_failure(cloudpickle.loads(data))
        self._value = (cloudpickle.loads(data),)
        return self._value[0]


def unpack_failure(failure: Failure) -> BaseException:
    """The error that a failure tells of, or its text where its class is not known."""
    try:
        return failure.unpack_error()
    except Exception as error:  # noqa: BLE001 - its class is not known here: its text is
        text = f"{failure.type_name}: {failure.message}\n\n{failure.traceback_text}"
        unknown = RemoteError(text)
        unknown.__cause__ = error
        return unknown

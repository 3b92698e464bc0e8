"""The errors of the callbacks package: one class per situation.

    AnyCallbackError
    ├── CallbackError                       a callback raised; the original is the cause
    ├── CallbackConfigError (ValueError)    callbacks were configured wrongly; lists every problem
    ├── PackingError (TypeError)            something cannot travel to another process; names it
    └── NonFiniteError (ArithmeticError)    `NonFiniteGuard` found NaN or infinity; names the places

All of them can be pickled, because they are raised in worker processes and shown in the main
process.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle


class AnyCallbackError(Exception):
    """Root of every error that this package raises on purpose."""


class CallbackError(AnyCallbackError):
    """A callback raised while an event fired; training stops and nothing is retried.

    The original exception is `__cause__` (and `original`). When the error crossed a process border,
    the traceback of the other process is part of the message. An original that cannot be pickled
    stays behind: then `original` is None here and its text is in the message.

    Args:
        callback: The callback as the user knows it, such as `MyCallbacks.on_episode_end`.
        event: The name of the event that fired, or an occasion in words such as `its state was
            taken`.
        where: Which process and position fired it, such as `env runner 2, env_index 0`. May be
            empty.
        original: What the callback raised.
    """

    def __init__(
        self,
        callback: str,
        event: str,
        *,
        where: str = "",
        original: BaseException | None = None,
    ) -> None:
        super().__init__(callback, event)
        self.callback = callback
        self.event = event
        self.where = where
        self.original = original
        self.reason = "an exception" if original is None else _one_line(original)
        self.remote_traceback = ""
        self.__cause__ = original

    def __str__(self) -> str:
        place = f" in {self.where}" if self.where else ""
        occasion = f"`{self.event}` fired" if self.event.startswith("on_") else self.event
        text = (
            f"callback `{self.callback}` raised {self.reason} while {occasion}{place}. "
            "Training stops, because a callback that failed may have done half of its work. "
            "Correct the callback, or let it catch what it can recover from itself."
        )
        if self.remote_traceback:
            text += f"\n\nTraceback of the callback in its own process:\n{self.remote_traceback}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        lines = self.remote_traceback
        if not lines and self.original is not None:
            lines = "".join(traceback.format_exception(self.original))
        state = (self.where, self.reason, lines, _packed_original(self.original))
        return (_rebuilt_callback_error, (type(self), self.callback, self.event, state))


class CallbackConfigError(AnyCallbackError, ValueError):
    """Callbacks were configured wrongly; the message lists every problem found.

    Args:
        problems: One sentence or more each: what was given, what was expected, what to write
            instead.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"callbacks are configured wrongly: {self.problems[0]}"
        lines = [f"callbacks are configured wrongly, {len(self.problems)} problems:"]
        lines += [f"  {number}. {text}" for number, text in enumerate(self.problems, start=1)]
        return "\n".join(lines)


class PackingError(AnyCallbackError, TypeError):
    """Something cannot travel to another process; `path` names the part that cannot.

    Args:
        message: The whole text, with what to write instead.
        path: The part that cannot travel, such as `config.env_config['log']`.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class NonFiniteError(AnyCallbackError, ArithmeticError):
    """Numbers that training depends on are NaN or infinite; `places` names each.

    Args:
        message: The whole text, with what to do.
        places: Where they are, such as `learners/default_policy/total_loss is nan`.
    """

    def __init__(self, message: str, places: Sequence[str] = ()) -> None:
        super().__init__(message, places)
        self.places = tuple(places)

    def __str__(self) -> str:
        return str(self.args[0])


def _one_line(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero`, without a colon when there is no text."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _packed_original(original: BaseException | None) -> bytes | None:
    """The exception as bytes that are known to load again, or None."""
    if original is None:
        return None
    try:
        data: bytes = cloudpickle.dumps(original)
        cloudpickle.loads(data)
    except Exception:  # noqa: BLE001  any exception of the user may refuse; its text travels anyway
        return None
    return data


def _rebuilt_callback_error(
    error_class: type[CallbackError], callback: str, event: str, state: tuple[Any, ...]
) -> CallbackError:
    """What unpickling calls: a CallbackError with the text of the other process."""
    where, reason, remote_traceback, data = state
    original: BaseException | None = None
    if data is not None:
        try:
            original = cloudpickle.loads(data)
        except Exception:  # noqa: BLE001  its class may be missing here; its text is not
            original = None
    error = error_class(callback, event, where=where, original=original)
    error.reason = reason
    error.remote_traceback = remote_traceback
    return error

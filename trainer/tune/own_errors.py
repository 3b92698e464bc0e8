"""Errors of the class of their cause, too: `except` clauses for the cause take them.

error = as_cause_too(TrialError(text), ValueError("…"))
isinstance(error, TrialError) and isinstance(error, ValueError)
"""

from __future__ import annotations

from typing import TypeVar

_AnyError = TypeVar("_AnyError", bound=Exception)


def as_cause_too(error: _AnyError, cause: BaseException | None) -> _AnyError:
    """The error, raised from its cause, with the cause's class and attributes beside its own.

    Where the two classes cannot be one, or the cause is no `Exception`, it is the error itself.
    """
    error.__cause__ = cause
    kind = type(error)
    if not isinstance(cause, Exception) or isinstance(error, type(cause)):
        return error
    try:
        both = _class_of_both(kind, type(cause))
        made: _AnyError = both.__new__(both, *error.args)
        made.args = error.args
        made.__dict__.update({**vars(cause), **vars(error), "_plain": error})
    except Exception:  # noqa: BLE001 - the class is a user's, and need not be derivable
        return error
    made.__cause__ = cause
    return made


def _class_of_both(kind: type[Exception], cause: type[Exception]) -> type:
    members = {
        # Some classes show or pickle what their own constructors were given.
        "__str__": kind.__str__,
        "__repr__": kind.__repr__,
        "__reduce__": lambda self: self._plain.__reduce__(),
        "__module__": kind.__module__,
    }
    return type(kind.__name__, (kind, cause), members)

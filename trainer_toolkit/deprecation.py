"""Names of ours that go in a later version: they work, and warn each line that uses them.

    @deprecated(since="1.2", gone_in="2.0", instead="Write `save_to_path(path)`.")
    def save(self, path): ...

    @deprecated_argument("timeout", becomes="timeout_s", since="1.2", gone_in="2.0")
    def wait(*, timeout_s=60.0): ...

What may go, and when: docs/stability.md. `tests/architecture/test_deprecations.py` reads these
decorators in the source and fails once a version has been reached that was to be without them.

Other names of settings, keys and options are no matter of this module: `trainer.old_names`.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from trainer_toolkit.class_names import without_locals

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_Decorator = Callable[[Callable[_Given, _Answer]], Callable[_Given, _Answer]]


class TrainerDeprecationWarning(FutureWarning):
    """A name of local-trainer goes in a later version; says which one, and what to write instead.

    A `FutureWarning`, which Python shows once for each line, wherever it is: who runs a script has
    to change it.
    """


def deprecated(*, since: str, gone_in: str, instead: str) -> _Decorator[_Given, _Answer]:
    """A function or method that works as before and warns its caller.

    Args:
        since: the version that deprecates it, such as "1.2".
        gone_in: the version that comes without it, such as "2.0".
        instead: a sentence that says what to write.
    """

    def decorate(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
        name = without_locals(function.__qualname__)
        warning = f"`{name}()` {_until(since, gone_in)} {instead}"

        @functools.wraps(function)
        def warned(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            _warn(warning)
            return function(*args, **kwargs)

        return warned

    return decorate


def deprecated_argument(
    old: str, *, since: str, gone_in: str, becomes: str = "", instead: str = ""
) -> _Decorator[_Given, _Answer]:
    """A function or method that takes an argument, by name, which its signature no longer has.

    Args:
        old: the name of the argument.
        since: the version that deprecates it.
        gone_in: the version that comes without it.
        becomes: the argument that gets its value; the value is ignored if empty.
        instead: a sentence that says what to write; by default, `becomes`.
    """
    advice = instead or f"Write `{becomes}=`."

    def decorate(function: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
        name = without_locals(function.__qualname__)
        warning = f"The argument `{old}` of `{name}()` {_until(since, gone_in)} {advice}"

        @functools.wraps(function)
        def warned(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            given: dict[str, Any] = kwargs
            if old in given:
                if becomes in given:
                    raise TypeError(
                        f"{name}() got both `{old}` and `{becomes}`, which are one argument: "
                        f"`{old}` is its former name. Leave `{old}` out."
                    )
                _warn(warning)
                value = given.pop(old)
                given |= {becomes: value} if becomes else {}
            return function(*args, **kwargs)

        return warned

    return decorate


def _warn(warning: str) -> None:
    """Warns the line that called what is deprecated; Python knows whether it was warned before."""
    frame, stacklevel = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename == __file__:  # decorators may be stacked
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(warning, TrainerDeprecationWarning, stacklevel=stacklevel)


def _until(since: str, gone_in: str) -> str:
    return f"is deprecated since local-trainer {since} and gone in {gone_in}."

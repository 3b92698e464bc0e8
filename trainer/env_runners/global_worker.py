"""The env runner of this process, for code that is not given one: envs, networks, old callbacks."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

from trainer.env_runners.env_runner import EnvRunner


class _Process:
    """The runners of this process; global because it is asked from anywhere.

    Attributes:
        runners: in the order in which they were made, without those that were stopped.
        at_work: those that are at work, the innermost last.
    """

    runners: tuple[weakref.ref[EnvRunner], ...] = ()
    at_work: tuple[EnvRunner, ...] = ()


def get_global_worker() -> EnvRunner | None:
    """The env runner of this process; RLlib's name.

    In the main process there may be several, for training and for evaluation. In callbacks and envs
    it is the one that is at work; else the one that was made last and was not stopped.

    Returns:
        None where there is no runner.
    """
    if _Process.at_work:
        return _Process.at_work[-1]
    living = [runner for ref in _Process.runners if (runner := ref()) is not None]
    return living[-1] if living else None


@contextlib.contextmanager
def at_work(runner: EnvRunner) -> Iterator[None]:
    """In the block, this runner is the one of the process."""
    outside = _Process.at_work
    _Process.at_work = (*outside, runner)
    try:
        yield
    finally:
        _Process.at_work = outside


def note_made(runner: EnvRunner) -> None:
    """From now on it is the runner of this process, until another one is made or it is stopped."""
    note_stopped(runner)
    _Process.runners = (*_Process.runners, weakref.ref(runner))


def note_stopped(runner: EnvRunner) -> None:
    """It is a runner of this process no more."""
    _Process.runners = tuple(ref for ref in _Process.runners if ref() not in (None, runner))

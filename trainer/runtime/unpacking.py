"""No processes from processes without end.

A class or function of a module travels as the module's name, and the receiving process imports the
module. If that very import trains, the process starts processes of its own, which import it, too.
The program itself is safe from that (`process_start`): what it defines travels by value.
"""

from __future__ import annotations

from typing import Any

import cloudpickle

from trainer.errors import RunnerError


class _Process:
    """What this process is doing; global because a process is one thing."""

    is_unpacking = False


def unpack(packed: bytes) -> Any:
    """Unpickles what came from another process; the user's modules are imported by that."""
    _Process.is_unpacking = True
    try:
        return cloudpickle.loads(packed)
    finally:
        _Process.is_unpacking = False


def refuse_while_unpacking(what: str) -> None:
    """Raises a RunnerError while `unpack` runs.

    Args:
        what: the processes that were to be started.
    """
    if _Process.is_unpacking:
        raise RunnerError(
            f"{what} were to be started while one of your modules was imported by a process that "
            "needs a class or function of it; each would start further ones, without end. Build "
            'and train in a function, or under `if __name__ == "__main__":`, so that importing the '
            "module starts nothing; or run the module itself as the program."
        )

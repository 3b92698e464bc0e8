"""While `trainer` is imported: its siblings are ours, signals end the command line quietly.

And nothing is looked through for garbage.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# ---- garbage

FROZEN_BY_PYTHON = 1_000
"""Python 3.12 begins with some 400 frozen objects. A program that freezes has many thousands."""


@contextlib.contextmanager
def collections_paused() -> Iterator[None]:
    """Pauses garbage collection: what is imported stays, and looking at it takes time for nothing.

    A fifth of the processor time of the import, in every process that is started.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if (
            gc.get_freeze_count() <= FROZEN_BY_PYTHON
        ):  # else those that the program froze would thaw
            # Makes all objects old ones without a look at them.
            gc.freeze()
            gc.unfreeze()
        gc.enable()


# ---- interrupted import
#
# A signal while Python still imports this library for the command line: one line, and the exit code
# of later ones. Only the command line's: a program of the user's ends as always.

_STOPPED = 130
_MODULE = "trainer.cli"
_SCRIPT = "local-trainer"
_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


def end_quietly_while_importing() -> None:
    """Until `importing_is_over`, signals end the process, if it is one of the command line."""
    if not _is_command_line():
        return
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is default:  # what is ignored stays ignored
            signal.signal(number, _end)


def _is_command_line() -> bool:
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        return False  # a child of it, which has its words
    is_module = sys.argv[:1] == ["-m"] and _MODULE in sys.orig_argv
    is_script = bool(sys.argv) and Path(sys.argv[0]).name == _SCRIPT
    return is_module or is_script


def importing_is_over() -> None:
    """Signals do again what they do in Python."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is _end:
            signal.signal(number, default)


def _end(_: int, __: object) -> None:
    os.write(2, b"Stopped.\n")
    os._exit(_STOPPED)


# ---- sibling packages
#
# Checks at import that `callbacks` and `checkpoints` are ours. Such names are common: a
# `callbacks.py` beside the user's script would be imported instead, and fail in ways that no user
# understands. So we look first, and say which file is in the way.

_SIBLINGS = ("callbacks", "checkpoints")

_OURS = frozenset(
    {
        "__init__",
        "actors",
        "agent_ids",
        "errors",
        "importing",
        "name_resolution",
        "old_names",
        "ray_adapter",
        "seeding",
        "spaces",
        "train",
        "types",
    }
)
"""The files of the package `trainer`."""


def check_siblings() -> None:
    """Raises ImportError if another module would be imported in place of one of our packages.

    Warns if another distribution has put files into this one.
    """
    _tell_foreign_files(Path(__file__).parent)
    for name in _SIBLINGS:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        # A marker file instead of the location: an editable install may keep the packages apart.
        if (
            found is None
            or not (found.parent / "py.typed").is_file()
            or found.name != "__init__.py"
        ):
            raise ImportError(
                f"local-trainer needs its own package {name!r}, but `import {name}` finds "
                f"{found or 'nothing'}, which is in the way. Rename that file (or start Python "
                "from another folder), or reinstall local-trainer if it is missing."
            )


def _tell_foreign_files(package: Path) -> None:
    """Warns if a distribution with a package of the same name was installed over this one.

    The package installed last has the `__init__.py`, so one of the two does not work.
    """
    try:
        names = [path.name for path in package.iterdir()]
    except OSError:  # in an archive
        return
    foreign = sorted(
        name for name in names if name.endswith(".py") and name.removesuffix(".py") not in _OURS
    )
    if foreign:
        warnings.warn(
            f"{package} also holds {', '.join(foreign)}, which is not of local-trainer: another "
            "distribution was installed over it, or it over another one, which does not work now. "
            "Give each a virtual environment of its own; or uninstall both, and install "
            "local-trainer again.",
            RuntimeWarning,
            stacklevel=3,
        )

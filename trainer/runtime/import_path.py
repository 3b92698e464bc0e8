"""Where worker processes import from: where the main process did, whatever the user's folder holds.

multiprocessing starts processes as `python -c …`, and such a Python looks into the current folder
before everything else: a `random.py` there would break it, a `trainer.py` would be taken for this
library. So a process starts with a path of its own choosing, imports us, and only then gets the
path of the main process, with which it finds the user's modules.

Python 3.10 always looks into the current folder. There it helps to preload nothing, and what still
fails is told with the file that is in the way (`describe_shadows`).
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import process
from pathlib import Path
from typing import Final

PATH_VARIABLES: Final = ("PYTHONPATH", "PYTHONSAFEPATH")
"""Environment variables that decide where a new Python imports from."""

_OUR_PACKAGES: Final = ("trainer", "callbacks", "checkpoints")
_LOOKS_INTO_CURRENT_FOLDER: Final = sys.version_info < (3, 11)
"""Whether `PYTHONSAFEPATH` is not known yet."""


@dataclass(frozen=True)
class ImportPath:
    """What a worker gets back once it has imported this library.

    Attributes:
        entries: of `sys.path`.
        variables: `PATH_VARIABLES` and their values; None where one is not set.
    """

    entries: tuple[str, ...]
    variables: dict[str, str | None]

    @classmethod
    def of_this_process(cls) -> ImportPath:
        """The path of this process, in a form that means the same in another one."""
        # multiprocessing's own rule for the entry '', the folder that is current at any moment.
        start = getattr(process, "ORIGINAL_DIR", None) or ""
        return cls(
            tuple(entry or start for entry in sys.path),
            {name: os.environ.get(name) for name in PATH_VARIABLES},
        )

    def take_over(self) -> None:
        """Makes this process import from here from now on."""
        sys.path[:] = self.entries
        set_variables(self.variables)


def set_variables(variables: Mapping[str, str | None]) -> None:
    """Sets environment variables; removes those that are None."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def path_for_starting(entries: Sequence[str]) -> list[str]:
    """The entries without those that would give another `trainer`, `callbacks` or `checkpoints`."""
    return [entry for entry in entries if not any(_hides(name, entry) for name in _OUR_PACKAGES)]


def variables_for_starting(entries: Sequence[str]) -> dict[str, str]:
    """Environment variables with which a new Python imports from these entries.

    Python's own library comes first: while a process starts, nothing may take its place.
    """
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own |= {str(Path(folder) / "lib-dynload") for folder in own}
    usable = [entry for entry in entries if entry and os.pathsep not in entry]
    ordered = sorted(usable, key=lambda entry: entry not in own)
    return {"PYTHONPATH": os.pathsep.join(ordered), "PYTHONSAFEPATH": "1"}


def may_preload() -> bool:
    """Whether a fork server would import what we import."""
    return next(_shadows(), None) is None


def describe_shadows() -> str:
    """A sentence on files of the current folder that hide modules from new processes, or ''."""
    found = sorted(_shadows())
    if not found:
        return ""
    names = ", ".join(map(repr, found[:5]))
    return (
        f" The current folder {str(Path.cwd())!r} holds {names}, of the same name as modules that "
        "a new process needs, which may be why. Rename them, or start Python from another folder."
    )


def _shadows() -> Iterator[str]:
    """File names in the current folder that hide modules which this process has from elsewhere."""
    if not _LOOKS_INTO_CURRENT_FOLDER:
        return
    try:
        entries = list(Path.cwd().iterdir())
    except OSError:  # the folder was removed
        return
    for entry in entries:
        name = entry.stem if entry.suffix == ".py" else entry.name
        module = sys.modules.get(name)
        origin = getattr(module, "__file__", None)
        if origin and name != "__main__" and _hides(name, str(entry.parent)):
            yield entry.name


def _hides(name: str, folder: str) -> bool:
    """Whether an import from the folder gives another module of that name than we have."""
    spec = importlib.machinery.PathFinder.find_spec(name, [folder])
    ours: str | None = getattr(sys.modules.get(name), "__file__", None)
    # A folder without __init__.py has no origin: it hides nothing.
    if spec is None or spec.origin is None or ours is None:
        return False
    return os.path.realpath(spec.origin) != os.path.realpath(ours)

"""The one door to packages that are not among the dependencies.

Everything else is imported at the top of a module. What only some users install is imported here,
when it is asked for.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def optional_module(name: str, *, user: str, extra: str) -> ModuleType:
    """An optional package, imported now.

    Errors name who needs it, and the extra of this distribution that installs it.

    Raises:
        ImportError: it is not installed, or cannot be imported; says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{user} needs the package `{name}`, which cannot be imported ({error}). It is not "
            f'among the dependencies; install it with `pip install "local-trainer[{extra}]"`, or '
            f"leave {user} out.",
            name=name,
        ) from error

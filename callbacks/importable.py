"""Whether another process can import a module by its name."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

_LOADED_IN_WORKERS: Final = frozenset(
    {"callbacks", "checkpoints", "trainer", "cloudpickle", "gymnasium", "numpy"}
)
"""Every worker process has imported these before it unpacks anything."""


def module_not_importable(name: str) -> ModuleType | None:
    """The loaded module `name` if its own source file cannot be found under its name, else None.

    A file loaded by its path (by a test runner, a notebook, `importlib.util`) is in `sys.modules`
    under a name that means nothing in another process. Modules without a Python source file are
    never reported: built-in and compiled modules cannot travel by value, and cloudpickle knows what
    to do with the rest.

    Args:
        name: The dotted name of a module. `__main__` is never reported: cloudpickle handles it;
            nor is what every worker process has loaded, even where a file of the user hides it.
    """
    module = sys.modules.get(name)
    if name == "__main__" or name.partition(".")[0] in _LOADED_IN_WORKERS:
        return None
    if not isinstance(module, ModuleType):
        return None
    source = getattr(module, "__file__", None)
    if not isinstance(source, str) or not source.endswith(".py"):
        return None
    spec = _found_anew(name)
    if spec is None or spec.origin is None:
        return module
    # Parts of the standard library are frozen into Python and have a source file besides.
    if not spec.has_location or _same_file(spec.origin, source):
        return None
    return module


def _found_anew(name: str) -> ModuleSpec | None:
    """What the import system finds under a name, whatever is loaded already."""
    parent, _, _ = name.rpartition(".")
    path = None
    if parent:
        parent_spec = _found_anew(parent)
        if parent_spec is None or parent_spec.submodule_search_locations is None:
            return None
        path = parent_spec.submodule_search_locations
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(name, path) if find_spec is not None else None
        if isinstance(spec, ModuleSpec):
            return spec
    return None


def _same_file(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()

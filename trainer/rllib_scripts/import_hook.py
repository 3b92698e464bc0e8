"""Answers `import ray` with this library, in a process that was asked to and in those it starts.

    with ray_answered():
        ...                     # `from ray.rllib.algorithms.ppo import PPOConfig` gives ours

The table is `trainer.rllib_scripts.names_of_ray`. Ray itself is never imported; of an installed one
the files of `ray.rllib.examples` are taken, which are run like any file of the user's. Env runners,
trials and actors are told by an environment variable, so that they find what the user's own modules
import.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from trainer.name_resolution import PROGRAM, imported, imported_module
from trainer.old_names import ANSWERS_RAY
from trainer.rllib_scripts.names_of_ray import (
    RAY,
    Home,
    home,
    home_of_module,
    is_example,
    public_names,
)
from trainer.rllib_scripts.names_of_ray import modules as modules_of_ray


class NotHereError(ImportError):
    """A script imports or uses a name of Ray that is not here."""


def told(what: str, found: Home) -> str:
    """An error of the hook, as text."""
    return (
        f"`{what}` is not here: {found.sentence} All that a script needs is told by "
        "`local-trainer rllib-check SCRIPT.py`."
    )


class _Answer(ModuleType):
    """A module of Ray as this library answers it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "Answered by local-trainer.")
        places = modules_of_ray().get(name, {})
        names = {key for key in places if key[0] not in "*?"}
        for key in places:
            names |= public_names(key[1:]) if key[0] == "*" else set()
        self.__all__ = sorted(names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        dotted = f"{self.__name__}.{name}"
        found = home(self.__name__, name)
        if not found.is_here:
            raise NotHereError(told(dotted, found))
        look_up = imported if ":" in found.place else imported_module
        value = look_up(found.place or dotted, source=PROGRAM, place=dotted)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> Any:
        return _answer, (self.__name__,)


def _answer(name: str) -> ModuleType:
    """The answer in another process."""
    module: ModuleType = sys.modules.get(name) or _Answer(name)
    return module


class RayFinder(MetaPathFinder, Loader):
    """Finds `ray` and what is in it: here, or among the files of an installed one's examples."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module of Ray; None for all others.

        Raises:
            NotHereError: it is a module of Ray that is not here; says what to write instead.
        """
        del path, target
        if fullname.partition(".")[0] != RAY:
            return None
        spec = find_example(fullname) if is_example(fullname) else None
        if spec is not None:
            return spec
        found = home_of_module(fullname)
        if not found.is_here:
            raise NotHereError(told(fullname, found), name=fullname)
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An answering module."""
        return _Answer(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are looked up when they are asked for."""


def find_example(name: str) -> ModuleSpec | None:
    """The file of a module of RLlib's examples in an installed Ray, which is not imported."""
    spec: ModuleSpec | None = PathFinder.find_spec(RAY, sys.path)
    for part in name.split(".")[1:]:
        folders = None if spec is None else spec.submodule_search_locations
        if not folders:
            return None
        spec = PathFinder.find_spec(part, list(folders))
    if spec is None or spec.origin is None:
        return None
    loader = importlib.machinery.SourceFileLoader(name, spec.origin)
    found = ModuleSpec(
        name,
        loader,
        origin=spec.origin,
        is_package=bool(spec.loader and spec.submodule_search_locations),
    )
    found.has_location = True
    found.submodule_search_locations = spec.submodule_search_locations
    return found


@contextlib.contextmanager
def ray_answered() -> Iterator[None]:
    """Answers `import ray` inside the block, and in processes that are started there.

    Raises:
        NotHereError: Ray itself has been imported already.
    """
    if RAY in sys.modules:
        raise NotHereError("Ray was imported before, so nothing can be answered in its place.")
    before = os.environ.get(ANSWERS_RAY)
    finder = RayFinder()
    os.environ[ANSWERS_RAY] = "1"
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == RAY]:
            del sys.modules[name]
        os.environ.pop(ANSWERS_RAY)
        if before is not None:
            os.environ[ANSWERS_RAY] = before


def answer_ray() -> None:
    """Answers `import ray` from now on, in a process that a script started under the hook."""
    if not any(isinstance(each, RayFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, RayFinder())

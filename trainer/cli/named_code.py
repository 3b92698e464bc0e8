"""What the user names on the command line: configs, callbacks, and the folder they are found in.

A name that the user types may be imported; a name that stands in a file of plain data may not.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import callbacks
from trainer.config import AlgorithmConfig
from trainer.errors import ConfigError
from trainer.name_resolution import PROGRAM
from trainer.name_resolution import imported as imported_from
from trainer_toolkit.nearest_names import did_you_mean


def import_from_here() -> None:
    """Lets modules in the current folder be imported, as `python -m` does.

    Behind everything else: no file of the user's takes the place of a module of a library.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def imported(name: str, *, option: str) -> Any:
    """What a typed `package.module:name` or `package.module.name` leads to.

    A ConfigError, which names the option, if it leads to nothing.
    """
    import_from_here()
    if not name.strip(".:") or not {".", ":"} & set(name):
        meant = did_you_mean(name, callbacks.__all__) if option == "--callbacks" else ""
        raise ConfigError(
            f"{option} {name}: expected a name and the module that it is in.{meant} Give "
            "package.module:name; modules are looked for in the current folder, too."
        )
    try:
        return imported_from(name, source=PROGRAM, place=option)
    except ImportError as error:
        raise ConfigError(
            f"{option} {name}: {error}. Give package.module:name; modules are looked for in the "
            "current folder, too."
        ) from error


def named_callbacks(names: Sequence[str]) -> list[Any]:
    """The callback classes that the user names: of the package `callbacks`, or by their module.

    Raises:
        ConfigError: a name leads to nothing.
    """
    return [
        imported(f"callbacks.{name}" if name in callbacks.__all__ else name, option="--callbacks")
        for name in names
    ]


def config_of(found: Any, *, name: str) -> AlgorithmConfig:
    """A config, or what a function that makes one returns; a ConfigError if it is neither."""
    config = found() if callable(found) else found
    if not isinstance(config, AlgorithmConfig):
        raise ConfigError(
            f"--config {name} gave a {type(config).__name__}; expected a config, such as "
            "PPOConfig().environment(…)."
        )
    return config


def executed(path: Path, name: str) -> ModuleType:
    """The module of a Python file; its folder is where it imports from."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"{name}: there is no such file. Give the path of a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module

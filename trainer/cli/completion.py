"""`local-trainer completion SHELL`: a script that completes words behind Tab.

The script stands alone: a shell that completes starts no Python, and needs no `shtab`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

import callbacks
from callbacks import RLlibCallback
from callbacks.optional_import import optional_module
from trainer.algorithms.building import algorithm_names
from trainer.cli.output import missing_extras_explained, print_text
from trainer.config.recipes import recipes

SHELLS: Final = ("bash", "zsh", "fish")
_FOLDERS_OF_RUNS: Final = {
    # Before anything is typed also what is in `runs`, where `train` begins runs. By "_dirs" in the
    # name `shtab` knows that a slash goes behind it, and no blank.
    "bash": "_local_trainer_dirs",
    "zsh": "_files -/",
    "fish": "(__fish_complete_directories)",
    "preamble": {
        "bash": '_local_trainer_dirs() { compgen -d -- "$1"; [ -n "$1" ] || compgen -d -- runs/; }'
    },
}


def completion(arguments: argparse.Namespace) -> int:
    """Prints the script for a shell."""
    with missing_extras_explained():
        shtab = optional_module("shtab", user="local-trainer completion", extra="completion")
    offered = _offered(shtab.FILE)
    for parser in arguments.parsers.values():
        for action in parser.declared:
            _offer(action, offered)
    print_text(shtab.complete(arguments.program, shell=arguments.shell))
    return 0


def _offered(file: Any) -> dict[str, Any]:
    """What can stand at an argument: words, or what `shtab` completes by."""
    known = recipes()
    names = sorted({recipe.name for recipe in known})
    classes = [each for each in vars(callbacks).values() if isinstance(each, type)]
    ready_made = {each.__name__ for each in classes if issubclass(each, RLlibCallback)}
    return {
        "--algo": algorithm_names(),
        "--callbacks": sorted(ready_made & set(callbacks.__all__)),
        "--config": file,
        "--env": sorted({env for recipe in known for env in recipe.measured}),
        "--recipe": [*names, "none"],
        "-o": file,
        "FILE.crash": file,
        "SCRIPT.py": file,
        "file": file,
        "name": names,
        "trainable": algorithm_names(),
    }


def _offer(action: argparse.Action, offered: Mapping[str, Any]) -> None:
    """Tells `shtab` what to complete an argument by."""
    name = action.option_strings[0] if action.option_strings else action.metavar or action.dest
    found = offered.get(str(name))
    if isinstance(found, list):
        action.choices = found
    elif found is not None:
        vars(action)["complete"] = found
    elif getattr(action.type, "__name__", "") == "place":
        vars(action)["complete"] = _FOLDERS_OF_RUNS

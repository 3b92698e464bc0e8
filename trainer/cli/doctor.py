"""`local-trainer doctor`: what is installed here, and whether a runner process works."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final

import numpy as np

import callbacks
from trainer.algorithms.building import make_engine
from trainer.algorithms.ppo import PPOConfig
from trainer.blas import blas_core
from trainer.cli.output import print_json, print_text
from trainer.nn import kernels
from trainer.runtime.threads import blas_threads

_PACKAGE: Final = "local-trainer"
_REQUIREMENT: Final = re.compile(r"([\w.-]+)[^;]*(?:;.*extra == ['\"]([\w-]+)['\"])?")
_OF_DEVELOPERS: Final = frozenset({"test", "types", "docs", "bench", "notebooks", "tables"})
_GIGABYTE: Final = 2**30
_PACKAGES: Final = ("trainer", "callbacks", "checkpoints", "trainer_toolkit")
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where Linux keeps it, no file of ours
_ENOUGH_SHARED_MEMORY: Final = 2**27
"""Twice what a container has by default."""


def doctor(arguments: argparse.Namespace) -> int:
    """Says what a report of a problem needs; 1 if a runner process cannot train here."""
    facts = {**_machine(), **_folders(), **_packages(), "runner process": _tried()}
    works = facts["runner process"]["works"]
    if arguments.json:
        print_json(facts)
        return 0 if works else 1
    for name, fact in facts.items():
        if name != "extras" and name != "runner process":
            print_text(f"{name:<16}{fact}")
    _show_extras(facts["extras"])
    print_text(f"{'runner process':<16}{facts['runner process']['told']}")
    return 0 if works else 1


def _show_extras(extras: Mapping[str, Mapping[str, str | None]]) -> None:
    missing = [extra for extra, packages in extras.items() if not all(packages.values())]
    found = [
        f"[{extra}] {', '.join(f'{name} {has}' for name, has in packages.items())}"
        for extra, packages in extras.items()
        if extra not in missing
    ]
    for number, line in enumerate(found):
        print_text(f"{'' if number else 'extras':<16}{line}")
    if missing:
        print_text(f"{'not installed':<16}{' '.join(f'[{extra}]' for extra in missing)}")
        print_text(f'{"":<16}such as: pip install "{_PACKAGE}[{missing[0]}]"')


def _machine() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "version": version(_PACKAGE),
        "python": f"{platform.python_version()} ({sys.implementation.name})",
        "system": platform.platform(),
        "cores": cores,
        "memory": _memory(),
        "blas": _blas(),
        "kernels": f"NumPy computes: {why}" if (why := kernels.why_not()) else "in C",
    }


def _blas() -> str:
    """What multiplies matrices, by instructions of which processor: that decides the last bits."""
    build = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    told = [f"{build.get('name', 'unknown')} {build.get('version', '')}"]
    if core := blas_core():
        pinned = " by OPENBLAS_CORETYPE" if os.environ.get("OPENBLAS_CORETYPE") else ""
        told.append(f"for {core}{pinned}")
    threads = blas_threads()
    told.append(f"{threads} threads" if threads else "whose threads are not ours to limit")
    return ", ".join(told)


def _memory() -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "unknown"
    return f"{pages * size / _GIGABYTE:.1f} GB"


def _folders() -> dict[str, Any]:
    """Where things are and go, and whether there is room."""
    facts = {
        "imported from": str(Path(callbacks.__file__).parents[1]),
        "runs go to": f"{Path('runs').absolute()}, {_room(Path.cwd())}",
        "temporary files": f"{tempfile.gettempdir()}, {_room(Path(tempfile.gettempdir()))}",
    }
    if in_the_way := _in_the_way(Path.cwd()):
        facts["in the way"] = (
            f"{', '.join(in_the_way)} in this folder: a script here imports it in place of ours. "
            "Rename it"
        )
    if _SHARED_MEMORY.is_dir():  # Linux
        is_small = shutil.disk_usage(_SHARED_MEMORY).free < _ENOUGH_SHARED_MEMORY
        advice = "; small: docker run --shm-size=1g" if is_small else ""
        facts["shared memory"] = f"{_SHARED_MEMORY}, {_room(_SHARED_MEMORY)}{advice}"
    return facts


def _room(folder: Path) -> str:
    told = f"{shutil.disk_usage(folder).free / _GIGABYTE:.1f} GB free"
    return told if os.access(folder, os.W_OK) else f"{told}, but it cannot be written"


def _in_the_way(folder: Path) -> list[str]:
    """Files and packages of a folder that have the names of our packages, and are not ours."""
    ours = Path(callbacks.__file__).resolve().parents[1]
    if folder.resolve() == ours:
        return []
    names = [name for package in _PACKAGES for name in (f"{package}.py", f"{package}/__init__.py")]
    return [name.removesuffix("/__init__.py") for name in names if (folder / name).is_file()]


def _packages() -> dict[str, Any]:
    """Versions of the core's packages; of each extra those of its own."""
    core: list[str] = []
    extras: dict[str, dict[str, str | None]] = {}
    for requirement in requires(_PACKAGE) or ():
        match = _REQUIREMENT.match(requirement)
        if match is None:
            continue
        name, extra = match.groups()
        if extra is None:
            core.append(f"{name} {_version(name)}")
        elif extra not in _OF_DEVELOPERS:
            extras.setdefault(extra, {})[name] = _version(name)
    return {"packages": ", ".join(sorted(core)), "extras": extras}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _tried() -> dict[str, Any]:
    """Trains once with a runner in a process of its own."""
    begun = time.perf_counter()
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=1)
        .training(train_batch_size=200, minibatch_size=100, num_epochs=1)
    )
    try:
        with config.build_algo() as algo:
            algo.train()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was asked
        return {"works": False, "told": f"{type(error).__name__}: {error}"}
    took_s, how = time.perf_counter() - begun, getattr(make_engine(config), "start_method", "")
    return {"works": True, "told": f"started by {how}, played 200 steps, ended in {took_s:.1f} s"}

"""What a machine computes with: versions and the kind of its CPU, for comparisons of results.

The same program gives the same bytes on two machines if both have the same versions of what
computes, and their CPUs make numeric libraries choose the same kernels.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import platform
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COMPARED: Final = ("numpy", "gymnasium", "local-trainer")
_CPU_FILE: Final = Path("/proc/cpuinfo")
_FEATURE_MODULES: Final = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")


@dataclass(frozen=True)
class MachineFacts:
    """What one machine computes with.

    Attributes:
        host: its name.
        versions: name and version of Python and of the packages that results depend on.
        cpu: its model and a digest of the features that NumPy uses; equal for CPUs on which the
            same kernels run.
    """

    host: str
    versions: tuple[tuple[str, str], ...]
    cpu: str

    def differences(self, other: MachineFacts) -> list[str]:
        """What has other versions there, each as "numpy 1.26.4, there 2.1.0"."""
        there = dict(other.versions)
        return [
            f"{name} {version}, there {there.get(name, 'none')}"
            for name, version in self.versions
            if there.get(name) != version
        ]


def cpu_kinds(machines: Iterable[MachineFacts]) -> dict[str, list[str]]:
    """The hosts of each kind of CPU, in the order in which they are first named."""
    kinds: dict[str, list[str]] = {}
    for machine in machines:
        hosts = kinds.setdefault(machine.cpu, [])
        if machine.host not in hosts:
            hosts.append(machine.host)
    return kinds


@functools.cache
def facts_of_this_machine() -> MachineFacts:
    """The facts of the machine that this process runs on."""
    versions = [("python", platform.python_version())]
    versions += [(name, installed_version(name) or "not installed") for name in _COMPARED]
    return MachineFacts(
        socket.gethostname(), tuple(versions), f"{_model()}, features {_features()}"
    )


@functools.cache  # each look reads a file, and a save takes several
def installed_version(distribution: str) -> str | None:
    """The version of a distribution; None if it is not installed, such as a source tree."""
    # Imported when it is needed: it imports 30 modules of Python's, those of e-mail among them.
    metadata = importlib.import_module("importlib.metadata")
    try:
        version: str = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
    return version


def _model() -> str:
    """The model of the CPU as its maker calls it, as far as the system tells."""
    try:
        lines = _CPU_FILE.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _features() -> str:
    """A digest of the features that NumPy found, which decide which of its kernels run."""
    for name in _FEATURE_MODULES:
        try:
            found = importlib.import_module(name).__cpu_features__
        except (ImportError, AttributeError):
            continue
        present = sorted(feature for feature, is_there in found.items() if is_there)
        return hashlib.sha256(" ".join(present).encode()).hexdigest()[:12]
    return "unknown"

"""What a timing must be read with: the machine, the versions, how busy it is."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

_DISTRIBUTIONS = (
    "local-trainer",
    "numpy",
    "gymnasium",
    "cloudpickle",
    "ormsgpack",
    "stable-baselines3",
    "torch",
    "ray",
)


def describe_machine() -> str:
    """Processor, cores, load, Python and the versions of everything that is measured."""
    load = os.getloadavg()[0]
    lines = [
        f"machine   {_processor()}, {os.cpu_count()} cores, load {load:.2f}"
        + (" (busy: do not trust these figures)" if load > 1.0 else ""),
        f"python    {platform.python_version()}, {platform.system()}",
    ]
    versions = [f"{name} {version}" for name in _DISTRIBUTIONS if (version := _version(name))]
    return "\n".join([*lines, f"versions  {', '.join(versions)}"])


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

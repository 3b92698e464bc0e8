"""Which versions wrote a checkpoint, which run here, and where they differ."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import numpy as np
import ormsgpack

from checkpoints.arguments import checked_arguments
from checkpoints.manifest import Manifest


def current_versions() -> dict[str, str]:
    """Return the versions that every checkpoint names: of `python`, `numpy` and `ormsgpack`."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ormsgpack": ormsgpack.__version__,
    }


@checked_arguments
def version_differences(
    manifest: Manifest, here: Mapping[str, str] | None = None, *, only_minor: bool = False
) -> list[str]:
    """Return what was written by other versions than those here: `numpy 1.26.4 (here 2.4.0)`.

    Args:
        manifest: says what wrote the checkpoint, in its versions and in its metadata.
        here: further versions of here, by their names in the metadata.
        only_minor: leave out those that differ in less than major and minor number.
    """
    written = {**manifest.metadata, **manifest.versions}
    found = []
    for name, version in {**current_versions(), **(here or {})}.items():
        before = written.get(name)
        if not isinstance(before, str) or before == version:
            continue
        if not only_minor or before.split(".")[:2] != version.split(".")[:2]:
            found.append(f"{name} {before} (here {version})")
    return found


def written_by_others(manifest: Manifest, here: Mapping[str, str] | None = None) -> str:
    """Return a sentence for error messages that names other versions, or nothing."""
    found = version_differences(manifest, here)
    return f" It was written by other versions: {', '.join(found)}." if found else ""

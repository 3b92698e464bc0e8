"""Checks at import that `trainer` is ours: seen from the packages that do not import it.

A `trainer.py` beside the user's script, or another distribution that installs a package `trainer`
over ours, would be imported in its place, and nothing of ours could say so. `trainer` itself checks
the two others (`trainer.importing`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

_MARK: Final = "from trainer.importing import check_siblings"
"""A line of our own `trainer/__init__.py`."""


def check_trainer() -> None:
    """Raises ImportError if `import trainer` finds something else than our package."""
    try:
        spec = importlib.util.find_spec("trainer")
    except ValueError:  # a module that was put together in memory
        return
    if spec is None or spec.origin is None:
        return  # this package works alone
    found = Path(spec.origin)
    try:
        is_ours = _MARK in found.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # in an archive
    if is_ours:
        return
    raise ImportError(
        f"local-trainer needs its own package 'trainer', but `import trainer` finds "
        f"{found.resolve()}, which is not of local-trainer. If it is a file of yours, rename it, "
        "or start Python from another folder. If another distribution has installed it over ours, "
        "uninstall that one, then reinstall local-trainer: pip install --force-reinstall "
        "--no-deps local-trainer; or give each a virtual environment of its own."
    )

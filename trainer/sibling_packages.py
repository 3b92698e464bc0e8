"""Checks at import that `callbacks` and `checkpoints` are ours.

Such names are common: a `callbacks.py` beside the user's script would be imported instead, and fail
in ways that nobody understands. So we look first, and say which file is in the way.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

_SIBLINGS = ("callbacks", "checkpoints")


def check_siblings() -> None:
    """Raises ImportError if another module would be imported in place of one of our packages."""
    for name in _SIBLINGS:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        # A marker file instead of the location: an editable install may keep the packages apart.
        if (
            found is None
            or not (found.parent / "py.typed").is_file()
            or found.name != "__init__.py"
        ):
            raise ImportError(
                f"local-trainer needs its own package {name!r}, but `import {name}` finds "
                f"{found or 'nothing'}, which is in the way. Rename that file (or start Python "
                "from another folder), or reinstall local-trainer if it is missing."
            )

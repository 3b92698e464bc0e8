"""Checks at import that `callbacks` and `checkpoints` are ours.

Such names are common: a `callbacks.py` beside the user's script would be imported instead, and fail
in ways that nobody understands. So we look first, and say which file is in the way.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

_SIBLINGS = ("callbacks", "checkpoints")

_OURS = frozenset(
    {
        "__init__",
        "actors",
        "agent_ids",
        "errors",
        "interrupted_import",
        "old_names",
        "ray_adapter",
        "seeding",
        "sibling_packages",
        "spaces",
        "train",
        "types",
    }
)
"""The files of the package `trainer`."""


def check_siblings() -> None:
    """Raises ImportError if another module would be imported in place of one of our packages.

    Warns if another distribution has put files into this one.
    """
    _tell_foreign_files(Path(__file__).parent)
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


def _tell_foreign_files(package: Path) -> None:
    """Warns if a distribution with a package of the same name was installed over this one.

    Whoever was installed last has the `__init__.py`, so one of the two does not work.
    """
    try:
        names = [path.name for path in package.iterdir()]
    except OSError:  # in an archive
        return
    foreign = sorted(
        name for name in names if name.endswith(".py") and name.removesuffix(".py") not in _OURS
    )
    if foreign:
        warnings.warn(
            f"{package} also holds {', '.join(foreign)}, which is not of local-trainer: another "
            "distribution was installed over it, or it over another one, which does not work now. "
            "Give each a virtual environment of its own; or uninstall both, and install "
            "local-trainer again.",
            RuntimeWarning,
            stacklevel=3,
        )

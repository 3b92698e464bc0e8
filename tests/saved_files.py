"""Where the files of a saved checkpoint are."""

from __future__ import annotations

import json
import os
from pathlib import Path


def files_of(checkpoint: str | os.PathLike[str]) -> Path:
    """The folder that the manifest names."""
    path = Path(checkpoint)
    folder: str = json.loads((path / "manifest.json").read_text())["folder"]
    return path / folder

"""Where the files of a saved checkpoint are."""

import json
from pathlib import Path


def files_of(checkpoint):
    """The folder that the manifest names."""
    path = Path(checkpoint)
    folder = json.loads((path / "manifest.json").read_text())["folder"]
    return path / folder

"""Prints the lowest versions of the dependencies that the package states: `name==version`.

`make test-matrix` installs them over a fresh environment, and runs the default tests.
"""

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest_versions():
    """The dependencies, each with the version behind its `>=`."""
    text = PROJECT.read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[(.*?)^\]", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r'"([\w-]+)>=([\d.]+)"', block[1] if block else "")
    return [f"{name}=={version}" for name, version in found]


if __name__ == "__main__":
    print("\n".join(lowest_versions()))

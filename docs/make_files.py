"""Writes docs/files.md: what each file of the four packages holds, in its own words.

    python docs/make_files.py            writes the page
    python docs/make_files.py --check    exit code 1 if the page is out of date; writes nothing

Nothing about a file is written here: its line is the first one of its docstring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from made_page import write_or_check

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = Path(__file__).with_name("files.md")
PACKAGES: Final = ("trainer", "callbacks", "checkpoints", "trainer_toolkit")

_INTRODUCTION: Final = """\
# What is in which file

This page is made by `docs/make_files.py` from the first line of each file; do not edit it by hand.
[architecture.md](architecture.md) says how the rooms work together.
"""


def page() -> str:
    """The page: a table for each room."""
    return _INTRODUCTION + "".join(_room(folder) for folder in _rooms())


def _rooms() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("__init__.py")):
            yield path.parent


def _room(folder: Path) -> str:
    lines = [f"\n## `{_named(folder)}/`\n\n{_first_line(folder / '__init__.py')}\n"]
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    if files:
        lines.append("\n| file | what is in it |\n| --- | --- |\n")
        lines += [f"| `{_named(path)}` | {_first_line(path)} |\n" for path in files]
    return "".join(lines)


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:  # not parsed: of 200 files that takes a second
        docstring = next((line for line in lines if line.startswith('"""')), "")
    return docstring.strip().strip('"').replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    return write_or_check(PAGE, page, arguments, script="make_files.py")


if __name__ == "__main__":
    raise SystemExit(main())

"""The command line that all scripts have in common which write a page of these docs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def write_or_check(
    page: Path, text: Callable[[], str], arguments: Sequence[str] | None, *, script: str
) -> int:
    """Writes a page, or says whether it is up to date with `--check`; returns the exit code.

    Args:
        page: the file.
        text: makes what it has to hold.
        arguments: of the command line; None takes those of this process.
        script: the file in docs/ that makes the page.
    """
    parser = argparse.ArgumentParser(description=f"Writes docs/{page.name}.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    is_to_be_checked = parser.parse_args(arguments).check
    wanted = text()
    if not is_to_be_checked:
        page.write_text(wanted, encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write(f"{page.name} is out of date. Run: python docs/{script}\n")
    return 1
